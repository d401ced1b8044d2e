"""Schedules print and parse; random legal schedules give the kernel's values on every backend."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_tools import GRAPHS, cases, check, schedules, walk

from tilewright.actions import ACTIONS, Schedule, parse_schedule, start
from tilewright.errors import Illegal, ScheduleError

# --- text

loops = st.sampled_from(("i0", "k0", "i12.0", "s2:i1", "i0*i1.0.1", "s0:b.copy:k0.1", "root"))
groups = st.lists(loops, max_size=4).map(tuple)
numbers = st.integers(0, 1 << 40)
actions = st.one_of(
    *(st.builds(ACTIONS[name], loops) for name in (
        "Vectorize", "Interleave", "Unroll", "Parallel", "StreamStore", "Block", "Thread", "Lane")),
    *(st.builds(ACTIONS[name], loops, numbers) for name in ("Split", "Partition")),
    *(st.builds(ACTIONS[name], loops, loops) for name in ("Merge", "Place")),
    st.builds(ACTIONS["Reorder"], groups),
    st.builds(ACTIONS["Copy"], st.just("s0:b"), loops, groups, st.sampled_from(
        ("scratch", "shared", "registers"))))


@given(st.lists(actions, max_size=8).map(lambda found: Schedule(tuple(found))))
def test_a_schedule_parses_back_from_its_text(schedule):
    assert parse_schedule(str(schedule)) == schedule


def test_comments_and_blanks_are_passed_over():
    text = "# first\n\n  Split( i0 , 8 )  # in eights\nReorder(( i0.1,i0.0 ))\n"
    assert str(parse_schedule(text)) == "Split(i0, 8)\nReorder((i0.1, i0.0))"
    assert parse_schedule("").actions == ()


@pytest.mark.parametrize("text, message", [
    ("Splat(i0, 8)", "schedule: cannot find action Splat (actions: Split Reorder"),
    ("Split(i0, 8", "schedule: cannot parse 'Split(i0, 8' (needs Action(argument, ..))"),
    ("Split(i0, 8) nonsense", "schedule: cannot parse 'nonsense'"),
    ("Split(i0)", "schedule: cannot read Split(i0) (needs axis, factor)"),
    ("Vectorize(i0, 4)", "schedule: cannot read Vectorize(i0, 4) (needs axis)"),
    ("Split(i0, many)", "schedule: cannot read Split(i0, many) (factor is an integer)"),
    ("Split(i0, -2)", "schedule: cannot read Split(i0, -2) (factor is an integer)"),
    ("Split((i0), 2)", "schedule: cannot read Split((i0), 2) (axis is a name)"),
    ("Vectorize(4)", "schedule: cannot read Vectorize(4) (axis is a name)"),
    ("Reorder(i0)", "schedule: cannot read Reorder(i0) (axes is a list in brackets)"),
])
def test_a_text_that_does_not_parse_is_named(text, message):
    with pytest.raises(ScheduleError, match=re.escape(message)):
        parse_schedule(text)


def test_a_schedule_stops_at_the_first_action_that_is_illegal():
    (case,) = cases("transpose")
    with pytest.raises(Illegal, match="split: cannot find loop i0 "):
        parse_schedule("Split(i0, 4)\nSplit(i0, 4)\nVectorize(i1)").apply(case.kernel)


def test_then_adds_actions():
    both = parse_schedule("Split(i0, 4)").then(ACTIONS["Unroll"]("i0.1"))
    assert both == parse_schedule("Split(i0, 4)\nUnroll(i0.1)")


# --- random schedules

# Kernels of enough loops to have hundreds of schedules that differ.
MANY = ("matmul-f32", "conv", "softmax", "argmax", "cumsum", "padded-sum")


def test_walks_repeat_and_replay():
    for name in GRAPHS:
        for case in cases(name):
            schedule, nest, refused = walk(case.kernel, 7)
            assert walk(case.kernel, 7)[0] == schedule
            assert str(parse_schedule(str(schedule)).apply(case.kernel)) == str(nest)
            assert all(": cannot " in reason for reason in refused)


@pytest.mark.parametrize("name", GRAPHS)
def test_plain_nests_give_the_kernels_values(name):
    for case in cases(name):
        assert check(case, start(case.kernel))


def _random(name: str, count: int, seed: int) -> int:
    """Check random schedules; returns how many lowered and ran."""
    ran = 0
    for case, schedule, nest in schedules(name, count, seed):
        try:
            ran += check(case, nest)
        except Exception as error:
            error.add_note(f"{name}\n{schedule}\n\n{nest}")
            raise
    return ran


@pytest.mark.parametrize("name", GRAPHS)
def test_random_schedules_give_the_kernels_values(name):
    assert _random(name, 10, seed=0) >= 4


@pytest.mark.nightly
@pytest.mark.parametrize("name", GRAPHS)
def test_many_random_schedules_give_the_kernels_values(name):
    assert _random(name, 540, seed=1_000_000) >= (500 if name in MANY else 4)
