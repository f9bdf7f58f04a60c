"""One recording: where it reads its inputs, what becomes of its outputs.

An input is *bound* (the recording reads the caller's own memory, as long
as it lies at the same address) or *copied* (into a buffer that belongs to
the recording). An output is *cloned* for the user, or *lent*: handed out
as it lies, to be overwritten once nobody holds it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..core.graph import dense

#: How many tensors hold a storage.
_holders = torch._C._storage_Use_Count


@dataclass(frozen=True)
class Inputs:
    """How a call's inputs reach a recording."""

    bound: tuple[tuple[int, int], ...]  # (position, address)
    copied: tuple[tuple[int, torch.Tensor], ...]  # (position, buffer)
    plain: tuple[tuple[int, object], ...]  # (position, a non-tensor)
    written: tuple[tuple[int, torch.Tensor], ...]  # those of the copied

    def strangers(self, inputs: list) -> list[int]:
        """The positions whose input is not what was recorded.

        Where a number is another, the addresses are not compared.
        """
        return [k for k, value in self.plain if inputs[k] != value] or [
            k for k, address in self.bound
            if inputs[k].data_ptr() != address]

    def copy(self, inputs: list) -> None:
        """Bring the copied inputs into their buffers."""
        if len(self.copied) == 1:
            (k, buffer), = self.copied
            buffer.copy_(_laid_out(inputs[k]))
        elif self.copied:
            torch._foreach_copy_(
                [buffer for _, buffer in self.copied],
                [_laid_out(inputs[k]) for k, _ in self.copied])


    def write_back(self, inputs: list) -> None:
        """Bring what was written to a buffer into the input itself."""
        for k, buffer in self.written:
            _laid_out(inputs[k]).copy_(buffer)


def bind(inputs: list, bound: set[int], written: frozenset[int]
         ) -> tuple[Inputs, list]:
    """The Inputs of a recording to be made, and what it is to read."""
    addresses, copied, plain, read = [], [], [], list(inputs)
    for k, given in enumerate(inputs):
        if not isinstance(given, torch.Tensor):
            plain.append((k, given))
        elif k in bound:
            addresses.append((k, given.data_ptr()))
        else:
            source = _laid_out(given.detach())
            buffer = torch.empty_like(source)
            copied.append((k, buffer))
            read[k] = buffer.as_strided(given.shape, given.stride(), 0)
    return Inputs(tuple(addresses), tuple(copied), tuple(plain), tuple(
        (k, buffer) for k, buffer in copied if k in written)), read


def _laid_out(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; if it has holes or overlaps itself, its memory."""
    if dense(tensor):
        return tensor
    span = 1 + sum((size - 1) * step for size, step in
                   zip(tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((span,), (1,))


@dataclass(frozen=True)
class Outputs:
    """How a recording's outputs reach the caller.

    `made[k]` makes output k from the fresh clones and the call's inputs.
    """

    clones: tuple[torch.Tensor, ...]
    made: tuple[Callable[[list, list], object], ...]
    lent: tuple[tuple[int, int], ...]  # (storage, holders when at rest)

    def free(self) -> bool:
        """Whether nobody holds memory that was lent."""
        return all(_holders(storage) == count
                   for storage, count in self.lent)

    def deliver(self, inputs: list) -> tuple:
        """The outputs of a replay that has been launched."""
        fresh = []
        if len(self.clones) == 1:
            fresh = [self.clones[0].clone()]
        elif self.clones:
            fresh = [torch.empty_like(clone) for clone in self.clones]
            torch._foreach_copy_(fresh, self.clones)
        return tuple([make(fresh, inputs) for make in self.made])


def share(outputs: tuple, visible: int, read: list) -> Outputs:
    """What to do with each output; those from `visible` on are lent.

    `read` holds the tensors that the recording read.
    """
    owners = {_storage(tensor): k for k, tensor in enumerate(read)
              if isinstance(tensor, torch.Tensor)}
    clones = _clones(outputs[:visible], owners)
    made: list[Callable] = []
    for k, output in enumerate(outputs):
        tensor = isinstance(output, torch.Tensor)
        storage = _storage(output) if tensor else None
        if storage in owners:
            owner = owners[storage]
            made.append(_within(1, owner, read[owner], output))
        elif tensor and k < visible:
            place = list(clones).index(storage)
            made.append(_within(0, place, clones[storage], output))
        else:
            made.append(_itself(output))
    lent = {_storage(output) for output in outputs[visible:]
            if isinstance(output, torch.Tensor)} - {*owners}
    return Outputs(tuple(clones.values()), tuple(made), tuple(
        (storage, _holders(storage)) for storage in lent))


def _clones(outputs: tuple, owners: dict) -> dict[int, torch.Tensor]:
    """What to clone for each storage: an output, or all its memory."""
    clones: dict[int, torch.Tensor] = {}
    for output in outputs:
        if isinstance(output, torch.Tensor):
            storage = _storage(output)
            alone = storage not in clones and dense(output)
            if storage not in owners:
                clones[storage] = output if alone else _memory(output)
    return clones


def _storage(tensor: torch.Tensor) -> int:
    """The identity of the memory under a tensor."""
    return torch._C._storage_id(tensor)


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All the memory under a tensor, as one dimension."""
    span = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((span,), (1,), 0)


def _itself(output: object) -> Callable:
    """Makes what is no tensor, or a tensor in the recording's memory."""
    if isinstance(output, torch.Tensor):
        return lambda fresh, inputs: output.data
    return lambda fresh, inputs: output


def _within(which: int, k: int, base: torch.Tensor,
            output: torch.Tensor) -> Callable:
    """Makes an output from clone (0) or input (1) k, in whose memory it
    lies as it does in that of `base`."""
    if which == 0 and base is output:
        return lambda fresh, inputs: fresh[k]
    size, stride = output.shape, output.stride()
    shift = output.storage_offset() - base.storage_offset()

    def make(*given: list) -> torch.Tensor:
        found = given[which][k]
        return found.as_strided(size, stride,
                                found.storage_offset() + shift)
    return make
