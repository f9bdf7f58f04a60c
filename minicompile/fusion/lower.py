"""From an ATen graph to loops and calls: every node gets a value.

In: a functional FX graph with fake values. Out: Lowered, a list of Loops
(one per buffer that must exist) and Externs, in order. The idea: a value
stays a function of a point until somebody needs it in memory, or until
computing it again costs more than writing it down. What no rule knows
runs as the ATen op itself. Inductor's is torch/_inductor/graph.py.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import torch
from torch import fx

from ..core.errors import BackendError
from ..core.graph import has_effect, is_number, placeholders, results
from ..core.graph import value as fake_of
from ..core.index import Index, coefficient, index, substitute
from ..core.layout import row_major
from ..core.loops import (OPS, Buffer, Const, Expression, Load, Loop, Op,
                          walk)
from ..core.schedule import Extern, View, made_by, reads_of
from ..core.where import where_of
from .cut import cut, parts_of
from .nests import loop_of
from .rules import DTYPES, rule_of, tensors_of
from .site import Site
from .sizes import expression_of, number_of, sizes_of
from .uses import Uses
from .values import DEAR, Value, axes, elements, load, moved_to, touched
from .views import reshaped

#: What a graph ends with for each input that it writes to.
WRITE = torch.ops.aten.copy_.default
#: A value longer than this is stored, however it is used.
LONGEST = 64  # operations
MOST_LOADS = 24


@dataclass(frozen=True)
class Lowered:
    """Buffers and what fills them, before anything is fused.

    `writes` says which inputs are to hold which values in the end.
    """

    inputs: tuple[Buffer | Index | None, ...]
    steps: tuple[Loop | Extern, ...]
    outputs: tuple[object, ...]
    constants: dict[str, torch.Tensor]
    writes: dict[str, View]


def lower(module: fx.GraphModule) -> Lowered:
    """Every output of the graph, as loops and operator calls."""
    lowering = Lowering(module)
    for node in module.graph.nodes:
        if node in lowering.uses.live:
            lowering.run(node)
    outputs = tuple(map(lowering.output, results(module.graph)))
    inputs = tuple(lowering.inputs[node]
                   for node in placeholders(module.graph))
    ends = (*outputs, *lowering.writes.values())
    return Lowered(inputs, used_steps(lowering.steps, ends), outputs,
                   lowering.constants, lowering.writes)


def used_steps(steps: list[Loop | Extern], outputs: tuple) -> tuple:
    """The steps without loops whose result nobody reads."""
    read = reads_of(outputs)
    kept = []
    for step in reversed(steps):
        if isinstance(step, Extern) or step.buffer.name in read:
            kept.append(step)
            read |= reads_of(step)
    return tuple(reversed(kept))


class Lowering:
    """The state of one lowering: a value per node, and the steps so far."""

    def __init__(self, module: fx.GraphModule):
        self.module = module
        self.uses = Uses(module.graph)
        self.values: dict[fx.Node, object] = {}
        self.steps: list[Loop | Extern] = []
        self.inputs: dict[fx.Node, Buffer | Index | None] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.writes: dict[str, View] = {}
        self.names = {node.name for node in module.graph.nodes}
        self.taken = set(OPS)  # names for buffers
        self.shared: set[str] = set()  # memory that others may hold

    def run(self, node: fx.Node) -> None:
        """Give the node a value."""
        match node.op:
            case "placeholder":
                self.values[node] = self.placeholder(node)
            case "get_attr":
                self.values[node] = self.attribute(node)
            case "call_function" if is_number(node):
                self.values[node] = fake_of(node)
            case "call_function" if node.target is operator.getitem:
                self.values[node] = self.item(node)
            case "call_function" if (node.target is WRITE and
                                     node.args[0].op == "placeholder"):
                into, written = node.args
                self.writes[self.inputs[into].name] = self.output(
                    written, shared=False)
                self.values[node] = self.values[written]
            case "call_function":
                self.values[node] = self.call(node)

    def placeholder(self, node: fx.Node):
        """An input: a value in a buffer that is the caller's."""
        fake, self.inputs[node] = fake_of(node), None
        if not isinstance(fake, torch.Tensor):
            number = number_of(fake)
            if isinstance(number, Index):
                self.inputs[node] = number
            return fake
        self.inputs[node] = self.buffer(node, fake)
        self.shared.add(node.name)
        return load(self.inputs[node])

    def attribute(self, node: fx.Node):
        """A tensor that the graph holds itself; or what else it holds."""
        held = operator.attrgetter(node.target)(self.module)
        if not isinstance(held, torch.Tensor):
            return held
        self.constants[node.name] = held
        self.shared.add(node.name)
        return load(self.buffer(node, held))

    def call(self, node: fx.Node):
        """The value of an operator: lazy, stored, or called as it is."""
        before = len(self.steps)
        found = self.apply_rule(node) if node in self.uses.loops else None
        if found is None:
            return self.extern(node)
        new = {buffer.name for step in self.steps[before:]
               for buffer in made_by(step)}
        names = (node.name,) if new else self.origins(node)
        if isinstance(found, tuple):
            return tuple(replace(part, origins=names) for part in found)
        return self.settle(node, replace(found, origins=names), new)

    def item(self, node: fx.Node):
        """One of several results, stored if it should be in memory."""
        source, at = node.args
        value = self.values[source][at]
        lazy = isinstance(value, Value) and source not in self.uses.views
        if lazy and node in self.uses.stored:
            self.values[node] = value
            self.view(node, value, sizes_of(fake_of(node).stride()))
            return self.values[node]
        return value

    def apply_rule(self, node: fx.Node):
        """What the rule of the node's operator makes of its operands."""
        first, *_ = tensors_of(fake_of(node))
        site = Site(node, sizes_of(first.shape), first.dtype, first.device,
                    partial(self.reduce, node), partial(self.require, node))
        args, kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), self.operand)
        unknown = None in map(self.operand, node.all_input_nodes)
        return None if unknown else rule_of(node)(site, *args, **kwargs)

    def operand(self, leaf: object):
        """What a rule gets: Values and numbers, or expressions of them;
        None for a number that no kernel can compute."""
        if isinstance(leaf, fx.Node):
            leaf = self.values[leaf]
        if isinstance(leaf, torch.SymFloat):
            return expression_of(leaf)
        return number_of(leaf)

    def origins(self, node: fx.Node) -> tuple[str, ...]:
        """The nodes whose work the node's value repeats, and itself."""
        lazy = (value.origins for value in map(
            self.values.get, node.all_input_nodes)
            if isinstance(value, Value))
        return tuple(dict.fromkeys(
            name for names in (*lazy, (node.name,)) for name in names))

    def settle(self, node: fx.Node, value: Value, new: set[str]) -> Value:
        """`value` as it is, or stored if it should be in memory."""
        if node in self.uses.views:
            return value
        element = value.element
        if isinstance(element, Load) and element.buffer in new:
            return value
        if node in self.uses.stored or self.is_dear(node, element):
            return self.store(node, value,
                              sizes_of(fake_of(node).stride()))
        return value

    def is_dear(self, node: fx.Node, element: Expression) -> bool:
        """Whether to store a value rather than compute it again.

        Storing moves all that it reads, and itself once and once more per
        reader; not storing moves all that it reads once per reader.
        """
        work = [part for part in walk(element) if isinstance(part, Op)]
        loads = {part for part in walk(element) if isinstance(part, Load)}
        readers = len(self.uses.readers[node])
        if len(work) > LONGEST or len(loads) > MOST_LOADS:
            return True
        if readers < 2 and node not in self.uses.wide:
            return False
        if any(part.name in DEAR for part in work):
            return True
        own = elements(sizes_of(fake_of(node).shape))
        own *= fake_of(node).element_size()
        read = sum(min(own, touched(load.index) * load.dtype.itemsize)
                   for load in loads)
        return read + own * (1 + readers) < read * readers

    def store(self, node: fx.Node, value: Value, stride: tuple[Index, ...],
              suffix: str = "") -> Value:
        """The value written to a buffer with these strides."""
        buffer = Buffer(self.fresh(node, suffix), value.shape, stride,
                        value.dtype, value.device)
        if value.dtype not in DTYPES:
            return self.copied(node, value, buffer)
        shape = tuple(index(1) if step == 0 else size for size, step in
                      zip(value.shape, stride, strict=True))
        once = moved_to(value, shape, lambda point: point)
        self.steps.append(loop_of(
            replace(buffer, shape=shape), once, where=where_of(node),
            origin=" ".join(value.origins)))
        return load(buffer)

    def copied(self, node: fx.Node, value: Value, buffer: Buffer) -> Value:
        """`buffer`, filled by ATen: loops do not know the dtype."""
        found = strided(value, tuple(
            coefficient(value.element.index, axis)
            for axis in axes(value.shape)))
        self.steps.append(Extern(
            torch.ops.prims.copy_strided.default, (found, buffer.stride),
            {}, (buffer,), where_of(node)))
        return load(buffer)

    def reduce(self, node: fx.Node, kind: str, value: Value,
               reduced: tuple[int, ...], keepdim: bool) -> Value:
        """`value` reduced over some dimensions, stored."""
        shape = tuple(index(1) if axis in reduced else size
                      for axis, size in enumerate(value.shape)
                      if keepdim or axis not in reduced)
        if all(value.shape[axis] == 1 for axis in reduced):
            one = reshaped(value, shape)
            return one if not kind.startswith("arg") else one.map(
                lambda _: Const(0, torch.int64), torch.int64)
        parts = parts_of(kind, value, reduced)
        if parts == 1:
            return self.reduction(node, kind, value, reduced, shape)
        value = cut(kind, value, reduced, parts)
        some = self.reduction(node, kind, value, (len(value.shape) - 1,),
                              value.shape[:-1], "part")
        whole = self.reduction(node, kind, some, (0,), some.shape[1:])
        return reshaped(whole, shape)

    def reduction(self, node: fx.Node, kind: str, value: Value,
                  reduced: tuple[int, ...], shape: tuple[Index, ...],
                  suffix: str = "") -> Value:
        """A reduction as one loop, its result having this shape."""
        stride = next((sizes_of(fake.stride())
                       for fake in tensors_of(fake_of(node))
                       if sizes_of(fake.shape) == shape), row_major(shape))
        if kind not in str(node.target):
            suffix = f"{kind}_{suffix}".rstrip("_")
        dtype = torch.int64 if kind.startswith("arg") else value.dtype
        buffer = Buffer(self.fresh(node, suffix), shape, stride, dtype,
                        value.device)
        origin = dict.fromkeys((*value.origins, node.name))
        self.steps.append(loop_of(
            buffer, value, reduced, kind, where=where_of(node),
            origin=" ".join(origin)))
        return load(buffer)

    def extern(self, node: fx.Node):
        """The ATen operator, called on whole tensors."""
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise BackendError(f"{node.target} writes to its input; the "
                               f"graph should be functional ({node})")
        args, kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), self.argument)
        fake = fake_of(node)
        many = fake if isinstance(fake, (tuple, list)) else (fake,)
        read = self.uses.parts(node)
        buffers = tuple(self.buffer(node, part) if isinstance(
            part, torch.Tensor) and place in read else None
            for place, part in enumerate(many))
        if not (any(buffers) or has_effect(node)):
            raise BackendError(f"{node.target} gives no tensor ({node})")
        call = Extern(node.target, args, kwargs, buffers, where_of(node))
        self.steps.append(call)
        if call.aliases:
            self.shared |= {buffer.name for buffer in made_by(call)}
        values = tuple(b and load(b) for b in buffers)
        return values[0] if many is not fake else values

    def argument(self, node: object):
        """What an operator gets for a node: Views where tensors are."""
        if not isinstance(node, fx.Node):
            return number_of(node)
        value, fake = self.values[node], fake_of(node)
        if isinstance(value, tuple):
            return [self.view(node, part, sizes_of(one.stride()))
                    for part, one in zip(value, fake, strict=True)]
        if not isinstance(value, Value):
            return number_of(value)
        return self.view(node, value, sizes_of(fake.stride()))

    def view(self, node: fx.Node, value: Value,
             stride: tuple[Index, ...]) -> View:
        """The value in memory with these strides, stored if need be;
        who reads the node later reads what was stored."""
        found = strided(value, stride)
        if found is None:
            value = self.store(node, value, stride)
            if isinstance(self.values[node], Value):
                self.values[node] = value
            found = strided(value, stride)
        return found

    def output(self, result: object, shared: bool = True):
        """A result: a View of memory that is not an input's, or itself.

        An input is returned as it is, if memory may be `shared` with it.
        """
        if not isinstance(result, fx.Node):
            return number_of(result)
        value = self.values[result]
        if not isinstance(value, Value):
            return number_of(value)
        stride = sizes_of(fake_of(result).stride())
        found = self.view(result, value, stride)
        if found.buffer in self.shared and not (
                shared and result.op == "placeholder"):
            found = strided(self.store(result, value, stride), stride)
        return found

    def require(self, node: fx.Node, holds: Value, message: str) -> None:
        """Fail when the graph runs unless `holds` is true everywhere."""
        whole = self.reduce(node, "all", holds,
                            tuple(range(len(holds.shape))), False)
        view = strided(whole, ()) or strided(
            self.store(node, whole, (), "all"), ())
        self.steps.append(Extern(torch.ops.aten._assert_async.msg,
                                 (view, message), {}, (None,),
                                 where_of(node)))

    def buffer(self, node: fx.Node, fake: torch.Tensor) -> Buffer:
        """A new buffer, shaped and strided as a fake tensor."""
        return Buffer(self.fresh(node), sizes_of(fake.shape),
                      sizes_of(fake.stride()), fake.dtype, fake.device)

    def fresh(self, node: fx.Node, suffix: str = "") -> str:
        """A new name for a buffer: the node's, or with a number."""
        name = new = f"{node.name}_{suffix}".rstrip("_")
        numbers = count()
        while new in self.taken or (
                new in self.names and new != node.name):
            new = f"{name}_{next(numbers)}"
        self.taken.add(new)
        return new


def strided(value: Value, stride: tuple[Index, ...]) -> View | None:
    """The value as memory with these strides, if that is what it is."""
    element = value.element
    if not isinstance(element, Load) or element.mask is not None:
        return None
    names = axes(value.shape)
    if any(size != 1 and coefficient(element.index, axis) != step
           for size, axis, step
           in zip(value.shape, names, stride, strict=True)):
        return None
    start = substitute(element.index, dict.fromkeys(names, index(0)))
    return View(element.buffer, value.shape, stride, start, value.dtype)
