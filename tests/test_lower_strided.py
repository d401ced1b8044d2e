"""Lanes a few elements apart: picked from vectors side by side, stored through masks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_tools import LIMITS, Case, cases_of, check, values

from tilewright.actions import Nest, parse_schedule
from tilewright.dtypes import bool_, float16, float32, float64, int64, uint8
from tilewright.graph import Node, apply
from tilewright.lower import lower


def nest_of(case: Case, text: str) -> Nest:
    return parse_schedule(text.replace("; ", "\n")).apply(case.kernel)


def program(case: Case, text: str) -> str:
    return "\n".join(map(str, lower(nest_of(case, text), LIMITS).programs))


def every(step: int, count: int, first: int = 0, tail: int = 0, dtype=float32) -> Node:
    """Return twice the elements `first`, `first + step`, ..; a negative step starts at the end."""
    size = first + (count - 1) * abs(step) + 1 + tail
    start, stop = (first, size - tail) if step > 0 else (size - 1 - tail, first - 1)
    x = values(size, dtype=dtype, low=0)
    x = apply("slice", x, starts=(start,), stops=(stop,), steps=(step,))
    return apply("bitwise_invert", x) if dtype is bool_ else apply("add", x, x)


def columns(rows: int, count: int, dtype=float32) -> Node:
    found = [apply("reshape", values(rows, seed=k, dtype=dtype, low=0), shape=(rows, 1))
             for k in range(count)]
    return apply("concat", *found, axis=1)


def test_lanes_are_picked_not_gathered():
    (case,) = cases_of("every-third", every(3, 32))
    text = program(case, "Split(i0, 8); Vectorize(i0.1)")
    assert text.count("= load ") == 3 and text.count("= shuffle ") == 2 and "gather" not in text
    (case,) = cases_of("every-ninth", every(9, 32))
    assert "gather" in program(case, "Split(i0, 8); Vectorize(i0.1)")


@pytest.mark.parametrize("size, loads", [(64, 2), (63, 4)])
def test_neighbours_come_from_the_same_vectors_where_all_of_these_may_be_read(size, loads):
    """Of 63 elements the last vector side by side would read one that is not there."""
    x = values(size)
    a, b = (apply("slice", x, starts=(k,), stops=(size - 1 + k - size % 2,), steps=(2,))
            for k in (0, 1))
    (case,) = cases_of("pairs", apply("add", a, b))
    text = program(case, "Split(i0, 8); Vectorize(i0.1)" if size == 64 else "Vectorize(i0)")
    assert text.count("= load ") == loads and "gather" not in text


def test_columns_are_stored_through_masks():
    (case,) = cases_of("columns", columns(64, 2))
    text = program(case, "Split(s0:i0, 8); Vectorize(s0:i0.1); Split(s1:i0, 8); Vectorize(s1:i0.1)")
    assert "scatter" not in text and text.count("  store ") == 4


@settings(deadline=None)
@given(st.integers(1, 10), st.booleans(), st.integers(1, 40), st.integers(0, 9), st.integers(0, 9),
       st.sampled_from((2, 4, 8, 16, 32)),
       st.sampled_from((float32, float64, int64, uint8, float16, bool_)))
def test_any_step_start_and_end(step, backwards, count, first, tail, lanes, dtype):
    for case in cases_of("every", every(-step if backwards else step, count, first, tail, dtype)):
        text = f"Split(i0, {min(lanes, count)}); Vectorize(i0.1)" if count > 1 else ""
        assert check(case, nest_of(case, text))


@settings(deadline=None)
@given(st.integers(2, 5), st.integers(2, 40), st.sampled_from((2, 4, 8, 16)),
       st.sampled_from((float32, float64, uint8, bool_)), st.booleans())
def test_any_columns(count, rows, lanes, dtype, together):
    (case,) = cases_of("columns", columns(rows, count, dtype))
    lanes = min(lanes, rows)
    if together:
        last = f"s{count - 1}"
        text = [f"Split({last}:i0, {lanes})",
                *(f"Place(s{k}, {last}:i0.0)" for k in range(count - 1))]
    else:
        text = [f"Split(s{k}:i0, {lanes})" for k in range(count)]
    assert check(case, nest_of(case, "; ".join(
        [*text, *(f"Vectorize(s{k}:i0.1)" for k in range(count))])))
