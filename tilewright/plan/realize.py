"""Compute the values of graph nodes, by plans kept under the structure of what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.config import current
from tilewright.errors import TraceError
from tilewright.graph import Node, apply, parameter, postorder
from tilewright.plan import numbers
from tilewright.plan.cache import Cache
from tilewright.plan.plan import Plan, compile_graph
from tilewright.runtime.storage import Storage

# Eager plans by (configuration, structure), up to this many, and this many nodes in all.
plan_cache: Cache[Plan] = Cache(entries=1024, weight=400_000)


def structure(nodes: Sequence[Node]) -> tuple[tuple, list[Storage]]:
    """Return a key of what `nodes` compute, and the storages it reads in order of the key.

    Equal keys mean equal operations, attributes, shapes, dtypes and bits of constants, connected
    alike; which arrays are read does not matter.
    """
    order: dict[int, int] = {}
    key: list[object] = []
    leaves: list[Storage] = []
    stack = list(nodes)
    while stack:
        node = stack[-1]
        if id(node) in order:
            stack.pop()
            continue
        inputs = node.inputs
        if inputs:
            waiting = [i for i in inputs if id(i) not in order]
            if waiting:
                stack += waiting
                continue
            key.append((node.op.name, node.attrs, tuple([order[id(i)] for i in inputs])))
        else:
            name = node.op.name
            if name == "buffer":
                leaves.append(node.attrs.storage)
                key.append((node.shape, node.dtype.name))
            elif name == "parameter":
                raise TraceError("realize: cannot compute a value inside a traced function "
                                 f"({node.dtype}{list(node.shape)} depends on its arguments)")
            else:
                key.append((name, node.attrs, node.dtype.name))
        order[id(node)] = len(order)
        stack.pop()
    key.append(tuple([order[id(n)] for n in nodes]))
    return tuple(key), leaves


def with_parameters(nodes: Sequence[Node], leaves: Sequence[Storage],
                    given: Mapping[tuple, Node]) -> tuple[list[Node], list[Node]]:
    """Return `nodes` over parameters in place of leaves and of constants, and those in order.

    `given` has the parameters of constants, under (bits, dtype name); they come last.
    """
    parameters = [parameter(i, s.shape, s.dtype) for i, s in enumerate(leaves)]
    by_storage = {id(s): p for s, p in zip(leaves, parameters)}
    replaced: dict[int, Node] = {}
    for node in postorder(nodes):
        if node.op.name == "buffer":
            replaced[id(node)] = by_storage[id(node.attrs.storage)]
        elif node.inputs:
            replaced[id(node)] = apply(node.op.name, *[replaced[id(i)] for i in node.inputs],
                                       **node.attrs._asdict())
        elif node.op.name == "constant":
            replaced[id(node)] = given.get((node.attrs.value, node.dtype.name), node)
        else:
            replaced[id(node)] = node
    return [replaced[id(n)] for n in nodes], [*parameters, *given.values()]


def realize(nodes: Sequence[Node]) -> list[Storage]:
    """Compute `nodes` and return their storages; a node that is a buffer already returns its own.

    Raises TraceError where a node depends on a parameter.
    """
    if all(node.op.name == "buffer" for node in nodes):
        return [node.attrs.storage for node in nodes]
    key, leaves = structure(nodes)
    config = current()
    plan = plan_cache.get((config, key))
    if plan is None:
        places = numbers.varying(key)
        exact, key = key, numbers.lifted(key, places)
        plan = plan_cache.get((config, key)) if places else None
        if plan is None:
            outputs, parameters = with_parameters(
                nodes, leaves, numbers.parameters(exact, places, len(leaves)))
            plan = compile_graph(outputs, parameters, config)
            plan_cache.put((config, key), plan, weight=len(key))
        leaves = [*leaves, *numbers.storages(exact, places)]
    return plan.run(leaves)
