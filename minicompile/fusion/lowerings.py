"""The table of lowering rules, and the rules that most models need.

In: a LoweringContext (what the node should produce) and operands. Out: a
Value, several, or None if no loop computes this: then the ATen operator
runs. Operands are converted to the result's dtype before the operation,
as PyTorch's type promotion has it; comparisons have their own rule.
Inductor's table is torch/_inductor/lowering.py:lowerings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from ..core.graph import tensors_of
from ..core.graph import value as fake_of
from ..core.index import Index, not_negative, product
from ..core.loops import Const, Expression, Op, Position
from .sizes import size_of, sizes_of
from .values import (Point, Value, broadcast, cast, reshaped,
                     strided_view)

#: An Index is a whole number made of sizes, an Op a float made of them.
Operand = Value | bool | int | float | Index | Op
Axes = Sequence[int] | int | None

#: What loops compute with; anything else (complex, float8) is an Extern.
DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool}


@dataclass(frozen=True)
class LoweringContext:
    """One node being lowered, and what its rule may ask for.

    `reduced(kind, value, axes, keepdim)` stores a reduction and gives the
    value that reads it; `call(operator, *args)` adds a call of an ATen
    operator without a result, Values being stored for it.
    """

    node: fx.Node
    shape: tuple[Index, ...]  # of the result, or of the first of several
    dtype: torch.dtype
    device: torch.device
    reduced: Callable[..., Value]
    call: Callable[..., None]

    def value(self, body: Callable[[Point], Expression]) -> Value:
        """A value of the result's shape, dtype and device."""
        return Value(self.shape, self.dtype, self.device, body)

    def reduce(self, kind: str, a: Value, axes: Axes = None,
               keepdim: bool = False) -> Value:
        """`a` reduced over some dimensions, in its own dtype."""
        return self.reduced(kind, a, axes_of(a, axes), keepdim)


def lowering_rule(node: fx.Node) -> Callable | None:
    """The rule for a node's operator: by overload, or by name; None if
    loops cannot compute it, for a dtype, a layout or mixed devices."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = str(node.target).removeprefix("aten.")
    found = RULES.get(name) or RULES.get(name.rpartition(".")[0])
    made = tensors_of(fake_of(node))
    read = [t for source in node.all_input_nodes
            for t in tensors_of(fake_of(source))]
    return found if made and all(
        t.dtype in DTYPES and t.layout == torch.strided and t.numel()
        and (t.device == made[0].device or is_number_of(t, made[0]))
        for t in (*made, *read)) else None


def is_number_of(tensor: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a kernel for a result on a GPU can take a tensor of no
    dimensions, in the host's memory, as a number."""
    return (tensor.dim() == 0 and tensor.device.type == "cpu"
            and result.device.type == "cuda"
            and tensor.dtype == result.dtype == torch.float32)


def number(value: bool | int | float | Index | Op) -> Expression:
    """A Python number as an operand; casting it then says what it is."""
    if isinstance(value, Index):
        return Position(value, torch.int64)
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return value if isinstance(value, Op) else Const(
        value, kinds[type(value)])


def accurate(dtype: torch.dtype) -> torch.dtype:
    """What eager computes in when a formula has several operations."""
    small = dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if small else dtype


def literal(value: bool | int | float | Index | Op,
            dtype: torch.dtype) -> Expression:
    """A Python number in a computation of this dtype: exact, where a
    tensor would be rounded, as in eager."""
    node = number(value)
    if isinstance(node, Const) and dtype != torch.bool:
        return Const(value, dtype)
    return cast(node, accurate(dtype))


def as_operand(operand: Operand, shape: tuple[Index, ...],
               dtype: torch.dtype) -> Value:
    """The operand with this shape, in this dtype."""
    if isinstance(operand, Value):
        return broadcast(operand, shape).to(dtype)
    node = literal(operand, dtype)
    return Value(shape, dtype, None, lambda _: node)


def elementwise(build: str | Callable[..., Expression],
                *dtypes: torch.dtype | Callable | None) -> Callable:
    """The rule of an operation on one element, given its name.

    Given a function of a dtype and operands, the rule computes in that
    dtype and rounds once, at the end. The operands are converted to
    `dtypes`, the last of which holds for all that follow: a dtype, a
    function of the operands that returns it, or None, the result's own.
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
        given = [as_operand(operand, context.shape, kind)
                 for operand, kind in zip(operands, kinds)]

        def at(point: Point) -> Expression:
            parts = tuple(each.at(point) for each in given)
            return Op(build, parts, dtype) if named else cast(
                build(inner, *parts), dtype)
        return context.value(at)
    return rule


def promoted(*operands: Operand) -> torch.dtype:
    """The dtype in which a comparison compares."""
    return torch.result_type(*(
        torch.empty((1,) * bool(o.shape), dtype=o.dtype, device="meta")
        if isinstance(o, Value) else {Index: 1, Op: 1.0}.get(type(o), o)
        for o in operands))


def fill(context: LoweringContext, a: Operand, *_, **__) -> Value:
    """The same numbers in the result's dtype, shape and strides."""
    given = broadcast(a, context.shape) if isinstance(a, Value) else None
    return context.value(lambda point: cast(
        given.at(point) if given else number(a), context.dtype))


def view(context: LoweringContext, a: Value, *_, **__
         ) -> Value | tuple[Value, ...]:
    """A view, or several: what the operator makes of strides."""
    args, kwargs = fakes(context.node)
    made = sight(context.node.target, *args, **kwargs)
    found = tuple(
        strided_view(a, sizes_of(fake.shape), sizes_of(part.stride()),
                     size_of(part.storage_offset()))
        for fake, part in zip(tensors_of(fake_of(context.node)),
                              tensors_of(made), strict=True))
    return found[0] if isinstance(made, torch.Tensor) else found


def sight(operator, fake: torch.Tensor, *args, **kwargs):
    """What an operator sees of a contiguous tensor of this shape, which
    needs no elements for it."""
    with enable_python_dispatcher():
        return operator(torch.empty(fake.shape, device="meta"),
                        *args, **kwargs)


def fakes(node: fx.Node) -> tuple[tuple, dict]:
    """The node's arguments, as fake tensors and SymInts."""
    return fx.node.map_aggregate((node.args, node.kwargs), lambda leaf: (
        fake_of(leaf) if isinstance(leaf, fx.Node) else leaf))


def reshape(context: LoweringContext, a: Value, *_) -> Value:
    """The elements of `a`, in the same order, in the result's shape."""
    return reshaped(a, context.shape)


def expand(context: LoweringContext, a: Value, *_, **__) -> Value:
    """`a` repeated along dimensions of size 1 and new ones."""
    return broadcast(a, context.shape)


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
    count = divisor.constant
    by = literal(divisor if count is None else count, a.dtype)
    return a.map(lambda node: Op("div", (node, by), a.dtype))


def var_mean(context: LoweringContext, a: Value, axes: Axes = None, *,
             correction: int | float | None = 1, keepdim: bool = False
             ) -> tuple[Value, Value] | None:
    """The variance and the mean, in two passes: first the mean, then the
    squares of what is left, by all but `correction` of their number."""
    total = product(a.shape[axis] for axis in axes_of(a, axes))
    correction = 1 if correction is None else correction
    left = total - int(correction)
    if int(correction) != correction or not not_negative(left):
        return None
    inner = a.to(accurate(context.dtype))
    middle = divided_by(context.reduce("sum", inner, axes, True), total)
    spread = broadcast(middle, inner.shape)

    def square(point: Point) -> Expression:
        off = Op("sub", (inner.at(point), spread.at(point)), inner.dtype)
        return Op("mul", (off, off), inner.dtype)
    squares = Value(inner.shape, inner.dtype, inner.device, square)
    variance = divided_by(
        context.reduce("sum", squares, axes, keepdim), left)
    average = reshaped(middle, variance.shape)
    return variance.to(context.dtype), average.to(context.dtype)


#: Rules whose result is a view: eager would share the memory.
VIEWS = {reshape, expand, view}

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
    **dict.fromkeys("where.self where.ScalarSelf where.ScalarOther "
                    "where.Scalar".split(),
                    elementwise("where", torch.bool, None)),
    **dict.fromkeys("""clone contiguous lift_fresh_copy _to_copy
       scalar_tensor prims.convert_element_type""".split(), fill),
    **dict.fromkeys("view.default _unsafe_view reshape unsqueeze squeeze"
                    .split(), reshape),
    **dict.fromkeys("expand alias detach lift_fresh".split(), expand),
    **dict.fromkeys("""permute transpose t slice select split
       split_with_sizes unbind diagonal unfold""".split(), view),
    "sum": reducing("sum", exactly),
    "mean": reducing("sum", exactly, divided=True),
    "var_mean.correction": var_mean,
    "amax": reducing("max"), "amin": reducing("min"),
}
