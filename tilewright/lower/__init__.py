"""Nests to Programs."""

from tilewright.lower.lower import Lowered, lower

__all__ = ["Lowered", "lower"]
