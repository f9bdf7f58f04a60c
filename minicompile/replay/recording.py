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
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack

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
        self.stream = self.last = self.address = None

    def refusal(self) -> str | None:
        """Why nothing may be replayed right now, or None."""
        return ("the caller is recording" if
                torch._C._cuda_isCurrentStreamCapturing() else None)

    def order(self) -> None:
        """Make the current stream wait for the last replay."""
        address = torch._C._cuda_getCurrentRawStream(self.index)
        if address != self.address:
            current = torch.cuda.current_stream(self.index)
            if self.last is not None:
                current.wait_stream(self.last)
            self.last, self.address = current, address

    def pool(self) -> object:
        """Memory for one forward and the backward that goes with it."""
        return torch.cuda.graph_pool_handle()

    def record(self, run: Boxed, inputs: list, pool: object
               ) -> tuple[Callable[[], None], tuple]:
        """(replay, outputs): the launches of `run(inputs)`, not run.

        Meanwhile nothing is in flight, nothing is freed by the garbage
        collector, and no workspace is shared.
        """
        graph = torch.cuda.CUDAGraph()
        self.stream = self.stream or torch.cuda.Stream(self.index)
        with (_recording, torch.cuda.stream(self.stream),
              ExitStack() as afterwards):
            if gc.isenabled():
                gc.disable()
                afterwards.callback(gc.enable)
            torch.cuda.synchronize(self.index)
            torch._C._cuda_clearCublasWorkspaces()
            afterwards.callback(torch._C._cuda_clearCublasWorkspaces)
            graph.capture_begin(pool, "thread_local")
            afterwards.callback(graph.capture_end)
            outputs = run(inputs)
        return graph.replay, outputs


def sizes_of(values: Iterable) -> tuple:
    """Those of the values that are no tensors, such as sizes."""
    return tuple([value for value in values
                  if not isinstance(value, Tensor)])


def memory_of(values: Iterable) -> dict[int, int]:
    """The memory under each tensor among the values, by position."""
    return {k: storage_of(value) for k, value in enumerate(values)
            if isinstance(value, Tensor)}


def addresses(values: Iterable) -> list[int]:
    """The address of each tensor's first element; 0 for other values."""
    return [value.data_ptr() if isinstance(value, Tensor) else 0
            for value in values]


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
        self.sizes, self.lender = sizes_of(inputs), lender
        self.pool = lender.pool if lender else device.pool()
        read, tensors = list(inputs), memory_of(inputs)
        self.bound = {k: read[k].data_ptr() for k in tensors if k in bound}
        self.copied: dict[int, Tensor] = {}  # position -> buffer
        with torch.inference_mode(False), torch.no_grad():
            for k in tensors.keys() - bound:
                read[k] = like(inputs[k])
                self.copied[k] = laid_out(read[k])
            outputs = self.record(device, run, list(read))
        self.written = {*written} & {*self.copied}
        owners = {memory: k for k, memory in memory_of(read).items()}
        self.kept, self.clones, self.passed = {}, {}, {}
        for k, output in enumerate(outputs):
            self.kept[k] = None
            if not isinstance(output, Tensor):
                self.kept[k] = output
            elif (owner := owners.get(storage_of(output))) is not None:
                self.passed[k] = owner, output.shape, output.stride(), (
                    output.storage_offset() - read[owner].storage_offset())
            elif visible is None or k < visible:
                self.clones[k] = output
            else:
                self.kept[k] = output
        lent = memory_of(self.kept.values()).values()
        self.lent = {memory: holders(memory) for memory in lent}

    def record(self, device: Cuda, run: Boxed, inputs: list) -> tuple:
        """The program's outputs for these inputs, as replays fill them."""
        self.replay, outputs = device.record(run, inputs, self.pool)
        return outputs

    def strangers(self, inputs: list) -> list[int]:
        """The positions of inputs that lie elsewhere than the recorded."""
        return [k for k, address in self.bound.items()
                if inputs[k].data_ptr() != address]

    def free(self) -> bool:
        """Whether all memory that was lent has come back."""
        return all(holders(memory) == count
                   for memory, count in self.lent.items())

    def run(self, inputs: list) -> tuple:
        """The program's results for these inputs, by a replay."""
        copy_all([*self.copied.values()],
                 [laid_out(inputs[k]) for k in self.copied])
        self.replay()
        for k in self.written:
            laid_out(inputs[k]).copy_(self.copied[k])
        results = {k: each.data if isinstance(each, Tensor) else each
                   for k, each in self.kept.items()}
        fresh = {k: like(clone) for k, clone in self.clones.items()}
        copy_all([*map(laid_out, fresh.values())],
                 [*map(laid_out, self.clones.values())])
        for k, (owner, size, stride, shift) in self.passed.items():
            results[k] = inputs[owner].as_strided(
                size, stride, inputs[owner].storage_offset() + shift)
        inputs.clear()
        return tuple((results | fresh).values())


def copy_all(buffers: list[Tensor], given: list[Tensor]) -> None:
    """Bring the tensors into the buffers, in one launch."""
    if len(buffers) == 1:
        buffers[0].copy_(given[0])
    elif buffers:
        torch._foreach_copy_(buffers, given)


def like(tensor: Tensor) -> Tensor:
    """New memory for a tensor of this shape and these strides."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride())


def laid_out(tensor: Tensor) -> Tensor:
    """The tensor; if it has holes or overlaps itself, its memory."""
    if dense(tensor):
        return tensor
    span = 1 + sum((size - 1) * step for size, step in
                   zip(tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((span,), (1,))
