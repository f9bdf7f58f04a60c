"""Writes to parts of memory, and results that share it.

In: a call that writes, or what the graph returned, while it is recorded.
Out: the call, after which all strides are as they were; a graph that makes
the results of the inputs and of the tensors to compute. The idea: the
steps from a memory to a view are in the recording, so the same steps are
taken in the real memory. A write is refused where functionalisation would
not write as eager does. Without this file a graph runs as traced if it
writes to a view, or to an input that autograd follows, or if results share
memory. PyTorch's is
torch/_functorch/_aot_autograd/functional_utils.py:gen_alias_from_base.
"""

from contextlib import contextmanager

import torch
from torch import fx
from torch._C._functionalization import (
    get_view_meta_sequence as view_steps, unfold_ViewMeta as Unfold)

from ...core.errors import BackendError
from ...core.graph import dense, reach, tensors_of, value
from ...core.sizes import SYMBOLIC, Numbers
from ..aliases import (MULTIPLE, RESULTS, WRITES, Input, creation_of,
                       storage_of)
from ..joint import WRITE, lineage
from ..recorder import RecordingMode, aten, functional, unwrapped

#: What is not checked to fit in place, as an integer times 1.5 does not.
CASTS = {"add", "sub", "mul", "subtract", "multiply"}
#: The same of quotients and other floats, which whole numbers cannot hold.
FLOATS = {"div", "divide", "truediv", "true_divide", "addcdiv", "ldexp",
          "logit"}

#: What changes the shape and strides of a tensor itself. Later writes and
#: gradients would not know what its views have been views of.
TURNED = {"squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_",
          "unsqueeze_"}
#: What gives it other memory, or takes it from autograd.
REMADE = {"as_strided_", "detach_", "resize_", "resize_as_", "set_"}


@contextmanager
def write(recorder: RecordingMode, name: str, written: list, args: tuple,
          kwargs: dict):
    """Around a call that writes: it keeps all strides, or is refused."""
    layouts = [(each, each.size(), each.stride())
               for each in written_to(name, written, args, kwargs)]
    if name == "fill_diagonal_" and (
            views(recorder, args[0])[-1].op == "placeholder"):
        raise BackendError(f"{name} counts from where memory starts")
    yield
    if name in TURNED:
        args[0].turned = True
        return
    for layout in layouts:
        keep(recorder, *layout)


def written_to(name: str, written: list, args: tuple, kwargs: dict) -> list:
    """The tensors that a call writes to, after what they are views of.

    A BackendError if functionalisation would not write as eager does.
    """
    found: dict[torch.Tensor, None] = {}
    ends: dict[int, int] = {}  # of the memory that is written so far
    for each in sorted(written, key=torch.Tensor.storage_offset):
        base = base_of(each)
        start, memory = each.storage_offset(), storage_of(each)
        steps = view_steps(each)
        plain = name.strip("_").removeprefix("i")
        for refused, reason in (
            (base.is_leaf and base.requires_grad
             and torch.is_grad_enabled(), "an input that has a gradient"),
            (name.startswith("_fused_"), "lists of tensors"),
            (name in REMADE or name in TURNED and (
                base is not each or each.requires_grad),
             "a tensor's shape or memory"),
            (hasattr(base, "turned") and torch.is_grad_enabled() and any(
                read.requires_grad for read in tensors_of((args, kwargs))),
             "a tensor whose shape has changed"),
            (plain in CASTS | FLOATS and not kwargs.get("rounding_mode")
             and not torch.can_cast(
                 torch.float32 if plain in FLOATS else
                 torch.result_type(*args[:2]), each.dtype),
             "a tensor of another dtype"),
            (reach(each) < 0 or reach(base) < 0,
             "a tensor with several elements in one place"),
            (start <= ends.get(memory, -1), "one place twice"),
            (any(isinstance(step, Unfold) for step in steps),
             "the result of unfold"),
            (steps and "out" in kwargs, "a view, as out="),
            (reads_a_part(name, each, args, kwargs),
             "memory of which it reads a part"),
        ):
            if refused:
                raise BackendError(f"{name} writes to {reason}")
        ends[memory] = start + reach(each)
        found |= {base: None, each: None}
    return list(found)


def reads_a_part(name: str, written: torch.Tensor, args: tuple,
                 kwargs: dict) -> bool:
    """Whether a call reads what it writes to, but at other places.

    Eager raises then, or the result depends on the order; it does not ask
    where there are gaps.
    """
    if name == "__setitem__":
        where, *args = args[1:]
        if tensors_of([where]):
            return False
        written = written[where]
    start, end, _ = whole = span(written)
    spans = [span(read) for read in tensors_of((args, kwargs))
             if storage_of(read) == storage_of(written) and dense(read)]
    return dense(written) and any(
        start < last and first < end and whole != (first, last, stride)
        for first, last, stride in spans)


def span(tensor: torch.Tensor) -> tuple:
    """Where a tensor without gaps lies in memory, in bytes; its strides."""
    start, width = tensor.storage_offset(), tensor.itemsize
    return (start * width, (start + tensor.numel()) * width,
            tensor.stride())


def keep(recorder: RecordingMode, tensor: torch.Tensor, size,
         stride) -> None:
    """Give `tensor` the strides it had; an empty `out=` may grow."""
    value = unwrapped(tensor)
    if value.size() != size and size.numel():
        raise BackendError("out= has another shape than the result")
    if value.size() != size or value.stride() == stride:
        return
    with functional(False):
        kept = recorder.restride(value, stride)
    torch._functionalize_replace(tensor, kept)
    torch._functionalize_commit_update(tensor)
    if unwrapped(tensor).stride() != stride:
        raise BackendError("a write cannot keep the strides of a view")


def shared_results(recorder: RecordingMode, outputs, inputs: list[Input],
                   tracked: list[Input]
                   ) -> tuple[fx.GraphModule, list]:
    """The graph that makes the results, and the tensors to compute."""
    homes = {storage_of(each.given): (each.position, each.given)
             for each in inputs if isinstance(each.given, torch.Tensor)}
    sharing: dict[int, list] = {}
    for output in tensors_of(outputs):
        torch._sync(output)
        sharing.setdefault(storage_of(output), []).append(output)

    fresh = [each.given for each in tracked]
    for memory, group in sharing.items():
        if memory not in homes:
            base = group[0]
            if any(each is not base for each in group) or (
                    base._is_view() and creation_of(base) == MULTIPLE):
                base = min(map(base_of, group), key=lambda each: len(
                    views(recorder, each)))
            homes[memory] = len(inputs) + len(fresh), base
            fresh.append(base)
    require_history([*fresh, *tensors_of(outputs)], inputs)
    graph = fx.Graph()
    numbers = Numbers(graph)
    for each in inputs:
        numbers.given(graph.node_copy(each.node))
    values = [*graph.nodes, *(graph.placeholder(f"fresh_{k + 1}")
                              for k in range(len(fresh)))]
    graph.call_function(torch._C._set_grad_enabled, (True,))
    for each, new in zip(tracked, values[len(inputs):]):
        graph.call_function(WRITE, (values[each.position], new))
    graph.call_function(torch._C._set_grad_enabled, (recorder.grad_mode,))
    made: dict[int, object] = {}  # by id of the result
    for output in outputs:
        if isinstance(output, SYMBOLIC):
            made[id(output)] = numbers.written(output)
        elif not isinstance(output, torch.Tensor):
            made[id(output)] = output
        elif id(output) not in made:
            of, base = homes[storage_of(output)]
            made[id(output)] = values[of] if output is base else view_of(
                recorder, output, base, values[of], numbers)
    graph.output(tuple(made[id(output)] for output in outputs))
    return fx.GraphModule({}, graph), fresh


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that autograd knows this one as a view of, or itself."""
    return tensor if tensor._base is None else tensor._base


def views(recorder: RecordingMode, tensor: torch.Tensor) -> list[fx.Node]:
    """The node of a tensor, and what it is a view of."""
    return lineage(recorder.nodes[unwrapped(tensor)])


def view_of(recorder: RecordingMode, output: torch.Tensor,
            base: torch.Tensor, at: fx.Node, numbers: Numbers) -> fx.Node:
    """A node that makes `output` in the memory of `base`.

    That is at `at`. The steps are those of the recording, so that autograd
    sees the views that it sees in eager.
    """
    steps, first = views(recorder, output), views(recorder, base)[0]
    if first not in steps:
        raise BackendError("two results share memory, and neither is a "
                           "view of the other")
    if output.grad_fn is not None and not leads_to(output, base):
        raise BackendError("a result is a view, and its gradient does not "
                           "reach what it is a view of")
    steps = steps[steps.index(first)::-1]
    graph, mode = numbers.graph, recorder.grad_mode
    wanted = output.grad_fn is not None if output.requires_grad else mode
    if wanted is not mode:
        graph.call_function(torch._C._set_grad_enabled, (wanted,))
    made = {first: at}
    for step in steps[1:]:
        made[step] = at = graph.node_copy(step, lambda node: made[node] if (
            node in made) else numbers.written(value(node)))
    if base_of(output) is not base_of(base):  # last, so it is no view
        at = graph.call_function(torch.detach, (at,))
    elif len(steps) == 1:
        at = graph.call_function(aten.alias.default, (at,))
    if wanted is not mode:
        graph.call_function(torch._C._set_grad_enabled, (mode,))
    return at


def leads_to(output: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether the gradient of the view `output` flows to `base`.

    It does not through a view that was made under no_grad, and a user's
    Function gives another gradient.
    """
    step = output.grad_fn
    while step is not None:
        if step is base.grad_fn or getattr(step, "variable", 0) is base:
            return True
        if isinstance(step, torch.autograd.function.BackwardCFunction):
            return False
        step = step.next_functions[0][0] if step.next_functions else None
    return False


def require_history(made: list[torch.Tensor], inputs: list[Input]) -> None:
    """Raise if a tensor's gradient does not come from the inputs."""
    given = {id(each.given) for each in inputs if each.wants_gradient}
    if any(each.requires_grad and given.isdisjoint(
            (id(each), id(each._base))) and not (given and each.grad_fn)
           for each in made):
        raise BackendError("a result is a leaf that requires grad, is made "
                           "of one, or is a view made under no_grad")


WRITES.append(write)
RESULTS.append(shared_results)
