"""The meaning of a loop, written in Python and computed with PyTorch.

Every later step, from fusion to a printed kernel, is compared with this.
A buffer is a flat tensor. A loop is printed as Python over numbers, which
runs. The evaluator computes each node with index tensors in place of the
numbers, and scatters the result: slow, short and right. Without this file
the loop language prints as the data that it is.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf, nan

import torch
from torch.utils._pytree import tree_map, tree_map_only

from ..graph import row
from ..index import Atom, Index, enclosed, evaluate_index
from ..loops import (OPS, REDUCTIONS, SCANS, Const, Expression, Kernel,
                     Load, Loop, Op, Position, neutral, picked, renamed,
                     walk)
from ..schedule import Extern, Schedule, View, made_by

#: Memory by a buffer's name, and numbers or tensors of them by atom.
Storage = dict[str | Atom, object]


def on_numbers(function: Callable) -> Callable:
    """The same function, which takes Python numbers for tensors too."""
    return lambda *given: function(*(torch.as_tensor(
        each, dtype=torch.float64 if isinstance(each, float) else None)
        for each in given))


def in_bounds(place: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """The place; IndexError if it is not one of the first `end`."""
    if not ((0 <= place) & (place < end)).all():
        raise IndexError(f"index out of bounds: there are {end.max()}")
    return place


#: The names that a kernel printed as Python uses: `exec(str(kernel),
#: dict(NAMESPACE))` defines a function that runs on flat tensors.
NAMESPACE = {name: on_numbers(function) for name, function in OPS.items()
             } | {"torch": torch, "inf": inf, "nan": nan,
                  "checked": on_numbers(in_bounds),
                  "empty": torch.empty, "cast": lambda value, dtype:
                  torch.as_tensor(value).to(dtype)}

#: PyTorch's names of reductions.
BEST = {"max": "amax", "min": "amin", "any": "amax", "all": "amin"}


def evaluate_loop(loop: Loop, storage: Storage) -> None:
    """Fill `storage[loop.buffer.name]` as the loop says."""
    variables = loop.ranges + loop.reduced
    lengths = [int(evaluate_index(v.size, storage)) for v in variables]
    points = dict(storage)  # each variable's dimension
    for place, variable in enumerate(variables):
        points[variable] = torch.arange(lengths[place]).reshape(
            [-1 if k == place else 1 for k in range(len(lengths))])
    buffer, value = storage[loop.buffer.name], evaluate(loop.value, points)
    at = evaluate(Position(loop.index, torch.int64), points)
    place, given = (each.expand(lengths).reshape(-1)
                    for each in (at, value))
    wide = torch.float64 if value.is_floating_point() else torch.int64
    if loop.reduction in SCANS:
        rows = value.expand(lengths).flatten(len(loop.ranges)).to(wide)
        given = getattr(torch, loop.reduction)(rows, -1).reshape(-1)
    elif kind := loop.reduction:
        buffer[slice(None) if loop.down else at.reshape(-1)] = neutral(
            kind, value.dtype)
        given = buffer.to(wide).scatter_reduce(
            0, place, given.to(wide), BEST.get(kind, kind))
        place = torch.arange(len(buffer))
    buffer.index_put_((place,), given.to(value.dtype).to(buffer.dtype),
                      accumulate=loop.adds)


def evaluate(value: Expression, points: Storage) -> torch.Tensor:
    """The value at all points together: each operation finds tensors where
    a loop has numbers, and its result is rounded to the node's dtype."""
    known: dict[Expression, object] = {}
    for node in walk(value):
        match node:
            case Const(number):
                known[node] = number
            case Op(name, operands, dtype):
                rule = in_bounds if name == "checked" else OPS[name]
                made = on_numbers(rule)(*map(known.get, operands))
                known[node] = made.to(dtype)
            case _:
                known[node] = values_at(node, points, known).to(node.dtype)
    return torch.as_tensor(known[value], dtype=value.dtype)


def values_at(node: Position | Load, points: Storage,
              known: dict[Expression, object]) -> torch.Tensor:
    """Positions, or what memory holds there; 0 where a mask is false."""
    at = torch.as_tensor(evaluate_index(node.index, points | {
        pick: known[pick.value] for pick in picked(node.index)}))
    if isinstance(node, Position):
        return at
    inside = known.get(node.mask, torch.tensor(True))
    held = points[node.buffer][torch.where(inside, at, 0)]
    return torch.where(inside, held, 0)


def evaluate_schedule(schedule: Schedule, inputs: list) -> tuple:
    """The schedule's results for these tensors, computed step by step."""
    storage = tree_map_only(torch.Tensor, flat, known(schedule, inputs))
    leaf_of = partial(leaf_value, storage)
    for step in schedule.steps:
        if isinstance(step, Kernel):
            with made_by(step)[0].device:
                evaluate_kernel(step, storage)
            continue
        args, kwargs = tree_map(leaf_of, (step.args, step.kwargs))
        result = step.target(*args, **kwargs)
        many = result if isinstance(result, (tuple, list)) else (result,)
        for buffer, tensor in zip(step.outputs, many, strict=True):
            if buffer is not None:
                storage[buffer.name] = flat(tensor)
    return tuple(map(leaf_of, schedule.outputs))


def known(schedule: Schedule, inputs: list) -> Storage:
    """The tensors of a call by name, constants too, and its sizes."""
    names, lines = schedule.unpacked(str)
    said = {"math": math, "torch": torch, **dict(zip(names, inputs))}
    exec("\n".join(lines), said)
    return schedule.constants | {
        buffer.name: each for buffer, each in zip(
            schedule.inputs, inputs, strict=True) if buffer} | {
        symbol: said[str(symbol)] for symbol in schedule.sizes}


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
    return row(tensor.detach()).view(-1)


def leaf_value(storage: Storage, leaf: object) -> object:
    """A View as a tensor, an Index as a number; else what it is."""
    if isinstance(leaf, Index):
        return evaluate_index(leaf, storage)
    if not isinstance(leaf, View):
        return leaf
    shape, stride = ([evaluate_index(i, storage) for i in indices]
                     for indices in (leaf.shape, leaf.stride))
    memory, offset = storage[leaf.buffer], evaluate_index(
        leaf.offset, storage)
    if (offset, shape, stride) == (0, [*memory.shape], [*memory.stride()]):
        return memory
    return memory.as_strided(shape, stride,
                             memory.storage_offset() + offset)


def call_of(kernel: Kernel) -> str:
    """A kernel's call."""
    given = [*kernel.read, *kernel.written, *map(str, kernel.symbols)]
    return f"{kernel.name}({', '.join(given)})"


def kernel_text(kernel: Kernel) -> str:
    """A kernel as a function on flat buffers."""
    lines = [f"def {call_of(kernel)}:"]
    own = {loop.buffer.name: loop.buffer for loop in kernel.loops}
    for name in sorted(kernel.internal):
        lines.append(f"    {name} = empty({own[name].elements}, "
                     f"dtype={own[name].dtype})")
    for loop in kernel.loops:
        lines += ["    " + line for line in lines_of(loop)]
    return "\n".join(lines)


def extern_text(call: Extern) -> str:
    """An operator's call."""
    names = ", ".join(b.name if b else "_" for b in call.outputs)
    arguments = [repr(a) for a in call.args] + [
        f"{key}={a!r}" for key, a in call.kwargs.items()]
    return f"{names} = {call.target}({', '.join(arguments)})"


def schedule_text(schedule: Schedule) -> str:
    """The kernels, and a function that calls them."""
    names, sizes = schedule.unpacked(lambda name: name)
    lines = [str(kernel) + "\n" for kernel in schedule.kernels]
    lines.append(f"def run({', '.join(names)}):")
    lines += [f"    {line}" for line in sizes]
    for step in schedule.steps:
        lines += [f"    {buffer.name} = {buffer.into}"
                  for buffer in made_by(step) if buffer.into]
        call = call_of(step) if isinstance(step, Kernel) else step
        lines.append(f"    {call}")
    return "\n".join([*lines, f"    return {tuple(schedule.outputs)}"])


def lines_of(loop: Loop) -> list[str]:
    """A loop as nested `for` statements over flat buffers."""
    start, rule = REDUCTIONS.get(loop.reduction, (None, ""))
    lines = [f"{loop.buffer.name}.fill_({start})"] if loop.down else []
    indent, where = "", Position(loop.index, torch.int64)
    for variable in (*loop.ranges, None, *loop.reduced):
        if variable is not None:
            lines.append(f"{indent}for {variable} in "
                         f"range({variable.size}):")
            indent += "    "
            continue
        place = with_names(where, {}, lines, indent)
        target = f"{loop.buffer.name}[{place}]"
        total = "total" if loop.reduction in SCANS else target
        if rule and not loop.down:
            lines.append(f"{indent}{total} = {start}")
    value = with_names(loop.value, {}, lines, indent)
    value = f"{rule}({total}, {value})" if rule else value
    if total != target:
        value = f"{total} = {value}"
    return [*lines, f"{indent}{target} {'+' * loop.adds}= {value}"]


def with_names(value: Expression, names: dict[Expression, str],
               lines: list[str], indent: str) -> str:
    """The value's text; nodes used more than once get a line and name."""
    nodes = walk(value)
    uses = Counter(part for node in nodes for part in node.parts)
    for node in nodes:
        text = node_text(node, names)
        if uses[node] > 1 and isinstance(node, (Op, Load)):
            name = f"t{len(lines)}"
            lines.append(f"{indent}{name} = {text}")
            text = name
        names[node] = text
    return names[value]


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<",
          "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def node_text(node: Expression, names: dict[Expression, str]) -> str:
    """One node as Python, its parts being written already."""
    match node:
        case Const(value, _):
            return repr(value)
        case Position(where, _):
            return str(renamed(where, names.get))
        case Load(buffer, where, _, mask):
            text = f"{buffer}[{renamed(where, names.get)}]"
            return f"{text} if {names[mask]} else 0" if mask else text
        case Op("cast", (operand,), dtype):
            return f"cast({names[operand]}, {dtype})"
        case Op(name, (a, b), _) if name in _INFIX:
            sides = (enclosed(names[part]) for part in (a, b))
            return f" {_INFIX[name]} ".join(sides)
        case Op(name, operands, _):
            inner = ", ".join(names[part] for part in operands)
            return f"{name}({inner})"


def view_text(view: View) -> str:
    """A buffer's memory with another shape."""
    return (f"as_strided({view.buffer}, {view.shape}, {view.stride}, "
            f"{view.offset})")


Loop.__str__ = lambda loop: "\n".join(lines_of(loop))
Kernel.__str__, Extern.__str__ = kernel_text, extern_text
Schedule.__str__, View.__repr__ = schedule_text, view_text
