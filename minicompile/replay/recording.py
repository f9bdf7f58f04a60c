"""One recording: where it reads its inputs, what becomes of its outputs.

An input is *bound* (the recording reads the caller's own memory, as long
as it lies at the same address) or *copied* (into a buffer that belongs to
the recording). An output is *cloned* for the user, or *lent*: handed out
as it lies, and overwritten after its last holder has gone. `Cuda` does
what this needs of a device with torch/cuda/graphs.py; the tests have
another one that works on a CPU.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core.graph import Boxed, dense

#: One recording is made at a time in this process.
_recording = threading.Lock()

#: The identity of the memory under a tensor, and how many tensors hold it.
storage_of, holders = torch._C._storage_id, torch._C._storage_Use_Count


class Cuda:
    """Recordings on one CUDA device, which run one after the other.

    A call on another stream than the last one's first waits for that
    stream. So a backward may take its temporary memory from the pool of
    its forward. Two forwards may not share a pool: the tensors that the
    second lends would lie where the first keeps temporaries.
    """

    def __init__(self, index: int):
        self.index = index
        self.stream = self.last = None
        self.address = 0  # of the stream of the last replay

    def refusal(self) -> str | None:
        """Why nothing may be replayed right now, or None."""
        if torch._C._cuda_isCurrentStreamCapturing():
            return "the caller is recording"
        return None

    def order(self) -> None:
        """Make the current stream wait for the last replay."""
        address = torch._C._cuda_getCurrentRawStream(self.index)
        if self.last is not None and address == self.address:
            return
        current = torch.cuda.current_stream(self.index)
        if self.last is not None:
            current.wait_stream(self.last)
        self.last, self.address = current, address

    def pool(self) -> object:
        """Memory for one forward and the backward that goes with it."""
        return torch.cuda.graph_pool_handle()

    def bytes(self) -> int:
        """The memory that PyTorch holds on the device, for any purpose."""
        return torch.cuda.memory_reserved(self.index)

    def most(self) -> int:
        """The memory that the recordings of one function may take."""
        return torch.cuda.get_device_properties(
            self.index).total_memory // 4

    def record(self, run: Boxed, inputs: list, pool: object
               ) -> tuple[Callable[[], None], tuple]:
        """(replay, outputs): the launches of `run(inputs)`, not run."""
        graph = torch.cuda.CUDAGraph()
        self.stream = self.stream or torch.cuda.Stream(self.index)
        with (_recording, _undisturbed(self.index),
              torch.cuda.stream(self.stream)):
            graph.capture_begin(pool, "thread_local")
            try:
                outputs = run(inputs)
            finally:
                graph.capture_end()
        return graph.replay, outputs


@contextmanager
def _undisturbed(index: int) -> Iterator[None]:
    """Nothing in flight, nothing freed, and no workspace shared."""
    collects = gc.isenabled()
    gc.disable()
    torch.cuda.synchronize(index)
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()
        if collects:
            gc.enable()


def sizes_of(values: Iterable) -> tuple:
    """Those of the values that are no tensors, such as sizes."""
    return tuple([value for value in values
                  if not isinstance(value, Tensor)])


class Recording:
    """A recorded call of a program, ready to be replayed.

    It reads the inputs in `bound` where they lie, writes to those in
    `written`, and lends its outputs from `visible` on. A backward has the
    forward that lends to it as its `lender`, and works in its memory.
    """

    def __init__(self, device: Cuda, run: Boxed, inputs: list,
                 bound: Collection[int], visible: int | None = None,
                 written: Iterable[int] = (),
                 lender: Recording | None = None):
        tensors = [k for k, given in enumerate(inputs)
                   if isinstance(given, Tensor)]
        self.sizes = sizes_of(inputs)
        self.bound = {k: inputs[k].data_ptr() for k in tensors
                      if k in bound}
        self.copied: dict[int, Tensor] = {}  # position -> buffer
        self.lender = lender
        self.pool = lender.pool if lender else device.pool()
        held, read = device.bytes(), list(inputs)
        with torch.inference_mode(False), torch.no_grad():
            for k in tensors:
                if k not in bound:
                    read[k] = like(inputs[k])
                    self.copied[k] = laid_out(read[k])
            self.replay, outputs = self.record(device, run, list(read))
        self.written = {*written} & {*self.copied}
        owners = {storage_of(read[k]): k for k in tensors}
        found = {k: owners.get(storage_of(output)) for k, output
                 in enumerate(outputs) if isinstance(output, Tensor)}
        self.passed = {k: place(outputs[k], owner, read[owner]) for k, owner
                       in found.items() if owner is not None}
        self.clones = {k: outputs[k] for k in found.keys() - self.passed
                       if visible is None or k < visible}
        self.kept = [None if k in self.passed or k in self.clones else each
                     for k, each in enumerate(outputs)]
        del outputs  # so that only the recording holds them, at rest
        lent = [self.kept[k] for k in found if self.kept[k] is not None]
        self.lends = {each.data_ptr() for each in lent} - {0}
        self.lent = {storage: holders(storage)
                     for storage in map(storage_of, lent)}
        self.bytes = device.bytes() - held

    def record(self, device: Cuda, run: Boxed, inputs: list
               ) -> tuple[Callable[[], object], tuple]:
        """(replay, outputs) of the program on these inputs."""
        return device.record(run, inputs, self.pool)

    def strangers(self, inputs: list) -> list[int]:
        """The positions of inputs that lie elsewhere than the recorded."""
        return [k for k, address in self.bound.items()
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
        results = [each.data if isinstance(each, Tensor) else each
                   for each in self.kept]
        fresh = {k: like(clone) for k, clone in self.clones.items()}
        copy_all([*map(laid_out, fresh.values())],
                 [*map(laid_out, self.clones.values())])
        for k, made in fresh.items():
            results[k] = made
        for k, (owner, size, stride, shift) in self.passed.items():
            results[k] = inputs[owner].as_strided(
                size, stride, inputs[owner].storage_offset() + shift)
        inputs.clear()
        return tuple(results)


def copy_all(buffers: list[Tensor], given: Collection[Tensor]) -> None:
    """Bring the tensors into the buffers, in one launch."""
    if len(buffers) == 1:
        buffers[0].copy_(given[0])
    elif buffers:
        torch._foreach_copy_(buffers, given)


def like(tensor: Tensor) -> Tensor:
    """New memory for a tensor of this shape and these strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(),
                               dtype=tensor.dtype, device=tensor.device)


def place(output: Tensor, owner: int, given: Tensor) -> tuple:
    """How an output lies in the memory of input number `owner`."""
    shift = output.storage_offset() - given.storage_offset()
    return owner, output.shape, output.stride(), shift


def laid_out(tensor: Tensor) -> Tensor:
    """The tensor; if it has holes or overlaps itself, its memory."""
    if dense(tensor):
        return tensor
    span = 1 + sum((size - 1) * step for size, step in
                   zip(tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((span,), (1,))
