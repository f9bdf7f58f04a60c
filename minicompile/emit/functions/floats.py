"""Operations on floats that few models use, and what bits they keep.

Inductor's are in torch/_inductor/codegen/cpp.py:CppOverrides.
"""

from __future__ import annotations

from ..operations import FORMS, FUNCTIONS, Exact, Form, Question

FUNCTIONS["triton"].append(r'''
@triton.jit
def signbit(a):
    """Whether the sign is set, of -0.0 and of NaN too."""
    bits: tl.constexpr = tl.int32 if a.dtype == tl.float32 else tl.int64
    return a.to(bits, bitcast=True) < 0
''')

FORMS.update({
    "isinf": Question("fabs{f}({0}) == infinity",
                      "tl.abs({0}) == float('inf')"),
    "signbit": Question("copysign{f}(1, {0}) < 0", "signbit({0})",
                        "{0} < 0", "{0} < 0"),
    "atan2": Form("atan2{f}({0}, {1})", "libdevice.atan2({0}, {1})"),
    "hypot": Form("hypot{f}({0}, {1})", "libdevice.hypot({0}, {1})"),
    "copysign": Exact("copysign{f}({0}, {1})",
                      "libdevice.copysign({0}, {1})"),
    "fmax": Exact("{0} >= {1} | {1} != {1} ? {0} : {1}",
                  "tl.where(({0} >= {1}) | ({1} != {1}), {0}, {1})"),
    "fmin": Exact("{0} <= {1} | {1} != {1} ? {0} : {1}",
                  "tl.where(({0} <= {1}) | ({1} != {1}), {0}, {1})"),
})
