"""Other forms of a kernel: what they are, which is preferred, and that they give its values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fusion_tools import matmul, reduce
from schedule_tools import LIMITS, Case, cases_of, check, values, walk

from tilewright.actions import default_schedule
from tilewright.fusion.alternatives import alternatives, preferred, split_finish
from tilewright.graph import Node, apply
from tilewright.kernel.verify import verify


def exp_of_sums(rows: int, columns: int, axis: int = 1) -> Node:
    return apply("exp", reduce(values(rows, columns, low=-1, high=2), "sum", axis))


def distances(rows: int, columns: int) -> Node:
    x = values(rows, columns)
    a, b = (apply("expand", apply("reshape", x, shape=s), shape=(rows, rows, columns))
            for s in ((rows, 1, columns), (1, rows, columns)))
    d = apply("subtract", a, b)
    return apply("exp", apply("negative", reduce(apply("multiply", d, d), "sum", 2)))


def the_kernel(graph: Node) -> Case:
    (case,) = cases_of("form", graph, exact=False)
    return case


def test_a_finish_becomes_a_stage():
    assert str(split_finish(the_kernel(exp_of_sums(6, 4)).kernel)) == """\
kernel i0=6 k0=4
  a0: input float32[24]
  out0: output float32[6]
  t0: scratch float32[6]
  s0  sum free[i0] reduce[k0]
    v0 = a0[i0*4 + k0] : float32
    v1 = add(state0, v0) : float32
    state init (0.0) update (v1)
    t0[i0] = state0
  s1  map free[i0]
    v0 = t0[i0] : float32
    v1 = exp(v0) : float32
    out0[i0] = v1"""


@pytest.mark.parametrize("graph, stages", [
    (lambda: exp_of_sums(1024, 16), 2),
    (lambda: exp_of_sums(1023, 16), 1),  # few results
    (lambda: exp_of_sums(1024, 4), 1),  # short rows: lanes are results
    (lambda: exp_of_sums(1024, 5), 2),
    (lambda: exp_of_sums(16, 1024, 0), 1),  # down columns too
    (lambda: reduce(values(1024, 16), "sum", 1), 1),  # nothing to finish
    (lambda: apply("negative", reduce(values(1024, 16), "sum", 1)), 1),  # nothing costly
    (lambda: apply("exp", matmul(values(32, 16), values(16, 32, seed=1))), 1),
    (lambda: distances(32, 16), 2),  # no matrix product, though it multiplies
])
def test_the_finish_is_split_where_lanes_are_steps(graph, stages):
    form = preferred(the_kernel(graph()).kernel, LIMITS)
    verify(form)
    assert len(form.stages) == stages


@pytest.mark.parametrize("graph", [
    lambda: exp_of_sums(37, 19), lambda: exp_of_sums(1, 5), lambda: exp_of_sums(0, 5),
    lambda: distances(9, 7), lambda: apply("exp", reduce(values(3, 8, 5), "max", 1)),
    lambda: exp_of_sums(1030, 17)])
def test_forms_give_the_kernels_values(graph):
    case = the_kernel(graph())
    for form in alternatives(case.kernel, LIMITS):
        verify(form)
        other = replace(case, kernel=form)
        assert check(other, default_schedule(form, LIMITS).apply(form))
        for seed in range(12):
            check(other, walk(form, seed)[1])
