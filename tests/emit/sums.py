"""Random graphs of one to nine sums: odd sizes, halves, any axes."""

import random
from math import prod

import torch

from minicompile import fusion
from tests.fusion.graphs import aten
from tests.fusion.symbolic import symbolic

#: How large a dimension is, if the sums are to be computed, or not.
SMALL, LARGE = (1, 2, 3, 5, 7, 13, 16, 24), (3, 16, 31, 64, 97, 197, 4099)
#: How many elements there are at most.
MOST = 1 << 20


class Sums:
    """A random function of two tensors, the same for the same seed."""

    def __init__(self, seed: int, sizes=SMALL):
        choose = random.Random(seed)
        rank = choose.randint(2, 4)
        self.shape = [choose.choice(sizes) for _ in range(rank)]
        while prod(self.shape) > MOST:
            self.shape[self.shape.index(max(self.shape))] //= 3
        self.axes = tuple(sorted(choose.sample(
            range(rank), choose.randint(1, min(3, rank)))))
        self.count = choose.randint(1, 9)
        self.dtype = choose.choice(
            [torch.float32, torch.float16, torch.bfloat16])
        self.symbolic = choose.random() < .3
        self.ends = choose.random() < .5
        self.__name__ = f"sums_{seed}"

    def inputs(self) -> tuple[torch.Tensor, ...]:
        made = torch.rand(2, *self.shape)
        return tuple(made.to(self.dtype))

    def __call__(self, x, y):
        found = tuple((x * (k + 1) - y if k % 2 else x * y + k).sum(self.axes)
                      for k in range(self.count))
        if self.ends:
            mean = found[0] / x.numel()
            for axis in self.axes:
                mean = mean.unsqueeze(axis)
            found += (x - mean,)
        return found

    def graph(self, device: str = "cpu"):
        """Its ATen graph, for all sizes if it is symbolic."""
        record = symbolic if self.symbolic else aten
        return record(self, *(x.to(device) for x in self.inputs()))

    def kernels(self):
        return fusion.fuse(self.graph()).kernels
