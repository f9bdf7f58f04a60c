"""A mode that writes down every ATen op run on fake tensors.

In: whatever runs while the mode is on. Out: an FX graph of ATen ops, each
with its fake result and the user's line. The idea: a dispatch mode sits
below autograd, so it sees the ops that gradients are made of as well. A
table says which ops are taken apart into smaller ones. An op that is not
listed is recorded whole: chapter 4 makes loops of it if it can, and
otherwise it runs as the ATen op itself. PyTorch's mode is in
torch/fx/experimental/proxy_tensor.py.
"""

import operator
from bisect import bisect_right
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache, partial
from keyword import iskeyword
from math import inf

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

from ..core.errors import BackendError, Where
from ..core.graph import QUANTIZED, placeholders, tensors_of
from ..core.sizes import SYMBOLIC, Numbers, python_forms
from .joint import aten

#: How an operator is taken apart. The formulas are in the reference. A
#: negated view has the other sign in memory: what reads it must negate.
DECOMPOSITIONS: dict[torch._ops.OpOverload, Callable] = {
    aten._neg_view.default: torch.neg}

#: Draws that eager makes in the order of the memory, and these row by row.
ROW_BY_ROW = {aten.bernoulli.p, aten.normal_functional.default}

#: What raises if a call must not be compiled, given the recorder.
CHECKS: list[Callable] = []
#: What is asked if an operator is given a tensor of a user's class.
CLASSES: list[Callable] = []


@cache
def decomposition_of(op: torch._ops.OpOverload) -> Callable | None:
    """How `op` is taken apart, or None if it is recorded whole."""
    if op in DECOMPOSITIONS:
        return DECOMPOSITIONS[op]
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), "CompositeImplicitAutograd")  # PyTorch's own, in C++
    return op.decompose if composite else None


#: What is answered while recording: what a tensor or a size is.
ANSWERED = {torch.ops.prim.device.default, aten.size.default,
            aten._assert_scalar.default,
            aten._assert_tensor_metadata.default,
            aten.sym_constrain_range.default,
            aten.sym_constrain_range_for_size.default}
TRANSPARENT = {aten.detach.default, aten.alias.default,
               aten.lift_fresh.default}


class RecordingMode(TorchDispatchMode):
    """Writes every op on fake tensors into `graph`, smaller ones first."""

    def __init__(self, fake_mode: FakeTensorMode, seeded: bool = False):
        super().__init__()
        self.fake_mode, self.grad_mode = fake_mode, torch.is_grad_enabled()
        self.seeded, self.drawn = seeded, 0
        self.seeds: dict[torch.device, torch.Tensor] = {}
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.nodes: dict[torch.Tensor, fx.Node] = {}
        self.lent: dict[torch.Tensor, int] = {}  # parts -> their memory
        self.sizes = Numbers(
            self.graph, lambda: self.origin()["where"])
        self.origins: list[tuple[int, dict]] = []  # at autograd's count

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if CLASSES and {*types} - {FakeTensor}:
            return CLASSES[-1](self, op, types, args, kwargs)
        if op in ANSWERED:
            return self.fake_mode.dispatch(op, types, args, kwargs)
        for check in CHECKS:
            check(self, op, args, kwargs)
        rule = decomposition_of(op)
        if rule is not None:
            with self:
                result = rule(*args, **kwargs)
            if result is not NotImplemented:
                return self.as_eager(op, args, kwargs, result)
        return self.perform(op, args, kwargs)

    def perform(self, op, args: tuple, kwargs: dict):
        """The result of `op` on fake tensors, its node written down."""
        if op._schema.is_mutable:
            raise BackendError(f"{op} writes to its input under the "
                               "functionalisation")
        if iskeyword(op._overloadname):
            raise BackendError(f"{op} has a name that no program can say")
        if op in ROW_BY_ROW and not args[0].is_contiguous():
            raise BackendError("a draw is in the order of the memory")
        arguments, keywords = self.argument(args), self.argument(kwargs)
        result = self.fake_mode.dispatch(op, (), args, kwargs)
        if op in TRANSPARENT:
            self.nodes[result] = arguments[0]
        else:
            self.bind(self.node("call_function", op, arguments, keywords),
                      result)
        return result

    def node(self, kind: str, target, args=(), kwargs=None) -> fx.Node:
        """A new node that remembers the user's line."""
        name = getattr(target, "_opname", None)  # add, not add_tensor
        node = self.graph.create_node(kind, target, args, kwargs or {},
                                      name)
        node.meta |= self.origin()
        running = torch._C._current_autograd_node()
        if getattr(running, "in_python", False):  # an autograd.Function's
            node.meta["function"] = running._sequence_nr()
        return node

    def enter(self, of: str, where: Where | None, region: object) -> None:
        """From here on, ops belong to a traced node, on line `where`, and
        to a checkpoint, if `region` is one."""
        self.origins.append((
            torch._C._autograd._get_sequence_nr(),
            {"of": of, "where": where, "recompute": region}))

    def origin(self) -> dict:
        """Where the op belongs that runs now, a backward one included."""
        running = torch._C._current_autograd_node()
        number = inf if running is None else running._sequence_nr()
        at = bisect_right(self.origins, number, key=operator.itemgetter(0))
        return self.origins[at - 1][1] if at else {"where": None}

    def bind(self, node: fx.Node, result: object) -> None:
        """Let `node` stand for `result`, and its items for the parts."""
        node.meta["val"] = result
        if isinstance(result, torch.Tensor):
            if result.layout is not torch.strided:
                raise BackendError(f"{node} is a {result.layout} tensor")
            self.nodes[result] = node
        elif isinstance(result, (tuple, list)):
            for position, part in enumerate(result):
                if isinstance(part, torch.Tensor):
                    item = self.node("call_function", operator.getitem,
                                     (node, position))
                    self.bind(item, part)

    def argument(self, value: object):
        """`value` with nodes in place of the tensors and the sizes."""
        return map_aggregate(value, self.known)

    def known(self, value: object):
        """The node that stands for a tensor or a size; or a constant."""
        if isinstance(value, torch.Tensor):
            return self.nodes.get(value) or self.constant(value)
        if isinstance(value, SYMBOLIC):
            return self.sizes.written(value)
        if isinstance(value, torch.dtype) and value in QUANTIZED:
            raise BackendError(f"no fake tensor is a {value} one")
        return value

    def constant(self, tensor: torch.Tensor) -> fx.Node:
        """A node for a tensor that the program holds itself."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise BackendError("an op used, or the graph gives, a "
                               f"{type(tensor).__name__} that the recorder "
                               "has not seen")
        name = f"_constant{len(self.constants)}"
        self.constants[name] = tensor
        node = self.node("get_attr", name)
        node.meta["val"] = self.fake_mode.from_tensor(
            tensor, static_shapes=True)
        self.nodes[tensor] = node
        return node

    def tangent(self, value: torch.Tensor, position: int):
        """A fake gradient of `value`, as one more placeholder."""
        with torch.no_grad():
            fake = torch.empty_like(value)  # dense, even if value is not
        with self.graph.inserting_after(placeholders(self.graph)[-1]):
            node = self.node("placeholder", f"tangents_{position + 1}")
        self.bind(node, fake)
        return fake

    def as_eager(self, op, args, kwargs, result):
        """`result` of a decomposition with the strides `op` itself has.

        The formulas give what eager gives on contiguous tensors. On
        others the op is asked, and a copy made if they differ.
        """
        if all(part.is_contiguous() for part in tensors_of(
                (args, kwargs))):
            return result
        expected = self.fake_mode.dispatch(op, (), args, kwargs)
        if isinstance(result, torch.Tensor):
            return self.restride(result, expected.stride())
        return tuple(
            self.restride(part, like.stride())
            if isinstance(part, torch.Tensor) else part
            for part, like in zip(result, expected))

    def restride(self, tensor: torch.Tensor, stride) -> torch.Tensor:
        """`tensor`, or a copy of it that has the strides."""
        if tensor.numel() < 2 or tensor.stride() == stride:
            return tensor
        empty = self.perform(
            aten.empty_strided.default, (tensor.size(), stride),
            {"dtype": tensor.dtype, "device": tensor.device})
        return self.perform(aten.copy.default, (empty, tensor), {})


@contextmanager
def functional(on: bool = True):
    """Operators run inside are made functional, or are not."""
    switches = [torch._disable_functionalization, partial(
        torch._enable_functionalization, reapply_views=True)]
    switches[on]()
    try:
        yield
    finally:
        switches[not on]()


@contextmanager
def recording(recorder: RecordingMode):
    """Everything run inside is made functional and written down."""
    with functional(), python_forms(recorder.sizes), recorder:
        yield


def unwrapped(tensor: object) -> object:
    """The fake tensor that a functional one stands for by now."""
    if not isinstance(tensor, torch.Tensor) or (
            not torch._is_functional_tensor(tensor)):
        return tensor
    torch._sync(tensor)
    return torch._from_functional_tensor(tensor)
