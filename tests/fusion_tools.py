"""Graphs for the tests of fusion and kernels, and a way to run fused calls in NumPy."""

from __future__ import annotations

import random
from math import prod

import numpy as np

from tilewright.dtypes import float16, float32, int32, int64
from tilewright.fusion import HostCall, KernelCall, fuse
from tilewright.graph import Node, apply, buffer, constant
from tilewright.graph.evaluate import evaluate as evaluate_graph
from tilewright.kernel.evaluate import evaluate as evaluate_kernel
from tilewright.kernel.verify import verify
from tilewright.limits import Limits

DEFAULT = Limits()


class Memory:
    """What a buffer leaf reads."""

    def __init__(self, array: np.ndarray):
        self.array = array


def leaf(*shape: int, dtype=float32, seed: int = 0) -> Node:
    """Return a buffer leaf with small values: exact in sums of floats."""
    rng = np.random.default_rng(seed)
    array = rng.integers(-3, 4, shape).astype(dtype.numpy)
    return buffer(Memory(array), shape, dtype)


def run(calls, source=lambda node: node.attrs.storage.array) -> dict[int, np.ndarray]:
    """Run fused calls with the NumPy evaluation of kernels; returns flat arrays by node id."""
    memory: dict[int, np.ndarray] = {}

    def read(node):
        if node.op.name in ("buffer", "parameter"):
            return source(node).reshape(-1)
        return memory[id(node)]

    for call in calls:
        if isinstance(call, HostCall):
            arrays = [read(i).reshape(i.shape) for i in call.node.inputs]
            memory[id(call.node)] = call.node.op.numpy(arrays, call.node.attrs).reshape(-1)
            continue
        assert isinstance(call, KernelCall)
        verify(call.kernel)
        inputs = {b.name: read(o.node)[o.offset:]
                  for b, o in zip(call.kernel.inputs, call.inputs, strict=True)}
        for b, o in zip(call.kernel.outputs, call.outputs, strict=True):
            if b.shape[0] != o.node.size:  # filled by several calls
                whole = memory.setdefault(id(o.node), np.empty(o.node.size, o.node.dtype.numpy))
                inputs[b.name] = whole[o.offset:o.offset + int(b.shape[0])]
        results = evaluate_kernel(call.kernel, inputs)
        for b, o in zip(call.kernel.outputs, call.outputs, strict=True):
            if b.name in inputs:
                memory[id(o.node)][o.offset:o.offset + int(b.shape[0])] = results[b.name]
            else:
                memory[id(o.node)] = results[b.name]
    return memory


def check(*outputs: Node, limits: Limits = DEFAULT, tolerance: float = 1e-5) -> list:
    """Assert that fused kernels give the graph's values; returns the calls."""
    calls = fuse(outputs, limits)
    memory = run(calls)
    wanted = evaluate_graph(outputs, lambda node: node.attrs.storage.array)
    for node, want in zip(outputs, wanted):
        if node.op.name == "buffer":
            continue
        got = memory[id(node)].reshape(node.shape)
        if node.dtype.is_float:
            loose = max(tolerance, 1e-2 if node.dtype.bits == 16 else 0)
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64),
                                       rtol=loose, atol=loose)
        else:
            np.testing.assert_array_equal(got, want)
    return calls


# --- compositions, as a frontend writes them


def expand(x: Node, shape: tuple[int, ...]) -> Node:
    """Broadcast on the left."""
    view = apply("reshape", x, shape=(1,) * (len(shape) - x.ndim) + x.shape)
    return apply("expand", view, shape=shape)


def full(value: object, like: Node) -> Node:
    return expand(constant(value, like.dtype), like.shape)


def reduce(x: Node, kind: str, *axes: int, keep: bool = False) -> Node:
    result = apply("reduce", x, kind=kind, axes=axes)
    if not keep:
        return result
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    return apply("expand", apply("reshape", result, shape=shape), shape=x.shape)


def mean(x: Node, axis: int) -> Node:
    total = reduce(x, "sum", axis)
    return apply("divide", total, full(x.shape[axis], total))


def column(x: Node, n: int) -> Node:
    """Broadcast along a new last axis."""
    return apply("expand", apply("reshape", x, shape=(*x.shape, 1)), shape=(*x.shape, n))


def softmax(x: Node) -> Node:
    last = x.ndim - 1
    e = apply("exp", apply("subtract", x, reduce(x, "max", last, keep=True)))
    return apply("divide", e, reduce(e, "sum", last, keep=True))


def log_softmax(x: Node) -> Node:
    last = x.ndim - 1
    shifted = apply("subtract", x, reduce(x, "max", last, keep=True))
    total = reduce(apply("exp", shifted), "sum", last)
    return apply("subtract", shifted, column(apply("log", total), x.shape[last]))


def variance(x: Node) -> Node:
    centred = apply("subtract", x, column(mean(x, 1), x.shape[1]))
    return mean(apply("multiply", centred, centred), 1)


def layer_norm(x: Node, weight: Node, bias: Node) -> Node:
    centred = apply("subtract", x, column(mean(x, 1), x.shape[1]))
    var = mean(apply("multiply", centred, centred), 1)
    scale = apply("divide", full(1, var), apply("sqrt", apply("add", var, full(1e-5, var))))
    normal = apply("multiply", centred, column(scale, x.shape[1]))
    return apply("add", apply("multiply", normal, expand(weight, x.shape)), expand(bias, x.shape))


def matmul(a: Node, b: Node) -> Node:
    (m, inner), n = a.shape, b.shape[1]
    left = apply("expand", apply("reshape", a, shape=(m, 1, inner)), shape=(m, n, inner))
    turned = apply("permute", b, axes=(1, 0))
    right = apply("expand", apply("reshape", turned, shape=(1, n, inner)), shape=(m, n, inner))
    return reduce(apply("multiply", left, right), "sum", 2)


def convolve(x: Node, weight: Node, padding: int) -> Node:
    """3x3-like convolution: x (c, h, w), weight (o, c, kh, kw) -> (o, h', w')."""
    c, h, w = x.shape
    o, _, kh, kw = weight.shape
    if padding:
        x = apply("pad", x, low=(0, padding, padding), high=(0, padding, padding),
                  interior=(0, 0, 0))
        h, w = h + 2 * padding, w + 2 * padding
    ho, wo = h - kh + 1, w - kw + 1
    x = apply("expand", apply("reshape", x, shape=(c, h, 1, w)), shape=(c, h, kh, w))
    x = apply("shear", x, axis=1, size=ho, stride=1, dilation=1)
    x = apply("expand", apply("reshape", x, shape=(c, ho, kh, w, 1)), shape=(c, ho, kh, w, kw))
    x = apply("shear", x, axis=3, size=wo, stride=1, dilation=1)
    x = apply("permute", x, axes=(1, 3, 0, 2, 4))  # ho wo c kh kw
    shape = (o, ho, wo, c, kh, kw)
    left = apply("expand", apply("reshape", x, shape=(1, *shape[1:])), shape=shape)
    right = apply("expand", apply("reshape", weight, shape=(o, 1, 1, c, kh, kw)), shape=shape)
    return reduce(apply("multiply", left, right), "sum", 3, 4, 5)


# --- random graphs

UNARY = ("negative", "abs", "sign")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


class Maker:
    """Builds a random graph; every value stays small, so sums of floats are nearly exact."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.nodes: list[Node] = []
        for number in range(rng.randint(1, 3)):
            shape = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(0, 3)))
            if rng.random() < 0.05 and shape:
                shape = (0, *shape[1:])
            dtype = rng.choice((float32, float32, float32, int32, float16))
            self.nodes.append(leaf(*shape, dtype=dtype, seed=rng.randint(0, 99) + number))

    def pick(self) -> Node:
        return self.nodes[-1 - min(int(self.rng.expovariate(0.5)), len(self.nodes) - 1)]

    def grow(self, steps: int) -> list[Node]:
        """Add `steps` nodes and return one to three outputs."""
        for _ in range(steps):
            x = self.pick()
            method = self.rng.choice((
                self.unary, self.binary, self.binary, self.binary, self.reshape, self.permute,
                self.expand, self.slice, self.pad, self.reduce, self.reduce, self.normalise,
                self.cumulate, self.concat, self.gather, self.scatter, self.product, self.call,
                self.windows, self.overlap, self.one_hot))
            node = method(x)
            if node is not None and node.size <= 2000:
                self.nodes.append(node)
        outputs = [self.nodes[-1]]
        outputs += [self.pick() for _ in range(self.rng.randint(0, 2))]
        return outputs

    def bound(self, x: Node) -> Node:
        """Keep values in -4..4."""
        if x.dtype.is_bool or x.dtype == int64:
            return x
        return apply("minimum", apply("maximum", x, full(-4, x)), full(4, x))

    def unary(self, x):
        if x.dtype.is_bool:
            return apply("bitwise_invert", x)
        if x.dtype.is_float and self.rng.random() < 0.4:
            return apply(self.rng.choice(("sin", "exp", "floor")), self.bound(x))
        return apply(self.rng.choice(UNARY), x)

    def partner(self, x):
        """Return another node of x's shape and dtype."""
        options = [n for n in self.nodes if n.shape == x.shape and n.dtype == x.dtype]
        wider = [n for n in self.nodes if n.dtype == x.dtype and n.size and
                 n.shape == x.shape[x.ndim - n.ndim:]]
        if self.rng.random() < 0.3 and wider:
            return expand(self.rng.choice(wider), x.shape)
        return self.rng.choice(options)

    def binary(self, x):
        y = self.partner(x)
        if x.dtype.is_bool:
            return apply("bitwise_xor", x, y)
        if self.rng.random() < 0.15:
            return apply("where", apply("less", x, y), x, y)
        return self.bound(apply(self.rng.choice(BINARY), x, y))

    def reshape(self, x):
        rest, shape = x.size, []
        if not rest:
            return None
        while rest > 1 or self.rng.random() < 0.2:
            d = self.rng.choice([n for n in range(1, rest + 1) if rest % n == 0])
            shape.append(d)
            rest //= d
        self.rng.shuffle(shape)
        return apply("reshape", x, shape=tuple(shape))

    def permute(self, x):
        return apply("permute", x, axes=tuple(self.rng.sample(range(x.ndim), x.ndim)))

    def expand(self, x):
        view = apply("reshape", x, shape=(*x.shape, 1)) if self.rng.random() < 0.5 else x
        shape = tuple(self.rng.choice((2, 3, 4)) if n == 1 else n for n in view.shape)
        return apply("expand", view, shape=shape)

    def slice(self, x):
        starts, stops, steps = [], [], []
        for n in x.shape:
            a, b = sorted((self.rng.randint(0, n), self.rng.randint(0, n)))
            step = self.rng.choice((1, 1, 2))
            if self.rng.random() < 0.3 and b > a:
                a, b, step = b - 1, a - 1, -step
            elif self.rng.random() < 0.4:
                a, b, step = 0, n, 1
            starts.append(a)
            stops.append(b)
            steps.append(step)
        if any(len(range(*r)) == 0 for r in zip(starts, stops, steps)) and self.rng.random() < .9:
            return None
        return apply("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))

    def pad(self, x):
        def draw():
            return tuple(self.rng.choice((0, 0, 1, 2)) for _ in x.shape)
        return apply("pad", x, low=draw(), high=draw(), interior=draw())

    def _axes(self, x):
        return tuple(sorted(self.rng.sample(range(x.ndim), self.rng.randint(1, x.ndim))))

    def reduce(self, x):
        if not x.ndim or x.dtype.is_bool:
            return None
        kind = self.rng.choice(("sum", "sum", "max", "min", "argmax", "argmin"))
        axes = self._axes(x)
        if kind.startswith("arg"):
            axes = axes[:1]
        if kind != "sum" and not x.size:
            return None
        return reduce(x, kind, *axes) if kind.startswith("arg") else self.bound(
            reduce(x, kind, *axes))

    def normalise(self, x):
        """A reduction broadcast back over its input."""
        if not x.ndim or x.dtype.is_bool or not x.size:
            return None
        axes = self._axes(x)
        back = reduce(x, self.rng.choice(("sum", "max")), *axes, keep=True)
        return self.bound(apply("subtract", x, back))

    def cumulate(self, x):
        if not x.ndim or x.dtype.is_bool:
            return None
        return self.bound(apply("cumulate", x, kind=self.rng.choice(("sum", "max")),
                                axis=self.rng.randrange(x.ndim)))

    def concat(self, x):
        if not x.ndim:
            return None
        axis = self.rng.randrange(x.ndim)
        return apply("concat", x, self.partner(x), x, axis=axis)

    def _indices(self, n):
        shape = self.rng.choice(((), (3,), (2, 2)))
        array = np.array([self.rng.randint(-1, n) for _ in range(prod(shape))], np.int64)
        return buffer(Memory(array.reshape(shape)), shape, int64)

    def gather(self, x):
        return apply("gather", x, self._indices(x.shape[0])) if x.ndim and x.size else None

    def scatter(self, x):
        if not x.ndim or not x.size or x.dtype.is_bool:
            return None
        where = self._indices(x.shape[0])
        updates = leaf(*where.shape, *x.shape[1:], dtype=x.dtype, seed=self.rng.randint(0, 99))
        return self.bound(apply("scatter", x, updates, where,
                                mode=self.rng.choice(("set", "add", "max"))))

    def product(self, x):
        if x.ndim != 2 or x.dtype.is_bool:
            return None
        b = leaf(x.shape[1], self.rng.choice((1, 3, 4)), dtype=x.dtype, seed=3)
        return self.bound(matmul(x, b))

    def windows(self, x):
        """Sliding windows of the last axis, as convolutions read them."""
        if not x.ndim or not x.size:
            return None
        n = x.shape[-1]
        k, stride = self.rng.randint(1, n), self.rng.choice((1, 2, 3))
        return apply("shear", column(x, k), axis=x.ndim - 1, size=(n - k) // stride + 1,
                     stride=stride, dilation=1)

    def overlap(self, x):
        """Windows added up where they came from, as the gradients of convolutions do."""
        if x.ndim < 2 or not x.size or x.dtype.is_bool:
            return None
        p, k = x.shape[-2:]
        stride, dilation = self.rng.choice((1, 2, k)), self.rng.choice((1, 1, 2))
        size = (p - 1) * stride + (k - 1) * dilation + self.rng.choice((1, 2))
        spread = apply("unshear", x, axis=x.ndim - 2, size=size, stride=stride, dilation=dilation)
        return self.bound(reduce(spread, "sum", x.ndim - 1))

    def one_hot(self, x):
        """The element of each row that an index picks, as a masked sum."""
        if not x.ndim or not x.size or x.dtype.is_bool:
            return None
        picked = leaf(*x.shape[:-1], dtype=int64, seed=self.rng.randint(0, 99))
        here = expand(apply("iota", size=x.shape[-1], dtype=int64), x.shape)
        mask = apply("equal", here, column(picked, x.shape[-1]))
        return reduce(apply("where", mask, x, full(0, x)), "sum", x.ndim - 1)

    def call(self, x):
        if self.rng.random() < 0.7:
            return None
        return apply("call", x, function=np.copy, shape=x.shape, dtype=x.dtype)
