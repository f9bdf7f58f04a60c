"""From an ATen graph to loops and calls: every node gets a value.

In: a functional FX graph with fake values. Out: a list of Loops (one for
each buffer that must exist) and Externs, in order. The idea: a value
stays an expression until a step needs it in memory, or until
computing it again costs more than writing it down. A node that no rule
knows runs as the ATen op itself. Inductor's is torch/_inductor/graph.py.
"""

import operator
from collections.abc import Callable
from itertools import chain, count

import torch
from torch import fx

from ..core.errors import BackendError, where_of
from ..core.graph import has_effect, is_number, results, tensors_of
from ..core.graph import value as fake_of
from ..core.index import (Division, Index, coefficient, index,
                          not_negative, substitute)
from ..core.loops import (EXPENSIVE, OPS, Buffer, Load, Loop, Op, Position,
                          row_major, walk)
from ..core.schedule import Extern, View, made_by, reads_of
from .group import loop_of
from .lowerings import (DTYPES, LoweringContext, Value, axes, elements,
                        indices_of, loaded, lowering_rule, number_of,
                        points, view)

#: The call that ends a graph for each input that it writes to.
WRITE = torch.ops.aten.copy_.default

#: The form of an operand on another device than the result, given the
#: lowering, the node, its value and the result: the last of these.
ABROAD: list[Callable[..., Value | None]] = [lambda *given: None]

#: A value longer than this is stored, however it is used; also one whose
#: index has a division of more characters.
MOST_OPERATIONS, MOST_LOADS, LONGEST_DIVISION = 64, 24, 2_000

#: Operations that cost more than moving an element.
STORED = EXPENSIVE | {"sqrt", "rsqrt", "div_trunc"}

#: Further reasons to store a value, given the Uses, the node and the value.
SAVINGS: list[Callable[..., bool]] = []


class Uses:
    """The facts about each node's users that lowering needs. The users
    come after the node, so the graph is read once, backwards. Inductor's
    is torch/_inductor/ir.py:StorageBox.

    `rules`: the rule that can lower each node, or None. `readers`: the
    nodes that compute with one that is needed, looking through views.
    `stored`: it is needed in memory. `counts`: its number of elements.
    """

    def __init__(self, graph: fx.Graph):
        self.rules = {node: lowering_rule(node) for node in graph.nodes}
        self.readers: dict[fx.Node, set[fx.Node]] = {}
        self.stored: set[fx.Node] = set()
        self.counts = {node: elements(indices_of(tensor.shape))
                       for node in graph.nodes
                       for tensor in tensors_of(fake_of(node))[:1]}
        for node in reversed(graph.nodes):
            users = [user for user in node.users
                     if user in self.readers and not is_number(user)]
            if users or node.op != "call_function" or has_effect(node):
                self.readers[node] = set()
                for user in users:
                    self.look(node, user)

    def is_view(self, node: fx.Node) -> bool:
        """Whether it is another view of its input, or one of several."""
        return node.target is operator.getitem or self.rules[node] is view

    def look(self, node: fx.Node, user: fx.Node) -> None:
        """Note what one user does with a node."""
        if self.is_view(user):
            readers = self.readers[user]
            needed = user in self.stored and (
                self.counts.get(user, 0) >= self.counts.get(node, 0)
                or any(reader.op == "output" for reader in readers))
        else:
            readers, needed = {user}, self.rules[user] is None
        self.readers[node] |= readers
        if needed:
            self.stored.add(node)

    def is_expensive(self, node: fx.Node, value: Value) -> bool:
        """Whether to store a value rather than compute it again: a long
        one; else no view, but what is for several readers, or for one
        that has many more elements."""
        nodes = walk(value.element)
        work = [part.name for part in nodes if isinstance(part, Op)]
        loads = [part for part in nodes if isinstance(part, Load)]
        if len(work) > MOST_OPERATIONS or len(loads) > MOST_LOADS or any(
                len(str(atom)) > LONGEST_DIVISION for part in nodes
                if isinstance(part, (Load, Position))
                for atoms, _ in part.index.terms
                for atom in atoms if isinstance(atom, Division)):
            return True
        if self.is_view(node):
            return False
        often = len(self.readers[node]) > 1 or any(
            self.counts.get(reader, 0) > 4 * self.counts[node]
            for reader in self.readers[node])
        return (often and not STORED.isdisjoint(work)
                or any(saves(self, node, value) for saves in SAVINGS))


class Lowering:
    """A graph as loops and operator calls, before anything is fused.

    `steps` fill the buffers that `outputs` and `writes` need; `writes` are
    the values that inputs hold in the end. Each node has a value, and also
    a step if that value has to be in memory.
    """

    def __init__(self, module: fx.GraphModule):
        self.module = module
        self.uses = Uses(module.graph)
        self.values: dict[fx.Node, object] = {}
        self.steps: list[Loop | Extern] = []
        self.inputs: list[Buffer | Index | None] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.writes: dict[str, View] = {}
        self.names = {node.name for node in module.graph.nodes}
        self.taken = set(OPS)  # names for buffers
        self.shared: set[str] = set()  # memory that others may hold
        self.made: dict[fx.Node, list[str]] = {}  # buffers, by node
        for node in module.graph.nodes:
            if node in self.uses.readers:
                self.run(node)
        self.outputs = tuple(
            self.argument(each, getattr(each, "op", "") != "placeholder")
            for each in results(module.graph))
        read, steps = reads_of((self.outputs, *self.writes.values())), []
        for step in reversed(self.steps):
            if isinstance(step, Extern) or step.buffer.name in read:
                steps.append(step)
                read |= reads_of(step)
        self.steps = steps[::-1]

    def run(self, node: fx.Node) -> None:
        """Give the node a value."""
        if node.op == "placeholder":
            self.inputs.append(self.given(node, fake_of(node)))
        elif node.op == "get_attr":
            held = operator.attrgetter(node.target)(self.module)
            buffer = self.given(node, held)
            if isinstance(buffer, Buffer):
                self.constants[buffer.name] = held
        elif node.target is WRITE and node.args[0].op == "placeholder":
            into, written = node.args
            self.writes[self.values[into].element.buffer] = self.argument(
                written, own=True)
            self.values[node] = self.values[written]
        elif node.op == "call_function":
            self.values[node] = fake_of(node) if is_number(
                node) else self.call(node)

    def given(self, node: fx.Node, held: object) -> Buffer | Index | None:
        """The buffer or size that an input or a constant is; a tensor's
        memory is not ours."""
        self.values[node] = held
        if not isinstance(held, torch.Tensor):
            size = number_of(held)
            return size if isinstance(size, Index) else None
        buffer = self.buffer(node, held)
        self.shared.add(buffer.name)
        self.values[node] = loaded(buffer)
        return buffer

    def call(self, node: fx.Node):
        """The value of an operator: lazy, stored, or called as it is."""
        owner = node
        if node.target is operator.getitem:  # one of several results
            owner, place = node.args
            found = self.values[owner][place]
        else:
            found = self.apply_rule(node) if self.uses.rules[node] else None
            if found is None:
                return self.extern(node)
        if isinstance(found, tuple) or getattr(
                found.element, "buffer", None) in self.made.get(owner, ()):
            return found
        needed = node in self.uses.stored and not self.uses.is_view(owner)
        if needed or owner is node and self.uses.is_expensive(node, found):
            return self.store(node, found, strides_of(node))
        return found

    def apply_rule(self, node: fx.Node):
        """The result of the operator's rule on the node's operands."""
        first, *_ = tensors_of(fake_of(node))

        def operand(leaf: object):
            value = self.values[leaf] if isinstance(leaf, fx.Node) else leaf
            if isinstance(value, Value) and value.device != first.device:
                return ABROAD[-1](self, leaf, value, first)
            return None if isinstance(value, torch.SymFloat) else (
                number_of(value))  # no loop computes with such a float

        if None in map(operand, node.all_input_nodes):
            return None
        context = LoweringContext(node, self, indices_of(first.shape),
                                  first.dtype, first.device)
        args, kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), operand)
        return self.uses.rules[node](context, *args, **kwargs)

    def store(self, node: fx.Node, value: Value,
              stride: tuple[Index, ...]) -> Value:
        """The value written to a buffer with these strides."""
        if value.dtype not in DTYPES:  # no loop can write it
            buffer = self.buffer(node, fake_of(node))
            self.steps.append(Extern(
                torch.ops.aten.clone.default, (strided(value),), {},
                (buffer,), where_of(node)))
            return loaded(buffer)
        once = tuple(
            index(1) if step == 0 and not_negative(size - 1) else size
            for size, step in zip(value.shape, stride, strict=True))
        return self.fill(node, value.moved(once, points(axes(once))),
                         value.shape, stride=stride)

    def fill(self, node: fx.Node, value: Value, shape: tuple[Index, ...],
             reduced: tuple[int, ...] = (), kind: str = "",
             suffix: str = "", stride: tuple[Index, ...] | None = None,
             whole: Value | None = None) -> Value:
        """A loop that fills a new buffer of this shape, and the value that
        reads it; the strides are the graph's, if it has such a tensor."""
        if stride is None:
            stride = next((indices_of(fake.stride())
                           for fake in tensors_of(fake_of(node))
                           if indices_of(fake.shape) == shape),
                          row_major(shape))
        if kind not in str(node.target):
            suffix = f"{kind}_{suffix}"
        origin = self.origin(node)
        buffer = Buffer(self.fresh(node, suffix), shape, stride,
                        value.dtype, value.device)
        self.steps.append(loop_of(
            buffer, value, reduced, kind or None, where=where_of(node),
            origin=origin, whole=whole))
        return loaded(buffer)

    def origin(self, node: fx.Node) -> str:
        """The nodes whose work a loop for `node` does, in order: itself,
        and those before it that are not in memory."""
        found = walk(node, parts=lambda node: [
            source for source in node.all_input_nodes
            if source.op == "call_function" and not is_number(source)
            and source not in self.made])
        names = [source.name for source in sorted(found)
                 if source.target is not operator.getitem]
        return " ".join(names or [node.args[0].name])

    def extern(self, node: fx.Node):
        """The ATen operator, called on whole tensors."""
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise BackendError(f"{node.target} writes to its input; the "
                               f"graph should be functional ({node})")
        args, kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), self.argument)
        fake = fake_of(node)
        several = isinstance(fake, (tuple, list))
        read = {user.args[1] for user in node.users
                if user in self.uses.readers
                and user.target is operator.getitem}
        buffers = tuple(
            self.buffer(node, part) if isinstance(part, torch.Tensor)
            and (not several or place in read) else None
            for place, part in enumerate(fake if several else (fake,)))
        call = Extern(node.target, args, kwargs, buffers, where_of(node))
        self.steps.append(call)
        if call.aliases:
            self.shared |= {buffer.name for buffer in made_by(call)}
        values = tuple(b and loaded(b) for b in buffers)
        return values if several else values[0]

    def argument(self, node: object, own: bool = False):
        """An operator's argument or a result: Views in place of tensors,
        of the graph's `own` memory if no one else may hold it."""
        value = self.values[node] if isinstance(node, fx.Node) else node
        return self.view(node, value, strides_of(node), own) if isinstance(
            value, Value) else number_of(value)

    def view(self, node: fx.Node, value: Value, stride: tuple[Index, ...],
             own: bool = False) -> View:
        """The value in memory with these strides, stored if need be; later
        readers of the node then read the stored value."""
        found = strided(value, stride)
        if found is None or own and found.buffer in self.shared:
            value = self.store(node, value, stride)
            if isinstance(self.values.get(node), Value):
                self.values[node] = value
        return strided(value, stride)

    def buffer(self, node: fx.Node, fake: torch.Tensor) -> Buffer:
        """A new buffer, shaped and strided as a fake tensor."""
        return Buffer(self.fresh(node), indices_of(fake.shape),
                      indices_of(fake.stride()), fake.dtype, fake.device)

    def fresh(self, node: fx.Node, suffix: str = "") -> str:
        """A new name for a buffer: the node's, or with a number."""
        name = f"{node.name}_{suffix}".rstrip("_")
        names = chain([name], (f"{name}_{k}" for k in count()))
        new = next(n for n in names if n not in self.taken and (
            n == node.name or n not in self.names))
        self.taken.add(new)
        self.made.setdefault(node, []).append(new)
        return new


def strides_of(node: fx.Node) -> tuple[Index, ...]:
    """The strides that a node's tensor has to have."""
    return indices_of(fake_of(node).stride())


def strided(value: Value, stride: tuple[Index, ...] | None = None
            ) -> View | None:
    """The value as a View with these strides, or with its own; None if
    no memory holds it so."""
    element, names = value.element, axes(value.shape)
    if not isinstance(element, Load) or element.parts:
        return None
    steps = tuple(coefficient(element.index, axis) for axis in names)
    stride = steps if stride is None else stride
    if any(size != 1 and mine != step for size, mine, step
           in zip(value.shape, steps, stride, strict=True)):
        return None
    start = substitute(element.index, dict.fromkeys(names, index(0)))
    return View(element.buffer, value.shape, stride, start, value.dtype)
