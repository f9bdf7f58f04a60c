"""What must stay vector code, read off the text and the libraries.

A scalar call, or a choice, in an innermost loop costs a factor of ten and
changes no result, so that no other test sees it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
import time
import timeit

import pytest
import torch
from torch.nn import functional as F

import minicompile
from minicompile import fusion
from minicompile.core.index import index
from minicompile.core.random.philox import UNIFORM
from minicompile.emit import cpp
from minicompile.fusion.rules.images import factors
from tests.fusion.graphs import aten
from tests.same import assert_same

VECTORS = pytest.mark.skipif(
    platform.machine() != "x86_64" or not hasattr(platform, "libc_ver")
    or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 35),
    reason="the C library has no vector functions here")
FUNCTIONS = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh erfc sigmoid""".split()


def kernels(function, *args):
    return [cpp.in_cpp(kernel)
            for kernel in fusion.fuse(aten(function, *args)).kernels]


def called(text: str) -> set[str]:
    """The functions of the C library that the compiled text calls, if no
    scalar one stands for a vector's."""
    source = cpp.headed(text).replace("#if defined(__AVX2__)", "#if 0")
    with tempfile.NamedTemporaryFile(suffix=".so") as library:
        subprocess.run(["g++", *cpp.FLAGS, "-xc++", "-", "-o", library.name],
                       input=source, check=True, text=True)
        shown = subprocess.run(
            ["nm", "-D", "--undefined-only", library.name], check=True,
            capture_output=True, text=True)
    names = re.findall(r" U (\w+)", shown.stdout)
    return {name for name in names if not name.startswith("GOMP")}


def assert_vectors(text: str) -> None:
    """g++ reports that it made vectors of each loop that should have some.
    """
    done = subprocess.run(
        ["g++", *cpp.FLAGS, "-fopt-info-vec-optimized", "-xc++", "-",
         "-o", "/dev/null"], input=cpp.headed(text), check=True,
        capture_output=True, text=True)
    loops = text.count("#pragma omp simd")
    assert 0 < loops <= done.stderr.count("loop vectorized")


@VECTORS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_are_called_for_a_vector_at_a_time(dtype):
    """Half of them a kernel: a name is not that of a scalar function."""
    def all_of(x):
        return sum(getattr(torch, name)(x) for name in FUNCTIONS)
    for name in called("\n".join(kernels(
            all_of, torch.empty(1024, dtype=dtype)))):
        assert name.startswith("_ZGV"), name


@VECTORS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64,
                                   torch.bfloat16])
def test_sine_and_cosine_of_one_number_are_two_vectors(dtype):
    def both(x):
        return (x.sin() * 2 + x.cos()).exp().tanh()
    names = called("\n".join(kernels(both, torch.empty(1024, dtype=dtype))))
    assert any("_sin" in name for name in names)
    for name in names:  # the rest of a row may be done one by one
        assert name.startswith("_ZGV") or any(
            other.endswith(f"_{name}") for other in names), names


@VECTORS
@pytest.mark.parametrize("function", [
    torch.fmod, torch.remainder, torch.floor_divide])
def test_floats_are_divided_with_a_rest_for_a_vector_at_a_time(function):
    """And those whose quotient is large one by one, without an error."""
    a = torch.rand(64) * 2.0 ** torch.arange(-20, 44)
    b = torch.linspace(-3, 3, 64).roll(3)
    text, = kernels(function, a, b)
    code = subprocess.run(["objdump", "-d", cpp.built(text)._name],
                          check=True, capture_output=True, text=True).stdout
    assert "divpd" in code
    exact = function(a.double(), b.double()).float()
    torch.testing.assert_close(minicompile.compile(function)(a, b), exact,
                               rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_no_element_of_a_concatenation_chooses(axis):
    def joined(x, y):
        return torch.cat([x.relu(), y + 1, x * 2, y[:1, :1].expand(
            (3, 5) if axis == 0 else (4, 3))], axis) * 3
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    text, = kernels(joined, x, y)
    assert text.count("ptr[") == 8 and "where" not in text
    assert not re.search(r"(?<!< 0) \? ", text)
    assert_same(joined, x, y)


def test_what_a_row_reads_once_does_not_decide_what_is_a_vector():
    """Neighbours are pixels here, though each also picks a class."""
    text, *_ = kernels(F.cross_entropy,
                       torch.randn(4, 21, 64, 64),
                       torch.zeros(4, 64, 64, dtype=torch.long))
    assert "exp(" in text and "simd\n" in text and "simd red" not in text


@pytest.mark.parametrize("axis", [0, 1])
def test_an_element_of_a_hundred_parts_is_chosen_from_two(axis):
    def joined(x):
        return torch.cat([x[k] * k for k in range(100)], axis) * 3
    x = torch.randn(100, 3, 2)
    text, = kernels(joined, x)
    assert 0 < text.count(" ? ") < 5 * text.count("omp simd")
    assert_same(joined, x)


def test_a_stack_that_is_summed_up_is_a_sum_of_terms():
    def stacked(x):
        return (torch.stack([x * k for k in range(4)]).sum(0),
                torch.stack([x, x * x, x + 1]).amax(0))
    x = torch.randn(100)
    x[3] = float("nan")
    for text in kernels(stacked, x):
        assert " ? primals" not in text and "r0" not in text
    assert_same(stacked, x)
    zeros = torch.full((40,), -0.0)
    total, _ = minicompile.compile(stacked)(zeros)
    assert not total.signbit().any()


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64,
    torch.bool], ids=str)
def test_a_block_is_transposed_before_its_vectors_read_it(dtype):
    def added(x, y):
        return x.mT + y, x.mT.contiguous(), x[:, 3:].mT ^ y[3:] if (
            dtype == torch.bool) else x[:, 3:].mT * y[3:]
    for shape in ((64, 32), (33, 70), (16, 9), (2, 40, 17)):
        x = (torch.randn(shape) * 9).to(dtype)
        y = (torch.randn(shape) * 9).to(dtype).mT.contiguous()
        text = "".join(kernels(lambda x: x.mT.contiguous(), x))
        assert text.count("[16][16];") == text.count("simd") == 1
        assert_same(added if x.dim() == 2 else lambda x, y: x.mT + y, x, y)


@pytest.mark.skipif("CXX" in os.environ, reason="another compiler's words")
def test_a_cross_product_is_vectors():
    """Its rolled operands are choices of three, made when it is compiled."""
    x, y = torch.randn(500, 3), torch.randn(500, 3)
    text, = kernels(torch.linalg.cross, x, y)
    assert "#pragma GCC unroll 3" in text
    assert_vectors(text)
    assert_same(torch.linalg.cross, x, y)


@pytest.mark.parametrize("shape", [
    (1, 64), (6, 10), (5, 12), (7, 3), (10, 8)])
def test_four_neighbours_draw_their_numbers_together(shape):
    """And the same ones as one by one."""
    def noisy(x, seed):
        return (x + UNIFORM(seed, 3, x.shape), x.mT * UNIFORM(
            seed, 2**33, x.mT.shape), (x * UNIFORM(seed, 1, x.shape)).sum(-1))
    given = torch.randn(shape), torch.tensor([2**40 + 7, -5])
    text, = kernels(lambda *given: noisy(*given)[0], *given)
    assert ("unroll 4" in text) == (given[0].numel() % 4 == 0)
    assert_same(noisy, *given)


@VECTORS
@pytest.mark.skipif("avx2" not in cpp.processor(), reason="no masked loads")
@pytest.mark.parametrize("length", [5, 17, 24])
def test_the_end_of_a_short_row_is_a_vector(length):
    text, = kernels(lambda x: x.pow(1.7).sum(-1), torch.rand(64, length))
    assert f"r0 < whole<4>({length})" in text
    assert {name for name in called(text) if "pow" in name} <= {
        "_ZGVdN8vv_powf", "_ZGVeN16vv_powf"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32])
@pytest.mark.parametrize("shape, dims", [
    ((40, 5), -1), ((9, 3, 13), (1, 2)), ((40, 63), -1)], ids=str)
def test_short_rows(shape, dims, dtype):
    """Past a row's end there are numbers, too, and they do not count."""
    def short(x):
        y, quotient = x - x.amin(dims, True), x // (x - 1 + x.eq(1))
        return (y.sum(dims), y.prod(-1), y.argmax(-1), (y > 1).any(-1),
                quotient.amax(dims), (x + 9.0).log().softmax(-1))
    x = (torch.randn(shape) * 3).to(dtype)
    if dtype == torch.float32:
        x[1, ..., -1], x[2, ..., 1] = torch.nan, -torch.inf
    assert_same(short, x)


def test_a_padded_row_reads_as_before():
    def padded(x):
        return F.pad(x, (2, 3, 1, 0)) + 1
    assert_same(padded, torch.randn(6, 7))


@pytest.mark.parametrize("how, left", [
    ({"scale_factor": 2}, 0), ({"scale_factor": (3, 1)}, 0),
    ({"size": (16, 40)}, 0), ({"scale_factor": 2.13}, 2),
    ({"size": (9, 8)}, 2)], ids=str)
def test_an_image_is_resized_by_whole_factors_in_a_loop(how, left):
    """By others PyTorch's operators are quicker: they repeat rows."""
    def resized(x):
        return F.interpolate(x.relu(), **how) * 2
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    assert len(minicompile.explain(resized)(x).externs) == left
    assert_same(resized, x)


def test_a_factor_is_whole_where_eager_finds_the_same_elements():
    """It multiplies places by a float32, which may be too small."""
    for times in range(1, 200):
        for scale in (None, float(times), times + 0.01):
            made = F.interpolate(torch.arange(3.0)[None, None], **(
                {"size": 3 * times} if scale is None
                else {"scale_factor": scale}))[0, 0]
            found = factors((index(3),), (index(len(made)),), (scale,))
            if found:
                assert found == [len(made) // 3]
                assert made.equal(torch.arange(len(made)) // found[0] + 0.0)
            assert found or scale != times or times > 40


INTERLEAVED = {
    "pairs": lambda x: torch.stack((x[..., ::2] * 2 - x[..., 1::2],
                                    x[..., 1::2] * 2 + x[..., ::2]), -1),
    "colours": lambda x: x[:, :3].permute(0, 2, 3, 1).contiguous() * 2,
    "shuffled": lambda x: F.pixel_shuffle(x, 2) * 2,
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
}


@pytest.mark.skipif("CXX" in os.environ, reason="another compiler's words")
@pytest.mark.parametrize("name", INTERLEAVED)
def test_what_lies_side_by_side_is_stored_by_one_vector(name):
    """A few elements of each neighbour: no vector leaves gaps."""
    function, x = INTERLEAVED[name], torch.randn(2, 4, 64, 64)
    text, = kernels(function, x)
    assert "#pragma GCC unroll" in text
    assert_vectors(text)
    assert_same(function, x)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["any", "all"])
def test_truths_are_reduced_as_bytes(name, axis):
    """g++ makes no vectors of a loop that reduces a `bool`."""
    def reduced(x):
        truths = x < 1
        return getattr(truths, name)(*[axis] * (axis is not None))
    for x in torch.rand(64, 1024) + 0.5, torch.rand(300, 7):
        text = "\n".join(kernels(reduced, x))
        assert f"uint8 {name}0" in text and f"bool {name}0" not in text
        assert_same(reduced, x)


@pytest.mark.parametrize("layout", [torch.contiguous_format,
                                    torch.channels_last])
@pytest.mark.skipif("CXX" in os.environ, reason="another compiler's words")
def test_windows_with_a_margin_are_read_in_vectors(layout):
    text, = kernels(lambda x: F.max_pool2d(x, 3, 1, 1),
                    torch.empty(2, 16, 64, 64).contiguous(
                        memory_format=layout))
    assert_vectors(text)


@pytest.mark.parametrize("name, function", [
    ("parts", lambda *x: torch.cat([each * 2 for each in x], 1)),
    ("sums", lambda *x: torch.stack([each * 2 for each in x], 1).sum(0)),
    ("small and large", lambda x, *y: torch.cat([x * 2, y[0][:3].sin()]))])
def test_threads_are_woken_once_for_all_parts(name, function):
    """Each takes its share of every part, and waits at the end alone."""
    args = [torch.randn(300, 200) for _ in range(6)]
    text = "\n".join(kernels(function, *args))
    assert text.count("#pragma omp parallel") == 1
    assert text.count("nowait") > 1
    before = torch.get_num_threads()
    try:
        for threads in 1, 3:
            torch.set_num_threads(threads)
            assert_same(function, *args)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif("CXX" in os.environ, reason="another compiler's words")
@pytest.mark.parametrize("mode", ["reflection", "replication"])
def test_the_gradient_of_a_margin_is_added_up_in_vectors(mode):
    """All but the outermost rows and columns read one place."""
    back = getattr(torch.ops.aten, f"{mode}_pad2d_backward")
    text, = kernels(lambda gradient, x: back(gradient, x, [2, 2, 1, 1]),
                    torch.empty(2, 3, 66, 68), torch.empty(2, 3, 64, 64))
    assert_vectors(text)
    assert "62; ++i1" in text or "60; ++i1" in text  # no outermost row


def test_columns_of_a_wide_matrix_are_no_vector():
    """g++ would load the rows in whole, and take minutes to compile it."""
    def columns(x):
        product = x[:, 0] * x[:, 1]
        return product, product.sum(), product.amax()
    x = torch.rand(64, 4096)
    assert "simd" in "".join(kernels(columns, x[:, :2].contiguous()))
    assert "simd" not in "".join(kernels(columns, x))
    x[3, 1] = torch.nan
    assert_same(columns, x)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_place_of_the_best_is_found_in_vectors(name, axis):
    text, = kernels(lambda x: getattr(x, name)(axis), torch.empty(64, 1024))
    assert text.count("#pragma omp simd") >= 2
    assert "reduction(min:" in text or axis == 0


@pytest.mark.parametrize("dtype, size, name, vectors", [
    (torch.bfloat16, 8, "amax", False), (torch.bfloat16, 7, "amax", True),
    (torch.float16, 8, "sum", False), (torch.bfloat16, 7, "sum", True),
    (torch.bfloat16, 8, "softmax", True), (torch.bfloat16, 9, "amax", True),
    (torch.float32, 8, "amax", True)])
def test_rows_that_fill_half_a_vector_are_none(dtype, size, name, vectors):
    """A maximum of 8 numbers of 16 bits took six times as long in one; one
    of 7 takes half as long in it."""
    x = torch.randn(100, size).to(dtype)
    x[3, 2] = torch.nan

    def function(x):
        return getattr(x, name)(-1)
    text, = kernels(function, x)
    assert ("omp simd" in text) is vectors
    assert_same(function, x)


@pytest.mark.parametrize("dtype, size, name, whole", [
    (torch.float32, 7, "amax", True), (torch.float32, 7, "sum", False),
    (torch.int64, 7, "sum", True), (torch.float32, 15, "sum", True),
    (torch.float32, 15, "prod", False), (torch.float32, 16, "amax", False),
    (torch.float32, 100, "amax", True), (torch.float64, 50, "amax", True),
    (torch.float64, 100, "amax", True), (torch.float32, 130, "amax", False),
    (torch.float32, 127, "logsumexp", True), (torch.uint8, 31, "amax", False),
    (torch.bfloat16, 12, "amax", False), (torch.bfloat16, 31, "amax", True),
    (torch.bfloat16, 31, "sum", False), (torch.float16, 48, "sum", True),
    (torch.bfloat16, 64, "sum", False), (torch.int16, 100, "amax", True)])
def test_rows_that_end_within_a_vector_are_read_whole(
        dtype, size, name, whole):
    """One by one, the last 15 of 127 take longer than the other 112."""
    x = (torch.randn(100, size) * 9).to(dtype)

    def function(x):
        return getattr(x, name)(-1)
    text, = kernels(function, x)
    assert ("whole<" in text) is whole
    assert_same(function, x)


@pytest.mark.parametrize("shape, width", [
    ((5000, 1000), 64), ((100, 1000), 640), ((7, 3000), 1024)])
def test_a_block_of_columns_fills_a_cache(shape, width):
    """Of long ones, one of 64 columns; 16 took up to twice as long."""
    text, = kernels(lambda x: x.softmax(0), torch.rand(shape))
    assert f"+= {width})" in text


MASKED = {
    "elements": lambda x, mask: torch.where(mask, 0.0, x * 2) + 1,
    "rows": lambda x, mask: x.masked_fill(mask, -1e9).softmax(1),
    "argmax": lambda x, mask: torch.where(mask, x, -1e9).argmax(1),
}


@pytest.mark.slow(sample=1)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="vectors of x86")
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_costs_no_branch(name):
    """A random mask is no slower than one that always holds."""
    x, masks = torch.randn(512, 1024), [
        torch.rand(512, 1024) < share for share in (0.5, 2)]
    compiled = minicompile.compile(MASKED[name])

    def fastest(mask):
        return min(timeit.repeat(lambda: compiled(x, mask), number=1,
                                 repeat=30, timer=time.thread_time))
    for mask in masks:
        assert_same(MASKED[name], x, mask)
        compiled(x, mask)
    mixed, whole = map(fastest, masks)
    assert mixed < 2 * whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_of_one_row_fuses(dtype, bias):
    """With what comes before and after. More rows are a library's, and so
    are many short rows of weights."""
    torch.manual_seed(0)
    for rows, outputs, operators in ((1, 20, 0), (2, 20, 1), (1, 1025, 1)):
        layer = torch.nn.Linear(48, outputs, bias, dtype=dtype)
        x = torch.randn(1, rows, 48, dtype=dtype, requires_grad=True)
        compiled = assert_same(lambda x, f=layer: F.gelu(f(x * 2)), x)
        source = compiled.cache.entries[-1].lowered.programs[
            "forward"].source
        assert source.count("mm.") == source.count("mm(") == operators


def test_a_row_of_another_type_is_refused_as_eager_does():
    with pytest.raises(RuntimeError, match="dtype"):
        minicompile.compile(F.linear)(
            torch.randn(1, 4), torch.randn(3, 4).double())


@pytest.mark.parametrize("function", [torch.exp, torch.erf])
def test_exp_and_erf_are_as_near_as_the_header_says(function):
    """Every 997th float, both signs: 1.2 units in the last place."""
    sizes = torch.arange(0, 0x7f800001, 997, dtype=torch.int32)
    sizes = torch.cat((sizes, torch.tensor([
        0x7f800000, 0x7f800001, 0x7fffffff], dtype=torch.int32)))
    x = torch.cat((sizes.view(torch.float32), -sizes.view(torch.float32)))
    right = function(x.double())
    rounded = right.float()
    unit = torch.nextafter(rounded.abs(), torch.tensor(float("inf"))
                           ).double() - rounded.abs().double()
    found = minicompile.compile(function)(x)
    normal = rounded.isfinite() & (rounded.abs() >= 2 ** -126)
    off = (found.double() - right).abs() / unit
    assert off[normal].max() <= 1.2
    torch.testing.assert_close(found[~normal], rounded[~normal],
                               equal_nan=True, rtol=0, atol=2 ** -149)
