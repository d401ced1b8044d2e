"""Lowering: the places in a nest where programs differ in kind, checked against the kernel."""

from __future__ import annotations

import numpy as np
import pytest
from fusion_tools import full, reduce
from schedule_tools import LIMITS, Case, Native, cases, cases_of, check, compare, lowered, values

from tilewright.actions import Nest, default_schedule, parse_schedule, start
from tilewright.errors import Illegal, TooLarge
from tilewright.graph import apply
from tilewright.limits import Limits
from tilewright.lower import lower
from tilewright.program import Instr, Loop, Program


def scheduled(case: Case, text: str) -> Nest:
    return parse_schedule(text.replace("; ", "\n")).apply(case.kernel)


# graph, schedule
NESTS = [
    # ragged splits within ragged splits, the inner loops outermost
    ("transpose", "Split(i0, 5); Split(i0.1, 2); Split(i0.0, 3); Reorder((i0.1.1, i0.0.1, i0.0.0, "
                  "i0.1.0))"),
    ("transpose", "Split(i0, 8); Split(i1, 4); Reorder((i0.1, i1.1, i1.0, i0.0)); Vectorize(i0.0)"),
    ("f64-sum", "Split(k0, 1024); Split(k0.1, 221); Split(k0.1.1, 4); Vectorize(k0.1.1.1)"),
    # merged loops, then split; parts of a split merged
    ("transpose", "Merge(i0, i1); Split(i0*i1, 8); Vectorize(i0*i1.1)"),
    ("transpose", "Split(i1, 11); Reorder((i1.0, i0, i1.1)); Merge(i0, i1.1); Split(i0*i1.1, 6); "
                  "Interleave(i0*i1.1.1)"),
    ("gather", "Merge(i0, i1); Split(i0*i1, 4); Split(i0*i1.1, 2); Interleave(i0*i1.1.1); "
               "Vectorize(i0*i1.1.0); Interleave(i0*i1.0)"),
    ("matmul-f32", "Split(i1, 2); Merge(i0, i1.0); Reorder((k0, i1.1)); Parallel(i0*i1.0)"),
    # stages placed in loops of others: their scratch is a region
    ("softmax", "Split(i0, 4); Place(s0, i0.0); Place(s1, i0.0); Parallel(i0.0)"),
    ("softmax", "Place(s1, s2:i1); Partition(i0, 4)"),
    ("softmax", "Split(s2:i1, 8); Place(s1, s2:i1.0); Vectorize(s1:i1.1); Vectorize(s2:i1.1)"),
    ("variance", "Split(i0, 2); Reorder((i0.1, i0.0)); Parallel(i0.1)"),
    ("variance", "Copy(s0:a, root, (s0:k0, i0), scratch); Split(i0, 2); Parallel(i0.0)"),
    # copies: at the root with workers, ragged, split on their own, in an inner loop
    ("matmul-f32", "Copy(s0:b, root, (i1, k0), scratch); Parallel(s0:b.copy:i1); Parallel(i0)"),
    ("matmul-f32", "Copy(s0:b, root, (i1, k0), scratch); Split(s0:b.copy:k0, 8); "
                   "Vectorize(s0:b.copy:k0.1); Split(k0, 16); Vectorize(k0.1)"),
    ("matmul-f32", "Split(k0, 16); Split(i1, 8); Reorder((k0.0, i1.0, i0, k0.1, i1.1)); "
                   "Copy(s0:b, i1.0, (k0.1, i1.1), scratch); Vectorize(s0:b.copy:i1.1); "
                   "Vectorize(i1.1)"),
    ("matmul-i64", "Reorder((i1, k0)); Vectorize(k0); Split(i1, 1); Interleave(i1.1); "
                   "Copy(s0:b, i0, (i1.0, k0), scratch)"),
    ("matmul-i64", "Copy(s0:c, root, (k0, i1), scratch)"),
    ("f64-sum", "Copy(s0:a, root, (k0), scratch); Split(s0:a.copy:k0, 1024); "
                "Split(s0:a.copy:k0.1, 221); Split(s0:a.copy:k0.1.1, 4); "
                "Reorder((s0:a.copy:k0.1.1.0, s0:a.copy:k0.1.0)); Vectorize(s0:a.copy:k0.1.1.1)"),
    ("cumsum", "Copy(s0:a, i0, (i1), scratch); Split(i1, 8); Split(s0:a.copy:i1, 3)"),
    # reduce loops outside of free loops: partial states in memory, or in the output
    ("matmul-f32", "Split(k0, 10); Reorder((k0.0, i0, i1, k0.1))"),
    ("matmul-f32", "Split(k0, 4); Reorder((i0, k0.0, i1, k0.1)); Vectorize(k0.1); Parallel(i0)"),
    ("argmax", "Reorder((k0, i0))"),
    ("argmax", "Split(k0, 8); Reorder((k0.0, i0, k0.1)); Vectorize(k0.1)"),
    ("argmax", "Split(k0, 8); Split(k0.0, 3); Reorder((k0.0.1, i0, k0.0.0, k0.1)); "
               "Interleave(k0.1)"),
    ("argmax", "Split(k0, 4); Split(k0.1, 2); Split(k0.0, 2); Vectorize(k0.1.1); "
               "Reorder((k0.0.1, k0.1.0, i0)); Unroll(k0.0.0)"),
    ("argmax", "Split(i0, 2); Reorder((i0.0, k0, i0.1)); Parallel(i0.0)"),
    ("f16-sum", "Split(i0, 4); Reorder((i0.1, k0, i0.0))"),
    ("size-0", "Split(i0, 4); Reorder((i0.1, k0, i0.0))"),
    ("size-0", "Reorder((k0, i0)); Vectorize(i0)"),
    ("size-0", "Interleave(k0); Interleave(i0)"),
    # scans: free loops within the steps, lanes along the free axis
    ("cumsum", "Reorder((i1, i0))"),
    ("cumsum-0", "Split(i1, 8); Reorder((i1.0, i0, i1.1)); Vectorize(i1.1)"),
    ("cumsum-0", "Split(i0, 4); Reorder((i0.0, i1, i0.1))"),
    ("cumsum", "Split(i0, 2); Split(i0.1, 2); Parallel(i0.0)"),
    # interleaved copies that reach past a ragged end, lanes that are no power of two
    ("concat-1", "Split(s0:i1, 8); Interleave(s0:i1.1); Vectorize(s0:i1.0)"),
    ("uint8-sum", "Reorder((k0, i0)); Vectorize(i0)"),
    ("uint8-sum", "Split(k0, 3); Unroll(k0.1)"),
    ("bool-all", "Split(k0, 6); Vectorize(k0.1); Interleave(k0.0)"),
    ("bool-all", "Split(k0, 16); Unroll(k0.1); Partition(i0, 2); Unroll(i0)"),
    # steps of a scatter, several on one element
    ("scatter-add", "Split(s1:i2, 4); Vectorize(s1:i1)"),
    ("scatter-add", "Reorder((s1:i1, s1:i2)); Parallel(s1:i1)"),
    ("padded-sum", "Split(k0, 8); Vectorize(k0.1); Partition(k0.0, 1)"),
]


@pytest.mark.parametrize("graph, text", NESTS, ids=[f"{g}: {t}" for g, t in NESTS])
def test_a_nest_gives_the_kernels_values(graph, text):
    (case,) = cases(graph)
    assert check(case, scheduled(case, text), limits=Limits())


def test_default_schedules_give_the_kernels_values():
    for name in ("matmul-f32", "softmax", "argmax", "cumsum-0", "concat", "attention", "f64-sum"):
        for case in cases(name):
            nest = default_schedule(case.kernel, LIMITS).apply(case.kernel)
            assert check(case, nest)


def test_a_ragged_end_of_workers_is_one_programs():
    """The last, shorter step of a parallel loop may carry values: it is a parallel loop too."""
    (case,) = cases("cumsum")
    made = lowered(scheduled(case, "Split(i0, 2); Parallel(i0.0)"))
    kinds = [i.kind for i in made.programs[0].body if isinstance(i, Loop)]
    assert kinds == ["parallel", "parallel"]


# --- stores past the caches


def instructions(program: Program) -> list[Instr]:
    found, stack = [], list(program.body)
    while stack:
        instr = stack.pop()
        found.append(instr)
        stack += getattr(instr, "body", [])
    return found


def streamed(case: Case, text: str) -> list[bool]:
    made = lowered(scheduled(case, text + "; StreamStore(out0)"))
    compare(case, Native(made).run(case, 1, aligned=True))
    return [i.data.stream for p in made.programs for i in instructions(p) if i.op == "store"]


def test_only_whole_aligned_vectors_are_streamed():
    x = values(4, 32)
    (case,) = cases_of("double", apply("add", x, x))
    assert streamed(case, "Split(i0, 8); Vectorize(i0.1)") == [True]
    assert streamed(case, "Split(i0, 4); Vectorize(i0.1)") == [False]  # a quarter of a line
    assert streamed(case, "Split(i0, 6); Vectorize(i0.1)") == [False, False]
    assert streamed(case, "Split(i0, 2); Unroll(i0.1)") == [False, False]
    (case,) = cases("transpose")  # rows of 11 elements start anywhere
    assert not any(streamed(case, "Split(i1, 8); Vectorize(i1.1)"))


# --- the bound of sums


def longest_chain(case: Case, text: str) -> float:
    """Return the sum of 1 and many small numbers, each lost if added to 1 alone."""
    made = lowered(scheduled(case, text))
    return float(Native(made).run(case, 1)["out0"][0])


@pytest.mark.parametrize("text", ["", "Split(k0, 8)", "Split(k0, 8); Vectorize(k0.1)",
                                  "Split(k0, 4); Interleave(k0.1)",
                                  "Split(k0, 512); Split(k0.1, 16); Unroll(k0.1.1)",
                                  "Split(k0, 64); Unroll(k0.1)"])
def test_sums_of_floats_are_trees_in_every_schedule(text):
    n = 1 << 14
    array = np.full(n, 2.0 ** -24, np.float32)
    array[0] = 1.0
    x = values(n)
    x.attrs.storage.array = array
    (case,) = cases_of("sum", reduce(x, "sum", 0))
    exact = array.astype(np.float64).sum()
    assert abs(longest_chain(case, text) - exact) < 2e-6  # in order it would be 1e-3 off


# --- counts


def test_instructions_grow_with_values():
    """Twice the values of a stage are some twice the instructions."""
    counts = []
    for length in (40, 80, 160):
        x = y = values(8, 16)
        for _ in range(length):
            y = apply("multiply", apply("add", y, x), y)
        (case,) = cases_of("chain", y)
        counts.append(sum(p.count for p in lower(start(case.kernel), Limits()).programs))
    assert abs((counts[2] - counts[1]) - 2 * (counts[1] - counts[0])) <= 4


def test_work_does_not_grow_with_extents():
    counts = set()
    for n in (2048, 4096):
        x = values(4, n)
        (case,) = cases_of("sum", apply("add", reduce(x, "sum", 1), full(1, reduce(x, "sum", 1))))
        counts.add(sum(p.count for p in lower(start(case.kernel), Limits()).programs))
    assert max(counts) - min(counts) <= 2  # a constant or two


def test_the_cap_is_kept_while_emitting():
    (case,) = cases("transpose")
    nest = scheduled(case, "Unroll(i0); Unroll(i1)")
    with pytest.raises(TooLarge, match="cannot emit more than 300 instructions"):
        lower(nest, Limits(instruction_cap=300))
    assert sum(p.count for p in lower(nest, Limits(instruction_cap=2000)).programs) <= 2000


def test_scratch_beyond_the_target_is_refused():
    (case,) = cases("matmul-f32")
    nest = scheduled(case, "Copy(s0:b, i0, (i1, k0), scratch)")
    with pytest.raises(Illegal, match="lower: cannot keep 1332 bytes of scratch per worker"):
        lower(nest, Limits(scratch_bytes=1000))


def test_lowering_is_pure():
    (case,) = cases("matmul-f32")
    nest = scheduled(case, "Split(k0, 8); Vectorize(k0.1); Copy(s0:b, i0, (i1, k0.0, k0.1), "
                           "scratch)")
    first, second = lower(nest, LIMITS), lower(nest, LIMITS)
    assert [*map(str, first.programs)] == [*map(str, second.programs)]
    assert first.binding == second.binding
