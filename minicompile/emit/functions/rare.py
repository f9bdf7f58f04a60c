"""Operations that few models use: whole numbers, bits of floats, draws.

C++ and Triton cut quotients off, and some of these operations trap or are
undefined; PyTorch rounds down and defines them all. A random number is a
function of a seed, an offset and a position (core/random/philox.py has the
same), so a backward kernel draws again what the forward drew.
Inductor's are in torch/_inductor/codegen/cpp.py, triton.py beside it, and
torch/_inductor/runtime/triton_helpers.py.
"""

import torch

from ..target import (FORMS, FUNCTIONS, OF_BOOLS, OF_INTEGERS, Exact, Form,
                      Question, functions, infix)

FUNCTIONS["cpp"].append(r"""
#define VECTOR static __attribute__((const, noinline, simd("notinbranch")))
template <class T> constexpr bool is_float = (T)0.5f == 0.5f;
template <class T> constexpr bool is_signed = (T)-1 < (T)0;

// Integers: nothing traps; remainders have the divisor's sign.
template <class T> inline_ bool divides(T b) {
    return b != 0 & !(is_signed<T> & b == (T)-1);
}
template <class T> inline_ T divide_whole(T a, T b) {
    const T whole = a / (divides(b) ? b : (T)1);
    return divides(b) ? whole : b == 0 ? (T)0 : (T)-a;
}
template <class T> inline_ T rest(T a, T b) {
    return divides(b) ? a % b : 0;
}
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

template <class T> inline_ bool uneven(T rest, T b) {
    return rest != 0 & (rest < 0) != (b < 0);
}
template <class T> inline_ T modulo(T a, T b) {
    const T left = rest(a, b);
    return uneven(left, b) ? left + b : left;
}
template <class T> inline_ T divide_floor(T a, T b) {
    const T left = rest(a, b);
    if constexpr (!is_float<T>)
        return divide_whole<T>(a, b) - uneven(left, b);
    const T whole = (a - left) / b - uneven(left, b);
    T floored = (T)floor(whole);
    floored += whole - floored > (T)0.5;
    floored = whole != 0 ? floored : (T)copysign(0.0, a / b);
    return b == 0 ? a / b : floored;
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
def floor_divide(a, b):
    """The quotient of integers rounded down; Triton's is cut off."""
    rest = a % b
    return a // b - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)


@triton.jit
def modulo(rest, b):
    """A remainder by b, given b's sign."""
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def float_floor_divide(a, b):
    """The quotient of floats rounded down, as Python computes it."""
    rest = libdevice.fmod(a, b)
    whole = device.divide(a - rest, b)
    whole -= ((rest != 0) & ((b < 0) != (rest < 0))).to(a.dtype)
    down = tl.floor(whole)
    down += (whole - down > 0.5).to(a.dtype)
    zero = libdevice.copysign(tl.zeros_like(a), device.divide(a, b))
    down = tl.where(whole == 0, zero, down)
    return tl.where(b == 0, device.divide(a, b), down)


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
    **functions("trunc", form=Exact),
    **infix(Form, bitwise_xor="^"),
    **infix(Question, "bool", logical_xor="^"),
    "logical_not": Question("!{0}", "{0} == 0", given="bool"),
    "isnan": Question("{0} != {0}"),
    "abs": Exact("fabs{f}({0})", "tl.abs({0})"),
    "sign": Exact("({type})(({0} > 0) - ({0} < 0))",
                  "({0} > 0).to({type}) - ({0} < 0).to({type})"),
    "floor": Exact("floor{f}({0})", "tl.floor({0})"),
    "ceil": Exact("ceil{f}({0})", "tl.ceil({0})"),
    "round": Exact("rint{f}({0})", "libdevice.rint({0})"),
    "bitwise_not": Form("~{0}", "-{0} - 1"),
    "signbit": Question("copysign{f}(1, {0}) < 0",
                        "libdevice.signbit({0}) != 0"),
    "fmax": Exact("{0} >= {1} | {1} != {1} ? {0} : {1}",
                  "tl.where(({0} >= {1}) | ({1} != {1}), {0}, {1})"),
    "fmin": Exact("{0} <= {1} | {1} != {1} ? {0} : {1}",
                  "tl.where(({0} <= {1}) | ({1} != {1}), {0}, {1})"),
    "div_floor": Form("divide_floor<{type}>({0}, {1})",
                      "float_floor_divide({0}, {1})"),
    "div_trunc": Form("trunc{f}({round}({0} / {1}))",
                      "libdevice.trunc(device.divide({0}, {1}))"),
    "fmod": Form("rest({0}, {1})", "libdevice.fmod({0}, {1})"),
    "remainder": Form("modulo<{type}>({0}, {1})",
                      "modulo(libdevice.fmod({0}, {1}), {1})"),
    "bitwise_left_shift": Form(
        "({1} | {last}) == {last} ? {0} << ({1} & {last}) : 0",
        "tl.where(({1} | {last}) == {last}, {0} << ({1} & {last}), 0)"),
    "bitwise_right_shift": Form(
        "{0} >> (({1} | {last}) == {last} ? {1} : "
        "{last} + (({type})-1 > 0))",
        "{0} >> tl.where(({1} | {last}) == {last}, {1}, {last})"),
    "uniform": Form("uniform({0}, {1}, {2} >> 2, {2} & 3)",
                    "uniform({0}, {1}, {2})", "common", torch.float32),
})
whole = dict.fromkeys(("floor", "ceil", "trunc", "round"), FORMS["cast"])
OF_INTEGERS.update(
    whole, signbit=Question("{0} < 0"),
    abs=Exact("{0} < 0 ? -{0} : {0}", "tl.abs({0})"),
    div_floor=Form("divide_floor<{type}>({0}, {1})",
                   "floor_divide({0}, {1})"),
    div_trunc=Form("divide_whole<{type}>({0}, {1})", "{0} // {1}"),
    remainder=Form("modulo<{type}>({0}, {1})", "modulo({0} % {1}, {1})"),
    fmod=Form("rest<{type}>({0}, {1})", "{0} % {1}"))
OF_BOOLS.update(OF_INTEGERS, abs=FORMS["cast"], sign=FORMS["cast"],
                fmax=FORMS["bitwise_or"], fmin=FORMS["bitwise_and"],
                bitwise_not=FORMS["logical_not"])
