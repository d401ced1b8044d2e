"""Optimisers as plain values with pure functions, over any tree of parameters.

    adam = Adam(learning_rate=1e-3)
    state = adam.init(parameters)
    parameters, state = adam.update(gradients, state, parameters)

The state is a tree of tensors too, so `update` works under `jit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

from tilewright.array import elementwise as e
from tilewright.array.convert import asarray
from tilewright.array.creation import full, zeros_like
from tilewright.array.tensor import Tensor
from tilewright.array.tree import flatten, map_tree, unflatten
from tilewright.dtypes import float32


@dataclass(frozen=True)
class SGD:
    """Gradient descent, with momentum (Nesterov's if asked) and weight decay."""

    learning_rate: float = 1e-2
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def init(self, parameters: Any) -> dict:
        """Return the first state: velocities, if there is momentum."""
        return {"velocity": map_tree(zeros_like, parameters) if self.momentum else None}

    def update(self, gradients: Any, state: dict, parameters: Any) -> tuple[Any, dict]:
        """Return the parameters after one step, and the next state."""
        if self.weight_decay:
            gradients = map_tree(lambda g, p: g + self.weight_decay * p, gradients, parameters)
        velocity, step = None, gradients
        if self.momentum:
            velocity = map_tree(lambda v, g: self.momentum * v + g, state["velocity"], gradients)
            step = map_tree(lambda v, g: g + self.momentum * v, velocity, gradients) \
                if self.nesterov else velocity
        moved = map_tree(lambda p, s: asarray(p) - self.learning_rate * s, parameters, step)
        return moved, {"velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015); `weight_decay` is added to the gradient."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def init(self, parameters: Any) -> dict:
        """Return the first state: a step count and two moments per parameter."""
        return {"step": full((), 0, dtype=float32), "mean": map_tree(zeros_like, parameters),
                "square": map_tree(zeros_like, parameters)}

    def update(self, gradients: Any, state: dict, parameters: Any) -> tuple[Any, dict]:
        """Return the parameters after one step, and the next state."""
        if self.weight_decay:
            gradients = map_tree(lambda g, p: g + self.weight_decay * p, gradients, parameters)
        return self._step(gradients, state, parameters, 0.0)

    def _step(self, gradients: Any, state: dict, parameters: Any, decay: float) -> tuple[Any, dict]:
        step = state["step"] + 1
        mean = map_tree(lambda m, g: self.beta1 * m + (1 - self.beta1) * g,
                        state["mean"], gradients)
        square = map_tree(lambda v, g: self.beta2 * v + (1 - self.beta2) * (g * g),
                          state["square"], gradients)
        # 1 - beta**step, without cancellation in float32
        rate = self.learning_rate / -e.expm1(step * log(self.beta1))
        spread = -e.expm1(step * log(self.beta2))

        def move(p: Tensor, m: Tensor, v: Tensor) -> Tensor:
            p = asarray(p)
            kept = p * (1 - self.learning_rate * decay) if decay else p
            change = rate * m / (e.sqrt(v / spread) + self.eps)
            return kept - change.astype(p.dtype)
        leaves, structure = flatten(parameters)
        moments = zip(flatten(mean)[0], flatten(square)[0])
        moved = unflatten(structure, [move(p, m, v) for p, (m, v) in zip(leaves, moments)])
        return moved, {"step": step, "mean": mean, "square": square}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = 1e-2

    def update(self, gradients: Any, state: dict, parameters: Any) -> tuple[Any, dict]:
        """Return the parameters after one step, and the next state."""
        return self._step(gradients, state, parameters, self.weight_decay)
