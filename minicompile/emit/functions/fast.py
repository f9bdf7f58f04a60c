'''Kernels for a GPU that round otherwise: `options={"numerics": "fast"}`.

A product and a sum may become one instruction, which rounds once. And erf
becomes a power of 2 of a polynomial, off by at most 1.6e-7. That is 2.6
units in the last place where erf is above a half, and more near 0. So
results differ from eager's in their last digits. Without this file the
option has no effect. Inductor always contracts, and calls a library's erf.
'''

from __future__ import annotations

import re

from ...core.options import HINTS
from ..launch import NUMERICS
from ..target import FUNCTIONS

#: Fitted to log2(1 - erf(x)) / x from 0 to 4, so that erf is nearest.
POLYNOMIAL = (-1.6279137, -0.91832864, -0.14896372, 0.029452615,
              -0.0023023426, -0.00046152159, 0.00010021166)


def fast(text: str) -> str:
    """The text of a kernel, its functions the fast ones."""
    return re.sub(r"libdevice\.erf\b", "fast_erf", text.replace(
        "@launched(", "@launched(contracts=True, "))


def horner(coefficients: tuple[float, ...]) -> str:
    """A polynomial in `a` as text."""
    first, *rest = coefficients
    return f"{first}" + (f" + a * ({horner(rest)})" if rest else "")


FUNCTIONS["triton"].append(f'''
@triton.jit
def fast_erf(x):
    """erf, by 1 - erf(a) being nearly 2 to the power of a polynomial."""
    if x.dtype == tl.float64:
        return libdevice.erf(x)
    a = tl.minimum(tl.abs(x), 4.0, propagate_nan=tl.PropagateNan.ALL)
    rest = tl.exp2(a * ({horner(POLYNOMIAL)}))
    return libdevice.copysign(1.0 - rest, x)
''')

NUMERICS["fast"] = fast
HINTS.pop("numerics", None)  # it has an effect now
