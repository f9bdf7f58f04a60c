"""Checks that a graph makes, and doubts that its trace settles at its end.

In: an `assert` of a tensor or an `if` of one that only raises, a check of
all elements, or `requires_grad` of a tensor made here. Out: an operator
that raises in the graph, or a leaf among the stand-ins. Whether that is as
in eager depends on what comes after it, so the end of the trace decides; if
it is not, the graph breaks here. Where a graph raised, Python makes the
call again, so the exception is eager's. A GPU would stop for good, as it
does at a wrong index: there only the check of all elements is in a graph.
PyTorch's, without such a second look, is
torch/_dynamo/symbolic_convert.py:generic_jump.
"""

from collections.abc import Callable

import torch

from ...core.graph import FAILED, tensors_of
from ...core.guard import is_a
from ..frame import TRUTH
from ..python.effects import later
from ..python.graph_breaks import in_force
from ..reasons import WAYS, unsupported
from ..recorder import storage
from ..rules import means, rule, tensor_method
from ..tracer import begin


def doubt(tracer, is_wrong: Callable, *reason) -> None:
    """Break here if `is_wrong(tracer, outputs)` at the trace's end."""
    stop = later(tracer, *reason)
    tracer.checks.append(lambda rebuild: is_wrong(
        tracer, rebuild.outputs) and stop())


# Checks


def writes(tracer, outputs) -> bool:
    """Whether inputs are written, so that no call can be made again."""
    given = [node.meta["val"] for node, _ in tracer.recorder.placed]
    return not tracer.recorder.written.keys().isdisjoint(
        map(storage, tensors_of(given)))


def checked(tracer, condition: torch.Tensor, *reason) -> bool:
    """Whether the graph checks it: nothing here may catch the error."""
    if any(map(in_force, tracer.frames)):
        return False
    doubt(tracer, writes, "data-dependent", *reason)
    tracer.recorder.function(torch._assert_async, (
        condition, f"{FAILED}of a tensor's values"), {})
    return True


@rule(torch._check_tensor_all)
def check_all(tracer, condition, message=None):
    """The check of all elements, if it has no text of its own."""
    if message is None and is_a(condition, torch.Tensor) and (
            condition.dtype is torch.bool) and checked(
            tracer, tracer.recorder.method("all", (condition,), {}),
            "torch._check_tensor_all"):
        return None
    return begin(tracer, torch._check_tensor_all, (condition, message), {})


def fails(frame, at: int) -> bool:
    """Whether the code from here on raises: nothing branches or catches."""
    program = frame.program
    last = next(each for each in program.instructions[at:] if any(
        word in each.name for word in ENDS))
    return last.name == "RAISE_VARARGS" and (
        program.handler(last.offset) is None)


#: Words in the names of instructions behind which code goes on elsewhere.
ENDS = ("JUMP", "RETURN", "RAISE", "FOR_ITER", "SEND", "YIELD")


def needed(frame, at: int) -> bool | None:
    """The truth without which the jump `at` ends in an exception."""
    step = frame.program.instructions[at]
    when, stays = TRUTH.get(step.name, (None, True))
    ways = {} if stays else {not when: at + 1, when: step.argument}
    return next((not truth for truth, to in ways.items()
                 if fails(frame, to)), None)


def asserted(tracer, value: torch.Tensor) -> bool:
    """The truth that a jump asks of a tensor: the one that it must have,
    if the graph can check that."""
    frame, what = tracer.frames[-1], "the truth of a tensor"
    truth = None if value.dim() or value.device.type != "cpu" else needed(
        frame, frame.next - (frame.current().name != "TO_BOOL"))
    if truth is not None:
        condition = value if truth else tracer.recorder.method(
            "logical_not", (value,), {})
        if checked(tracer, condition, what):
            return truth
    raise unsupported("data-dependent", what)


WAYS["truth"] = asserted


# Leaves


def unfed(tracer, outputs) -> bool:
    """Whether something leaves that requires a gradient of no input's."""
    fed: set = set()
    for node in tracer.recorder.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and is_a(value, torch.Tensor):
            needs = tracer.outside.real(value).requires_grad
            if needs is not value.requires_grad:
                return True
        else:
            needs = not fed.isdisjoint(node.all_input_nodes) and any(
                not each.is_leaf for each in tensors_of(value))
        fed |= {node} if needs else set()
    return any(each.requires_grad and tracer.recorder.node(each) not in fed
               for each in outputs)


@rule(torch.Tensor.requires_grad_)
def require_gradient(tracer, tensor, requires_grad=True):
    """A leaf made here: its gradient is lost, unless the leaf gets out."""
    if tensor.requires_grad is bool(requires_grad):
        return tensor
    if tensor.requires_grad or tracer.inference or (
            tracer.outside.source(tensor) is not None):
        return tensor_method(tracer, "requires_grad_", (tensor,), {})
    doubt(tracer, unfed, "gradient", "Tensor.requires_grad_")
    return tracer.native(torch.Tensor.requires_grad_, (tensor,))


# Questions to autograd

#: What asks about gradients, and the place of the tensors it asks about.
ASKS = {torch.Tensor.register_hook: 0, torch.Tensor.retain_grad: 0,
        torch.Tensor.backward: 4, torch.autograd.backward: 5,
        torch.autograd.grad: 1}
#: So many instructions behind one that made a tensor may end its graph.
BEHIND = 8


def ask_autograd(tracer, function, *args, **kwargs):
    """A graph break, behind what made the tensors that it is about.

    Autograd sees no step inside a graph. So what is made of these tensors
    belongs to another.
    """
    error = unsupported("gradient", f"{function.__name__} of a tensor")
    about = tensors_of(kwargs.get("inputs", args[ASKS[function]:][:1]))
    made = [node.meta["moment"] for node in map(
        tracer.recorder.node, about) if node.op != "placeholder"
        and node.users and not node.meta["val"].is_leaf]
    if made:
        error.stops = [min(made) + 1 + k for k in range(BEHIND)]
    raise error


means(ask_autograd, *ASKS)
