"""Operations that few models use: whole numbers, bits of floats, draws.

C++ and Triton cut quotients off, and some of these operations trap or are
undefined; PyTorch rounds down and defines them all. A random number is a
function of a seed, an offset and a position (core/random/philox.py has the
same), so a backward kernel draws again what the forward drew.
Inductor's are in torch/_inductor/codegen/cpp.py, triton.py beside it, and
torch/_inductor/runtime/triton_helpers.py.
"""

from __future__ import annotations

import torch

from ..target import FORMS, FUNCTIONS, Exact, Form, Question

FUNCTIONS["cpp"].append(r"""
template <class T> constexpr bool is_float = (T)0.5f == 0.5f;
template <class T> constexpr bool is_signed = (T)-1 < (T)0;
template <class T> constexpr int last_bit = sizeof(T) * 8 - 1;

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
inline_ float rest(float a, float b) { return fmodf(a, b); }
inline_ double rest(double a, double b) { return fmod(a, b); }

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
template <class T> inline_ T shift_left(T a, T b) {
    const bool inside = b >= 0 & b <= (T)last_bit<T>;
    return inside ? a << (inside ? b : 0) : 0;
}
template <class T> inline_ T shift_right(T a, T b) {
    const int sign = last_bit<T> + !is_signed<T>;
    return a >> (b >= 0 & b < (T)sign ? (int)b : sign);
}

// 24 random bits of a position: as core/random/philox.py has it.
inline_ float uniform(int64 seed, int64 offset, int64 position) {
    uint32 a = position >> 2, b = position >> 34;
    uint32 c = offset, d = offset >> 32;
    uint32 key = seed, more = seed >> 32;
    for (int round = 0; round < 10; round++) {
        const uint64 first = a * (uint64)0xD2511F53;
        const uint64 second = c * (uint64)0xCD9E8D57;
        a = (uint32)(second >> 32) ^ b ^ key, b = second;
        c = (uint32)(first >> 32) ^ d ^ more, d = first;
        key += 0x9E3779B9, more += 0xBB67AE85;
    }
    const uint32 low = position & 1 ? b : a, high = position & 1 ? d : c;
    return (int32)((position & 2 ? high : low) & 0xffffff) * 0x1p-24f;
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
def signbit(a):
    """Whether the sign is set, of -0.0 and of NaN too."""
    bits: tl.constexpr = tl.int32 if a.dtype == tl.float32 else tl.int64
    return a.to(bits, bitcast=True) < 0


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
    "div_floor": Form("divide_floor<{type}>({0}, {1})",
                      "float_floor_divide({0}, {1})",
                      triton_integer="floor_divide({0}, {1})"),
    "div_trunc": Form("trunc{f}({round}({0} / {1}))",
                      "libdevice.trunc(device.divide({0}, {1}))",
                      "divide_whole<{type}>({0}, {1})", "{0} // {1}"),
    "remainder": Form("modulo<{type}>({0}, {1})",
                      "modulo(libdevice.fmod({0}, {1}), {1})",
                      triton_integer="modulo({0} % {1}, {1})"),
    "fmod": Form("fmod{f}({0}, {1})", "libdevice.fmod({0}, {1})",
                 "rest<{type}>({0}, {1})", "{0} % {1}"),
    "pow": Form("pow{f}({0}, {1})", "libdevice.pow({0}, {1})"),
    "bitwise_left_shift": Form("shift_left<{type}>({0}, {1})",
                               "shift_left({0}, {1})"),
    "bitwise_right_shift": Form("shift_right<{type}>({0}, {1})",
                                "shift_right({0}, {1})"),
    "uniform": Form("uniform({0}, {1}, {2})", given="common",
                    made=torch.float32),
})
