"""16-bit floats in C++: stored in two bytes, computed as float.

Each operation's result is rounded, as eager rounds it: to the nearest, to
even where two are as near. Inductor reads PyTorch's headers for that:
torch/_inductor/codegen/cpp_prefix.h.
"""

from __future__ import annotations

import torch

from ..operations import FUNCTIONS
from ..target import CPP

FUNCTIONS["cpp"].append(r"""
struct bfloat { uint16 bits; };
struct half { uint16 bits; };

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
""")

CPP.types.update({torch.float16: "half", torch.bfloat16: "bfloat"})
