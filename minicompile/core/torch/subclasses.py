"""Tensors of a user's class that say of what parts they are made.

In: such a tensor, of quantised weights for example. Out: a text of all
that it is besides its parts, which a guard compares; and `Together`, which
makes one of other parts. The graph gets the parts. PyTorch's are
torch/_functorch/_aot_autograd/subclass_utils.py.
"""

import enum
from dataclasses import fields, is_dataclass

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from ..guard import CONSTANTS, is_a


def is_said(value: object) -> bool:
    """Whether repr() says all of a value."""
    if is_dataclass(value) and type(value).__dataclass_params__.repr:
        return all(is_said(getattr(value, each.name))
                   for each in fields(value))
    return all(type(leaf) in CONSTANTS or is_a(leaf, (type, enum.Enum))
               or leaf is not value and is_said(leaf)
               for leaf in tree_leaves(value))


def besides_parts(tensor: torch.Tensor) -> str:
    """All that a tensor is besides its parts."""
    return repr((*tensor.__tensor_flatten__(), tensor.size(),
                 tensor.stride(), tensor.dtype, tensor.device,
                 tensor.requires_grad))


def has_parts(tensor: torch.Tensor) -> bool:
    """Whether its parts, and that text, are all of a tensor."""
    return is_traceable_wrapper_subclass(tensor) and is_said(
        tensor.__tensor_flatten__()) and not tensor.requires_grad


class Together:
    """Makes a tensor such as `like` of other parts."""

    def __init__(self, like: torch.Tensor):
        self.kind, self.text = type(like), besides_parts(like)
        self.names, context = like.__tensor_flatten__()
        self.rest = context, like.size(), like.stride()
        self.__name__ = f"together_{self.kind.__name__}"

    def __eq__(self, other: object) -> bool:
        return type(other) is Together and (
            self.kind, self.text) == (other.kind, other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, *parts: torch.Tensor) -> torch.Tensor:
        """The tensor of these parts, in the order of their names."""
        return self.kind.__tensor_unflatten__(
            dict(zip(self.names, parts)), *self.rest)
