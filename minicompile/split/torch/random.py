"""Random operators as arithmetic on numbers drawn from one seed a call.

In: an operator that asks torch's generator for every element. Out: the
same distribution, computed from uniform numbers that are a function of a
seed. Only the seed is drawn, once a call and device; the backward saves
it instead of masks. Without this file every operator draws eager's
numbers, and masks are saved. Inductor's is
torch/_inductor/fx_passes/replace_random.py:replace_random_passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi

import torch

from ...core.random import UNIFORM
from ..decompose import SEEDED
from ..recorder import Recorder
from .decompositions import checked, is_share

aten = torch.ops.aten
#: Binary digits of a float in [0, 1); the numbers drawn have 24.
DIGITS = {torch.float16: 11, torch.bfloat16: 8}
SINGLE = {torch.float32, *DIGITS}


def compute(formula: Callable, recorder: Recorder, like, *args,
            generator=None, **kwargs):
    """What `formula` gives, in the layout of `like`."""
    first = like[0] if isinstance(like, tuple) else like
    made = NotImplemented if first.is_complex() else formula(
        partial(unit, recorder, first), *args, **kwargs)
    return recorder.restride(made.to(like.dtype), like.stride()) if (
        isinstance(made, torch.Tensor)) else made


def unit(recorder: Recorder, like: torch.Tensor, short: bool = False):
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


def draw(recorder: Recorder, like: torch.Tensor) -> torch.Tensor:
    """The next draw, in float32, of the shape of `like`."""
    if like.device not in recorder.seeds:
        recorder.seeds[like.device] = recorder.perform(
            aten.randint.low, (-2 ** 63, 2 ** 63 - 1, [2]),
            {"device": like.device})
    recorder.drawn += 1
    return UNIFORM(recorder.seeds[like.device], recorder.drawn - 1,
                   like.shape)


def between(unit, low=0, high=1):
    """Between `low` and `high`."""
    return unit(short=True) * (high - low) + low if low <= high else (
        NotImplemented)


def normal(unit, mean=0, deviation=1, *_, **__):
    """The bell curve, by Box and Muller from two uniform numbers."""
    length = torch.sqrt(-2 * torch.log(1 - unit()))
    return length * torch.cos(2 * pi * unit()) * deviation + mean


def exponential(unit, _, rate=1.0):
    """Never quite 0, so that its logarithm is a number."""
    return torch.log1p(-unit()).clamp(max=-2 ** -25) / -rate


def whole(unit, low: int, high: int | None, *_, **__):
    """Whole numbers from `low` to below `high`."""
    if high is None or not 0 < high - low <= 2 ** 32:
        return NotImplemented
    return torch.floor(unit() * (high - low)) + low


def dropout(unit, x, p: float, train: bool | None):
    """`x` with a share of `p` set to 0 and the rest scaled, the mask."""
    if train is False or p in (0, 1):
        return NotImplemented
    kept = unit() >= p
    return (x * kept * (1 / (1 - p))).to(x.dtype), kept


#: What each operator is, given `unit`, which draws, and its arguments.
FORMULAS: dict[torch._ops.OpOverload, Callable] = {
    **dict.fromkeys((aten.rand.default, aten.rand_like.default),
                    lambda unit, *_, **__: between(unit)),
    aten.uniform.default: lambda unit, x, *ends: between(unit, *ends),
    **dict.fromkeys((aten.randn.default, aten.randn_like.default),
                    lambda unit, *_, **__: normal(unit)),
    **dict.fromkeys((aten.normal.Tensor_float, aten.normal.float_float),
                    normal),
    **dict.fromkeys((aten.normal.float_Tensor, aten.normal.Tensor_Tensor),
                    checked(normal, lambda unit, _, deviation, *__:
                            deviation >= 0)),
    aten.normal_functional.default: lambda unit, x, *of: normal(unit, *of),
    aten.bernoulli.default: checked(
        lambda unit, p: unit() < p, lambda unit, p: is_share(p)),
    aten.bernoulli.Tensor: checked(
        lambda unit, x, p: unit() < p, lambda unit, x, p: is_share(p)),
    aten.bernoulli.p: lambda unit, x, p: (
        unit() < p if 0 <= p <= 1 else NotImplemented),
    aten.exponential.default: exponential,
    aten.randint.default: lambda unit, high, *_, **__: whole(unit, 0, high),
    aten.randint.low: whole,
    **dict.fromkeys((aten.randint_like.default, aten.random.to),
                    lambda unit, x, high, **_: whole(unit, 0, high)),
    **dict.fromkeys((aten.randint_like.low_dtype,
                     getattr(aten.random, "from")),
                    lambda unit, x, *ends, **_: whole(unit, *ends)),
    aten.native_dropout.default: dropout,
}

SEEDED |= {op: partial(compute, formula)
           for op, formula in FORMULAS.items()}
