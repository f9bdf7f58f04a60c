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

template <class To, class From> inline_ To same_bits(From value) {
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}
// NaN wins.
template <class T> inline_ T maximum(T a, T b) {
    return a > b | a != a ? a : b;
}
template <class T> inline_ T minimum(T a, T b) {
    return a < b | a != a ? a : b;
}
"""
