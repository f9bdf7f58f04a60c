"""The meaning of a loop, computed with PyTorch: slow, short and right.

Every later step, from fusion to a printed kernel, is compared with this.
A buffer is a flat tensor; a loop becomes index tensors, gathers, one
PyTorch call for each operation, and a scatter.
"""

from __future__ import annotations

import math
from functools import partial
from math import inf, nan

import torch
from torch.utils._pytree import tree_map

from ..index import Atom, Index, evaluate_index
from ..loops import (OPS, Const, Expression, Kernel, Load, Loop, Op,
                     Position, walk)
from ..schedule import Schedule, View

#: Memory by a buffer's name, and numbers or tensors of them by atom.
Storage = dict[str | Atom, object]

#: The names that a kernel printed as Python uses: `exec(str(kernel),
#: dict(NAMESPACE))` defines a function that runs on flat tensors.
NAMESPACE = {name: lambda *given, function=function: function(
    *map(torch.as_tensor, given)) for name, function in OPS.items()} | {
    "torch": torch, "inf": inf, "nan": nan, "empty": torch.empty,
    "cast": lambda value, dtype: torch.as_tensor(value).to(dtype)}

#: Where PyTorch's function takes no Python number.
TENSORS_ONLY = {"maximum", "minimum", "fmax", "fmin", "atan2", "hypot",
                "logical_and", "logical_or", "logical_xor"}


def evaluate_loop(loop: Loop, storage: Storage) -> None:
    """Fill `storage[loop.buffer.name]` as the loop says."""
    variables = loop.ranges + loop.reduced
    lengths = [int(evaluate_index(v.size, storage)) for v in variables]
    points = dict(storage)  # each variable's dimension
    for place, variable in enumerate(variables):
        points[variable] = torch.arange(lengths[place]).reshape(
            [-1 if k == place else 1 for k in range(len(lengths))])
    shape = lengths[:len(loop.ranges)]
    value = evaluate(loop.value, points)
    if loop.reduction is not None:
        rows = value.expand(lengths).reshape(*shape, -1)
        best = {"max": "amax", "min": "amin"}.get(
            loop.reduction, loop.reduction)
        kept = {"dtype": value.dtype} if best in ("sum", "prod") else {}
        value = getattr(rows, best)(-1, **kept)
    buffer = storage[loop.buffer.name]
    target = torch.as_tensor(evaluate_index(loop.index, points))
    if loop.reduced and target.dim():
        target = target.reshape(target.shape[:len(shape)])
    target, value = target.expand(shape), value.expand(shape)
    buffer[target.reshape(-1)] = value.reshape(-1).to(buffer.dtype)


def evaluate(value: Expression, points: Storage) -> torch.Tensor:
    """The value at all points together."""
    done: dict[Expression, object] = {}
    for node in walk(value):
        done[node] = _evaluate_node(node, points, done)
    return _tensor(done[value], value.dtype)


def _evaluate_node(node: Expression, points: Storage,
                   done: dict[Expression, object]):
    """One node; a Const stays a Python number, as it is in eager."""
    match node:
        case Const(number, _):
            return number
        case Position(where, dtype):
            return torch.as_tensor(
                evaluate_index(where, points)).to(dtype)
        case Load(name, where, dtype, mask, other):
            at = torch.as_tensor(evaluate_index(where, points))
            if mask is None:
                return points[name][at]
            inside = _tensor(done[mask], torch.bool)
            read = points[name][torch.where(inside, at, 0)]
            return torch.where(inside, read, other).to(dtype)
        case Op(name, operands, dtype):
            given = [_tensor(done[part], part.dtype)
                     if name in TENSORS_ONLY or not place else done[part]
                     for place, part in enumerate(operands)]
            return OPS[name](*given).to(dtype)


def _tensor(value: object, dtype: torch.dtype) -> torch.Tensor:
    """A number as a tensor of no dimensions; a tensor as it is."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=dtype)


def evaluate_schedule(schedule: Schedule, inputs: list) -> tuple:
    """The schedule's results for these tensors, computed step by step."""
    storage: Storage = {name: flat(tensor)
                        for name, tensor in schedule.constants.items()}
    names, lines = schedule.unpacked(str)
    known = {"math": math, "torch": torch, **dict(zip(names, inputs))}
    exec("\n".join(lines), known)
    storage |= {symbol: known[str(symbol)] for symbol in schedule.sizes}
    for buffer, tensor in zip(schedule.inputs, inputs, strict=True):
        if buffer is not None:
            storage[buffer.name] = flat(tensor)
    resolved = partial(_resolved, storage)
    for step in schedule.steps:
        if isinstance(step, Kernel):
            evaluate_kernel(step, storage)
            continue
        args, kwargs = tree_map(resolved, (step.args, step.kwargs))
        result = step.target(*args, **kwargs)
        many = result if isinstance(result, (tuple, list)) else (result,)
        for buffer, tensor in zip(step.outputs, many, strict=True):
            if buffer is not None:
                storage[buffer.name] = flat(tensor)
    return tuple(map(resolved, schedule.outputs))


def evaluate_kernel(kernel: Kernel, storage: Storage) -> None:
    """Run the kernel's loops in order; new buffers appear in storage."""
    for loop in kernel.loops:
        buffer = loop.buffer
        if buffer.name not in storage and buffer.into:
            storage[buffer.name] = storage[buffer.into]
        elif buffer.name not in storage:
            count = int(evaluate_index(buffer.elements, storage))
            storage[buffer.name] = torch.empty(count, dtype=buffer.dtype)
        evaluate_loop(loop, storage)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans as one dimension, from its first
    element."""
    count = 1 + sum((size - 1) * step for size, step in zip(
        tensor.shape, tensor.stride())) if tensor.numel() else 0
    return tensor.detach().as_strided((count,), (1,))


def _resolved(storage: Storage, leaf: object) -> object:
    """A View as a tensor, an Index as a number; else what it is."""
    if isinstance(leaf, Index):
        return evaluate_index(leaf, storage)
    if not isinstance(leaf, View):
        return leaf
    shape, stride = ([evaluate_index(i, storage) for i in indices]
                     for indices in (leaf.shape, leaf.stride))
    memory = storage[leaf.buffer]
    return memory.as_strided(shape, stride, memory.storage_offset()
                             + evaluate_index(leaf.offset, storage))
