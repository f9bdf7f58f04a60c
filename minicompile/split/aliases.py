"""Writes and shared memory: what a graph of values cannot say.

In: torch-level calls while recording, the inputs, what the graph returned.
Out: the same calls, and a `Result` for each result. The idea: a functional
tensor takes writes as if it were memory, and two of them share a storage
exactly if eager's do. So writes and aliases are read off after the graph
has run, and put back at run time. Only strides need care meanwhile: the
functional form of `x.scatter_(…)` may lay out its result in another way
than `x`. PyTorch finds out the same facts in
torch/_functorch/_aot_autograd/collect_metadata_analysis.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch._C._functionalization import (
    get_view_meta_sequence as view_steps, unfold_ViewMeta as Unfold)
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from ..core.errors import BackendError
from ..core.graph import (dense, operators, reach, tensors_of, value,
                          written_by)
from ..core.sizes import AS_IN_CPP, SYMBOLIC
from .joint import Result
from .recorder import RecordingMode, functional, unwrapped

storage_of = torch._C._storage_id
creation_of = torch._C._autograd._get_creation_meta

#: Steps whose arguments PyTorch hands out after it has freed them.
UNREADABLE = {getattr(torch._C._functionalization, f"{name}_ViewMeta")
              for name in ("_unsafe_view", "resize_")}

#: How autograd marks each view that `split` gives, among others: nobody
#: may write to it.
MULTIPLE = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE

#: The methods that are assignments, such as `+=`.
ASSIGNMENTS = {"__setitem__", *(f"__i{name[2:]}" for name in dir(operator))}
#: What is not checked to fit in place, as an integer times 1.5 does not.
CASTS = {"add", "sub", "mul", "subtract", "multiply"}

#: What a function runs under, so that all it does is seen. The schemas of
#: the first do not say that they write to an input, but Python's forms of
#: them do. mkldnn keeps nothing for the backward unless grad mode is on.
UNDER: dict[str, Callable[[], AbstractContextManager]] = {
    **dict.fromkeys(("batch_norm", "instance_norm", "native_batch_norm",
                     "cudnn_batch_norm"), enable_python_dispatcher),
    **dict.fromkeys(AS_IN_CPP, torch._C._DisablePythonDispatcher),
    "lstm": lambda: torch.backends.mkldnn.flags(enabled=False) if (
        torch.is_grad_enabled()) else nullcontext(),
}

#: What a graph cannot say: when, given the first argument, and why.
REFUSED: dict[str, tuple[Callable[[torch.Tensor], bool], str]] = {
    **dict.fromkeys(("set_", "resize_", "resize_as_"), (
        lambda x: True, "gives a tensor other memory")),
    **dict.fromkeys(("linalg_eigh", "linalg_svd"), (
        lambda x: x.requires_grad and x.is_complex(),
        "has a gradient that looks at values")),
    "linalg_eig": (lambda x: x.requires_grad,
                   "has a gradient that looks at values"),
    "as_strided": (lambda x: not dense(x), "is of memory with gaps"),
}


class InPlaceWrites(TorchFunctionMode):
    """Sees each call of a torch function, method or operator."""

    def __init__(self, recorder: RecordingMode):
        super().__init__()
        self.recorder = recorder
        self.turned: set[int] = set()  # memory whose views changed shape

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "_opname", function.__name__)
        if getattr(function, "__self__", None) is torch.Tensor.data:
            if name == "__set__":
                raise BackendError("setting data gives other memory")
            return args[0].detach()
        if name in UNDER:
            with UNDER[name]():
                return function(*args, **kwargs)
        refused, reason = REFUSED.get(name, (None, ""))
        if refused and refused(args[0]):
            raise BackendError(f"{name} {reason}")
        if name.startswith("_fused_") and name.endswith("_"):
            raise BackendError(f"{name} writes to lists of tensors")
        if name.endswith("_") and any(torch.Tag.inplace_view in op.tags
                                      for op in operators(name)):
            if args[0].requires_grad:
                raise BackendError(f"{name} on a tensor that requires grad")
            self.turned.add(storage_of(args[0]))
            return function(*args, **kwargs)
        written = [each for each in (
            args[:1] if kwargs.get("inplace") or name in ASSIGNMENTS
            else written_by(function, args, kwargs))
            if torch._is_functional_tensor(each)]
        if not written:
            return function(*args, **kwargs)
        if name.strip("_").removeprefix("i") in CASTS and (
                not torch.can_cast(torch.result_type(*args[:2]),
                                   args[0].dtype)):
            raise BackendError(f"{name} gives another dtype")
        layouts = [(each, each.size(), each.stride())
                   for each in memory_of(name, written, "out" in kwargs)]
        require_apart(name, written, args, kwargs)
        result = function(*args, **kwargs)
        if any(each.requires_grad and storage_of(each) in self.turned
               for each in written):  # its gradient would have old shapes
            raise BackendError(f"{name} tracks memory seen in a new shape")
        for layout in layouts:
            self.keep(*layout)
        return result

    def keep(self, tensor: torch.Tensor, size, stride) -> None:
        """Give `tensor` the strides it had; an empty `out=` may grow."""
        value = unwrapped(tensor)
        if value.size() != size and size.numel():
            raise BackendError("out= has another shape than the result")
        if value.size() != size or value.stride() == stride:
            return
        with functional(False):
            kept = self.recorder.restride(value, stride)
        torch._functionalize_replace(tensor, kept)
        torch._functionalize_commit_update(tensor)
        if unwrapped(tensor).stride() != stride:
            raise BackendError("a write cannot keep the strides of a view")


def memory_of(name: str, written: list, grows: bool) -> list:
    """The tensors that a call writes to, after what they are views of.

    A BackendError if functionalisation would not write as eager does;
    what is given as `out=` also `grows`.
    """
    found: dict[torch.Tensor, None] = {}
    ends: dict[int, int] = {}  # of the memory that is written so far
    for each in sorted(written, key=torch.Tensor.storage_offset):
        base = each if each._base is None else each._base
        start, memory = each.storage_offset(), storage_of(each)
        steps = view_steps(each)
        for refused, reason in (
            (reach(each) < 0 or reach(base) < 0,
             "a tensor with several elements in one place"),
            (start <= ends.get(memory, -1), "one place twice"),
            (any(isinstance(step, Unfold) for step in steps),
             "the result of unfold"),
            (steps and grows, "a view, as out="),
        ):
            if refused:
                raise BackendError(f"{name} writes to {reason}")
        ends[memory] = start + reach(each)
        found |= {base: None, each: None}
    return list(found)


def require_apart(name: str, written: list, args: tuple,
                  kwargs: dict) -> None:
    """Raise if what is written is also read, but at other places.

    Eager raises too, or the result depends on the order.
    """
    if name == "__setitem__":
        where, value = args[1:]
        written = [] if tensors_of([where]) else [args[0][where]]
        args = value,
    for read in tensors_of((args, kwargs)):
        if any(overlap_in_part(each, read) for each in written):
            raise BackendError(f"{name} reads a part of what it writes")


def overlap_in_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors without gaps have some elements in common, but
    not each its own; where there are gaps, eager does not ask."""
    apart = a is b or not torch._is_functional_tensor(b) or (
        storage_of(a) != storage_of(b))
    if apart or not (dense(a) and dense(b)):
        return False
    (start, end, *_), (other, last, *_) = one, two = [
        (each.storage_offset() * each.itemsize, each.itemsize * (
            each.storage_offset() + each.numel()), each.stride())
        for each in (a, b)]
    return start < last and other < end and one != two


class Input:
    """One input: `leaf` is differentiated by, `given` goes to the graph."""

    def __init__(self, recorder: RecordingMode, example: object,
                 position: int):
        self.position = position
        self.node = recorder.node("placeholder", f"primals_{position + 1}")
        self.node.meta["val"] = self.leaf = self.given = example
        self.wants_gradient = getattr(example, "requires_grad", False) and (
            not torch.is_inference_mode_enabled())
        self.history = None
        if isinstance(example, SYMBOLIC):
            recorder.sizes[example.node.expr] = self.node
        if not isinstance(example, torch.Tensor):
            return
        fake = example if isinstance(example, FakeTensor) else (
            recorder.fake_mode.from_tensor(example, static_shapes=True))
        recorder.bind(self.node, fake)
        self.leaf = self.given = torch._to_functional_tensor(fake)
        if self.wants_gradient:
            self.leaf.requires_grad_()
            if not example.is_leaf:
                self.given = NonLeaf.apply(
                    self.leaf, [torch._to_functional_tensor(fake)])
                self.history = self.given.grad_fn

    @property
    def written(self) -> bool:
        """Whether the graph wrote to this input's elements."""
        given = self.given
        if not isinstance(given, torch.Tensor):
            return False
        now, before = unwrapped(given), value(self.node)
        tracked = self.write_is_tracked and given.requires_grad
        for refused, reason in (
            (torch._functionalize_has_metadata_mutation(given),
             "changes in place the shape or strides of"),
            (torch._functionalize_was_storage_changed(given),
             "puts other memory under"),
            (given.requires_grad != self.wants_gradient and not tracked,
             "changes requires_grad of"),
            (now.size() != before.size() or now.stride() != before.stride(),
             "writes to, and cannot keep the strides of,"),
        ):
            if refused:
                raise BackendError(f"the graph {reason} an input")
        return torch._functionalize_has_data_mutation(given)

    @property
    def write_is_tracked(self) -> bool:
        """Whether autograd saw the write."""
        return self.given.grad_fn is not self.history


class NonLeaf(torch.autograd.Function):
    """Stands between a leaf and the graph, so that writing is allowed.

    Eager forbids writing to a leaf that requires grad. The user's input
    is not a leaf here, but what stands in for it while recording is.
    """

    @staticmethod
    def forward(ctx, leaf, held):
        return held[0]

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def describe_results(outputs, inputs: list[Input]) -> tuple[list, list]:
    """How each result is made at run time, and the tensors to compute."""
    homes = {storage_of(each.given): (each.position, each.given)
             for each in inputs if isinstance(each.given, torch.Tensor)}
    sharing: dict[int, list] = {}
    for output in tensors_of(outputs):
        torch._sync(output)
        sharing.setdefault(storage_of(output), []).append(output)
    fresh: list[torch.Tensor] = []
    for memory, group in sharing.items():
        if memory not in homes:
            homes[memory] = len(inputs) + len(fresh), base_of(group)
            fresh.append(homes[memory][-1])
    results: list[Result] = []
    for position, output in enumerate(outputs):
        first = next(k for k, each in enumerate(outputs) if each is output)
        if not isinstance(output, torch.Tensor):
            results.append(Result(None, constant=output))
        elif first < position:
            results.append(Result(len(inputs) + len(fresh) + first))
        else:
            of, base = homes[storage_of(output)]
            results.append(view_of(output, of, base))
    require_history([*fresh, *tensors_of(outputs)], inputs)
    return results, fresh


def base_of(group: list[torch.Tensor]) -> torch.Tensor:
    """The tensor that all outputs in one memory are views of."""
    if all(each is group[0] for each in group) and not (
            group[0]._is_view() and creation_of(group[0]) == MULTIPLE):
        return group[0]
    tracked = [each._base for each in group if each._base is not None]
    return min(tracked or group, key=lambda each: len(view_steps(each)))


def require_history(made: list[torch.Tensor], inputs: list[Input]) -> None:
    """Raise if a tensor's gradient does not come from the inputs."""
    given = {id(each.given) for each in inputs if each.wants_gradient}
    if any(each.requires_grad and given.isdisjoint(
            (id(each), id(each._base))) and not (given and each.grad_fn)
           for each in made):
        raise BackendError("a result is a leaf that requires grad, is made "
                           "of one, or is a view made under no_grad")


def view_of(output: torch.Tensor, of: int, base: torch.Tensor) -> Result:
    """`output`, in the memory of `base`, as a view of value number `of`."""
    if output is base:
        return Result(of)
    taken, given = (list(map(said, view_steps(each)))
                    for each in (output, base))
    steps = taken[len(given):]
    if not steps or taken[:len(given)] != given or any(
            kind in UNREADABLE for kind, _ in steps):
        raise BackendError("two results share memory, and neither is a "
                           "view of the other")
    if output.grad_fn is not None and not leads_to(output, base):
        raise BackendError("a result is a view, and its gradient does not "
                           "reach what it is a view of")
    return Result(of, tuple(steps), output.grad_fn is not None)


def said(step) -> tuple:
    """A step of a view: its class and its arguments, or which one it is."""
    kind = type(step)
    return kind, step if kind in UNREADABLE else step.as_tuple()


def leads_to(output: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether the gradient of the view `output` flows to `base`.

    It does not through a view that was made under no_grad.
    """
    step = output.grad_fn
    while step is not None:
        if step is base.grad_fn or getattr(step, "variable", 0) is base:
            return True
        step = step.next_functions[0][0] if step.next_functions else None
    return False
