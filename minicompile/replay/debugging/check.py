"""Each replay compared with its program: `options={"replay_check": True}`.

In: a recording. Out: a recording whose memory is poisoned before every
replay, and whose results must be those of the program, bit by bit. So
memory that is still read, or that the replay does not write, shows as
NaN. It is slow, and for finding faults in replay. Without this file the
option has no effect. PyTorch's is check_memory_pool in
torch/_inductor/cudagraph_trees.py, which looks at the allocator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import BackendError
from ...core.graph import Boxed
from ...core.options import HINTS
from ..graphed_function import CHECKED
from ..recording import Recording, laid_out, storage_of


class Checked(Recording):
    """A recording that is poisoned, replayed and compared in each run."""

    def __init__(self, device, run: Boxed, inputs: list, *settings):
        def watched(given: list) -> tuple:
            theirs = storages(given)
            outputs = run(given)
            self.own = self.own or {
                storage: tensor.detach() for storage, tensor
                in storages(outputs).items() if storage not in theirs}
            return outputs

        self.program, self.own = run, {}
        super().__init__(device, watched, inputs, *settings)

    def run(self, inputs: list) -> tuple:
        """The program's results, or a BackendError if a replay differs."""
        given = [copied(each) if isinstance(each, Tensor) else each
                 for each in inputs]
        with torch.random.fork_rng(devices()):
            wanted = self.program(list(given))
            self.poison(wanted)
        kept = list(inputs)
        found = super().run(inputs)
        for what, ours, theirs in (("output", found, wanted),
                                   ("input", kept, given)):
            for k, (one, two) in enumerate(zip(ours, theirs, strict=True)):
                if not equal(one, two):
                    raise BackendError(f"{what} {k} of a replay is not "
                                       "what its program gives")
        return found

    def poison(self, wanted: tuple) -> None:
        """Fill the memory that a replay writes with NaN.

        Memory that the program gives in every run, `wanted` being one, is
        that of a constant, and stays.
        """
        for storage, tensor in self.own.items():
            if storage not in storages(wanted):
                torch.empty(
                    0, dtype=torch.uint8, device=tensor.device).set_(
                    tensor.untyped_storage()).fill_(255)


def storages(values) -> dict[int, Tensor]:
    """The tensors among the values, by the memory under them."""
    return {storage_of(each): each for each in values
            if isinstance(each, Tensor)}


def copied(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own, laid out as it was."""
    memory = laid_out(tensor.detach()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def equal(one: object, two: object) -> bool:
    """Whether two values are the same, NaN equal to NaN."""
    if not isinstance(one, Tensor):
        return one == two
    return one.shape == two.shape and bool(
        ((one == two) | (one != one) & (two != two)).all())


def devices() -> range:
    """The GPUs whose random numbers the replay is to draw once more."""
    return range(torch.cuda.device_count()
                 if torch.cuda.is_initialized() else 0)


CHECKED.append(Checked)
HINTS.pop("replay_check", None)  # it has an effect now
