"""What a program's lines need at run time."""

from __future__ import annotations

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
