"""One recording: where it reads its inputs, what becomes of its outputs.

An input is *bound* (the recording reads the caller's own memory, as long
as it lies at the same address) or *copied* (into a buffer that belongs to
the recording). An output is *cloned* for the user, or *lent*: handed out
as it lies, and overwritten after its last holder has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.graph import dense
from .cuda import Cuda, Run

#: The identity of the memory under a tensor, and how many tensors hold it.
storage_of, holders = torch._C._storage_id, torch._C._storage_Use_Count


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded call, ready to be replayed.

    `made[k]` makes output k from the fresh clones and the call's inputs.
    """

    numbers: dict[int, object]  # the inputs that are no tensors
    bound: dict[int, int]  # position -> address
    copied: dict[int, Tensor]  # position -> buffer
    written: frozenset[int]  # the copied ones that the program writes to
    replay: Callable[[], None]
    clones: tuple[Tensor, ...]
    made: tuple[Callable[[list, list], object], ...]
    lent: dict[int, int]  # storage -> holders when at rest
    lends: frozenset[int]  # the addresses of what it lends
    lender: Recording | None  # the forward that lends to this backward
    pool: object  # the memory it works in
    bytes: int  # by which that memory has grown

    def strangers(self, inputs: list) -> list[int]:
        """The positions whose input is not what was recorded.

        Where a number is another, the addresses are not compared.
        """
        return [k for k, number in self.numbers.items()
                if inputs[k] != number] or [
            k for k, address in self.bound.items()
            if inputs[k].data_ptr() != address]

    def free(self) -> bool:
        """Whether all memory that was lent has come back."""
        return all(holders(storage) == count
                   for storage, count in self.lent.items())

    def run(self, inputs: list) -> tuple:
        """The program's results for these inputs, by a replay."""
        copy_all([*self.copied.values()],
                 [laid_out(inputs[k]) for k in self.copied])
        self.replay()
        for k in self.written:
            laid_out(inputs[k]).copy_(self.copied[k])
        if len(self.clones) == 1:
            fresh = [self.clones[0].clone()]
        else:
            fresh = [torch.empty_like(clone) for clone in self.clones]
            copy_all(fresh, self.clones)
        results = tuple([make(fresh, inputs) for make in self.made])
        inputs.clear()
        return results


def copy_all(buffers: list[Tensor], given: Collection[Tensor]) -> None:
    """Bring the tensors into the buffers, in one launch."""
    if len(buffers) == 1:
        buffers[0].copy_(given[0])
    elif buffers:
        torch._foreach_copy_(buffers, given)


def laid_out(tensor: Tensor) -> Tensor:
    """The tensor; if it has holes or overlaps itself, its memory."""
    if dense(tensor):
        return tensor
    span = 1 + sum((size - 1) * step for size, step in
                   zip(tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((span,), (1,))


def capture(device: Cuda, run: Run, inputs: list, bound: Collection[int],
            visible: int | None, written: Iterable[int] = (),
            lender: Recording | None = None) -> Recording:
    """A recording of `run(inputs)`, which reads the inputs in `bound`
    where they lie, and lends its outputs from `visible` on."""
    pool = lender.pool if lender else device.pool()
    held, copied, read = device.bytes(), {}, list(inputs)
    tensors = [k for k, given in enumerate(inputs)
               if isinstance(given, Tensor)]
    with torch.inference_mode(False), torch.no_grad():
        for k in set(tensors) - {*bound}:
            copied[k] = torch.empty_like(laid_out(inputs[k].detach()))
            read[k] = copied[k].as_strided(
                inputs[k].shape, inputs[k].stride(), 0)
        replay, outputs = device.record(run, list(read), pool)
    owners = {storage_of(read[k]): k for k in tensors}
    visible = len(outputs) if visible is None else visible
    clones, made = deliveries(outputs, visible, read, owners)
    lent = [(storage_of(output), output.data_ptr())
            for output in outputs[visible:] if isinstance(output, Tensor)
            and storage_of(output) not in owners]
    del outputs  # so that only the recording holds them, at rest
    return Recording(
        {k: given for k, given in enumerate(inputs) if k not in tensors},
        {k: inputs[k].data_ptr() for k in tensors if k not in copied},
        copied, frozenset(written) & {*copied}, replay, clones, made,
        {storage: holders(storage) for storage, _ in lent},
        frozenset(address for _, address in lent) - {0},
        lender, pool, device.bytes() - held)


def deliveries(outputs: tuple, visible: int, read: list,
               owners: dict[int, int]
               ) -> tuple[tuple[Tensor, ...], tuple[Callable, ...]]:
    """The tensors to clone for the user, and a maker of each output.

    Two outputs on one storage are cloned with all of its memory. An
    output in an input's memory is made from the input of the call.
    """
    clones: dict[int, Tensor] = {}
    for output in outputs[:visible]:
        if isinstance(output, Tensor) and storage_of(output) not in owners:
            storage = storage_of(output)
            alone = storage not in clones and dense(output)
            clones[storage] = output if alone else whole(output)
    places = {storage: (0, k, clone)
              for k, (storage, clone) in enumerate(clones.items())}
    places |= {storage: (1, k, read[k]) for storage, k in owners.items()}

    def maker(k: int, output: object) -> Callable:
        if not isinstance(output, Tensor):
            return lambda fresh, inputs: output
        storage = storage_of(output)
        if k >= visible and storage not in owners:
            return lambda fresh, inputs: output.data
        which, at, base = places[storage]
        if base is output and not which:
            return lambda fresh, inputs: fresh[at]
        size, stride = output.shape, output.stride()
        shift = output.storage_offset() - base.storage_offset()

        def within(*given: list) -> Tensor:
            found = given[which][at]
            return found.as_strided(size, stride,
                                    found.storage_offset() + shift)
        return within

    return tuple(clones.values()), tuple(
        [maker(k, output) for k, output in enumerate(outputs)])


def whole(tensor: Tensor) -> Tensor:
    """All the memory under a tensor, as one dimension."""
    span = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((span,), (1,), 0)
