"""Functions that the printed Triton kernels call.

Triton has no tanh of its own: it calls NVIDIA's libdevice, which its
interpreter cannot. So `libdevice` here is NVIDIA's on a GPU, and in the
interpreter PyTorch's functions of the same names. The others are
for operators that mean something else in Triton: NaN, signs, quotients.
Inductor's are in torch/_inductor/runtime/triton_helpers.py.
"""

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

#: Whether triton was imported with TRITON_INTERPRET=1 in the environment.
INTERPRETED = not isinstance(tl.sum, JITFunction)


class _Interpreted:
    """`libdevice` for the interpreter: PyTorch on the blocks' arrays."""

    def __getattr__(self, name: str):
        function = getattr(torch, {"rint": "round"}.get(name, name))
        return lambda *operands: _computed(function, operands)


def _computed(function, operands):
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


def argument(given: object) -> object:
    """A kernel's argument; the interpreter's numbers have no dimensions,
    as `range` asks for."""
    if not INTERPRETED or type(given) is not int:
        return given
    made = interpreter._implicit_cvt(given)
    made.handle.data = made.handle.data.reshape(())
    return made


def _rounded(a, kind):
    """`a` with the precision of another type; the interpreter cuts off."""
    name = str(getattr(kind, "value", kind))
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return _computed(lambda data: data.to(kinds[name]).to(data.dtype), (a,))


@triton.jit
def rounded(a, kind: tl.constexpr):
    """A float32 with the precision of a 16-bit type."""
    return a.to(kind).to(tl.float32)


@triton.jit
def maximum(a, b):
    """The larger; NaN if one is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The smaller; NaN if one is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def checked(place, end):
    """The place; if it is not one of the first `end`, all stops."""
    tl.device_assert((0 <= place) & (place < end), "index out of bounds")
    return place


@triton.jit
def floor_rest(a, b):
    """The rest of a whole number `a`. It is not below 0, as `b` is not."""
    return (a % b + b) % b


@triton.jit
def floor_quotient(a, b):
    """How often a whole number `b` is in `a`, rounded down."""
    return (a - floor_rest(a, b)) // b


@triton.jit
def mul(a, b):
    """The product, for reductions."""
    return a * b


@triton.jit
def negated(a):
    """The opposite number. That of 0 is -0, which Triton's minus loses."""
    if a.dtype.is_floating():
        return a * -1.0
    else:
        return -a


@triton.jit
def divide(a, b):
    """The quotient, correctly rounded as IEEE says."""
    if b.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def inverse(b):
    """1 / b, correctly rounded: in fewer steps than any quotient."""
    if b.dtype == tl.float64:
        return 1.0 / b
    else:
        return tl.inline_asm_elementwise(
            "rcp.rn.f32 $0, $1;", "=f,f", [b], tl.float32, True, 1)


@triton.jit
def fast_exp(a):
    """e ** a, some units in the last place off; the least floats are 0."""
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [a * 1.4426950408889634],
        tl.float32, True, 1)


@triton.jit
def finite(a):
    """The nearest number that is not infinite; any number for NaN."""
    return tl.clamp(a, -3.4028234663852886e38, 3.4028234663852886e38)


@triton.jit
def mended(near, a, b, inverse):
    """A quotient a / b, from one that is infinite or a unit in the last
    place off: what is `left` says which way. `a` and the inverse are
    given with the other sign: Triton's minus would lose a zero's."""
    return tl.fma(finite(tl.fma(near, b, a)), inverse, near)


@triton.jit
def quotient(a, b):
    """The quotient by a `b` that many `a` have in common, by its inverse.

    It is what IEEE says, unless what is left is too small for a float.
    """
    if b.dtype == tl.float64:
        return a / b
    else:  # the size of b is scaled, so that its inverse is no infinity
        size = tl.abs(b)
        scale = tl.where(size < 2.0 ** -64, 2.0 ** 64, 1.0)
        a *= libdevice.copysign(
            tl.where(size == 0, float("inf"), scale), b) * -1.0
        size *= scale
        inverse = maximum(-1.0 / size, -(2.0 ** 126))
        size = finite(size)
        inverse = mended(inverse, 1.0, size, inverse)
        return mended(a * inverse, a, size, inverse)


@triton.jit
def sqrt(a):
    """The square root, correctly rounded as IEEE says."""
    if a.dtype == tl.float64:
        return tl.sqrt(a)
    else:
        return tl.sqrt_rn(a)


if INTERPRETED:
    libdevice, rounded = _Interpreted(), _rounded
    quotient = divide  # without a fused product and sum
    fast_exp = libdevice.exp
    inverse = libdevice.reciprocal
else:
    from triton.language.extra import libdevice  # noqa: F401
