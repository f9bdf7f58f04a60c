"""Calls that eager refuses: they are not compiled.

Eager has no `abs` of bools, subtracts none, and fills no float16 with -1e9.
Fake tensors do not know that, and a loop computes all of it. So eager is
asked, once for each operator that loops may compute, its dtypes and its
numbers: the operator runs on a few ones. If it complains, the graph runs as
traced, and the user sees eager's own error. Floats of 32 bits alone, or of
64, are not asked about. Some gradients of eigenvectors eager refuses after
a look at their values. Without this file such calls give a result.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes

from ...core.errors import BackendError
from ...core.graph import tensors_of
from ...core.sizes import SYMBOLIC
from ..aliases import REFUSED
from ..recorder import (CHECKS, DECOMPOSITIONS, RecordingMode, aten,
                        functional)

#: The dtypes that all kernels have.
USUAL = {torch.float32, torch.float64}
#: What PyTorch calls the operators that loops compute.
LOOPS = {"pointwise", "reduction"}
#: Others that fill a tensor with a number.
FILLS = {aten.full_like.default, aten.scalar_tensor.default,
         aten.constant_pad_nd.default}
#: What eager says of dtypes and of numbers that they cannot hold.
COMPLAINTS = re.compile(
    "implemented for|support|overflow|integral input")
#: Eager's complaint about a call, or "", and the dtype of its result: the
#: first, where there are several.
ANSWERS: dict[str, tuple[str, torch.dtype | None]] = {}


def refuse(recorder: RecordingMode, op: torch._ops.OpOverload, args: tuple,
           kwargs: dict) -> None:
    """Raise a BackendError if eager raises for such dtypes and numbers, or
    has a result of another dtype than the fake one."""
    tensors = tensors_of((args, kwargs))
    dtypes = {each.dtype for each in tensors} | {
        kwargs.get("dtype") or torch.float32}
    devices = {each.device.type for each in tensors} | {
        torch.device(kwargs.get("device") or "cpu").type}
    if op is aten.full.default:
        args = ([2], *args[1:])
    elif op not in FILLS and (
            not tensors or op.namespace != "aten"
            or torch.Tag.nondeterministic_seeded in op.tags or not (
                op in DECOMPOSITIONS
                or LOOPS & {tag.name for tag in op.tags})):
        return  # it runs as it is, and complains by itself
    if devices != {"cpu"} or dtypes <= USUAL and len(
            {each.dtype for each in tensors}) < 2:
        return
    call = map_aggregate((args, kwargs), sample)
    key = f"{op} {call}"
    complaint, dtype = ANSWERS.get(key) or ANSWERS.setdefault(
        key, asked(op, call))
    if complaint:
        raise BackendError(f"eager has no {op} of such: {complaint}")
    if dtype and len(dtypes) > 1:
        fake = recorder.fake_mode.dispatch(op, (), args, kwargs)
        if tensors_of(fake)[0].dtype != dtype:
            raise BackendError(f"{op} has another dtype in eager")


def sample(leaf: object) -> object:
    """All that an answer depends on: of a tensor, what makes ones of the
    same dtype and rank; eager fills one alone unasked."""
    return partial(torch.ones, [2] * leaf.dim(), dtype=leaf.dtype) if (
        isinstance(leaf, torch.Tensor)) else leaf.node.pytype(1) if (
            isinstance(leaf, SYMBOLIC)) else leaf


@contextmanager
def eagerly() -> Iterator[None]:
    """Operators run inside compute real tensors, and are not recorded."""
    with (functional(False), _disable_current_modes(), torch.no_grad(),
          torch._C._DisableAutocast()):
        yield


def asked(op: torch._ops.OpOverload, call: tuple
          ) -> tuple[str, torch.dtype | None]:
    """Eager's complaint about the call, and the dtype of its result."""
    with eagerly():
        args, kwargs = map_aggregate(call, lambda leaf: leaf() if (
            isinstance(leaf, partial)) else leaf)
        try:
            made = op(*args, **kwargs)
        except Exception as error:
            text = str(error).partition("\n")[0]
            return COMPLAINTS.search(text) and text or "", None
        return "", next((each.dtype for each in tensors_of(made)), None)


def resized(recorder: RecordingMode, op, args: tuple, kwargs: dict):
    """Raise if an operator gives empty inputs another size unseen."""
    if op is aten._fused_moving_avg_obs_fq_helper_functional.default and (
            args[3].numel() == 0):
        raise BackendError(f"{op} resizes its inputs")


CHECKS.extend((refuse, resized))
REFUSED |= {
    **dict.fromkeys(("linalg_eigh", "linalg_svd"), (
        lambda x: x.requires_grad and x.is_complex(),
        "has a gradient that looks at values")),
    "linalg_eig": (lambda x: x.requires_grad,
                   "has a gradient that looks at values"),
    "interpolate": (lambda x: x.dtype is torch.uint8
                    and x._has_symbolic_sizes_strides,
                    "rounds otherwise if sizes vary")}
