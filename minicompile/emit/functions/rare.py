"""Operations that few models use: whole numbers, bits of floats, draws.

In C++ and in Triton some of these operations trap or are undefined;
PyTorch defines them all. A random number is a function of a seed, an offset
and a position (core/random/philox.py has the same), so a backward kernel
draws again what the forward drew. Inductor's are in
torch/_inductor/codegen/cpp.py, triton.py beside it, and
torch/_inductor/runtime/triton_helpers.py.
"""

import torch

from ..target import (FORMS, FUNCTIONS, OF_BOOLS, OF_INTEGERS, Exact, Form,
                      Question, functions, infix)

FUNCTIONS["cpp"].append(r"""
#define VECTOR static __attribute__((const, noinline, simd("notinbranch")))
inline_ double rest(double a, double b) { return fmod(a, b); }
// A quotient of floats below 2^28 is cut off without error as a double, and
// the rest is exact. A vector goes through it; larger ones follow alone.
VECTOR float rest_if(float quotient, float near, float a, float b) {
    return quotient < 0x1p28f ? near : fmodf(a, b);
}
inline_ float rest(float a, float b) {
    const double quotient = (double)a / b;
    const float near = a - trunc(quotient) * b;
    return rest_if(near != near ? infinity : (float)fabs(quotient),
                   copysignf(near, a), a, b);
}

// 24 random bits, as core/random/philox.py has them: one of the four words
// that a count gives.
inline_ float uniform(int64 seed, int64 offset, int64 count, int64 word) {
    uint32 a = count, b = count >> 32;
    uint32 c = offset, d = offset >> 32;
    uint32 key = seed, more = seed >> 32;
    for (int round = 0; round < 10; round++) {
        const uint64 first = a * (uint64)0xD2511F53;
        const uint64 second = c * (uint64)0xCD9E8D57;
        a = (uint32)(second >> 32) ^ b ^ key, b = second;
        c = (uint32)(first >> 32) ^ d ^ more, d = first;
        key += 0x9E3779B9, more += 0xBB67AE85;
    }
    const uint32 low = word & 1 ? b : a, high = word & 1 ? d : c;
    return (int32)((word & 2 ? high : low) & 0xffffff) * 0x1p-24f;
}
""")

FUNCTIONS["triton"].append(r'''
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
''')

FORMS.update({
    **functions("""exp2 expm1 log2 log10 log1p tan asin acos atan sinh cosh
        asinh acosh atanh erfc lgamma"""),
    **functions("atan2 hypot pow", "{0}, {1}"),
    **functions("copysign", "{0}, {1}", Exact),
    **functions("floor ceil trunc", form=Exact),
    **infix(Form, bitwise_xor="^"),
    **infix(Question, "bool", logical_xor="^"),
    "logical_not": Question("!{0}", "{0} == 0", given="bool"),
    "isnan": Question("{0} != {0}"),
    "abs": Exact("fabs{f}({0})", "tl.abs({0})"),
    "sign": Exact("({type})(({0} > 0) - ({0} < 0))",
                  "({0} > 0).to({type}) - ({0} < 0).to({type})"),
    "round": Exact("rint{f}({0})", "libdevice.rint({0})"),
    "bitwise_not": Form("~{0}", "-{0} - 1"),
    "signbit": Question("copysign{f}(1, {0}) < 0",
                        "libdevice.signbit({0}) != 0"),
    "fmax": Exact("{0} >= {1} | {1} != {1} ? {0} : {1}",
                  "tl.where(({0} >= {1}) | ({1} != {1}), {0}, {1})"),
    "fmin": Exact("{0} <= {1} | {1} != {1} ? {0} : {1}",
                  "tl.where(({0} <= {1}) | ({1} != {1}), {0}, {1})"),
    "div_trunc": Form("trunc{f}({round}({0} / {1}))",
                      "libdevice.trunc(device.divide({0}, {1}))"),
    "fmod": Form("rest({0}, {1})", "libdevice.fmod({0}, {1})"),
    "bitwise_left_shift": Form(
        "{1} == ({1} & {last}) ? {0} << {1} : 0",
        "tl.where({1} == ({1} & {last}), {0} << {1}, 0)"),
    "bitwise_right_shift": Form(
        "{1} == ({1} & {last}) ? {0} >> {1} : {0} >> {last} >> 1",
        "tl.where({1} == ({1} & {last}), {0} >> {1}, {0} >> {last} >> 1)"),
    "uniform": Form("uniform({0}, {1}, {2} >> 2, {2} & 3)",
                    "uniform({0}, {1}, {2})", "common", torch.float32),
})
# In C++, whole numbers are divided by constants and sizes, never by 0.
whole = dict.fromkeys(("floor", "ceil", "trunc", "round"), FORMS["cast"])
OF_INTEGERS.update(
    whole, signbit=Question("{0} < 0"),
    abs=Exact("{0} < 0 ? -{0} : {0}", "tl.abs({0})"),
    div_trunc=Form("{0} / {1}", "{0} // {1}"), fmod=Form("{0} % {1}"))
OF_BOOLS.update(OF_INTEGERS, abs=FORMS["cast"], sign=FORMS["cast"],
                fmax=FORMS["bitwise_or"], fmin=FORMS["bitwise_and"],
                bitwise_not=FORMS["logical_not"])
