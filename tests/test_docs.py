"""The README and the pages under docs: their examples run, their links and paths exist."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tilewright

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
_PATH = re.compile(r"`((?:tilewright|bench|docs|examples|tests)/[\w./-]*)`")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _examples(page: Path) -> list[tuple[int, str]]:
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in _BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [p for p in PAGES if _examples(p)], ids=_name)
def test_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in _examples(page):
        exec(compile("\n" * line + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_and_paths_of_a_page_exist(page):
    text = page.read_text(encoding="utf-8")
    missing = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    absent = [p for p in _PATH.findall(text)
              if not (ROOT / p).exists() and p != "tilewright/actions/reverse.py"]
    assert not missing and not absent


def _modules() -> list[str]:
    found = pkgutil.walk_packages(tilewright.__path__, "tilewright.")
    return sorted(m.name for m in found if not m.name.endswith("__main__"))


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
