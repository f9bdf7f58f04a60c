"""Random numbers as a function of a seed and a position.

In: a seed, the number of the draw, a position. Out: a float32 of
[0, 1). The idea: a counter-based generator (Philox, 4x32, 10 rounds)
draws the same number at every use, in the forward and in the backward.
So sixteen bytes stand for a mask. This file defines the operator and the
loop language's `uniform`; kernels have their own. Without it random
operators draw eager's numbers, and masks are saved. PyTorch's is
torch/include/ATen/core/PhiloxRNGEngine.h.
"""

from collections.abc import Sequence

import torch

from ..loops import OPS

LOW = 0xFFFFFFFF
#: The factors of a round, and the steps that it adds to the key.
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def philox(seed: torch.Tensor, offset: torch.Tensor,
           position: torch.Tensor) -> torch.Tensor:
    """24 random bits of each position as a float32 in [0, 1).

    Four neighbours are the four words that one count gives.
    """
    keys = [seed & LOW, seed >> 32 & LOW]
    a, b, c, d = (position >> 2 & LOW, position >> 34 & LOW,
                  offset & LOW, offset >> 32 & LOW)
    for _ in range(10):
        first, second = a * FACTORS[0], c * FACTORS[1]
        a, b = second >> 32 & LOW ^ b ^ keys[0], second & LOW
        c, d = first >> 32 & LOW ^ d ^ keys[1], first & LOW
        keys = [key + step & LOW for key, step in zip(keys, STEPS)]
    high, odd = position & 2, position & 1
    bits = torch.where(high > 0, torch.where(odd > 0, d, c),
                       torch.where(odd > 0, b, a))
    return (bits & 0xFFFFFF).to(torch.float32) * 2.0 ** -24


@torch.library.custom_op("minicompile::uniform", mutates_args=(),
                         tags=(torch.Tag.pointwise,))
def uniform(seed: torch.Tensor, draw: int,
            size: Sequence[int]) -> torch.Tensor:
    """The numbers of one draw, laid out row by row."""
    shape = torch.Size(size)
    position = torch.arange(shape.numel(), device=seed.device)
    return philox(seed[0], seed[1] + draw, position).view(shape)


uniform.register_fake(lambda seed, _, size: seed.new_empty(
    size, dtype=torch.float32))

OPS["uniform"] = philox
#: The operator: a seed of two int64, which draw, a size -> float32.
UNIFORM = torch.ops.minicompile.uniform.default
