"""Functions of trees: `jit` compiles them, `grad`, `value_and_grad` and `vjp` differentiate them."""

from tilewright.jit.function import Jit, jit
from tilewright.jit.gradient import grad, value_and_grad, vjp

__all__ = ["Jit", "grad", "jit", "value_and_grad", "vjp"]
