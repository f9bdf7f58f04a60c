"""What replay asks of a device: to record, and to keep calls in order.

`Cuda` answers with `torch.cuda.CUDAGraph`. The tests have another one
that works on a CPU, so that everything else in this stage can be tested
anywhere. PyTorch's is torch/cuda/graphs.py.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Run = Callable[[list], tuple]

#: One recording is made at a time in this process.
_recording = threading.Lock()


class Cuda:
    """Recordings on one CUDA device, which run one after the other.

    A call on another stream than the last one's first waits for that
    stream. So a backward may take its temporary memory from the pool of
    its forward; two forwards may not share one, for what the second
    lends would lie where the first keeps temporaries.
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

    def record(self, run: Run, inputs: list, pool: object
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
