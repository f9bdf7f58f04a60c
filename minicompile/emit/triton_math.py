"""Functions that the printed Triton kernels call.

Triton has no tanh of its own: it calls NVIDIA's libdevice, which its
interpreter cannot. So `libdevice` here is NVIDIA's on a GPU, and in the
interpreter PyTorch's functions of the same names. The others put right
what Triton does otherwise than PyTorch: NaN, signs of remainders, ties.
Inductor's are in torch/_inductor/runtime/triton_helpers.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

#: Whether triton was imported with TRITON_INTERPRET=1 in the environment.
INTERPRETED = not isinstance(tl.sum, JITFunction)


class _Interpreted:
    """`libdevice` for the interpreter: PyTorch on the blocks' arrays."""

    torch_names = {"rint": "round", "fmod": "fmod"}

    def __getattr__(self, name: str):
        function = getattr(torch, self.torch_names.get(name, name))
        return lambda *operands: _apply(function, operands)


def _apply(function, operands):
    """A Triton block holding `function` of the operands' arrays."""
    block = next(o for o in operands if isinstance(o, tl.tensor))
    result = function(*(torch.from_numpy(o.handle.data)
                        if isinstance(o, tl.tensor) else torch.tensor(o)
                        for o in operands))
    data = result.numpy().astype(block.handle.data.dtype)
    scalar = all(not o.type.is_block() for o in operands
                 if isinstance(o, tl.tensor))
    kind = block.type.scalar
    return tl.tensor(type(block.handle)(data, kind), kind if scalar
                     else tl.block_type(kind, list(data.shape)))


def scalar(number: int) -> tl.tensor:
    """A kernel's argument of no dimensions, such as `range` asks for."""
    made = interpreter._implicit_cvt(number)
    made.handle.data = made.handle.data.reshape(())
    return made


def _rounded(a, kind):
    """`a` with the precision of another type; the interpreter cuts off."""
    name = str(getattr(kind, "value", kind))
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return _apply(lambda data: data.to(kinds[name]).to(data.dtype), (a,))


@triton.jit
def rounded(a, kind: tl.constexpr):
    """A float32 with the precision of a 16-bit type."""
    return a.to(kind).to(tl.float32)


if INTERPRETED:
    libdevice, rounded = _Interpreted(), _rounded
else:
    from triton.language.extra import libdevice  # noqa: F401


@triton.jit
def maximum(a, b):
    """The larger; NaN if one is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The smaller; NaN if one is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def mul(a, b):
    """The product, for reductions."""
    return a * b


@triton.jit
def above(a, b):
    """Whether a beats b as a maximum: NaN beats every number."""
    return (a > b) | ((a != a) & (b == b))


@triton.jit
def below(a, b):
    """Whether a beats b as a minimum: NaN beats every number."""
    return (a < b) | ((a != a) & (b == b))


@triton.jit
def sign(a):
    """-1, 0 or 1; 0 for NaN."""
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


@triton.jit
def signbit(a):
    """Whether the sign is set, of -0.0 and of NaN too."""
    bits: tl.constexpr = tl.int32 if a.dtype == tl.float32 else tl.int64
    return a.to(bits, bitcast=True) < 0


@triton.jit
def floor_divide(a, b):
    """The quotient of integers rounded down; Triton's is cut off."""
    rest = a % b
    return a // b - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)


@triton.jit
def modulo(rest, b):
    """A remainder by b, given b's sign."""
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def divide(a, b):
    """The quotient, correctly rounded as IEEE says."""
    if b.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def sqrt(a):
    """The square root, correctly rounded as IEEE says."""
    if a.dtype == tl.float64:
        return tl.sqrt(a)
    else:
        return tl.sqrt_rn(a)


@triton.jit
def float_floor_divide(a, b):
    """The quotient of floats rounded down, as Python computes it."""
    rest = libdevice.fmod(a, b)
    whole = divide(a - rest, b)
    whole -= ((rest != 0) & ((b < 0) != (rest < 0))).to(a.dtype)
    down = tl.floor(whole)
    down += (whole - down > 0.5).to(a.dtype)
    zero = libdevice.copysign(tl.zeros_like(a), divide(a, b))
    return tl.where(b == 0, divide(a, b), tl.where(whole == 0, zero, down))


@triton.jit
def integer_power(a, b):
    """`a ** b` of integers by squaring; below 0 only 1 and -1 live."""
    result = a * 0 + 1
    square, left = a, b
    for _ in range(a.dtype.primitive_bitwidth):
        result = tl.where((left & 1) != 0, result * square, result)
        square, left = square * square, left >> 1
    odd = tl.where((b & 1) != 0, a, a * a)
    return tl.where(b < 0, tl.where(a * a == 1, odd, 0), result)


@triton.jit
def shift_left(a, b):
    """`a << b`; 0 where b is out of range."""
    wide: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < wide)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@triton.jit
def shift_right(a, b):
    """`a >> b`; the sign where b is out of range."""
    last: tl.constexpr = a.dtype.primitive_bitwidth - 1
    inside = (b >= 0) & (b <= last)
    return a >> tl.where(inside, b, last)


@triton.jit
def uniform(seed, offset, position):
    """24 random bits of a position as a float in [0, 1).

    A thread that holds four neighbours computes them once: the compiler
    sees that their counts are equal.
    """
    a, b, c, d = tl.philox(
        seed, (position >> 2).to(tl.uint32), (position >> 34).to(tl.uint32),
        offset.to(tl.uint32), (offset >> 32).to(tl.uint32))
    odd = (position & 1) != 0
    bits = tl.where((position & 2) != 0, tl.where(odd, d, c),
                    tl.where(odd, b, a))
    return (bits & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08
