"""The source's own rules: one direction of imports, one reader of the environment, sizes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright.errors

ROOT = Path(tilewright.errors.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))

# From the lowest layer to the highest. A module imports from its own row and the rows above it.
LAYERS = (
    ("errors", "version"), ("dtypes",), ("config", "limits"),
    ("index",), ("graph",), ("rewrite",), ("transforms",), ("kernel",), ("fusion",), ("program",),
    ("actions",), ("lower",), ("backends",), ("runtime",), ("worker",), ("search",), ("plan",),
    ("array",), ("random",), ("jit",), ("nn",), ("interop",), ("bench", "inspect"), ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# What a plain installation brings; anything else is an optional dependency.
REQUIRED = {"click", "llvmlite", "ml_dtypes", "numpy", "platformdirs", "rich"}

STANDARD = sys.stdlib_module_names
FILE_LINES, FUNCTION_LINES = 400, 50


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT.parent))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import statement with the dotted name of the module it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module == "tilewright":
                for alias in node.names:
                    yield node, f"tilewright.{alias.name}"
            else:
                yield node, module


def only_for_types(tree: ast.Module) -> set[ast.AST]:
    """Return what stands under ``if TYPE_CHECKING``."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.body:
                found.update(ast.walk(statement))
    return found


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: tree_of(path) for path in SOURCES}


def test_every_module_belongs_to_a_layer():
    unknown = {named(p) for p in SOURCES if layer(p) not in RANK} - {
        "tilewright/__init__.py", "tilewright/__main__.py"}
    assert not unknown


def test_imports_point_one_way(trees):
    wrong = []
    for path, tree in trees.items():
        rank = RANK.get(layer(path))
        if rank is None:
            continue
        skip = only_for_types(tree)
        for node, module in imports(tree):
            if node in skip or not module.startswith("tilewright"):
                continue
            _, _, rest = module.partition(".")
            target = RANK.get(rest.split(".")[0], RANK["cli"])  # the package itself is the top
            if target > rank:
                wrong.append(f"{named(path)}:{node.lineno} imports {module}")
    assert not wrong


def test_imports_are_absolute(trees):
    wrong = [f"{named(path)}:{node.lineno}" for path, tree in trees.items()
             for node, module in imports(tree) if module.startswith(".")]
    assert not wrong


def test_functions_import_only_optional_dependencies(trees):
    wrong = set()
    for path, tree in trees.items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for node, module in imports(function):
                    top = module.split(".")[0]
                    if top == "tilewright" or top in REQUIRED or top in STANDARD:
                        wrong.add(f"{named(path)}:{node.lineno} imports {module}")
    assert not sorted(wrong)


def test_index_knows_no_tensors(trees):
    wrong = [f"{named(path)} imports {module}" for path, tree in trees.items()
             if layer(path) == "index" for _, module in imports(tree)
             if module.split(".")[0] not in STANDARD
             and not module.startswith(("tilewright.index", "tilewright.errors"))]
    assert not wrong


def test_only_config_reads_the_environment(trees):
    wrong = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            reads = (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")) or (
                isinstance(node, ast.ImportFrom) and node.module == "os"
                and {a.name for a in node.names} & {"environ", "getenv"})
            if reads and path != ROOT / "config.py":
                wrong.append(f"{named(path)}:{node.lineno}")
    assert not wrong


def test_the_recursion_limit_is_left_alone(trees):
    wrong = [f"{named(path)}:{node.lineno}" for path, tree in trees.items()
             for node in ast.walk(tree)
             if isinstance(node, ast.Attribute) and node.attr == "setrecursionlimit"]
    assert not wrong


def test_files_and_functions_are_small(trees):
    wrong = []
    for path, tree in trees.items():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > FILE_LINES:
            wrong.append(f"{named(path)}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    wrong.append(f"{named(path)}:{node.lineno} {node.name}: {length} lines")
    assert not wrong


def test_every_module_says_what_it_is_for(trees):
    wrong = [named(path) for path, tree in trees.items()
             if tree.body and not ast.get_docstring(tree)]
    assert not wrong
