"""Floats in C++: vector functions, 16-bit formats, a quick exp and erf.

A 16-bit float is stored in two bytes and computed as a float. Each result
is rounded as eager rounds it: to the nearest, and to even if two are as
near. glibc's vector erf looks up tables, which are slow to gather. Here
all lanes compute two polynomials and choose; the result is at most 1.2
units in the last place off. Inductor's are in
torch/csrc/inductor/cpp_prefix.h and Sleef.
"""

import platform
import re
from dataclasses import replace

import torch

from ..cpp import FLAGS, HEADER
from ..target import CPP, FORMS, FUNCTIONS

#: It tells g++ that the C library has a vector form of a function, so that
#: a loop which calls `expf` still becomes vector code.
FUNCTIONS["cpp"].insert(0, r"""
#include <features.h>
#ifndef __GLIBC_PREREQ
#define __GLIBC_PREREQ(major, minor) 0
#endif
#if defined(__x86_64__) && __GLIBC_PREREQ(2, 35)
#define SIMD __attribute__((const, simd("notinbranch")))
#else
#define SIMD __attribute__((const))
#endif
""")

FUNCTIONS["cpp"].append(r"""
template <class To, class From> inline_ To same_bits(From value) {
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}
// What is stored has been rounded, so the bits left out are zeros.
struct bfloat {
    uint16 bits;
    operator float() const {
        return same_bits<float>((uint32)bits << 16);
    }
    void operator=(float value) { bits = same_bits<uint32>(value) >> 16; }
    static float rounded(float value) {
        const uint32 u = same_bits<uint32>(value);
        const uint32 next = u + 0x7fff + (u >> 16 & 1);
        return value != value ? not_a_number
            : same_bits<float>(next & 0xffff0000);
    }
};
struct half {
    uint16 bits;
    operator float() const {
        const uint32 u = (uint32)bits << 16;
        const float size = same_bits<float>(u << 1 >> 4) * 0x1p112f;
        const uint32 special = size >= 0x1p16f ? 0x7f800000 : 0;
        return same_bits<float>(same_bits<uint32>(size) | special
                                | (u & 0x80000000));
    }
    void operator=(float value) {
        const uint32 small = same_bits<uint32>(value * 0x1p-112f);
        bits = (small >> 13 & 0x7fff) | (small >> 16 & 0x8000);
    }
    // A float beside `step` has a half's digits: adding it rounds.
    static float rounded(float value) {
        const uint32 u = same_bits<uint32>(value), sign = u & 0x80000000;
        const uint32 scale = u & 0x7f800000, least = 113 << 23;
        const float step = same_bits<float>(
            (scale < least ? least : scale) + (13 << 23));
        float size = same_bits<float>(u ^ sign);
        size = size >= 65520.0f ? infinity : size + step - step;
        return same_bits<float>(same_bits<uint32>(size) | sign);
    }
};

// exp and erf of floats, at most 1.2 units in the last place off. Where x
// is so small that exp(x) loses digits, its exponent takes a detour; where
// it is 0 it must not, since arithmetic on tiny numbers is slow.
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
    p = same_bits<float>(same_bits<int32>(p) + ((int32)n << 23));
    const int32 detour = x < -104.0f ? 0
        : same_bits<int32>(p) + (64 << 23);
    return x > 88.72283f ? infinity
        : x < -87.0f ? same_bits<float>(detour) * 0x1p-64f : p;
}
inline_ double vector_exp(double x) { return exp(x); }
// Near 0 erf itself is a polynomial; farther out the logarithm, to base 2,
// of what it leaves to 1 is one. If g++ knew that `four` never changes, it
// would take three instructions to find the smaller number.
float four = 4.0f;
inline_ float vector_erf(float x) {
    const float s = x * x, size = fabsf(x), t = size < four ? size : four;
    float near = fused(7.80690316e-05f, s, -0.00079978531f);
    near = fused(fused(near, s, 0.0051871622f), s, -0.0268533472f);
    near = fused(fused(near, s, 0.112835787f), s, -0.37612626f);
    near = fused(fused(near, s, 0.128379166f), x, x);
    float y = fused(-0.001764202f, t, 0.02213528f);
    y = fused(fused(y, t, -0.13035045f), t, -0.94055014f);
    y = fused(fused(y, t, -1.6147898f), t, -0.0030973953f);
    const float n = y + 0x1.8p23f;  // its last bits: the nearest integer
    const float r = y - (n - 0x1.8p23f);
    float p = fused(0.0013276472f, r, 0.0096755413f);
    p = fused(fused(p, r, 0.055507133f), r, 0.24022120f);
    p = fused(fused(p, r, 0.69314697f), r, 1.0000001f);
    const int32 power = same_bits<int32>(p) + (same_bits<int32>(n) << 23);
    const float far = 1.0f - same_bits<float>(power);
    return copysignf(size >= 1.0f ? far : fabsf(near), x);
}
inline_ double vector_erf(double x) { return erf(x); }
""")

#: The functions that have vectors: how many numbers one takes, its name.
VECTORS = re.findall(r"(U|BI)NARY\((\w+)\)", HEADER.partition(
    'extern "C"')[2].partition("#undef SIMD")[0])

#: glibc rounds otherwise in scalars and in short vectors, which compute the
#: last elements of a loop. Here these are copied to all lanes of the widest
#: form: a number that is computed again, to find a maximum's place or its
#: gradient, must be the same.
FUNCTIONS["cpp"].append(r"""
#if defined(__AVX2__) && __GLIBC_PREREQ(2, 35)
#ifdef __AVX512F__
#define WIDE "%zmm"
#define WIDEST "_ZGVeN\\e\\v\\()_\\name@PLT\n"
#define FOUR "vshuff32x4 $0, %zmm\\r, %zmm\\r, %zmm\\r\n"
#define EIGHT "_ZGVcN\\d\\v\\()_\\name: _ZGVdN\\d\\v\\()_\\name:\n" \
    ".irp r, 0, 1\nvshuff32x4 $0x44, %zmm\\r, %zmm\\r, %zmm\\r\n.endr\n" \
    "jmp " WIDEST
#else
#define WIDE "%ymm"
#define WIDEST "_ZGVdN\\d\\v\\()_\\name@PLT\n"
#define FOUR "vinsertf128 $1, %xmm\\r, %ymm\\r, %ymm\\r\n"
#define EIGHT "_ZGVcN\\d\\v\\()_\\name: jmp " WIDEST
#endif
asm(".macro widest name, v, s, b, d, e\n\\name:\n"
    ".irp r, 0, 1\nvbroadcasts\\s %xmm\\r, " WIDE "\\r\n.endr\n"
    "jmp " WIDEST "_ZGVbN\\b\\v\\()_\\name:\n.irp r, 0, 1\n" FOUR ".endr\n"
    "jmp " WIDEST EIGHT ".endm\n" R"(
""" + "".join(
    f"widest {name}, {v}, d, 2, 4, 8\nwidest {name}f, {v}, s, 4, 8, 16\n"
    for kind, name in VECTORS for v in ["v" * len(kind)]) + """)");
#endif
""")

#: g++ would make one sincosf, which has no vector form, of sin and cos,
#: and of x ** 0.5 a root, which -0.0 and minus infinity have another of.
FLAGS += [f"-fno-builtin-{name}{kind}" for name in ("sin", "cos", "pow")
          for kind in ("", "f")]
if platform.machine() == "x86_64":  # AVX-512 in full width; glibc's vectors
    FLAGS += ["-mprefer-vector-width=512", "-lmvec"]

CPP.types.update({torch.float16: "half", torch.bfloat16: "bfloat"})
for name, text in {"exp": "vector_exp({0})", "erf": "vector_erf({0})",
                   "sigmoid": "1 / (1 + vector_exp(-{0}))"}.items():
    FORMS[name] = replace(FORMS[name], cpp=text)
