"""LLVM's spelling of types and constants.

Registers hold bool as ``i1`` and both 16-bit floats as ``i16``, which every target can move, select
and shuffle; arithmetic on those goes through float32. In memory bool is ``i8``.
"""

from __future__ import annotations

from tilewright.dtypes import ALL
from tilewright.program.ir import Type


def _scalar(dtype) -> str:
    if dtype.is_float and dtype.bits > 16:
        return "float" if dtype.bits == 32 else "double"
    return f"i{dtype.bits}"


REGISTER = {d.name: _scalar(d) for d in ALL}
MEMORY = {name: "i8" if text == "i1" else text for name, text in REGISTER.items()}
REGISTER["bool"] = "i1"
MEMORY["bool"] = "i8"


class _Spelling(dict):
    """(dtype name, lanes) -> text, filled on demand."""

    def __init__(self, scalars: dict[str, str]):
        super().__init__()
        self._scalars = scalars

    def __missing__(self, key: tuple[str, int]) -> str:
        name, lanes = key
        scalar = self._scalars[name]
        text = self[key] = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
        return text


register = _Spelling(REGISTER)
memory = _Spelling(MEMORY)


def text_of(type_: Type) -> str:
    """Return the spelling of a register of this type."""
    return register[type_.dtype.name, type_.lanes]


def suffix(text: str) -> str:
    """Return an intrinsic's suffix for a type's spelling: ``<8 x float>`` is ``v8f32``."""
    if text[0] == "<":
        lanes, _, scalar = text[1:-1].split()
        return f"v{lanes}{suffix(scalar)}"
    return {"float": "f32", "double": "f64", "ptr": "p0"}.get(text, text)


def _double_bits(bits: int) -> int:
    """Return the bits of the float64 equal to a float32, NaN payloads kept."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        exponent = 0x7FF
    elif exponent:
        exponent += 1023 - 127
    elif fraction:
        shift = 24 - fraction.bit_length()
        fraction = fraction << shift & 0x7FFFFF
        exponent = 1023 - 126 - shift
    return sign << 63 | exponent << 52 | fraction << 29


def constant(type_: Type, data: bytes) -> str:
    """Return a constant's text from the bytes of its element; every lane is equal."""
    dtype = type_.dtype
    bits = int.from_bytes(data, "little")
    if dtype.is_bool:
        scalar = "true" if bits else "false"
    elif dtype.is_float and dtype.bits > 16:
        scalar = f"0x{bits if dtype.bits == 64 else _double_bits(bits):016X}"
    else:
        scalar = str(bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits)
    if type_.lanes == 1:
        return scalar
    if not bits:
        return "zeroinitializer"
    return f"splat ({REGISTER[dtype.name]} {scalar})"
