"""The operators that are taken apart, by PyTorch's formulas or our own.

Out: rows of the tables of decompositions. Formulas of our own cover the
gradients of a loss and of a maximum, writes under a mask, one-hot numbers,
a GradScaler's step and operators that draw random numbers. Matrix products
are padded to shapes that a GPU's library is quick at; those of one row, or
with a vector, are sums, which fuse. Without this file these operators run
as ATen has them, with eager's random numbers, and masks are saved.
PyTorch's formulas are in torch/_decomp and torch/_inductor/fx_passes, such
as pad_mm.py and replace_random.py, its choice in
torch/_inductor/decomposition.py.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from math import pi, prod

import torch
from torch._decomp import decomposition_table
from torch.nn import functional as F
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode, _pop_mode_temporarily as without_recorder)

from ...core.machines import cost
from ...core.graph import CHECK, FAILED, operators
from ...core.random.philox import UNIFORM
from ..aliases import storage_of
from ..record import CALLS
from ..recorder import DECOMPOSITIONS, RecordingMode, aten

#: Why, and the ops it holds for, with all their overloads and gradients.
REASONS: dict[str, str] = {
    "arithmetic on one element, written with simpler arithmetic": """
        celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh
        leaky_relu log_sigmoid log_sigmoid_forward logit mish
        _prelu_kernel rrelu_with_noise_backward selu sigmoid_backward
        silu softplus softshrink tanh_backward threshold
        addcdiv addcmul clamp_max clamp_min deg2rad rad2deg frac
        heaviside isneginf isposinf lerp logaddexp logaddexp2
        isinf nan_to_num native_dropout_backward rsub sgn sinc special_entr
        special_log_ndtr special_xlog1py xlogy
        masked_fill tril triu fill zero""",
    "reductions with arithmetic around them, which fuse": """
        _fused_rms_norm _log_softmax _log_softmax_backward_data
        _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training _batch_norm_with_update
        _batch_norm_with_update_functional _batch_norm_no_update
        _safe_softmax _softmax _softmax_backward_data aminmax
        batch_norm_backward cudnn_batch_norm dist linalg_vector_norm
        logsumexp nansum native_batch_norm native_group_norm
        native_layer_norm norm trace""",
    "losses: a choice of elements, arithmetic and a sum": """
        binary_cross_entropy_backward binary_cross_entropy_with_logits
        huber_loss mse_loss nll_loss2d_forward nll_loss_forward
        smooth_l1_loss""",
    "gradients of views: zeros with a part filled in": """
        diagonal_backward select_backward select_scatter
        slice_backward""",
    "copies of views, which fuse": """
        diagonal_copy expand_copy narrow_copy permute_copy squeeze_copy
        t_copy transpose_copy unsqueeze_copy""",
    "other names of views, so that later stages know only a few": """
        _reshape_alias _unsafe_view pixel_shuffle pixel_unshuffle stack t
        transpose""",
    "creation, so that only `full` and `empty` remain": """
        new_full new_ones new_zeros ones ones_like zeros zeros_like""",
}

#: Where rows have to be aligned, and to how many bytes.
ROWS = {"cuda": 16}
#: How many times longer a product takes if they are not.
SLOWER = 4
#: A layer of one row is taken apart if each output has so many weights, or
#: if there are no more outputs.
WEIGHTS, OUTPUTS = 512, 1024
#: The longest side of many matrices where sums of products take less time
#: than a library; how short two sides are; the pairs of numbers of a single
#: product, by the type of the device.
SIDE, SHORT, PAIRS = 16, 4, {"cuda": 2 ** 17, "cpu": 256}
#: Autograd's steps of what chooses one element of a whole tensor.
EXTREMES = {"MaxBackward1", "MinBackward1", "MedianBackward0",
            "NanmedianBackward0"}

#: Binary digits of a float in [0, 1); the numbers drawn have 24.
DIGITS = {torch.float16: 11, torch.bfloat16: 8}
SINGLE = {torch.float32, *DIGITS}


def along(dim: int, like: torch.Tensor, vector: torch.Tensor):
    """The vector along one of the dimensions that `like` has."""
    shape = [1] * like.dim()
    shape[dim] = -1
    return vector.view(shape)


def nll_loss_backward(grad_output, self, target, weight, reduction,
                      ignore_index, total_weight):
    """The gradient of nll_loss, each element on its own.

    PyTorch's formula scatters; this one compares, and so it fuses.
    """
    dim = min(1, self.dim() - 1)
    classes = along(dim, self, torch.arange(
        self.size(dim), device=self.device))
    if self.dim() > 1 or target.dim() == 0:
        target = target.unsqueeze(dim)
    if reduction == 1:  # the mean
        grad_output = grad_output / total_weight
    elif self.dim() > 1 and grad_output.dim():
        grad_output = grad_output.unsqueeze(dim)
    if weight is not None:
        grad_output = grad_output * along(dim, self, weight)
    chosen = (classes == target) & (target != ignore_index)
    return torch.where(chosen, -grad_output, 0).to(self.dtype)


def chosen_by(mask: torch.Tensor, number: torch.Tensor):
    """The gradient of a tensor's largest, least or middle element. Eager
    chooses on a CPU, where the formula for fake tensors multiplies, and
    infinity times 0 is no number."""
    step = torch._C._current_autograd_node()
    return torch.where(mask, number, 0) if (
        step and step.name() in EXTREMES and mask.device.type == "cpu"
        and mask.dtype is torch.bool) else NotImplemented


def unscale(gradients, found_inf, inverse):
    """A GradScaler's gradients divided by its scale, and if any overflowed.

    As an operator on lists it would be one call that fuses with nothing.
    """
    for each in gradients:
        overflowed = each.isfinite().all().logical_not()
        found_inf = torch.where(overflowed, 1.0, found_inf)
    return [each * inverse for each in gradients], found_inf


def require(mask: torch.Tensor) -> None:
    """Check that all of the mask holds, as PyTorch's kernel would.

    When it does not, Python runs the call, and the error is eager's.
    """
    CHECK(mask.all(), f"{FAILED}a number is out of its range")


def bounded(count: int, places: torch.Tensor) -> torch.Tensor:
    """The places, none of which is outside. On a GPU a kernel that uses
    one stops if it is, as PyTorch's does."""
    if places.device.type != "cpu":
        return torch.arange(count, device=places.device).index_select(
            0, places.flatten()).view(places.shape)
    require((places >= 0) & (places < count))
    return places


def one_hot(_, classes: torch.Tensor, num_classes: int = -1):
    """A row for each class number, with a 1 in its place.

    PyTorch's looks at the numbers before it writes the ones.
    """
    if num_classes < 1:
        return torch._C._nn.one_hot(classes, num_classes)
    places = torch.arange(num_classes, device=classes.device)
    return (bounded(num_classes, classes).unsqueeze(-1) == places
            ).long().contiguous()


def put(_, tensor: torch.Tensor, places: object, given: object) -> None:
    """`tensor[places] = given`; a choice for each element if the places are
    a mask, and all get the same or each has a row with a gradient.
    PyTorch's counts the chosen ones first; so does its gradient."""
    if (isinstance(places, torch.Tensor) and places.dtype is torch.bool
            and places.dim() and places.device == tensor.device
            and places.shape == tensor.shape[:places.dim()]):
        rest = tensor.dim() - places.dim()
        mask = places.reshape(*places.shape, *[1] * rest)
        if not isinstance(given, torch.Tensor) or not given.dim():
            tensor.masked_fill_(mask, given)
            return
        if given.dtype == tensor.dtype and (
                storage_of(given) != storage_of(tensor)) and all(
                size == 1 for size in given.shape[:-rest or None]):
            tensor.copy_(torch.where(mask, given, tensor))
            return
        if given.requires_grad and given.dtype == tensor.dtype and (
                given.shape[1:] == tensor.shape[places.dim():]):
            require(places.sum() == given.shape[0])
            tensor.copy_(torch.masked_scatter(tensor, mask, given))
            return
    operator.setitem(tensor, places, given)


def affine_grid(_, theta: torch.Tensor, size, align_corners=None):
    """The grid as ATen has it; ATen's gradient takes no size that varies.
    """
    one = torch.eye(*theta.shape[1:]).to(theta)[None]
    points = F.pad(torch.affine_grid_generator(
        one, [1, *size[1:]], bool(align_corners)), (0, 1), value=1.0)
    grid = points.flatten(1, -2).expand(size[0], -1, -1) @ theta.mT
    return grid.view(size[0], *size[2:], -1)


def addmm(bias: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor,
          **factors):
    """`bias + a @ b` of a single row, as sums of products; or of aligned
    operands; or NotImplemented.

    A layer's weights are read once for a row, and products fuse with what
    comes before and after. Tensor cores are fed 16 bytes at a time. Where
    rows are no multiple of that, cuBLAS takes a kernel several times
    slower; a vocabulary of 50257 words is enough. So the operands are
    padded with zeros.
    """
    dtypes = {each.dtype for each in (a, b, bias) if each is not None}
    one_row = a.shape[0] == 1 and is_transposed(b) and (
        b.shape[0] >= WEIGHTS or b.shape[1] <= OUTPUTS)
    if (one_row or is_small(a, b)) and not factors and (
            len(dtypes) == 1 and a.is_floating_point()):
        made = products(a, b)
        return (made if bias is None else made + bias).to(a.dtype)
    m, k, n = more = padding(a, b)
    if not any(more) or bias is not None and bias.shape != b.shape[1:]:
        return NotImplemented
    wide = extended(a, m, k), extended(b, k, n)
    product = torch.mm(*wide) if bias is None else torch.addmm(
        F.pad(bias, (0, n)), *wide, **factors)
    return product[:a.shape[0], :b.shape[1]].contiguous()


def cross(a: torch.Tensor, b: torch.Tensor, *, dim: int = -1):
    """The cross product, each number as that of two of the others."""
    a, b = torch.broadcast_tensors(a, b)
    return (a.roll(-1, dim) * b.roll(1, dim)
            - a.roll(1, dim) * b.roll(-1, dim))


def bmm(a: torch.Tensor, b: torch.Tensor):
    """Small matrices, or on a CPU matrices times a vector each: sums of
    products, which take a tenth of the library's time, or mere products of
    two vectors."""
    sizes = b.shape[2], *[a.shape[2]] * (a.dtype not in DIGITS)
    vectors = a.device.type == "cpu" and any(
        type(size) is int and size == 1 for size in sizes)
    return products(a, b).to(a.dtype) if a.is_floating_point() and (
        vectors or is_small(a, b)) else NotImplemented


def products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a @ b` as sums of products, in float32 if they have fewer digits."""
    work = torch.float32 if a.dtype in DIGITS else a.dtype
    return (a.to(work).unsqueeze(-1) * b.to(work).unsqueeze(-3)).sum(-2)


def padding(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int]:
    """By how much to extend the sizes m, k, n; zeros if it does not pay.
    """
    sizes = (*a.shape, b.shape[1])
    machine = cost.machine(a.device)
    if (a.device.type not in ROWS or a.dtype.itemsize != 2
            or not all(type(size) is int for size in sizes)):
        return 0, 0, 0
    step = ROWS[a.device.type] // a.dtype.itemsize
    m, k, n = (-size % step for size in sizes)
    m *= is_transposed(a)
    k *= is_transposed(b) or not is_transposed(a)
    copied = sum(tensor.nbytes for tensor, needed in
                 ((a, m or k), (b, k or n)) if needed)
    if n:
        copied += sizes[0] * sizes[2] * a.dtype.itemsize
    lost = 2 * sizes[0] * sizes[1] * sizes[2] * (SLOWER - 1)
    pays = lost / machine.arithmetic[a.dtype] > (
        2 * copied / machine.bandwidth + 2 * machine.launch)
    return (m, k, n) if pays else (0, 0, 0)


def is_small(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether sums of products take less time than a library's call.

    They do if there are many small products, or one that is hardly any
    work; or if two sides are very short, as where points are turned.
    """
    sides, on_cpu = (*a.shape[-2:], b.shape[-1]), a.device.type == "cpu"
    if a.device.type not in PAIRS or on_cpu and a.dtype in DIGITS:
        return False
    known = [side for side in sides if type(side) is int]
    short, fixed = sum(side <= SHORT for side in known) > 1, len(known) == 3
    if a.dim() == 3:
        return short or fixed and max(known) <= SIDE
    return short and not on_cpu or fixed and (
        prod(known) <= PAIRS[a.device.type])


def is_transposed(matrix: torch.Tensor) -> bool:
    """Whether columns, not rows, lie side by side in memory."""
    return matrix.stride(1) != 1 and matrix.stride(0) == 1


def extended(matrix: torch.Tensor, rows: int, columns: int):
    """The matrix with more rows and columns, its layout as it was."""
    if not rows and not columns:
        return matrix
    if is_transposed(matrix):
        return extended(matrix.t(), columns, rows).t()
    return F.pad(matrix, (0, columns, 0, rows))


def seeded(op: torch._ops.OpOverload, formula: Callable, *args,
           generator=None, **kwargs):
    """The result of `formula`, in the layout of that of `op`; if random
    numbers are not seeded, NotImplemented.

    A random operator is arithmetic on uniform numbers, which are a
    function of a seed. Only the seed is drawn, once a call and device;
    the backward saves it instead of masks.
    """
    recorder = _get_current_dispatch_mode()
    if generator is not None or not getattr(recorder, "seeded", False):
        return NotImplemented
    with without_recorder():
        like = recorder.fake_mode.dispatch(op, (), args, kwargs)
    first = like[0] if isinstance(like, tuple) else like
    of = sorted(args, key=lambda each: not isinstance(
        each, (torch.Tensor, Sequence)))
    made = NotImplemented if first.is_complex() else formula(
        partial(unit, recorder, first), *of)
    return recorder.restride(made.to(like.dtype), like.stride()) if (
        isinstance(made, torch.Tensor)) else made


def unit(recorder: RecordingMode, like: torch.Tensor, short: bool = False):
    """One number of [0, 1) for each element of `like`.

    A float32, or a float64 of 48 digits. A `short` number has so few
    digits that rounding it to the dtype of `like` cannot give 1.
    """
    one, digits = draw(recorder, like), DIGITS.get(like.dtype)
    if like.dtype not in SINGLE:
        return one.double() + draw(recorder, like).double() * 2 ** -24
    if short and digits:
        return torch.floor(one * 2 ** digits) * 2 ** -digits
    return one


def draw(recorder: RecordingMode, like: torch.Tensor) -> torch.Tensor:
    """The next draw, in float32, of the shape of `like`."""
    if like.device not in recorder.seeds:
        recorder.seeds[like.device] = recorder.perform(
            aten.randint.low, (-2 ** 63, 2 ** 63 - 1, [2]),
            {"device": like.device})
    recorder.drawn += 1
    return UNIFORM(recorder.seeds[like.device], recorder.drawn - 1,
                   like.shape)


def between(unit, _, low=0, high=1):
    """Between `low` and `high`."""
    return unit(short=True) * (high - low) + low if low <= high else (
        NotImplemented)


def normal(unit, _, mean=0, deviation=1):
    """The bell curve, by Box and Muller from two uniform numbers."""
    length = torch.sqrt(-2 * torch.log(1 - unit()))
    return length * torch.cos(2 * pi * unit()) * deviation + mean


def chance(unit, _, p: float):
    """True with a probability of `p`."""
    return unit() < p if 0 <= p <= 1 else NotImplemented


def exponential(unit, _, rate=1.0):
    """Never quite 0, so that its logarithm is a number."""
    return torch.log1p(-unit()).clamp(max=-2 ** -25) / -rate


def integers(unit, _, *ends: int | None):
    """Whole numbers from 0, or another number, to below the last."""
    low, high = (0, *ends)[-2:]
    if high is None or not 0 < high - low <= 2 ** 32:
        return NotImplemented
    return torch.floor(unit() * (high - low)) + low


def dropout(unit, x, p: float, train: bool | None):
    """`x` with a share of `p` set to 0 and the rest scaled, the mask."""
    if train is False or p in (0, 1):
        return NotImplemented
    kept = unit() >= p
    return (x * kept * (1 / (1 - p))).to(x.dtype), kept


#: What operators are, given `unit`, which draws, their tensor or size, and
#: then their numbers.
FORMULAS: dict[Callable, list[torch._ops.OpOverload]] = {
    between: [aten.rand.default, aten.rand_like.default,
              aten.uniform.default],
    normal: [aten.randn.default, aten.randn_like.default,
             aten.normal_functional.default],
    chance: [aten.bernoulli.p], exponential: [aten.exponential.default],
    integers: [aten.randint.default, aten.randint.low, aten.random.to,
               aten.randint_like.default, aten.randint_like.low_dtype,
               getattr(aten.random, "from")],
    dropout: [aten.native_dropout.default],
}

DECOMPOSITIONS |= {op: decomposition_table[op]
                   for names in REASONS.values() for name in names.split()
                   for gradient in ("", "_backward")
                   for op in operators(name + gradient)
                   if op in decomposition_table}
DECOMPOSITIONS |= {
    **{op: partial(seeded, op, formula)
       for formula, ops in FORMULAS.items() for op in ops},
    aten.select_scatter.default: lambda into, part, *place: (
        decomposition_table[aten.select_scatter.default](
            into, part.to(into.dtype), *place)),
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten._amp_foreach_non_finite_check_and_unscale.default: unscale,
    aten.mul.Tensor: chosen_by,
    aten.bmm.default: bmm, aten.linalg_cross.default: cross,
    aten.mm.default: lambda a, b: addmm(None, a, b),
    aten.addmm.default: addmm,
}
CALLS[operator.setitem] = put
CALLS[F.affine_grid] = affine_grid
CALLS[torch._C._nn.one_hot] = one_hot
