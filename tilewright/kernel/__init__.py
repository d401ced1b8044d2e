"""Kernels: what one fused kernel computes, as stages over named axes."""

from tilewright.kernel.kernel import Axis, Buffer, Kernel, Let, Stage, State, Store
from tilewright.kernel.value import Value

__all__ = ["Axis", "Buffer", "Kernel", "Let", "Stage", "State", "Store", "Value"]
