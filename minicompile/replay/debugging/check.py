"""Each replay compared with its program: `options={"replay_check": True}`.

In: a recording. Out: a recording whose memory is poisoned before every
replay, and whose results must be those of the program, bit by bit. So
memory that is still read, or that the replay does not write, shows as
NaN. It is slow, and for finding faults in replay. Without this file the
option has no effect. PyTorch's is check_memory_pool in
torch/_inductor/cudagraph_trees.py, which looks at the allocator.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

from ...core.errors import BackendError
from ...core.graph import Boxed
from ...core.options import HINTS
from .. import KINDS
from ..recording import Recording, memory_of


class Checked(Recording):
    """A recording that is poisoned, replayed and compared in each run."""

    def __init__(self, device, run: Boxed, *given):
        self.program = run
        super().__init__(device, run, *given)

    def run(self, inputs: list) -> tuple:
        """The program's results, or a BackendError if a replay differs."""
        kept, given = list(inputs), deepcopy([
            each.detach() if isinstance(each, Tensor) else each
            for each in inputs])
        gpus = {each.device for each in inputs
                if isinstance(each, Tensor) and each.is_cuda}
        with torch.random.fork_rng(gpus):
            wanted = self.program(list(given))
            self.poison(wanted)
        found = super().run(inputs)
        try:
            torch.testing.assert_close(
                {"results": found, "inputs": tuple(kept)},
                {"results": wanted, "inputs": tuple(given)},
                rtol=0, atol=0, equal_nan=True)
        except AssertionError as error:
            raise BackendError("a result of a replay is not what its "
                               f"program gives: {error}") from None
        return found

    def poison(self, wanted: tuple) -> None:
        """Fill the memory that a replay writes with NaN.

        Memory that the program gives in every run, `wanted` being one, is
        that of a constant, and stays.
        """
        mine = [*self.clones.values(), *self.kept]
        for k, memory in memory_of(mine).items():
            if memory not in memory_of(wanted).values():
                torch.empty(
                    0, dtype=torch.uint8, device=mine[k].device).set_(
                    mine[k].untyped_storage()).fill_(255)


def compared(before: Callable, *given: object) -> type[Recording] | str:
    """Recordings that are compared, if that is asked for."""
    found = before(*given)
    return Checked if given[-1] and found is Recording else found


KINDS.append(partial(compared, KINDS[-1]))
HINTS.pop("replay_check", None)  # it has an effect now
