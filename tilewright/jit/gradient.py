"""Derivatives of Python functions over trees: `grad`, `value_and_grad`, `vjp`.

The function runs once on stand-ins for what is differentiated, so that a derivative counts the ways
through the argument and no others (a captured tensor stays a constant, be it the very tensor
that is passed). The graph it builds is differentiated by `transforms.vjp`. Without `jit` nothing is
computed that nobody asks for, and values may decide which way the function takes; reading a
value inside the function (``item``, ``numpy``) is a constant for the derivative.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from tilewright.array.build import KNOWN, scalar
from tilewright.array.convert import asarray
from tilewright.array.tensor import Tensor, tracing
from tilewright.array.tensor import realize as realize_tensors
from tilewright.dtypes import float64
from tilewright.errors import GradientError
from tilewright.graph import Node
from tilewright.jit.code import user_frame
from tilewright.jit.graphs import substitute
from tilewright.jit.structure import Structure, flatten, paths, unflatten
from tilewright.jit.trace import Trace, hole
from tilewright.runtime.storage import Storage
from tilewright.transforms import vjp as differentiate


class _StandIns:
    """What a function is differentiated with respect to; in `tracing` while the function runs.

    At the outermost level the stand-ins know their values; inside another trace they stand for
    nodes of it, which replace them in every result.
    """

    def __init__(self) -> None:
        self.parent = tracing.get()
        above = self.parent
        while isinstance(above, _StandIns):
            above = above.parent
        self.trace: Trace | None = above
        self.nodes: list[Node] = []
        self.replaced: dict[Node, Node] = {}

    def make(self, leaf: Any, label: str, name: str) -> Tensor:
        """Return the stand-in of one leaf; raises GradientError unless it is floating-point."""
        if type(leaf) is float:
            origin = Tensor(scalar(leaf, float64), weak=True)
        elif isinstance(leaf, (Tensor, np.ndarray, np.generic)):
            origin = asarray(leaf)
        else:
            raise GradientError(f"{name}: cannot differentiate with respect to {label} (a "
                                f"{type(leaf).__name__}; needs floating-point tensors or floats)")
        if not origin.dtype.is_float:
            raise GradientError(f"{name}: cannot differentiate with respect to {label} "
                                f"({origin.dtype}{list(origin.shape)} is not floating-point)")
        node = hole(origin.shape, origin.dtype)
        if self.parent is None:
            realize_tensors([origin])
            node.memo[KNOWN] = origin._node
        else:
            self.replaced[node] = origin._node
            if self.trace is not None:
                self.trace.adopt(node, origin._node)
        self.nodes.append(node)
        return Tensor(node, origin._weak)

    def close(self, nodes: Sequence[Node]) -> list[Node]:
        """Return `nodes` in terms of what the stand-ins stand for."""
        return substitute(nodes, self.replaced) if self.replaced else list(nodes)

    def storage(self, tensor: Tensor) -> Storage:
        """Return the values of a tensor without dropping the graph behind it."""
        if tensor._weak and tensor.dtype.is_float and _asked_by(Tensor.__float__):
            raise GradientError(
                "grad: cannot turn a number that is differentiated into a Python float in "
                f"{user_frame(sys._getframe())} (its derivative would be lost; use tilewright's "
                "functions, not those of math)")
        token = tracing.set(self.parent)
        try:
            return Tensor(self.close([tensor._node])[0], tensor._weak)._storage()
        finally:
            tracing.reset(token)

    def realize(self, tensors: Iterable[Tensor]) -> None:
        """Compute values; the handles keep their graphs."""
        for tensor in tensors:
            self.storage(tensor)


def _asked_by(method: Callable) -> bool:
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None and depth < 8:
        if frame.f_code is method.__code__:
            return True
        frame, depth = frame.f_back, depth + 1
    return False


class _Run:
    """One run of a function on stand-ins for the leaves of its arguments number `chosen`."""

    def __init__(self, name: str, function: Callable, args: tuple, kwargs: dict,
                 chosen: Sequence[int]):
        self.name, self.stand_ins = name, _StandIns()
        given = list(args)
        self.structures: list[Structure] = []
        self.present: list[list[Tensor | None]] = []
        writable: list[tuple[Tensor, Tensor, Node]] = []
        for number in chosen:
            leaves, structure = flatten(args[number])
            made = [None if leaf is None else
                    self.stand_ins.make(leaf, f"argument {number}{path}", name)
                    for leaf, path in zip(leaves, paths(structure))]
            writable += [(leaf, t, t._node) for leaf, t in zip(leaves, made)
                         if isinstance(leaf, Tensor) and t is not None]
            given[number] = unflatten(structure, made)
            self.structures.append(structure)
            self.present.append([None if t is None else Tensor(t._node, t._weak) for t in made])
        token = tracing.set(self.stand_ins)
        try:
            self.result = function(*given, **kwargs)
        finally:
            tracing.reset(token)
        for leaf, made_tensor, node in writable:  # what the function wrote, the caller sees
            if made_tensor._node is not node:
                leaf._node = self.stand_ins.close([made_tensor._node])[0]

    def tree(self, value: Any) -> Any:
        """Return a result with its tensors in terms of what the stand-ins stand for."""
        leaves, structure = flatten(value)
        tensors = [v for v in leaves if isinstance(v, Tensor)]
        closed = iter(self.stand_ins.close([t._node for t in tensors]))
        return unflatten(structure, [Tensor(next(closed), v._weak) if isinstance(v, Tensor) else v
                                     for v in leaves])

    def pull(self, outputs: Sequence[Node], cotangents: Sequence[Node]) -> list[Any]:
        """Return, per chosen argument, the tree of its derivatives; None stays None."""
        nodes = self.stand_ins.nodes
        found = iter(self.stand_ins.close(differentiate(outputs, nodes, cotangents)))
        return [unflatten(structure, [None if t is None else Tensor(next(found), t._weak)
                                      for t in present])
                for structure, present in zip(self.structures, self.present)]


def _chosen(name: str, argnums: int | Sequence[int], count: int) -> list[int]:
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise GradientError(f"{name}: cannot differentiate with respect to argument {number} "
                                f"(the call has {count} positional arguments)")
    return [number % count for number in numbers]


def _scalar(name: str, value: Any) -> Node:
    if not isinstance(value, (Tensor, float, np.generic)):
        raise GradientError(f"{name}: cannot differentiate a result of type {type(value).__name__} "
                            "(needs one floating-point number, shape ())")
    tensor = asarray(value)
    if tensor.shape != () or not tensor.dtype.is_float:
        raise GradientError(f"{name}: cannot differentiate a result {tensor.dtype}"
                            f"{list(tensor.shape)} (needs one floating-point number, shape (); "
                            "sum it, or use vjp)")
    return tensor._node


def value_and_grad(function: Callable, argnums: int | Sequence[int] = 0,
                   has_aux: bool = False) -> Callable:
    """Return a function that gives `function`'s value and its gradient.

    The gradient has the tree of argument number `argnums` (a tuple of trees for a sequence of
    numbers), each leaf of the shape and dtype of its argument. The function returns one real
    number of shape (); with `has_aux`, a pair of it and any tree, and then the value is that pair.
    Positional arguments that are differentiated hold floating-point tensors, NumPy arrays, floats
    or None. Raises GradientError otherwise, or where an operation on the way has no gradient.

    >>> import tilewright as tw
    >>> value, slope = tw.value_and_grad(lambda x: tw.sum(x * x))(tw.asarray([1.0, 2.0]))
    >>> value.item(), slope.tolist()
    (5.0, [2.0, 4.0])
    """
    return _gradient("value_and_grad", function, argnums, has_aux)


def grad(function: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """Return a function that gives the gradient of `function`; see `value_and_grad`.

    With `has_aux` it gives a pair of the gradient and the auxiliary tree.

    >>> import tilewright as tw
    >>> tw.grad(lambda x: x ** 3)(tw.asarray(2.0)).item()
    12.0
    """
    both = _gradient("grad", function, argnums, has_aux)

    @functools.wraps(function, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, slopes = both(*args, **kwargs)
        return (slopes, value[1]) if has_aux else slopes
    return gradient


def _gradient(name: str, function: Callable, argnums: int | Sequence[int],
              has_aux: bool) -> Callable:
    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        state = _Run(name, function, args, kwargs, _chosen(name, argnums, len(args)))
        value, aux = state.result, None
        if has_aux:
            if not (isinstance(value, tuple) and len(value) == 2):
                raise GradientError(f"{name}: cannot split a result of type {type(value).__name__} "
                                    "into value and auxiliary tree (needs a pair with has_aux)")
            value, aux = value
        node = _scalar(name, value)
        slopes = state.pull([node], [scalar(1, node.dtype)])
        found = Tensor(state.stand_ins.close([node])[0])
        return ((found, state.tree(aux)) if has_aux else found,
                slopes[0] if isinstance(argnums, int) else tuple(slopes))
    return run


def vjp(function: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """Return ``function(*primals)`` and its pullback (and the auxiliary tree, with `has_aux`).

    The pullback takes a tree like the result, of cotangents of the same shapes and dtypes, and
    gives a tuple with one tree per primal: the cotangents times the Jacobian. It may be called
    again.

    >>> import tilewright as tw
    >>> y, pullback = tw.vjp(lambda x: x * x, tw.asarray([1.0, 2.0]))
    >>> pullback(tw.asarray([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    state = _Run("vjp", function, primals, {}, range(len(primals)))
    result, aux = state.result if has_aux else (state.result, None)
    leaves, structure = flatten(result)
    for leaf, path in zip(leaves, paths(structure)):
        if not isinstance(leaf, (Tensor, float, np.ndarray, np.generic)) \
                or not asarray(leaf).dtype.is_float:
            raise GradientError(f"vjp: cannot differentiate result{path} (a {_describe(leaf)}; "
                                "needs floating-point tensors)")
    nodes = [asarray(leaf)._node for leaf in leaves]

    def pullback(cotangent: Any) -> tuple:
        given, form = flatten(cotangent)
        if form != structure:
            raise GradientError("vjp: cannot pull back a cotangent of another tree structure "
                                f"than the result's ({len(given)} leaves for {len(leaves)})")
        cotangents = [asarray(g, dtype=n.dtype)._node if isinstance(g, (int, float)) else
                      asarray(g)._node for g, n in zip(given, nodes)]
        return tuple(state.pull(nodes, cotangents))
    out = state.tree(result)
    return (out, pullback, state.tree(aux)) if has_aux else (out, pullback)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
