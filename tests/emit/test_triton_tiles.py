"""Block sizes, index widths, and the text of a kernel: no kernel is run."""

import random
import re

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from minicompile import fusion
from minicompile.core.semantics.evaluate import evaluate_index
from minicompile.core.index import Symbol, Variable, index
from minicompile.core.loops import (Const, Kernel, Load, Loop, Op,
                                    Position)
from minicompile.emit.schedules import gpu as triton_tiles
from minicompile.emit.triton import print_kernel
from minicompile.emit.schedules.gpu import Axis, Tiling, tile, wide
from tests.emit.sums import LARGE, Sums
from tests.emit.triton_kernels import buffer, variables
from tests.fusion.graphs import aten, fake_inputs


def tilings(function, *args) -> list[Tiling]:
    schedule = fusion.fuse(aten(function, *args))
    return [tile(kernel) for kernel in schedule.kernels]


def blocks(tiling: Tiling) -> list[tuple[str, int]]:
    return [(axis.name, axis.block) for axis in tiling.axes]


def test_a_row_that_fits_is_held_whole():
    tiling, = tilings(lambda x: F.softmax(x, -1), torch.empty(64, 1000))
    assert not tiling.looped
    assert blocks(tiling) == [("x", 1), ("r", 1024)]


def test_short_rows_share_a_block():
    tiling, = tilings(lambda x: x.sum(-1), torch.empty(100_000, 32))
    assert blocks(tiling) == [("x", 64), ("r", 32)]


def test_a_row_too_long_for_registers_is_walked_along():
    tiling, = tilings(lambda x: F.softmax(x, -1), torch.empty(200, 100_000))
    assert tiling.looped
    assert tiling.grid == 200


def softmax(x):
    return x.softmax(-1)


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def scaled(x):
    return F.layer_norm(x, x.shape[-1:], *x[:2])


@pytest.mark.parametrize("width, dtype, function, block, warps", [
    (50_257, torch.bfloat16, softmax, 4096, 16),
    (50_257, torch.float32, softmax, 8192, 32),
    (50_304, torch.bfloat16, softmax, 8192, 16),
    (50_257, torch.float32, lambda x: x.sum(-1), 8192, 32),
    (50_304, torch.float32, lambda x: x.sum(-1), 8192, 16),
    *((50_257, torch.float32, function, 2048, 16) for function in (
        lambda x: x.var(-1), lambda x: x.argmax(-1), scaled)),
    (50_304, torch.float32, lambda x: x.var(-1), 2048, 16),
    (50_257, torch.bfloat16, norm, 4096, 16),
    (50_257, torch.float32, norm, 8192, 32),
    (50_257, torch.float32, lambda x: x * x[0] / x.sum(-1, True), 4096, 16),
    *((50_304, torch.float32, each, 8192, 32) for each in (norm, scaled))])
def test_a_thread_has_fewer_elements_of_a_row_that_it_walks_along(
        width, dtype, function, block, warps):
    """If they come one by one, or if reductions keep step."""
    tiling, = tilings(function, *fake_inputs((200, width), dtype=dtype))
    assert blocks(tiling) == [("x", 1), ("r", block)]
    assert tiling.warps == warps and tiling.looped


@pytest.mark.parametrize("function, passes", [
    (lambda x: x.var(-1), 1), (lambda x: x.argmax(-1), 1),
    (lambda x: x.std(0) + x.argmin(0), 1), (norm, 2), (softmax, 2),
    (lambda x: (x.logsumexp(-1), x.argmax(-1)), 2),
    (lambda x: (x - x.sum(-1, True) * x[0]).square().sum(-1), 2)])
def test_a_reduction_keeps_step_with_the_one_that_it_needs(function, passes):
    """The last two cannot: one maximum is a column, and what elements are
    far from differs from one to the next."""
    kernel, = fusion.fuse(aten(function, *fake_inputs(
        (3000, 50_257)))).kernels
    assert print_kernel(kernel).count("for start in") == passes


@pytest.mark.parametrize("count, block", [
    (200, 8192), (300, 4096), (1000, 2048), (5000, 2048)])
def test_fewer_rows_are_walked_along_in_longer_blocks(count, block):
    """Where their sums follow a maximum: in one trip to memory."""
    for function in (lambda x: x.logsumexp(-1), lambda x: (
            x - x.amax(-1, keepdim=True)).exp().sum(-1)):
        tiling, = tilings(function, *fake_inputs((count, 50_257)))
        assert blocks(tiling) == [("x", 1), ("r", block)]
        assert tiling.looped


def test_a_row_that_is_read_once_is_walked_along_to_compute_with_it():
    """Functions take registers; a mere sum has as many loads as fit."""
    for function, walked in (
            (lambda x: x.exp().sum(-1), True), (lambda x: x.sum(-1), False),
            (lambda x: x.logsumexp(-1), False)):
        tiling, = tilings(function, *fake_inputs((4096, 16384)))
        assert bool(tiling.looped) is walked


@pytest.mark.parametrize("function, width, warps", [
    (lambda x: x.softmax(-1), 768, 1), (lambda x: x.softmax(-1), 1024, 1),
    (lambda x: x.softmax(-1), 2048, 2), (lambda x: x.softmax(-1), 8192, 8)])
def test_a_short_row_is_the_work_of_one_warp(function, width, warps):
    """Warps that meet in the middle of a row wait for each other."""
    *_, tiling = tilings(function, *fake_inputs((4096, width)))
    assert not tiling.looped and tiling.warps == warps


def test_rows_of_a_few_elements_come_in_turn():
    """A thread has a row to itself; but not if it stores all of it, or if
    a load brings several neighbours and the row ends with them."""
    for name, width, dtype, turns in (
            ("var", 3, torch.float32, True), ("var", 7, torch.float32, True),
            ("sum", 7, torch.bfloat16, True),
            ("sum", 7, torch.float32, True),
            ("sum", 8, torch.float32, False),
            ("amax", 8, torch.bfloat16, False),
            ("softmax", 3, torch.bfloat16, True),
            ("softmax", 4, torch.bfloat16, False),
            ("softmax", 7, torch.bfloat16, False)):
        tiling, = tilings(
            lambda x, name=name: getattr(x, name)(-1),
            torch.empty(100_000, width, dtype=dtype))
        assert bool(tiling.looped) is turns, (name, width, dtype)
        assert not turns or blocks(tiling) == [("x", 256), ("r", 1)]
    for step, turns in ((1, True), (4, False)):  # windows share neighbours
        tiling, = tilings(lambda x, step=step: x.unfold(1, 8, step).sum(-1),
                          torch.empty(4096, 4096))
        assert bool(tiling.looped) is turns, step


def test_rows_of_several_tensors_are_fewer():
    """As many bytes are under way, whatever they belong to."""
    for count, dtype, block, warps in (
            (1, torch.bfloat16, 16, 2), (2, torch.bfloat16, 8, 1),
            (1, torch.float32, 8, 1), (4, torch.float32, 2, 1)):
        tiling, = tilings(lambda *given: sum(given).var(-1), *fake_inputs(
            *[(100_000, 128)] * count, dtype=dtype))
        assert blocks(tiling) == [("x", block), ("r", 128)]
        assert tiling.warps == warps
    tiling, = tilings(lambda x: x.softmax(-1), *fake_inputs(
        (100_000, 128), dtype=torch.bfloat16))  # it keeps the exponentials
    assert blocks(tiling) == [("x", 8), ("r", 128)] and tiling.warps == 1


@pytest.mark.parametrize("width, block, warps", [
    (100, ("x", 8), 1), (256, ("x", 4), 1), (512, ("x", 4), 1),
    (8192, ("x", 1), 8)])
def test_short_rows_that_are_met_three_times_have_a_warp(
        width, block, warps):
    """If one load brings as much as each of its threads needs of a row."""
    tiling, = tilings(lambda x: F.layer_norm(x, (width,)), *fake_inputs(
        (100_000, width), dtype=torch.bfloat16))
    assert blocks(tiling)[0] == block and tiling.warps == warps


@pytest.mark.parametrize("shape, order, tiles", [
    ((4096, 4096), (1, 0), [("y", 64), ("x", 64)]),
    ((8, 1 << 20), (1, 0), [("y", 8), ("x", 512)]),
    ((1 << 18, 24), (1, 0), [("y", 32), ("x", 128)]),
    ((32, 3, 224, 224), (0, 2, 3, 1), [("y", 4), ("x", 1024)]),
    ((32, 224, 224, 3), (0, 3, 1, 2), [("y", 4), ("x", 1024)]),
    ((2048, 3, 8, 8), (0, 2, 3, 1), [("x", 1024)])])
def test_a_tile_is_as_long_as_its_other_side_is_short(shape, order, tiles):
    """Unless neither side is long: then the cache holds what is read."""
    tiling, = tilings(lambda x: x.permute(order).contiguous() + 1,
                      torch.empty(shape))
    assert blocks(tiling) == tiles


@pytest.mark.parametrize("width, down", [
    (50_257, 32), (50_258, 32), (50_304, 256)])
def test_fewer_rows_are_read_at_once_if_neighbours_come_one_by_one(
        width, down):
    tiling, = tilings(lambda x: x.sum(0), *fake_inputs(
        (4096, width), dtype=torch.bfloat16))
    assert blocks(tiling) == [("x", 64), ("r", down)] and tiling.warps == 8


@pytest.mark.parametrize("name, rows, down", [
    ("sum", 200, 8), ("amax", 512, 8), ("sum", 2048, 32), ("var", 512, 8),
    ("var", 2048, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_short_columns_of_odd_rows_are_read_a_few_at_a_time(
        name, rows, down, dtype):
    """Their blocks are wider than a line: no row begins where one does."""
    tiling, = tilings(lambda x: getattr(x, name)(0), *fake_inputs(
        (rows, 50_257), dtype=dtype))
    assert blocks(tiling) == [("x", 64), ("r", down)] and tiling.warps == 8


def test_a_few_columns_have_a_program_each():
    tiling, = tilings(lambda x: x.sum(0), torch.empty(1000, 7))
    assert blocks(tiling) == [("x", 1), ("r", 1024)]


def test_columns_that_keep_step_have_few_rows_under_way():
    """But a few columns, of which a block has several parts, are held."""
    tiling, = tilings(lambda x: x.var(0), torch.empty(512, 4096))
    assert blocks(tiling) == [("x", 32), ("r", 32)] and tiling.looped
    tiling, = tilings(lambda x: x.var(1), torch.empty(64, 512, 7))
    assert blocks(tiling) == [("x", 16), ("r", 512)] and not tiling.looped


def test_what_all_neighbours_share_does_not_count():
    """A thread writes 8 floats, though it reads a wider number."""
    tiling, = tilings(lambda x, i: x + i[:, None], torch.empty(
        4096, 1000), torch.zeros(4096, dtype=torch.int64))
    assert blocks(tiling) == [("x", 1024)]


def test_columns_lie_side_by_side_in_a_block():
    """Half a line of the cache, if they are short; else a line."""
    for dtype, size, block, down in ((torch.float32, 64, 32, 64),
                                     (torch.bfloat16, 64, 32, 64),
                                     (torch.bfloat16, 65, 32, 128),
                                     (torch.bfloat16, 512, 64, 256)):
        tiling, = tilings(lambda x: x.sum(0), *fake_inputs(
            (size, 100_000), dtype=dtype))
        assert blocks(tiling) == [("x", block), ("r", down)]


def test_columns_that_are_stored_but_not_summed_have_a_tiling():
    i, = inner = variables("i", (64,))
    r, = outer = variables("r", (32,))
    where = index(r) * 64 + i
    kernel = Kernel("kernel_0", inner, outer, (Loop(
        buffer("out", (32, 64)), where, inner + outer,
        Load("given", where, torch.float32)),))
    assert blocks(tile(kernel)) == [("x", 16), ("r", 32)]
    assert "tl.store" in print_kernel(kernel)


@pytest.mark.parametrize("rows, counted", [(1 << 20, "tl.int32"),
                                           (1 << 22, "tl.int64")])
def test_an_indirect_load_counts_as_far_as_its_table_goes(rows, counted):
    for dtype in (torch.int64, torch.int32):
        with FakeTensorMode():
            args = torch.empty(rows, 1024), torch.zeros(64, dtype=dtype)
        *_, kernel = fusion.fuse(aten(lambda x, p: x[p] + 1, *args)).kernels
        text = print_kernel(kernel)
        assert re.search(rf"1024\*t\d\.to\({counted}\)", text), text


def test_small_tensors_get_small_blocks():
    tiling, = tilings(lambda x: x + 1, torch.empty(16))
    assert blocks(tiling) == [("x", 16)]
    tiling, = tilings(lambda x: x + 1, torch.empty(300_000))
    assert int(tiling.grid) >= triton_tiles.ENOUGH


COVERED = [(7,), (16384,), (33, 65), (3, 5, 129), (70_000, 3),
           (2, 4096, 130)]


@pytest.mark.parametrize("shape", COVERED)
def test_the_blocks_cover_every_point(shape, impl):
    check_cover(tile if impl == "minicompile" else impl, shape)


def is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_blocks_and_warps_are_powers_of_two(first):
    """Whatever a kernel sums: many columns, odd sizes, halves, symbols."""
    for seed in range(first, first + 15):
        for kernel in Sums(seed, LARGE).kernels():
            tiling = tile(kernel)
            assert is_power(tiling.warps) and tiling.warps <= 32
            assert all(is_power(axis.block) for axis in tiling.axes)


@pytest.mark.parametrize("count", range(1, 10))
def test_sums_down_columns_share_a_block(count):
    """As many rows as fit, for every number of sums."""
    tiling, = tilings(lambda x: tuple(
        (x * k).sum(0) for k in range(1, count + 1)),
        *fake_inputs((8192, 100_000), dtype=torch.bfloat16))
    (_, columns), (_, rows) = blocks(tiling)
    most = triton_tiles.DOWN_COLUMNS
    assert most < 2 * columns * rows * count * 2 <= 2 * most


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [2, 3, 8, 16])
def test_a_warp_adds_up_short_columns_each_in_a_thread(rows, dtype):
    tiling, = tilings(lambda x: x.sum(1), *fake_inputs(
        (4096, rows, 1024), dtype=dtype))
    (_, columns), (_, held) = blocks(tiling)
    assert tiling.warps == 1 and held >= rows
    assert columns * held * dtype.itemsize == 4096


def test_loads_down_columns_share_the_registers():
    """Two sums of three products of columns; no number for each row."""
    def sums(x, y, z, rows):
        return (x * y * rows).sum(0), (x * z).sum(0)

    tiling, = tilings(sums, *fake_inputs(
        *[(8192, 100_000)] * 3, (8192, 1)))
    (_, columns), (_, rows) = blocks(tiling)
    assert triton_tiles.DOWN_COLUMNS < 2 * columns * rows * 2 * 12 <= (
        2 * triton_tiles.DOWN_COLUMNS)


def test_a_tile_that_triton_would_refuse_is_refused():
    for block, warps in ((85, 4), (64, 3), (0, 1)):
        with pytest.raises(AssertionError):
            Tiling((Axis("x", (), block),), warps)


def check_cover(tile, shape) -> None:
    """Blocks are powers of two and leave out no point of the kernel."""
    for function in (lambda x: x + 1, lambda x: x.sum(-1),
                     lambda x: x.t() + 1 if x.dim() == 2 else x * 2):
        schedule = fusion.fuse(aten(function, torch.empty(shape)))
        for kernel in schedule.kernels:
            tiling = tile(kernel)
            seen = [v for axis in tiling.axes for v in axis.variables]
            assert sorted(map(str, seen)) == sorted(
                map(str, kernel.ranges + kernel.reduced))
            for axis in tiling.axes:
                assert is_power(axis.block)
                if not tiling.looped or axis in tiling.outer:
                    assert int(axis.blocks) * axis.block >= int(axis.size)
            assert is_power(tiling.warps) and tiling.warps <= 32


def copy(sizes, strides, offset=0, dtype=torch.float32) -> Kernel:
    """A kernel that copies from memory with these strides."""
    ranges = tuple(Variable(f"i{k}", index(size))
                   for k, size in enumerate(sizes))
    where = sum((index(v) * step for v, step in zip(ranges, strides)),
                index(offset))
    out = buffer("out", sizes, dtype)
    at = sum((index(v) * step for v, step in zip(ranges, out.stride)),
             index(0))
    return Kernel("kernel", ranges, (), (
        Loop(out, at, ranges, Load("a", where, dtype)),))


def needs_wide(kernel: Kernel) -> bool:
    return wide(kernel, tile(kernel))


def test_an_offset_alone_can_need_64_bits():
    assert not needs_wide(copy((4, 4), (4, 1)))
    assert needs_wide(copy((4, 4), (4, 1), offset=2 ** 31))
    assert needs_wide(copy((4, 4), (2 ** 30, 1)))
    assert needs_wide(copy((2 ** 16, 2 ** 15), (2 ** 15, 1)))


def test_a_difference_of_large_numbers_needs_64_bits():
    flipped = copy((2 ** 16, 2 ** 10), (-2 ** 15, 1), 2 ** 15 * (2**16 - 1))
    assert needs_wide(flipped)


@pytest.mark.parametrize("seed", range(30))
def test_32_bits_are_never_too_few(seed):
    """Corners of random kernels near 2**31, computed in whole numbers."""
    chance = random.Random(seed)
    for _ in range(30):
        sizes = [chance.choice([1, 2, 3, 1000, 2 ** 12, 2 ** 15 + 1])
                 for _ in range(3)]
        strides = [chance.choice([0, 1, 7, 2 ** 10, 2 ** 16, 2 ** 19])
                   for _ in range(3)]
        kernel = copy(sizes, strides, chance.choice([0, 2 ** 30, 2 ** 31]))
        tiling = tile(kernel)
        if wide(kernel, tiling):
            continue
        corner = {axis: index(Variable(axis.name, axis.size))
                  for axis in tiling.axes}
        values = {next(iter(number.terms))[0][0]: int(axis.size) - 1
                  for axis, number in corner.items()}
        for where in dict.fromkeys(
                where for loop in kernel.loops for where in loop.indices):
            reached = evaluate_index(tiling.place(where), values)
            assert abs(int(reached)) < 2 ** 31


def test_64_bits_reach_the_text():
    text = print_kernel(copy((2 ** 16, 2 ** 16), (2 ** 16, 1)))
    assert "tl.program_id(0).to(tl.int64)" in text
    text = print_kernel(copy((2 ** 10, 2 ** 10), (2 ** 10, 1)))
    assert "int64" not in text


def test_bytes_of_a_tensor_over_two_gigabytes_are_counted_in_64_bits():
    text = print_kernel(copy((2 ** 31 + 8,), (1,), dtype=torch.int8))
    assert "tl.program_id(0).to(tl.int64)" in text
    row, = variables("r", (2 ** 31 + 8,))
    place = Op("where", (Load("a", index(row), torch.bool),
                         Position(index(row), torch.int64),
                         Const(2 ** 63 - 1, torch.int64)), torch.int64)
    first = Kernel("kernel", (), (row,), (
        Loop(buffer("out", (), torch.int64), index(0), (), place, (row,),
             "min"),))
    text = print_kernel(first)
    assert "tl.arange(0, RBLOCK).to(tl.int64)" in text
    assert "(r).to(tl.int64)" in text and str(2 ** 63 - 1) in text


def test_coordinates_give_the_variables_back():
    variables = tuple(Variable(f"i{k}", index(size))
                      for k, size in enumerate((3, 4, 5)))
    axis = Axis("x", variables, 16)
    x = Variable("x", index(60))
    for number in range(60):
        found = [int(evaluate_index(where, {x: number}))
                 for where in axis.coordinates().values()]
        assert found == [number // 20, number // 5 % 4, number % 5]


def test_a_launch_decides_what_sizes_leave_open():
    """64 bits only if a size makes them necessary; a bound decides."""
    n, small = index(Symbol("n")), index(Symbol("m", most=1000))
    text = print_kernel(copy((n, 8), (8, 1)))
    assert "wide=lambda n: 8*n > 2146435071" in text
    assert "tl.program_id(0).to(WIDE)" in text
    assert "wide" not in print_kernel(copy((small, 8), (8, 1)))
    text = print_kernel(copy((n, 2 ** 31), (2 ** 31, 1)))
    assert "tl.program_id(0).to(tl.int64)" in text and "wide" not in text


def test_no_mask_where_every_block_is_full():
    n = index(Symbol("n"))
    assert "inside" not in print_kernel(copy((n, 1024), (1024, 1)))
    assert "x_inside" in print_kernel(copy((n, 1000), (1000, 1)))


@pytest.mark.parametrize("name, function, shape", [
    ("layer_norm", lambda x: F.layer_norm(x, (1000,)), (64, 1000)),
    ("long_softmax", lambda x: F.softmax(x, -1), (8, 100_000)),
    ("transpose", lambda x: x.t() + x, (512, 512)),
    ("column_sum", lambda x: x.sum(0), (40, 512)),
    ("argmax", lambda x: x.argmax(-1), (64, 100)),
])
def test_the_text_of_a_kernel(name, function, shape, golden):
    x = torch.empty(shape, dtype=torch.bfloat16)
    schedule = fusion.fuse(aten(function, x))
    golden(f"triton_{name}.py", "\n\n".join(
        map(print_kernel, schedule.kernels)))
