"""Sizes: constants to one trace, unless they vary from call to call.

In: the tensors of a call. Out: fake tensors, and a History of what varied.
A first trace takes all sizes for constants. A row of the reference makes
symbols of those that a later trace finds changed; without it, every new
size is traced again. PyTorch's is torch/_dynamo/pgo.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from sympy import Symbol
from torch._subclasses.fake_tensor import FakeTensorMode

from ..core.guard import Guard, Source

#: The classes of numbers that may vary, and what makes a symbol of one.
NUMBERS: dict[type, Callable] = {}


class History:
    """The sizes that one function's traces saw; `dynamic` as in compile().

    `why` says why a place may be a symbol, `symbols` which places became
    one, and `news` holds those not reported yet. With `never`, no place
    becomes one, marked or not.
    """

    def __init__(self, dynamic: bool | None = False, floats: bool = True,
                 never: bool = False):
        self.dynamic, self.floats, self.never = dynamic, floats, never
        self.seen: dict[tuple[str, Source], tuple] = {}
        self.why: dict[str, str] = {}
        self.symbols: set[str] = set()
        self.news: list[str] = []
        self.counters: set[Source | str] = set()  # a trace wrote to these

    def told(self) -> list[str]:
        """The places that became symbols since the last call, in words."""
        told, self.news = self.news, []
        return told


class Fakes(FakeTensorMode):
    """Fake tensors whose convolutions on a CPU guard no batch size.

    On a CPU a batch of 16 runs another kernel; its results lie the same.
    Fake tensors of another mode come to `dispatch` by themselves.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is DEVICE:  # the question asked most
            return args[0].fake_device
        return self.dispatch(function, types, args, kwargs)

    def dispatch(self, function, types, args=(), kwargs=None):
        if function in CONVOLUTIONS and args[0].device.type == "cpu":
            with self.shape_env.suppress_guards():
                return super().dispatch(function, types, args, kwargs)
        return super().dispatch(function, types, args, kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo runs: nothing need be wrapped around


DEVICE = torch.ops.prim.device.default
CONVOLUTIONS = {torch.ops.aten.convolution.default,
                torch.ops.aten.convolution_backward.default}


class ConstantSizes:
    """The sizes of one trace: constants, and `symbols` in a subclass."""

    def __init__(self, recorder, history: History):
        self.recorder, self.history = recorder, history
        self.symbols: dict[Symbol, Source] = {}

    def tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """The fake tensor of a tensor from outside."""
        return self.fake(real, static_shapes=True)

    def fake(self, real: torch.Tensor, **how) -> torch.Tensor:
        """A fake tensor that counts its writes."""
        mode = self.recorder.fake_mode
        fake = mode.from_tensor(real, **how)
        if not fake.is_inference():
            return fake
        with mode:  # another one of its memory
            return torch.empty(0, dtype=fake.dtype,
                               device=fake.device).set_(fake)

    def is_symbol(self, value: int | float, source: Source, outside
                  ) -> bool:
        """Whether a number from outside may vary."""
        return False

    def run(self, call: Callable, function, args, kwargs):
        """The result of a C function."""
        return call(function, args, kwargs)

    def dispatcher(self, name: str):
        """The context in which an operator of this name runs."""
        return contextlib.nullcontext()

    def guards(self) -> tuple[Guard, ...]:
        """No relations between sizes: each tensor has its own guard."""
        return ()


#: The classes that keep the sizes of a trace; the last is in use.
SIZES: list[type[ConstantSizes]] = [ConstantSizes]


def settled(value):
    """The value with numbers for its symbols, which become constants."""
    settle = SETTLE.get(type(value))
    return settle(value) if settle else value


#: The classes of symbols, and of what may hold them -> how to settle one.
SETTLE: dict[type, Callable] = {}
