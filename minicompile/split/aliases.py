"""Writes and shared memory: what a graph of values cannot say.

In: torch-level calls while recording, the inputs, what the graph returned.
Out: the same calls, and a `Result` for each result. The idea: a functional
tensor takes writes as if it were memory, and two of them share a storage
exactly if eager's do. So writes and aliases are read off after the graph
has run, and put back at run time. Here a call may write to whole tensors,
and a result may share memory with no other; rows of the reference know the
rest. PyTorch finds out the same facts in
torch/_functorch/_aot_autograd/collect_metadata_analysis.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch._C._functionalization import get_view_meta_sequence as view_steps
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from ..core.errors import BackendError
from ..core.graph import dense, operators, tensors_of, value, written_by
from ..core.sizes import AS_IN_CPP
from .joint import Result
from .recorder import RecordingMode, unwrapped

storage_of = torch._C._storage_id
creation_of = torch._C._autograd._get_creation_meta

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
        return WRITES[-1](self, name, function, args, kwargs, written)


def write_whole(mode: InPlaceWrites, name: str, function: Callable,
                args: tuple, kwargs: dict, written: list) -> object:
    """The result of a call that writes to whole tensors, each of which
    shares memory with nothing else that is read."""
    read = tensors_of((args, kwargs))
    for each in written:
        if changes_shape(name) or view_steps(each) or not dense(each) or (
                any(storage_of(other) == storage_of(each)
                    and other is not each for other in read)):
            raise BackendError(f"{name} does not write to a whole tensor, "
                               "or to what it reads as well")
    layouts = [(each.size(), each.stride()) for each in written]
    result = function(*args, **kwargs)
    if layouts != [(each.size(), each.stride())
                   for each in map(unwrapped, written)]:
        raise BackendError(f"{name} cannot keep the strides")
    return result


@cache
def changes_shape(name: str) -> bool:
    """Whether a method changes a tensor's shape, and not its elements."""
    return name.endswith("_") and any(
        torch.Tag.inplace_view in op.tags for op in operators(name))


#: How a call that writes in place is made; the last one counts.
WRITES: list[Callable] = [write_whole]
#: Which tensor those in one memory are views of, and how a result is one;
#: at most one of each.
BASES: list[Callable[[list[torch.Tensor]], torch.Tensor]] = []
VIEWS: list[Callable[[torch.Tensor, int, torch.Tensor], Result]] = []


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
        recorder.sizes.given(self.node)
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
            alone = {*map(id, group)} == {id(group[0])} and not (
                group[0]._is_view() and creation_of(group[0]) == MULTIPLE)
            base = group[0] if alone else row(BASES)(group)
            homes[memory] = len(inputs) + len(fresh), base
            fresh.append(base)
    results: list[Result] = []
    for position, output in enumerate(outputs):
        first = next(k for k, each in enumerate(outputs) if each is output)
        if not isinstance(output, torch.Tensor):
            results.append(Result(None, constant=output))
        elif first < position:
            results.append(Result(len(inputs) + len(fresh) + first))
        else:
            of, base = homes[storage_of(output)]
            results.append(Result(of) if output is base
                           else row(VIEWS)(output, of, base))
    require_history([*fresh, *tensors_of(outputs)], inputs)
    return results, fresh


def row(table: list[Callable]) -> Callable:
    """The last row of a table of the reference, if there is one."""
    if not table:
        raise BackendError("results share memory with others, or inputs")
    return table[-1]


def require_history(made: list[torch.Tensor], inputs: list[Input]) -> None:
    """Raise if a tensor's gradient does not come from the inputs."""
    given = {id(each.given) for each in inputs if each.wants_gradient}
    if any(each.requires_grad and given.isdisjoint(
            (id(each), id(each._base))) and not (given and each.grad_fn)
           for each in made):
        raise BackendError("a result is a leaf that requires grad, is made "
                           "of one, or is a view made under no_grad")
