"""Random numbers in a kernel: Philox, as core/random.py has it.

A number is a function of a seed, an offset and a position, so a backward
kernel draws again what the forward drew. Inductor's is in
torch/_inductor/runtime/triton_helpers.py.
"""

from __future__ import annotations

import torch

from ..operations import FORMS, FUNCTIONS, Form

FUNCTIONS["cpp"].append(r"""
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

FORMS["uniform"] = Form("uniform({0}, {1}, {2})", given="common",
                        made=torch.float32)
