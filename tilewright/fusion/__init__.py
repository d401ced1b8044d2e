"""From a graph to kernels: what is computed together, and each kernel's stages."""

from tilewright.fusion.calls import HostCall, KernelCall, Operand
from tilewright.fusion.fuse import fuse

__all__ = ["HostCall", "KernelCall", "Operand", "fuse"]
