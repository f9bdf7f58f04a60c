"""What every C++ kernel starts with: types, conversions, mathematics.

`SIMD` tells g++ that the C library has a vector form of a function, so
that a loop which calls `expf` still becomes vector code. -ffast-math
would show these forms too, but then NaN and infinity are no longer what
they should be. No standard header is read: that would take longer than
compiling the kernels.
"""

HEADER = r"""
#include <features.h>
#ifndef __GLIBC_PREREQ
#define __GLIBC_PREREQ(major, minor) 0
#endif
typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

#if defined(__x86_64__) && __GLIBC_PREREQ(2, 35)
#define SIMD __attribute__((const, simd("notinbranch")))
#else
#define SIMD __attribute__((const))
#endif
#define UNARY(name) SIMD double name(double); SIMD float name##f(float);
#define BINARY(name) \
    SIMD double name(double, double); SIMD float name##f(float, float);
extern "C" {
UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log10)
UNARY(log1p) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos)
UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh)
UNARY(atanh) UNARY(erf) UNARY(erfc) BINARY(pow) BINARY(atan2)
BINARY(hypot)
#undef SIMD
#define SIMD
UNARY(sqrt) UNARY(fabs) UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(rint)
UNARY(lgamma) BINARY(fmod) BINARY(copysign)
void* malloc(unsigned long);
void free(void*);
}
#define infinity __builtin_inff()
#define not_a_number __builtin_nanf("")
#define inline_ static inline __attribute__((always_inline))

template <class T> constexpr bool is_float = (T)0.5f == 0.5f;
template <class T> constexpr bool is_signed = (T)-1 < (T)0;
template <class T> constexpr int last_bit = sizeof(T) * 8 - 1;
constexpr int64 least = 1ull << 63, most = ~least;
template <class T> inline_ T smaller(T a, T b) { return a < b ? a : b; }

// 16-bit floats are stored like this, and computed as float.
struct bfloat { uint16 bits; };
struct half { uint16 bits; };

template <class To, class From> inline_ To same_bits(From value) {
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}
inline_ float load(bfloat value) {
    return same_bits<float>((uint32)value.bits << 16);
}
inline_ float load(half value) {
    const uint32 low = (uint32)(value.bits & 0x7fff) << 13;
    const float large = same_bits<float>(low) * 0x1p112f;
    const bool special = (value.bits & 0x7c00) == 0x7c00;
    return same_bits<float>(
        (special ? low | 0x7f800000 : same_bits<uint32>(large))
        | (uint32)(value.bits & 0x8000) << 16);
}
template <class T> inline_ T load(T value) { return value; }

inline_ void store(bfloat& place, float value) {
    const uint32 u = same_bits<uint32>(value);
    const uint32 rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    place.bits = value != value ? u >> 16 | 0x40 : rounded;
}
inline_ void store(half& place, float value) {
    const uint32 u = same_bits<uint32>(value), low = u & 0x7fffffff;
    const float size = same_bits<float>(low);
    const uint32 tiny = same_bits<uint32>(size + 0.5f) - 0x3f000000;
    const uint32 even = 0xfff + (low >> 13 & 1);
    const uint32 normal = (low - 0x38000000 + even) >> 13;
    uint32 result = size < 0x1p-14f ? tiny : normal;
    result = size >= 65520.0f ? 0x7c00 : result;
    result = size != size ? 0x7e00 : result;
    place.bits = result | (u >> 16 & 0x8000);
}
template <class T, class V> inline_ void store(T& place, V value) {
    place = value;
}
template <class T> inline_ float rounded(float value) {
    T result;
    store(result, value);
    return load(result);
}

// Have memory brought near, while something else is computed.
template <class T> inline_ void fetch(const T* start, int64 count) {
    for (int64 k = 0; k < count * (int64)sizeof(T); k += 64)
        __builtin_prefetch((const char*)start + k, 0, 2);
}

// exp and erf of floats, within a unit in the last place. Where x is so
// small that exp(x) loses digits, its exponent takes a detour; where it
// is 0 it must not, since arithmetic on tiny numbers is slow.
inline_ float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
inline_ float vector_exp(float x) {
    const float n = rintf(x * 1.44269504f);
    const float r = fused(n, -1.42860677e-6f, fused(n, -0.693145752f, x));
    float p = fused(0.00138214743f, r, 0.00836866256f);
    p = fused(fused(p, r, 0.0416682549f), r, 0.166665211f);
    p = fused(fused(fused(p, r, 0.49999994f), r, 1.0f), r, 1.0f);
    const int32 u = same_bits<int32>(p) + ((int32)n << 23);
    const int32 detour = x < -104.0f ? 0 : u + (64 << 23);
    p = x < -87.0f ? same_bits<float>(detour) * 0x1p-64f
        : same_bits<float>(u);
    return x > 88.72283f ? infinity : p;
}
inline_ double vector_exp(double x) { return exp(x); }
// Near 0 erf itself is a polynomial; farther out the logarithm of what it
// leaves to 1 is one.
inline_ float vector_erf(float x) {
    const float s = x * x, size = fabsf(x);
    float near = fused(7.80690316e-05f, s, -0.00079978531f);
    near = fused(fused(near, s, 0.0051871622f), s, -0.0268533472f);
    near = fused(fused(near, s, 0.112835787f), s, -0.37612626f);
    near = fused(fused(near, s, 0.128379166f), x, x);
    const float t = size > 4.0f ? 4.0f : size;
    float far = fused(-0.000186367382f, t, 0.00294757425f);
    far = fused(fused(far, t, -0.0218378324f), t, 0.103106447f);
    far = fused(fused(far, t, 0.63814503f), t, 1.12708914f);
    far = 1.0f - vector_exp(-fused(far, t, 0.000341522304f));
    return size < 1.0f ? near : copysignf(far, x);
}
inline_ double vector_erf(double x) { return erf(x); }

// NaN wins.
template <class T> inline_ T maximum(T a, T b) {
    return a > b | a != a ? a : b;
}
template <class T> inline_ T minimum(T a, T b) {
    return a < b | a != a ? a : b;
}
// Whether a, found at place i, beats b, found at j: the first best wins.
template <class T> inline_ bool equal(T a, T b) {
    return a == b | (a != a & b != b);
}
template <class T> inline_ bool above(T a, int64 i, T b, int64 j) {
    return a > b | (a != a & b == b) | (equal(a, b) & i < j);
}
template <class T> inline_ bool below(T a, int64 i, T b, int64 j) {
    return a < b | (a != a & b == b) | (equal(a, b) & i < j);
}

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

// 24 random bits of a position: Philox, as core/random.py has it.
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
"""
