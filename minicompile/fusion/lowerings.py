"""The table of lowering rules, and the rules that most models need.

In: a LoweringContext (what the node should produce) and operands. Out: a
Value, several, or None if no loop computes this: then the ATen operator
runs. Operands are converted to the result's dtype before the operation,
as PyTorch's type promotion has it; comparisons have their own rule.
Inductor's table is torch/_inductor/lowering.py:lowerings.

Uses decides which results are stored. Storing a value costs memory
traffic, computing it again for each reader costs arithmetic and the
traffic of all that it reads. Inductor's is
torch/_inductor/ir.py:StorageBox.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from ..core.graph import has_effect, is_number, tensors_of
from ..core.graph import value as fake_of
from ..core.index import Index, product
from ..core.loops import (EXPENSIVE, Const, Expression, Load, Op, Position,
                          walk)
from .values import (Point, Value, axes, broadcast, cast, elements,
                     indices_of, points, size_of, strided_view, touched)

if TYPE_CHECKING:
    from .lower import Lowering

#: An Index is a whole number made of sizes.
Operand = Value | bool | int | float | Index
Axes = Sequence[int] | int | None

#: The dtypes of loops; any other (complex, float8) makes an Extern.
DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool}


@dataclass(frozen=True)
class LoweringContext:
    """One node being lowered: its result, or the first of several."""

    node: fx.Node
    lowering: Lowering
    shape: tuple[Index, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def point(self) -> Point:
        """The point that the result's element is at."""
        return points(axes(self.shape))

    def value(self, element: Expression) -> Value:
        """A value of the result's shape and device."""
        return Value(self.shape, self.device, element)

    def reduce(self, kind: str, a: Value, axes: Axes = None,
               keepdim: bool = False) -> Value:
        """`a` reduced over some dimensions, in its own dtype, and stored;
        the best of bools is whether any or all are true."""
        if a.dtype == torch.bool:
            kind = {"max": "any", "min": "all"}.get(kind, kind)
        return self.lowering.reduce(self.node, kind, a, axes_of(a, axes),
                                    keepdim)


def lowering_rule(node: fx.Node) -> Callable | None:
    """The rule for a node's operator, by overload or by name; None where
    a dtype or a layout rules loops out."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = str(node.target).removeprefix("aten.")
    found = RULES.get(name) or RULES.get(name.rpartition(".")[0])
    made = tensors_of(fake_of(node))
    read = [t for source in node.all_input_nodes
            for t in tensors_of(fake_of(source))]
    return found if made and all(
        t.dtype in DTYPES and t.layout == torch.strided and t.numel()
        for t in (*made, *read)) else None


def number(value: bool | int | float | Index) -> Expression:
    """A Python number or an Index as an operand, before any cast."""
    if isinstance(value, Index) and value.constant is None:
        return Position(value, torch.int64)
    value = int(value) if isinstance(value, Index) else value
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return Const(value, kinds[type(value)])


def accurate(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager computes a formula of several operations."""
    small = dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if small else dtype


def literal(value: bool | int | float | Index,
            dtype: torch.dtype) -> Expression:
    """A Python number in a computation of this dtype: exact, where a
    tensor would be rounded, as in eager."""
    node = number(value)
    if isinstance(node, Const) and dtype != torch.bool:
        return Const(node.value, dtype)
    return cast(node, accurate(dtype))


def as_operand(operand: Operand, shape: tuple[Index, ...],
               dtype: torch.dtype) -> Expression:
    """The operand's element in this shape, in this dtype."""
    if isinstance(operand, Value):
        return cast(broadcast(operand, shape).element, dtype)
    return literal(operand, dtype)


def elementwise(build: str | Callable[..., Expression],
                *dtypes: torch.dtype | Callable | None) -> Callable:
    """The rule of an operation on one element, given its name.

    Given a function of a dtype and operands, the rule computes in that
    dtype and rounds once, at the end. The operands are converted to
    `dtypes`; the last entry also holds for further operands. An entry is
    a dtype, a function of the operands, or None: the result's dtype.
    """
    def rule(context: LoweringContext, *operands: Operand, **options
             ) -> Value | None:
        if options:
            return None
        named, dtype = isinstance(build, str), context.dtype
        inner = dtype if named else accurate(dtype)
        kinds = [kind(*operands) if callable(kind) else kind or inner
                 for kind in dtypes or (None,)]
        kinds += kinds[-1:] * len(operands)
        parts = tuple(as_operand(operand, context.shape, kind)
                      for operand, kind in zip(operands, kinds))
        return context.value(Op(build, parts, dtype) if named else cast(
            build(inner, *parts), dtype))
    return rule


def promoted(*operands: Operand) -> torch.dtype:
    """The dtype in which a comparison compares."""
    return torch.result_type(*(
        torch.empty((1,) * bool(o.shape), dtype=o.dtype, device="meta")
        if isinstance(o, Value) else 1 if isinstance(o, Index) else o
        for o in operands))


def fill(context: LoweringContext, a: Operand, *_, **__) -> Value:
    """The same numbers in the result's dtype, shape and strides."""
    given = broadcast(a, context.shape).element if isinstance(
        a, Value) else number(a)
    return context.value(cast(given, context.dtype))


def view(context: LoweringContext, a: Value, *_, **__
         ) -> Value | tuple[Value, ...]:
    """A view, or several, with the strides that the operator gives."""
    args, kwargs = fakes(context.node)
    made = sight(context.node.target, *args, **kwargs)
    found = tuple(
        strided_view(a, indices_of(fake.shape), indices_of(part.stride()),
                     size_of(part.storage_offset()))
        for fake, part in zip(tensors_of(fake_of(context.node)),
                              tensors_of(made), strict=True))
    return found[0] if isinstance(made, torch.Tensor) else found


def sight(operator, fake: torch.Tensor, *args, **kwargs):
    """The operator's result on a contiguous tensor of this shape; the
    meta device needs no elements for it."""
    with enable_python_dispatcher():
        return operator(torch.empty(fake.shape, device="meta"),
                        *args, **kwargs)


def fakes(node: fx.Node) -> tuple[tuple, dict]:
    """The node's arguments, as fake tensors and SymInts."""
    return fx.node.map_aggregate((node.args, node.kwargs), lambda leaf: (
        fake_of(leaf) if isinstance(leaf, fx.Node) else leaf))


def axes_of(a: Value, axes: Axes) -> tuple[int, ...]:
    """The reduced dimensions, in order; all of them for None or []."""
    rank = len(a.shape)
    if axes is None or axes == []:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else axes
    return tuple(sorted(axis % rank for axis in given)) if rank else ()


def exactly(a: Value, dtype: torch.dtype) -> Value:
    """The numbers that eager adds for a sum of this dtype."""
    return a.to(dtype).to(accurate(dtype))


def reducing(kind: str, within: Callable[..., Value] = lambda a, _: a,
             divided: bool = False) -> Callable:
    """The rule of a reduction of what `within` makes of the operand and
    the result's dtype; it is rounded to that at the end."""
    def rule(context: LoweringContext, a: Value, axes: Axes = None,
             keepdim: bool = False, **_) -> Value:
        made = context.reduce(kind, within(a, context.dtype), axes, keepdim)
        if divided:
            made = divided_by(made, product(
                a.shape[axis] for axis in axes_of(a, axes)))
        return made.to(context.dtype)
    return rule


def divided_by(a: Value, divisor: Index) -> Value:
    """`a` divided by a number of elements."""
    return replace(a, element=Op("div", (
        a.element, literal(divisor, a.dtype)), a.dtype))


RULES: dict[str, Callable] = {
    **{name: elementwise(name) for name in
       """neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin
       cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
       lgamma sigmoid reciprocal relu mul atan2 hypot copysign maximum
       minimum fmax fmin""".split()},
    **{name: elementwise(name, promoted)
       for name in "eq ne lt le gt ge".split()},
    "add.Tensor": elementwise("add"), "sub.Tensor": elementwise("sub"),
    "div.Tensor": elementwise("div"), "div.Scalar": elementwise("div"),
    "where.self": elementwise("where", torch.bool, None),
    **dict.fromkeys("""clone lift_fresh_copy _to_copy scalar_tensor
       prims.convert_element_type""".split(), fill),
    **dict.fromkeys("""view.default _unsafe_view reshape unsqueeze squeeze
       expand alias detach lift_fresh permute transpose t slice select
       split split_with_sizes unbind diagonal unfold""".split(), view),
    "sum": reducing("sum", exactly),
    "mean": reducing("sum", exactly, divided=True),
    "amax": reducing("max"), "amin": reducing("min"),
}

#: A value longer than this is stored, however it is used.
MOST_OPERATIONS, MOST_LOADS = 64, 24

#: Operations that cost more than moving an element.
STORED = EXPENSIVE | {"sqrt", "rsqrt", "div_trunc"}


class Uses:
    """The facts about each node's users that lowering needs. The users
    come after the node, so the graph is read once, backwards.

    `rules`: the rule that can lower each node, or None. `readers`: the
    nodes that compute with one that is needed, looking through views.
    `stored`: it is needed in memory. `returned`: it is a result, or the
    result is a view of it. `wide`: its reader has many more elements, so
    computing it in the reader repeats the work.
    """

    def __init__(self, graph: fx.Graph):
        self.rules = {node: lowering_rule(node) for node in graph.nodes}
        self.readers: dict[fx.Node, set[fx.Node]] = {}
        self.stored: set[fx.Node] = set()
        self.returned: set[fx.Node] = set()
        self.wide: set[fx.Node] = set()
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
        mine, theirs = (self.counts.get(n, 0) for n in (node, user))
        if self.is_view(user):
            self.readers[node] |= self.readers[user]
            if user in self.returned:
                self.returned.add(node)
            if user in self.returned or (
                    user in self.stored and theirs >= mine):
                self.stored.add(node)
        else:
            self.readers[node].add(user)
            if user.op == "output":
                self.returned.add(node)
            if self.rules[user] is None:
                self.stored.add(node)
        if theirs > 4 * mine or user in self.wide and self.is_view(user):
            self.wide.add(node)

    def is_expensive(self, node: fx.Node, value: Value) -> bool:
        """Whether to store a value rather than compute it again.

        Storing moves all that it reads once. The value itself moves once,
        and once more for each reader but the first, which runs in the
        kernel that stores it. Not storing moves all that it reads once
        per reader.
        """
        nodes = walk(value.element)
        work = [part.name for part in nodes if isinstance(part, Op)]
        loads = [part for part in nodes if isinstance(part, Load)]
        if len(work) > MOST_OPERATIONS or len(loads) > MOST_LOADS:
            return True
        readers = len(self.readers[node])
        if readers < 2 and node not in self.wide:
            return False
        own = self.counts[node] * value.dtype.itemsize
        read = sum(min(own, touched(load.index) * load.dtype.itemsize)
                   for load in loads)
        return not STORED.isdisjoint(work) or (
            read + own * readers < read * readers)
