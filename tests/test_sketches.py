"""The parameters that sketches begin with."""

from __future__ import annotations

import pytest
from search_tools import LIMITS, addition, kernel_of

from tilewright.actions import default_recipe
from tilewright.actions.sketches.pointwise import Pointwise
from tilewright.dtypes import float32
from tilewright.graph import apply, parameter

LANES = LIMITS.lanes(4)


def sketch(kernel) -> Pointwise:
    (found,) = default_recipe(kernel, LIMITS).sketches
    return found


@pytest.mark.parametrize("size, registers", [(4096, 4), (4 * LANES, 4), (4 * LANES - 1, 2),
                                             (2 * LANES - 1, 1)])
def test_a_function_of_many_instructions_spans_registers(size, registers):
    kernel = kernel_of(apply("exp", parameter(0, (size,), float32)))
    assert sketch(kernel).lanes == LANES * registers
    assert registers == 1 or sketch(kernel).copies == 1


def test_other_functions_have_copies_of_one_register():
    assert (sketch(addition(4096)).lanes, sketch(addition(4096)).copies) == (LANES, 4)


def test_a_reduction_of_such_a_function_has_as_many_values_side_by_side():
    x = parameter(0, (64, 4096), float32)
    plain = kernel_of(apply("reduce", x, kind="max", axes=(1,)))
    costly = kernel_of(apply("reduce", apply("exp", x), kind="max", axes=(1,)))
    a, b = sketch(plain), sketch(costly)
    assert a.lanes * a.copies == b.lanes * b.copies and b.lanes == 4 * a.lanes
