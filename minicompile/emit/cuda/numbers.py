'''Arithmetic on a GPU that rounds as eager does; or faster, if asked.

Eager multiplies by the inverse of a number it divides by. The kernels do
so too, so that their results are eager's, bit for bit. For a quotient of
two bfloat16 numbers the GPU's rough one will do. Eager's kernels are in
PyTorch's ATen.

With `options={"numerics": "fast"}` a product and a sum may become one
instruction, which rounds once. And erf becomes a power of 2 of a
polynomial, off by at most 1.6e-7. That is 2.6 units in the last place
where erf is above a half, and more near 0. A library's function may take
a denormal number for zero. So results differ from eager's in their last
digits. Without this file the option has no effect. Inductor always does
the first and the last, and calls a library's erf.
'''

import re
from dataclasses import replace
from functools import reduce

import torch

from ...core.loops import OPS, Const, Expression, Load, Op, accurate
from ...core.options import HINTS
from ...core.semantics.ranges import bounds, suits
from ..launch import NUMERICS
from ..target import FORMS, FUNCTIONS, Form
from ..triton import REWRITES


def as_on_a_gpu(node: Expression) -> Expression:
    """A quotient: the product with an inverse, or one of few digits."""
    match node:
        case Op("div", (value, Load(host=True) as by), dtype):
            inverse = Op("reciprocal", (by,), accurate(by.dtype))
            return Op("mul", (value, inverse), dtype)
        case Op("div", (value, Const(number)), dtype):
            work = accurate(dtype)
            inverse = (1 / torch.tensor(number, dtype=work)).item()
            return Op("mul", (value, Const(inverse, work)), dtype)
        case Op("div", (value, by), torch.bfloat16 as dtype) if (
                value.dtype == by.dtype == dtype
                and not isinstance(value, Const)):
            return Op("rough_div", (value, by), dtype)
    return node


#: A bfloat16 has 8 binary digits, and the middle between two such has 9.
#: A quotient of two is no nearer to a middle than 2 ** -17 of itself, and
#: this one is 2 ** -22 of it off: rounded to 8 digits, it is eager's.
OPS["rough_div"], FORMS["rough_div"] = OPS["div"], Form("{0} / {1}")


def narrow(node: Expression) -> Expression:
    """A whole number that 32 bits hold, computed in 32 bits.

    The result is then widened. A reader that needs no more than 32 bits
    takes the number before that.
    """
    parts = tuple(map(before_widening, getattr(node, "operands", ())))
    if not all(part.dtype != torch.int64 or isinstance(part, Const)
               and suits(bounds(part), torch.int32) for part in parts):
        return node
    if node.dtype == torch.int64 and not isinstance(node, Const) and suits(
            bounds(node), torch.int32):
        made = Op(node.name, parts, torch.int32) if parts else replace(
            node, dtype=torch.int32)
        return Op("cast", (made,), torch.int64)
    short = isinstance(node, Op) and node.dtype != torch.int64
    return Op(node.name, parts, node.dtype) if short else node


def before_widening(node: Expression) -> Expression:
    """A number of 32 bits that the node only widens; or the node."""
    match node:
        case Op("cast", (part,), torch.int64) if part.dtype == torch.int32:
            return part
    return node


REWRITES.extend((as_on_a_gpu, narrow))

# Faster

#: Fitted to log2(1 - erf(a)) / a from 0 to 4, so that erf is nearest.
POLYNOMIAL = reduce(lambda rest, factor: f"{factor} + a * ({rest})", (
    0.00010021166, -0.00046152159, -0.0023023426, 0.029452615,
    -0.14896372, -0.91832864, -1.6279137))


def fast(text: str) -> str:
    """The text of a kernel, its functions the fast ones. Where numbers are
    compared no product and sum are one: a maximum must be found again."""
    fused = not re.search("maximum|minimum| [=!]= ", text)
    return re.sub(r"libdevice\.erf\b", "fast_erf", text.replace(
        "@launched(", f"@launched(enable_fp_fusion={fused}, "
        "enable_reflect_ftz=True, "))


FUNCTIONS["triton"].append(f'''
@triton.jit
def fast_erf(x):
    """erf, by 1 - erf(a) being nearly 2 to the power of a polynomial."""
    if x.dtype == tl.float64:
        return libdevice.erf(x)
    a = tl.minimum(tl.abs(x), 4.0, propagate_nan=tl.PropagateNan.ALL)
    rest = tl.exp2(a * ({POLYNOMIAL}))
    return libdevice.copysign(1.0 - rest, x)
''')

NUMERICS["fast"] = fast
HINTS.pop("numerics", None)  # it has an effect now
