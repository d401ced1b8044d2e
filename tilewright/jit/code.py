"""What a Python code object reads by name, and whose code it is."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LAYERS = os.path.join(_PACKAGE, "nn") + os.sep  # written like a user's code: it holds state
_LIBRARIES = tuple(
    {os.path.dirname(os.path.abspath(np.__file__)) + os.sep}
    | {os.path.join(os.path.realpath(sysconfig.get_path(p)), "") for p in ("stdlib", "platstdlib")}
    | {os.path.join(sysconfig.get_path(p), "") for p in ("stdlib", "platstdlib")})
_INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep)
_KNOWN_MODULES = frozenset(sys.stdlib_module_names) | {"numpy", "ml_dtypes", "tilewright"}
# variables and attributes whose use means that attributes may be read under names not spelled out
_REFLECTING_VARIABLES = frozenset({
    "getattr", "hasattr", "setattr", "delattr", "vars", "eval", "exec", "copy", "deepcopy",
    "dataclasses", "asdict", "astuple", "fields", "replace", "operator", "attrgetter"})
_REFLECTING_ATTRIBUTES = frozenset({"__dict__", "__getattribute__"})


@dataclass(frozen=True)
class Names:
    """Names that a code object reads or writes as globals and as attributes."""

    variables: frozenset[str]
    attributes: frozenset[str]
    stored: frozenset[str]
    modules: frozenset[str]

    @property
    def reflects(self) -> bool:
        """Whether attributes may be read by computed names."""
        return bool(_REFLECTING_VARIABLES & self.variables
                    or _REFLECTING_ATTRIBUTES & self.attributes)


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """Return the names that `code` uses; nested functions have code of their own."""
    variables: set[str] = set()
    attributes: set[str] = set()
    stored: set[str] = set()
    modules: set[str] = set()
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if not isinstance(value, str):
            continue
        if "GLOBAL" in name or name.endswith("_NAME"):
            (modules if name == "IMPORT_NAME" else variables).add(value)
        elif "ATTR" in name or "METHOD" in name or name == "IMPORT_FROM":
            attributes.add(value)
        if name.startswith(("STORE_ATTR", "STORE_GLOBAL", "DELETE_")):
            stored.add(value)
    return Names(frozenset(variables), frozenset(attributes), frozenset(stored),
                 frozenset(modules))


@lru_cache(maxsize=4096)
def is_library_file(filename: str) -> bool:
    """Tell whether a file belongs to Python, NumPy or this package: it reads no state of a user."""
    if filename.startswith(_PACKAGE):
        return not filename.startswith(_LAYERS)
    inside = next((p for p in _LIBRARIES if filename.startswith(p)), None)
    return inside is not None and ("numpy" in inside[-7:] or not any(
        part in filename[len(inside):] for part in _INSTALLED))


def is_library_module(name: object) -> bool:
    """Tell whether a module's name is of Python, NumPy or this package."""
    if not isinstance(name, str):
        return True
    return name.split(".")[0] in _KNOWN_MODULES and not name.startswith("tilewright.nn")


def is_opaque(value: Any) -> bool:
    """Tell whether attributes of `value` are not followed: it belongs to a library."""
    if isinstance(value, ModuleType):
        return is_library_module(value.__name__)
    if isinstance(value, type) or hasattr(value, "__code__"):
        return is_library_module(value.__module__)
    # an instance of a standard class may well hold a user's data; one of ours or NumPy's does not
    module = type(value).__module__
    package = module.split(".")[0]
    return is_library_module(module) and package in ("numpy", "ml_dtypes", "tilewright")


def is_library_frame(frame: FrameType) -> bool:
    """Tell whether a frame runs library code, also where the code was made from a string."""
    filename = frame.f_code.co_filename
    if not filename.startswith("<"):
        return is_library_file(filename)
    module = str(frame.f_globals.get("__name__"))
    return is_library_module(module) or module.startswith("namedtuple_")


def user_frame(frame: FrameType | None) -> str:
    """Return where the user's innermost code stands: ``function (file, line n)``."""
    while frame is not None and is_library_frame(frame):
        frame = frame.f_back
    if frame is None:
        return "an unknown place"
    file = os.path.basename(frame.f_code.co_filename)
    return f"{frame.f_code.co_name} ({file}, line {frame.f_lineno})"
