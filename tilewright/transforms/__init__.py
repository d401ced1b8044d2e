"""Transformations of graphs into graphs: reverse-mode differentiation."""

from tilewright.transforms.gradients import GRADIENTS
from tilewright.transforms.reverse import vjp

__all__ = ["GRADIENTS", "vjp"]
