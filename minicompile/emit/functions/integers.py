"""Whole numbers: quotients, remainders, powers and shifts.

C++ and Triton cut quotients off, and some of these operations trap or are
undefined; PyTorch rounds down and defines them all. Inductor's are in
torch/_inductor/codegen/cpp.py and torch/_inductor/codegen/triton.py.
"""

from __future__ import annotations

from ..operations import FORMS, FUNCTIONS, Form

FUNCTIONS["cpp"].append(r"""
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
template <class T> inline_ T integer_power(T a, T b) {
    if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (b & 1 ? -1 : 1) : 0;
    T result = 1;
    for (; b; b >>= 1, a *= a)
        if (b & 1) result *= a;
    return result;
}
template <class T> inline_ T shift_left(T a, T b) {
    const bool inside = b >= 0 & b <= (T)last_bit<T>;
    return inside ? a << (inside ? b : 0) : 0;
}
template <class T> inline_ T shift_right(T a, T b) {
    const int sign = last_bit<T> + !is_signed<T>;
    return a >> (b >= 0 & b < (T)sign ? (int)b : sign);
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
''')

FORMS.update({
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
    "pow": Form("pow{f}({0}, {1})", "libdevice.pow({0}, {1})",
                "integer_power<{type}>({0}, {1})",
                "integer_power({0}, {1})"),
    "bitwise_left_shift": Form("shift_left<{type}>({0}, {1})",
                               "shift_left({0}, {1})"),
    "bitwise_right_shift": Form("shift_right<{type}>({0}, {1})",
                                "shift_right({0}, {1})"),
})
