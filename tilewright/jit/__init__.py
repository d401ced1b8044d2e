"""Functions of trees: `jit` compiles; `grad`, `value_and_grad` and `vjp` differentiate."""

from tilewright.jit.function import Jit, jit
from tilewright.jit.gradient import grad, value_and_grad, vjp

__all__ = ["Jit", "grad", "jit", "value_and_grad", "vjp"]
