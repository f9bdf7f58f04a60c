"""What a program's lines need at run time, and for running alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from ..core.errors import BackendError


def in_layout(tensor: torch.Tensor, shape: tuple[int, ...],
              stride: tuple[int, ...], name: str = "") -> torch.Tensor:
    """The tensor with these strides: itself, or a copy.

    The schedule was made for the strides that a fake tensor showed; an
    operator may choose others when it runs. A user's own operator is
    given by `name`: its fake kernel may have promised another shape.
    """
    if name and tuple(tensor.shape) != shape:
        raise BackendError(
            f"{name} gave a tensor of shape {tuple(tensor.shape)}, and its "
            f"fake kernel (register_fake) one of shape {shape}")
    if tensor.stride() == stride:
        return tensor
    fresh = torch.empty_strided(shape, stride, dtype=tensor.dtype,
                                device=tensor.device)
    return fresh.copy_(tensor)


def as_tuple(result: object) -> tuple:
    """What an operator returns, as a tuple of its results."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def random_tensor(shape: tuple[int, ...], stride: tuple[int, ...],
                  dtype: torch.dtype, device: torch.device
                  ) -> torch.Tensor:
    """Random numbers in this layout; 0 and 1 if they are whole."""
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        return made.normal_()
    return made.copy_(torch.randint(0, 2, shape))


def time_alone(call: Callable[[list], tuple], inputs: tuple) -> None:
    """Run `call` on the inputs and print how long it takes."""
    cuda = any(isinstance(given, torch.Tensor) and given.is_cuda
               for given in inputs)
    wait = torch.cuda.synchronize if cuda else lambda: None
    seconds = []
    with torch.no_grad():
        for _ in range(20):
            start = time.perf_counter()
            call(list(inputs))
            wait()
            seconds.append(time.perf_counter() - start)
    print(f"{statistics.median(seconds) * 1e3:.3f} ms a call, the first "
          f"{seconds[0] * 1e3:.3f} ms")
