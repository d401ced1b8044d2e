"""The parameters that sketches begin with, and streaming stores, which most of them may choose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fusion_tools import matmul
from schedule_tools import cases_of, check, values
from search_tools import LIMITS, addition, kernel_of

import tilewright as tw
from tilewright.actions import default_recipe
from tilewright.actions.sketches.draft import Draft
from tilewright.actions.sketches.pointwise import Pointwise, Strips, Transpose
from tilewright.actions.sketches.reduction import Reduction
from tilewright.dtypes import float32
from tilewright.errors import Illegal
from tilewright.graph import apply, parameter

LANES = LIMITS.lanes(4)


def sketch(kernel) -> Pointwise | Reduction:
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


@pytest.mark.parametrize("make, copies", [
    (lambda x: apply("reduce", x, kind="sum", axes=(0,)), 16),  # from memory: no other register
    (lambda x: apply("reduce", x, kind="max", axes=(0,)), 8),
    (lambda x: apply("reduce", apply("multiply", x, x), kind="sum", axes=(0,)), 8),
])
def test_sums_down_columns_fill_the_registers(make, copies):
    found = sketch(kernel_of(make(parameter(0, (1024, 2048), float32))))
    assert (found.vector, found.lanes, found.copies) == ("i0", LANES, copies) and found.block
    assert LIMITS.registers == 16


@pytest.mark.parametrize("rows, block", [(256, 256), (1024, 8)])
def test_products_down_columns_take_long_blocks_where_the_last_cache_holds_them(rows, block):
    x = parameter(0, (rows, 2048), float32)
    found = sketch(kernel_of(apply("reduce", apply("multiply", x, x), kind="sum", axes=(0,))))
    assert found.block == block and found.copies == (16 if block == 256 else 8)
    assert LIMITS.l3 == 16 << 20


# -- the axis that is put in lanes ---------------------------------------------------------------


@pytest.mark.parametrize("shape, axis, vector", [
    ((4096, 3), 1, "i0"),  # lanes three apart are cheap to pick, three of a register are few
    ((4096, 10), 1, "k0"), ((64, 4096), 1, "k0"), ((64, 4096), 0, "i0"),
])
def test_a_reduction_puts_its_cheapest_axis_in_lanes(shape, axis, vector):
    x = parameter(0, shape, float32)
    assert sketch(kernel_of(apply("reduce", x, kind="max", axes=(axis,)))).vector == vector


def test_vectors_that_every_row_reads_again_do_not_outvote_the_matrix():
    """sum_k u[k] * (a[k, i] / v[k]): two loads walk k, and the one that counts walks i."""
    a, u, v = (parameter(n, s, float32) for n, s in enumerate(((512, 512), (512, 1), (512, 1))))
    u, v = (apply("expand", x, shape=(512, 512)) for x in (u, v))
    product = apply("multiply", u, apply("divide", a, v))
    assert sketch(kernel_of(apply("reduce", product, kind="sum", axes=(0,)))).vector == "i0"


# -- stages that walk an axis by blocks ------------------------------------------------------------


def normalised(rows: int, columns: int):
    x = parameter(0, (rows, columns), float32)
    total = apply("reduce", apply("multiply", x, x), kind="sum", axes=(0,))
    total = apply("expand", apply("reshape", total, shape=(1, columns)), shape=(rows, columns))
    return kernel_of(apply("divide", x, total))


@pytest.mark.parametrize("rows, columns, size", [
    (64, 512, 512),  # all of it in half of L2
    (256, 2048, 256),  # half of L2 holds a thousand bytes of each row
    (1024, 2048, 2048),  # all of it in the last cache
    (4096, 2048, 256),  # a quarter of the last cache
])
def test_columns_are_opened_as_widely_as_caches_hold_them(rows, columns, size):
    kernel = normalised(rows, columns)
    limits = replace(LIMITS, l2=512 << 10, l3=16 << 20, threads=1)
    assert default_recipe(kernel, limits).opened == ("i1", size)
    assert default_recipe(kernel, replace(limits, threads=8)).opened[1] <= columns // 8


def test_pieces_of_an_output_are_written_by_turns():
    columns = [apply("reshape", parameter(n, (4096,), float32), shape=(4096, 1)) for n in (0, 1)]
    kernel = kernel_of(apply("concat", *columns, axis=1))
    recipe = default_recipe(kernel, LIMITS)
    assert recipe.joined == 64 and "join(64)" in str(recipe)
    assert str(recipe.schedule(kernel, LIMITS)).startswith("Split(s1:i0, 64)\nPlace(s0, s1:i0.0)")
    sizes = {r.joined for r in recipe.neighbours(kernel, LIMITS)}
    assert sizes == {0, 16, 64, 256}


def test_a_sketch_over_an_axis_that_its_stage_shares_is_illegal():
    kernel = kernel_of(apply("concat", *(parameter(n, (64, 8), float32) for n in (0, 1)), axis=1))
    recipe = replace(default_recipe(kernel, LIMITS), joined=64, sketches=(
        Pointwise("s0", "i0", 8, 1), Pointwise("s1", "i0", 8, 1)))
    with pytest.raises(Illegal, match="sketch: cannot find a loop of s0 alone over i0"):
        replace(recipe, opened=None).schedule(kernel, LIMITS)


@pytest.mark.parametrize("make", [
    lambda: apply("concat", *(apply("permute", parameter(n, (256, 256), float32), axes=(1, 0))
                              for n in (0, 1)), axis=0),  # transposed: each has tiles of its own
    lambda: apply("concat", *(parameter(n, (8,), float32) for n in (0, 1)), axis=0),  # no vectors
    lambda: apply("concat", *(parameter(n, (64 + n,), float32) for n in (0, 1)), axis=0),
])
def test_pieces_that_would_lose_their_vectors_stay_apart(make):
    kernel = kernel_of(make())
    recipe = default_recipe(kernel, LIMITS)
    assert recipe.joined == 0 and "Place" not in str(recipe.schedule(kernel, LIMITS))


# -- streaming -----------------------------------------------------------------------------------


def pieces(count: int) -> tuple:
    """Return the kernels of a concat of uneven pieces, and a function that computes it."""
    arrays = [np.arange(1000 + i % 7, dtype=np.float32) for i in range(count)]
    function = tw.jit(lambda *a: tw.concat([2.5 * x for x in a]))
    inputs = [tw.asarray(a) for a in arrays]
    return function.compile(*inputs), lambda: np.asarray(function(*inputs)), arrays


def test_parts_that_start_anywhere_are_not_streamed():
    """Several calls fill one array: a vector of theirs may be at any address, and would fault."""
    compiled, run, arrays = pieces(200)
    refused = 0
    for kernel in compiled.kernels:
        (output,) = kernel.kernel.outputs
        text = f"{kernel.schedule}\nStreamStore({output.name})"
        if not output.part:
            compiled.replace(kernel.with_schedule(text))
            continue
        refused += 1
        assert f"{output.name}: output float32[{output.shape[0]}] part" in str(kernel.kernel)
        with pytest.raises(Illegal, match="cannot stream out0 .a part of an array"):
            kernel.with_schedule(text)
    assert 0 < refused < len(compiled.kernels)
    assert (run() == 2.5 * np.concatenate(arrays)).all()


@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_vectors_wider_than_a_line_are_streamed_line_by_line(lanes):
    x = np.random.default_rng(0).random(4096, dtype=np.float32)
    function = tw.jit(lambda a: a + 1)
    compiled = function.compile(tw.asarray(x))
    (kernel,) = compiled.kernels
    text = f"Split(i0, {lanes})\nVectorize(i0.1)\nStreamStore(out0)"
    compiled.replace(streamed := kernel.with_schedule(text))
    assert "nontemporal" in streamed.source and (np.asarray(function(tw.asarray(x))) == x + 1).all()


@pytest.mark.parametrize("last_cache, streams", [(1 << 20, ("out0",)), (2 << 20, ())])
def test_an_output_that_would_not_stay_in_the_caches_is_streamed(last_cache, streams):
    kernel = addition(256, 1024)  # moves 3 MiB
    assert default_recipe(kernel, replace(LIMITS, l3=last_cache)).stream == streams
    reduced = kernel_of(apply("reduce", parameter(0, (256, 1024), float32), kind="sum", axes=(1,)))
    assert default_recipe(reduced, replace(LIMITS, l3=1 << 10)).stream == ()


@pytest.mark.parametrize("shape, strip", [
    ((4096, 2048), (True, 2)), ((2048, 2056), (True, 2)), ((2056, 2048), (False, 1)),
    ((65536, 32), (False, 1)), ((32, 65536), (True, 1)), ((30, 65536), (False, 1))])
def test_transposes_past_the_caches_go_down_strips(shape, strip):
    kernel = kernel_of(apply("permute", parameter(0, shape, float32), axes=(1, 0)))
    near, far = (default_recipe(kernel, replace(LIMITS, l3=size)) for size in (1 << 30, 1 << 20))
    (before,), (after,) = near.sketches, far.sketches
    assert (before.swap, before.copies) == (False, 1) and far.stream
    assert (after.swap, after.copies) == strip


def test_past_the_caches_other_loops_of_a_transpose_follow_what_is_read():
    kernel = kernel_of(apply("permute", parameter(0, (8, 64, 32, 32), float32), axes=(1, 0, 3, 2)))
    (near,) = default_recipe(kernel, LIMITS).sketches
    far = default_recipe(kernel, replace(LIMITS, l3=1 << 20))
    assert not near.reading and far.sketches[0].reading
    assert "Reorder((i1, i0, i3.0, i2.0, i2.1, i3.1))" in str(far.schedule(kernel, LIMITS))


def test_rows_that_are_read_in_another_order_go_by_strips():
    kernel = kernel_of(apply("permute", parameter(0, (512, 64, 128), float32), axes=(1, 0, 2)))
    near = default_recipe(kernel, replace(LIMITS, l3=1 << 30))
    assert isinstance(near.sketches[0], Pointwise)
    assert {(s.row, s.side) for r in near.neighbours(kernel, LIMITS)
            for s in r.sketches if isinstance(s, Strips)} == {("i1", 1), ("i1", 2), ("i1", 4)}
    far = default_recipe(kernel, replace(LIMITS, l3=1 << 20))
    assert far.sketches == (Strips("s0", "i2", 32, "i1", 2),)
    assert "Reorder((i1.0, i0, i2.0, i1.1, i2.1))" in str(far.schedule(kernel, LIMITS))


@pytest.mark.parametrize("shape", [(5, 7, 40), (16, 4, 8), (3, 1, 19), (33, 6, 1)])
@pytest.mark.parametrize("lanes, side", [(8, 1), (8, 2), (16, 4), (32, 16)])
def test_strips_give_the_same(shape, lanes, side):
    graph = apply("permute", values(*shape), axes=(1, 0, 2))
    for case in cases_of("strips", apply("add", graph, graph)):
        if len(case.kernel.axes) == 3:
            draft = Draft(case.kernel)
            Strips("s0", "i2", lanes, "i1", side).apply(draft, LIMITS)
            assert check(case, draft.nest)

@pytest.mark.parametrize("shape", [(64, 96), (33, 70), (16, 16), (1, 40), (40, 1), (5, 128)])
@pytest.mark.parametrize("copies, swap", [(2, False), (2, True), (4, True), (16, False)])
def test_tiles_side_by_side_give_the_same(shape, copies, swap):
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    function = tw.jit(lambda a: tw.permute_dims(a, (1, 0)) + 1)
    compiled = function.compile(tw.asarray(x))
    (kernel,) = compiled.kernels
    form = kernel.kernel
    recipe = default_recipe(form, LIMITS)
    moved = tuple(replace(s, copies=copies, swap=swap) if isinstance(s, Transpose) else s
                  for s in recipe.sketches)
    for stream in ((), tuple(b.name for b in form.outputs)):
        schedule = replace(recipe, sketches=moved, stream=stream).schedule(form, LIMITS)
        compiled.replace(kernel.with_schedule(str(schedule)))
        assert (np.asarray(function(tw.asarray(x))) == x.T + 1).all()


# -- rows that lie across memory -----------------------------------------------------------------


@pytest.mark.parametrize("size, rows, pack", [(256, 6, ""), (1024, 6, "root"), (4096, 6, "tile")])
def test_rows_across_memory_make_tall_tiles(size, rows, pack):
    """Six of the sixteen rows of a line: packed where they come from far away."""
    a, b = (parameter(i, (size, size), float32) for i in range(2))
    turned = kernel_of(matmul(apply("permute", a, axes=(1, 0)), b))
    found = default_recipe(turned, LIMITS).sketches[0]
    assert (found.rows, found.vectors, found.pack_rows) == (rows, 2, pack)
    plain = default_recipe(kernel_of(matmul(a, b)), LIMITS).sketches[0]
    assert plain.pack_rows == ""


@pytest.mark.parametrize("size", [3, 40])
def test_a_scan_of_products_is_no_tile_of_rows_and_columns(size):
    """Its steps are carried: no factor can be packed over them."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 1, size), dtype=np.float32), rng.random((2, size), dtype=np.float32)
    found = tw.jit(lambda a, b: tw.cumsum(a * b, axis=-1) + 1)(tw.asarray(a), tw.asarray(b))
    np.testing.assert_allclose(np.asarray(found), np.cumsum(a * b, axis=-1) + 1, rtol=1e-5)
