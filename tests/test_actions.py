"""Each action: what it makes of a nest, that values stay the same, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from schedule_tools import GRAPHS, LIMITS, Case, cases, check, walk

from tilewright.actions import ACTIONS, Nest, parse_schedule, start
from tilewright.actions.nest import leaves
from tilewright.errors import Illegal


def one(name: str) -> Case:
    """Return the only kernel of a graph."""
    (case,) = cases(name)
    return case


def scheduled(case: Case, text: str) -> Nest:
    return parse_schedule(text.replace("; ", "\n")).apply(case.kernel)


# graph, schedule, the nest that it makes
MADE = [
    ("transpose", "Split(i0, 4)", """
for i0.0 in 5 ragged 4
  for i0.1 in 4
    for i1 in 11
      s0"""),
    ("transpose", "Split(i1, 11)", """
for i0 in 19
  for i1.0 in 1
    for i1.1 in 11
      s0"""),
    ("matmul-f32", "Reorder((k0, i0))", """
for k0 in 37
  for i1 in 9
    for i0 in 7
      s0"""),
    ("transpose", "Merge(i0, i1)", """
for i0*i1 in 209
  s0"""),
    ("transpose", "Merge(i0, i1); Split(i0*i1, 8)", """
for i0*i1.0 in 27 ragged 8
  for i0*i1.1 in 8
    s0"""),
    ("softmax", "Vectorize(s2:i1)", """
for i0 in 6
  for s0:i1 in 37
    s0
  for s1:i1 in 37
    s1
  for s2:i1 in 37 vectorize
    s2
  for s3:i1 in 37
    s3"""),
    ("matmul-f32", "Split(k0, 4); Vectorize(k0.1); Interleave(k0.0)", """
for i0 in 7
  for i1 in 9
    for k0.0 in 10 ragged 4 interleave
      for k0.1 in 4 vectorize
        s0"""),
    ("matmul-f32", "Unroll(i0)", """
for i0 in 7 unroll
  for i1 in 9
    for k0 in 37
      s0"""),
    ("matmul-f32", "Parallel(i0)", """
for i0 in 7 parallel
  for i1 in 9
    for k0 in 37
      s0"""),
    ("matmul-f32", "Copy(s0:b, root, (k0, i1), scratch)", """
s0:b.copy [k0, i1] in scratch
for s0:b.copy:k0 in 37
  for s0:b.copy:i1 in 9
    s0:b.copy
for i0 in 7
  for i1 in 9
    for k0 in 37
      s0"""),
    ("matmul-f32", "Split(k0, 8); Reorder((k0.0, i0, i1)); Copy(s0:a, i0, (k0.1), scratch)", """
s0:a.copy [k0.1] in scratch
for k0.0 in 5 ragged 8
  for i0 in 7
    for s0:a.copy:k0.1 in 8
      s0:a.copy
    for i1 in 9
      for k0.1 in 8
        s0"""),
    ("matmul-f32", "Partition(i0, 3)", """
partition i0 at 3
for i0 in 7
  for i1 in 9
    for k0 in 37
      s0"""),
    ("matmul-f32", "StreamStore(out0)", """
stream out0
for i0 in 7
  for i1 in 9
    for k0 in 37
      s0"""),
    ("split-sum", "Place(s0, s1:i1)", """
for i0 in 6
  for s1:i1 in 5
    for s0:k0 in 9
      s0
    s1"""),
    ("split-sum", "Place(s1, root)", """
for i0 in 6
  for s0:i1 in 5
    for s0:k0 in 9
      s0
for s1:i0 in 6
  for s1:i1 in 5
    s1"""),
    ("split-sum", "Split(i0, 4); Place(s0, i0.0)", """
for i0.0 in 2 ragged 4
  for s0:i0.1 in 4
    for s0:i1 in 5
      for s0:k0 in 9
        s0
  for i0.1 in 4
    for s1:i1 in 5
      s1"""),
]


@pytest.mark.parametrize("graph, text, nest", MADE, ids=[text for _, text, _ in MADE])
def test_an_action_makes_a_nest_of_the_same_values(graph, text, nest):
    case = one(graph)
    made = scheduled(case, text)
    assert str(made) == nest.strip("\n")
    assert check(case, start(case.kernel)) and check(case, made)


# graph, schedule whose last action is refused, the message
REFUSED = [
    ("transpose", "Split(i5, 2)", "split: cannot find loop i5 (loops: i0 i1)"),
    ("transpose", "Split(i0, 20)", "split: cannot split i0=19 by 20 (needs a factor of 1..19)"),
    ("transpose", "Split(i0, 0)", "split: cannot split i0=19 by 0 (needs a factor of 1..19)"),
    ("transpose", "Vectorize(i1); Split(i1, 2)", "split: cannot split i1 (already vectorize)"),
    ("transpose", "Reorder((i0, i0))", "reorder: cannot reorder"),
    ("transpose", "Reorder(())", "reorder: cannot reorder () (needs distinct loops)"),
    ("transpose", "Parallel(i0); Reorder((i1, i0))", "reorder: cannot reorder"),
    ("split-sum", "Reorder((s1:i1, s0:i1))", "(not nested in one another)"),
    ("split-sum", "Reorder((s0:i1, i0))",
     "reorder: cannot move loops across the body of i0 (it holds more than one item)"),
    ("scatter-add", "Split(s1:i2, 3); Reorder((s1:i2.1, s1:i2.0))",
     "reorder: cannot change the order of s1:i2.0 s1:i2.1 (steps of s1 run in order)"),
    ("split-sum", "Place(s0, s1:i1); Place(s1, root); Reorder((s0:k0, s1:i1))",
     "place: cannot place s1 (its loops hold other stages)"),
    ("transpose", "Merge(i1, i0)", "merge: cannot merge i1 with i0 (needs two serial loops"),
    ("transpose", "Split(i0, 4); Reorder((i0.0, i1, i0.1)); Merge(i1, i0.1)",
     "merge: cannot merge i0.1 (the split of i0 is ragged)"),
    ("matmul-f32", "Merge(i1, k0)", "merge: cannot merge i1 with k0 (free and reduce in s0)"),
    ("size-0", "Merge(i0, k0)", "merge: cannot merge i0 with k0 (free and reduce in s0)"),
    ("size-0-out", "Split(i0, 1); Merge(i0.1, i0.0)", "merge: cannot merge"),
    ("transpose", "Vectorize(i0)",
     "vectorize: cannot vectorize i0 (only a leaf and loops vectorised or interleaved"),
    ("transpose", "Vectorize(i1); Interleave(i1)", "interleave: cannot change i1 (already vec"),
    ("f64-sum", "Vectorize(k0)",
     "vectorize: cannot vectorize k0 of 3300 iterations (needs 2..64)"),
    ("f64-sum", "Interleave(k0)",
     "interleave: cannot interleave k0 of 3300 iterations (at most 64)"),
    ("f64-sum", "Unroll(k0)", "unroll: cannot unroll k0 of 3300 iterations (at most 64)"),
    ("transpose", "Vectorize(i1); Vectorize(i0)",
     "vectorize: cannot vectorize i0 (a loop within already is)"),
    ("cumsum", "Vectorize(i1)", "vectorize: cannot vectorize i1 (steps of s0 run in order)"),
    ("cumsum", "Interleave(i1)", "interleave: cannot interleave i1 (steps of s0 run in order)"),
    ("transpose", "Parallel(i1)", "parallel: cannot divide i1 among workers (not outermost)"),
    ("f64-sum", "Parallel(k0)", "parallel: cannot divide k0 among workers (reduce axis of s0)"),
    ("cumsum-0", "Reorder((i0, i1)); Parallel(i0)",
     "parallel: cannot divide i0 among workers (carry axis of s0)"),
    ("transpose", "Partition(i0, 19)",
     "partition: cannot break i0=19 at 19 (needs a point of 1..18)"),
    ("transpose", "Vectorize(i1); Partition(i1, 2)",
     "partition: cannot break i1 (vectorize loop)"),
    ("transpose", "StreamStore(a0)",
     "stream: cannot stream a0 (not an output of the kernel)"),
    ("scatter-add", "StreamStore(out0)",
     "stream: cannot stream out0 (the kernel reads it back)"),
    ("split-sum", "Place(s7, root)", "place: cannot find stage s7 (stages: s0 s1)"),
    ("split-sum", "Place(s0, s9:i1)", "place: cannot find loop s9:i1"),
    ("split-sum", "Vectorize(s1:i1); Place(s0, s1:i1)",
     "place: cannot place s0 in the band loop s1:i1"),
    ("split-sum", "Place(s1, s0:k0)", "place: cannot place s1 in s0:i1 (reduce axis of the stage"),
    ("split-sum", "Place(s0, s0:i1)", "place: cannot place s0 in s0:i1 (the loop holds nothing"),
    ("split-sum", "Copy(s0:a, s0:i1, (s0:k0), scratch); Place(s0, root)",
     "place: cannot place s0 (an operand of it is copied)"),
    ("split-sum", "Copy(s1:a, i0, (s1:i1), scratch); Place(s0, s1:a.copy:s1:i1)",
     "place: cannot place s0 in s1:a.copy:s1:i1 (a loop of a copy)"),
    ("concat", "Merge(s1:i1, s1:i2); Place(s0, s1:i1*i2)", "place: cannot place s0 in"),
    ("scatter-add", "Place(s1, s0:i0)", "place: cannot place s1 in s0:i0 "),
    ("scatter-add", "Place(s0, s1:i2)", "(s1 would be undone by s0)"),
    ("softmax", "Place(s3, s1:i1)", "place: cannot place s3 in s1:i1 (s2 has to run before s3)"),
    ("softmax", "Place(s3, s2:i1)", "(s2 finishes after the loop)"),
    ("matmul-f32", "Copy(s0:z, root, (k0), scratch)", "copy: cannot find operand s0:z"),
    ("matmul-f32", "Copy(s0:a, root, (i0, k0), moon)",
     "copy: cannot copy to space moon (one of scratch, shared, registers)"),
    ("matmul-f32", "Copy(s0:a, i0, (k0), scratch); Copy(s0:a, root, (i0, k0), scratch)",
     "copy: cannot copy s0:a twice"),
    ("matmul-f32", "Copy(s0:a, root, (i0, k0, k0), scratch)",
     "copy: cannot lay s0:a out by one loop twice"),
    ("matmul-f32", "Copy(s0:a, i9, (k0), scratch)",
     "copy: cannot copy s0:a at i9 (not a loop around s0: i0 i1 k0)"),
    ("matmul-f32", "Copy(s0:a, i0, (i0, k0), scratch)",
     "copy: cannot lay s0:a out by i0 (not a loop inside i0)"),
    ("matmul-f32", "Copy(s0:a, root, (k0), scratch)",
     "copy: cannot copy s0:a (it depends on i0, which is not in the layout)"),
    ("matmul-f32", "Vectorize(k0); Copy(s0:a, k0, (), scratch)",
     "copy: cannot copy s0:a in the band loop k0"),
    ("split-sum", "Copy(s1:a, root, (i0, s1:i1), scratch)",
     "copy: cannot copy s1:a here (s0 writes t0 later)"),
    ("transpose", "Lane(i0); Thread(i1)",
     "thread: cannot map i1 inside i0 (lane loop; may stand in"),
    ("f64-sum", "Block(k0)", "block: cannot map k0 (a reduction of s0)"),
]


@pytest.mark.parametrize("graph, text, message", REFUSED, ids=[t for _, t, _ in REFUSED])
def test_an_action_is_refused_with_its_reason(graph, text, message):
    case = cases(graph)[-1]
    *before, last = parse_schedule(text.replace("; ", "\n")).actions
    nest = start(case.kernel)
    with pytest.raises(Illegal, match=re.escape(message)):
        for action in before:
            nest = action.apply(nest)
        last.apply(nest)


def test_candidates_apply_or_are_illegal():
    """On plain nests and on nests well on their way."""
    for name in GRAPHS:
        for case in cases(name):
            for nest in [start(case.kernel), *(walk(case.kernel, seed)[1] for seed in range(4))]:
                for kind in ACTIONS.values():
                    for action in kind.candidates(nest, LIMITS):
                        assert isinstance(action, kind)
                        try:
                            assert isinstance(action.apply(nest), Nest)
                        except Illegal as reason:
                            assert ": cannot " in str(reason)


def test_every_action_but_the_argued_ones_has_candidates():
    found = {kind.__name__ for name in GRAPHS for case in cases(name)
             for kind in ACTIONS.values() if any(kind.candidates(start(case.kernel), LIMITS))}
    assert set(ACTIONS) - found <= {"Copy", "StreamStore", "Block", "Thread", "Lane"}


def test_stages_start_in_an_order_that_dependences_allow():
    for name in GRAPHS:
        for case in cases(name):
            nest = start(case.kernel)
            found = list(leaves(nest.body))
            assert sorted(found) == sorted(s.name for s in case.kernel.stages)


def test_grid_loops_nest_as_a_gpu_has_them():
    nest = scheduled(one("matmul-f32"), "Block(i0); Thread(i1)")
    assert "for i0 in 7 block\n  for i1 in 9 thread" in str(nest)


def test_actions_leave_the_nest_that_they_are_given_alone():
    case = one("matmul-f32")
    nest = start(case.kernel)
    before = str(nest)
    ACTIONS["Split"]("i0", 2).apply(nest)
    assert str(nest) == before
    assert np.array_equal(list(leaves(nest.body)), ["s0"])
