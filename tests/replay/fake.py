"""A device for replay's tests that needs no GPU.

As a CUDA graph does, a recording reads where its inputs lay when it was
made, writes where its outputs lay then, and computes nothing until it is
replayed. What it will write is garbage before. Temporaries lie in its
pool, where a later recording's outputs may come to lie as well: a replay
overwrites those.
"""

import ctypes

import torch


class FakeDevice:
    """Records a call; a replay overwrites what later ones put out."""

    def __init__(self):
        self.reason = self.address = None
        self.recorded = self.replayed = self.held = 0
        self.limit = float("inf")

    def bytes(self):
        return self.held

    def most(self):
        return self.limit

    def pool(self):
        return []

    def refusal(self):
        return self.reason

    def order(self):
        pass

    def record(self, run, inputs, pool):
        tensors = [given.detach() for given in inputs
                   if isinstance(given, torch.Tensor)]
        before = [memory(given).clone() for given in tensors]
        outputs = run(list(inputs))
        for given, value in zip(tensors, before):
            if not memory(given).equal(value):  # nothing is run by now
                memory(given).copy_(value)
        self.recorded += 1
        self.held += sum(out.nbytes for out in outputs
                         if isinstance(out, torch.Tensor))
        mine = [out for out in outputs if isinstance(out, torch.Tensor)
                and all(torch._C._storage_id(out) != torch._C._storage_id(i)
                        for i in inputs if isinstance(i, torch.Tensor))]
        for out in mine:
            garbage(out)
        place = len(pool) + 1
        pool.append(mine)
        inputs = [borrowed(given) for given in inputs]

        def replay():
            self.replayed += 1
            again = run(list(inputs))
            for out in [*mine, *sum(pool[place:], [])]:
                garbage(out)
            for out, new in zip(outputs, again, strict=True):
                if any(out is m for m in mine):
                    memory(out).copy_(memory(new))
        return replay, outputs


def borrowed(given):
    """The tensor's memory by its address only, as a CUDA graph has it."""
    if not isinstance(given, torch.Tensor) or not given.numel():
        return given
    size = given.element_size()
    raw = (ctypes.c_byte * (memory(given).numel() * size)).from_address(
        given.data_ptr())
    return torch.frombuffer(raw, dtype=given.dtype).as_strided(
        given.shape, given.stride())


def memory(tensor):
    span = 1 + sum((size - 1) * step for size, step in
                   zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span if tensor.numel() else 0,), (1,))


def garbage(tensor):
    memory(tensor).fill_(True if tensor.dtype == torch.bool else 77)
