"""Random operators as arithmetic on numbers drawn from one seed a call.

In: an operator that asks torch's generator for every element. Out: the
same distribution, computed from uniform numbers that are a function of a
seed. Only the seed is drawn, once a call and device; the backward saves
it instead of masks. Inductor's is replace_random_passes in
torch/_inductor/fx_passes/replace_random.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from math import pi

import torch

from ..core.errors import BackendError
from ..core.graph import dense
from ..core.random import UNIFORM

aten = torch.ops.aten
#: Binary digits of a float in [0, 1); the numbers drawn have 24.
DIGITS = {torch.float16: 11, torch.bfloat16: 8}
SINGLE = {torch.float32, *DIGITS}


class Draws:
    """The draws of one graph: a seed for each device, and a count."""

    def __init__(self, recorder):
        self.recorder, self.count = recorder, count()
        self.seeds: dict[torch.device, torch.Tensor] = {}

    def rule_of(self, op, args: tuple, kwargs: dict) -> Callable | None:
        """How a random operator is computed; None for any other."""
        if op not in FORMULAS or kwargs.get("generator"):
            return None
        like = self.recorder.fake_mode.dispatch(op, (), args, kwargs)
        return partial(self.compute, FORMULAS[op], like)

    def compute(self, formula: Callable, like, *args, generator=None,
                **kwargs):
        """What `formula` gives, in the layout of `like`."""
        first = like[0] if isinstance(like, tuple) else like
        made = NotImplemented if first.is_complex() else formula(
            partial(self.unit, first), *args, **kwargs)
        return self.recorder.restride(
            made.to(like.dtype), like.stride()) if isinstance(
                made, torch.Tensor) else made

    def unit(self, like: torch.Tensor, short: bool = False):
        """One number of [0, 1) for each element of `like`.

        A float32, or a float64 of 48 digits; `short`: of so many digits
        that rounding to the dtype of `like` cannot give 1.
        """
        one, digits = self.draw(like), DIGITS.get(like.dtype)
        if like.dtype not in SINGLE:
            return one.double() + self.draw(like).double() * 2 ** -24
        if short and digits:
            return torch.floor(one * 2 ** digits) * 2 ** -digits
        return one

    def draw(self, like: torch.Tensor) -> torch.Tensor:
        """The next draw, in float32, of the shape of `like`."""
        if like.device not in self.seeds:
            self.seeds[like.device] = self.recorder.perform(
                aten.randint.low, (-2 ** 63, 2 ** 63 - 1, [2]),
                {"device": like.device})
        return UNIFORM(self.seeds[like.device], next(self.count),
                       like.shape)


def uniform(unit, low=0, high=1):
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


def along_memory(x: torch.Tensor, p: float, generator=None):
    """Eager's own bernoulli_, which draws in the order of the memory.

    The operator without writing draws row by row.
    """
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    if order == [*range(x.dim())]:
        return NotImplemented
    drawn = torch.bernoulli(x.permute(order), p, generator=generator)
    return drawn.permute([*map(order.index, range(x.dim()))])


def without_gaps(x: torch.Tensor, *_, **__):
    """Eager's own normal_, which goes another way where there are gaps."""
    if x.device.type == "cpu" and not dense(x):
        raise BackendError("normal_ of memory with gaps draws otherwise")
    return NotImplemented


#: What the operators are that draw eager's very numbers.
AS_EAGER = {aten.bernoulli.p: along_memory,
            aten.normal_functional.default: without_gaps}

#: What each operator is, given `unit`, which draws, and its arguments.
FORMULAS: dict[torch._ops.OpOverload, Callable] = {
    **dict.fromkeys((aten.rand.default, aten.rand_like.default),
                    lambda unit, *_, **__: uniform(unit)),
    aten.uniform.default: lambda unit, x, *ends: uniform(unit, *ends),
    **dict.fromkeys((aten.randn.default, aten.randn_like.default),
                    lambda unit, *_, **__: normal(unit)),
    **dict.fromkeys((aten.normal.Tensor_float, aten.normal.float_Tensor,
                     aten.normal.Tensor_Tensor, aten.normal.float_float),
                    normal),
    aten.normal_functional.default: lambda unit, x, *of: normal(unit, *of),
    aten.bernoulli.default: lambda unit, p: unit() < p,
    aten.bernoulli.Tensor: lambda unit, x, p: unit() < p,
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
