"""Run a graph node by node with each row's NumPy meaning: the first of the three references."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.graph.node import Node, constant_value, postorder


def evaluate(outputs: Sequence[Node], source: Callable[[Node], np.ndarray]) -> list[np.ndarray]:
    """Return the values of `outputs`; `source` gives the array of a buffer or parameter leaf."""
    values: dict[int, np.ndarray] = {}
    for node in postorder(outputs):
        if node.op.name == "constant":
            value = np.asarray(constant_value(node))
        elif node.op.name in ("buffer", "parameter"):
            value = source(node)
        else:
            value = node.op.numpy([values[id(i)] for i in node.inputs], node.attrs)
        assert (value.shape, value.dtype) == (node.shape, node.dtype.numpy), node
        values[id(node)] = value
    return [values[id(node)] for node in outputs]
