"""Writes and shared memory: what a graph of values cannot say.

In: torch-level calls while recording, the inputs, what the graph returned.
Out: the same calls. The idea: a functional tensor takes writes as if it
were memory, and two of them share a storage exactly if eager's do. So
writes are read off after the graph has run, and put back at run time. A
graph that writes to parts of memory, or whose results share it, needs a
file of the reference. PyTorch finds out the same facts in
torch/_functorch/_aot_autograd/collect_metadata_analysis.py.
"""

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from ..core.errors import BackendError
from ..core.graph import dense, tensors_of, value, written_by
from ..core.sizes import AS_IN_CPP
from .recorder import RecordingMode, recording, unwrapped

storage_of = torch._C._storage_id
creation_of = torch._C._autograd._get_creation_meta

#: How autograd marks each view that `split` gives, among others: nobody
#: may write to it.
MULTIPLE = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE

#: The methods that are assignments, such as `+=`.
ASSIGNMENTS = {"__setitem__", *(f"__i{name[2:]}" for name in dir(operator))}
#: Writes of a result for each element, laid out as the elements are.
SIMPLE = {f"{mark}{name}{end}" for name in ("add", "sub", "mul")
          for mark, end in (("", "_"), ("__i", "__"))} | {"relu_", "relu"}

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
    "as_strided": (
        lambda x: not dense(x) or unwrapped(x).untyped_storage().nbytes()
        != x.numel() * x.element_size(), "is of a part of some memory"),
}


def simple_write(recorder: RecordingMode, name: str, written: list,
                 args: tuple, kwargs: dict) -> AbstractContextManager:
    """Around a call that writes to all of one tensor, and reads numbers
    besides; refuses any other."""
    tensor, *numbers = *args, *kwargs.values()
    if (name not in SIMPLE or tensor._is_view() or not dense(tensor)
            or tensor.is_leaf and tensor.requires_grad
            or not all(isinstance(each, (int, float)) for each in numbers)
            or any(torch.result_type(tensor, each) != tensor.dtype
                   for each in numbers)):
        raise BackendError(f"{name} writes to a part of some memory")
    return nullcontext()


#: What a call that writes runs under; the last is in use.
WRITES: list[Callable[..., AbstractContextManager]] = [simple_write]


class InPlaceWrites(TorchFunctionMode):
    """Sees each call of a torch function, method or operator."""

    def __init__(self, recorder: RecordingMode):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "_opname", function.__name__)
        if getattr(function, "__self__", None) is torch.Tensor.data:
            if name == "__set__":
                raise BackendError("setting data gives other memory")
            return torch._C._autograd._get_data_attr(args[0])
        refused, reason = REFUSED.get(name, (None, ""))
        if refused and refused(args[0]):
            raise BackendError(f"{name} {reason}")
        written = [] if name in UNDER else [each for each in (
            args[:1] if kwargs.get("inplace") or name in ASSIGNMENTS
            else written_by(function, args, kwargs))
            if torch._is_functional_tensor(each)]
        with (WRITES[-1](self.recorder, name, written, args, kwargs)
              if written else UNDER.get(name, nullcontext)()):
            return function(*args, **kwargs)


class Input:
    """One input: its node, and what is given to the graph for it."""

    def __init__(self, recorder: RecordingMode, example: object,
                 position: int):
        self.position = position
        self.node = recorder.node("placeholder", f"primals_{position + 1}")
        self.node.meta["val"] = self.given = example
        self.wants_gradient = getattr(example, "requires_grad", False) and (
            not torch.is_inference_mode_enabled())
        recorder.sizes.given(self.node)
        if not isinstance(example, torch.Tensor):
            return
        fake = example if isinstance(example, FakeTensor) else (
            recorder.fake_mode.from_tensor(example, static_shapes=True))
        recorder.bind(self.node, fake)
        self.leaf = self.given = torch._to_functional_tensor(fake)
        self.leaf.requires_grad_(self.wants_gradient)
        if self.wants_gradient and not example.is_leaf and dense(fake):
            with recording(recorder):  # nobody may write to a leaf
                self.given = self.leaf.clone()
        self.history = self.given.grad_fn
        self.version = self.given._version  # not that of writes to data

    @property
    def written(self) -> bool:
        """Whether the graph wrote to this input's elements."""
        given = self.given
        if not isinstance(given, torch.Tensor):
            return False
        now, before = unwrapped(given), value(self.node)
        if (torch._functionalize_has_metadata_mutation(given)
                or torch._functionalize_was_storage_changed(given)
                or now.size() != before.size()
                or now.stride() != before.stride()):
            raise BackendError("the graph puts other memory under an "
                               "input, or changes its shape or strides")
        if given.requires_grad != self.wants_gradient and not self.tracked:
            raise BackendError("the graph changes requires_grad of an "
                               "input")
        return torch._functionalize_has_data_mutation(given)

    @property
    def tracked(self) -> bool:
        """Whether autograd saw a write to this input."""
        return self.given.grad_fn is not self.history


#: What gives the graph that makes results in shared memory, and the
#: tensors that it is to be given besides the inputs.
RESULTS: list[Callable[..., tuple[fx.GraphModule | None, list]]] = []


def describe_results(recorder: RecordingMode, outputs, inputs: list[Input],
                     tracked: list[Input]
                     ) -> tuple[fx.GraphModule | None, list]:
    """How the results are made at run time, and the tensors to compute.

    How is a graph of the inputs and of those tensors, which repeats the
    writes that autograd `tracked`; None if these are the results.
    """
    wanted = any(each.wants_gradient for each in inputs)
    tensors = tensors_of(outputs)
    memory = list(map(storage_of, [*tensors, *tensors_of(
        [each.given for each in inputs])]))
    if not (tracked or list(map(id, tensors)) != list(map(id, outputs))
            or len({*memory}) < len(memory) or any(
                each._is_view() and creation_of(each) == MULTIPLE
                or each.requires_grad and not (wanted and each.grad_fn)
                for each in tensors)):
        return None, tensors
    if not RESULTS:
        raise BackendError("a result shares memory with another tensor, or "
                           "is no tensor")
    return RESULTS[-1](recorder, outputs, inputs, tracked)
