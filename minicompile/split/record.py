"""From a torch-level graph to the joint graph of forward and backward.

In: the graph of chapter 1 and its fake inputs. Out: a `Joint`. The idea:
autograd is not re-derived, it is *recorded*. The recorder is on while the
graph runs forward, and still on while `torch.autograd.grad` runs backward.
Between autograd and the recorder sits PyTorch's functionalisation, which
turns writes into values. PyTorch does the same in
torch/_functorch/_aot_autograd/graph_capture.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..core.errors import BackendError, Where, brief, where_of
from ..core.graph import tensors_of
from ..core.sizes import python_forms
from ..core.state import kept
from .aliases import InPlaceWrites, Input, describe_results
from .joint import Joint, finish, without_dead
from .recorder import RecordingMode, recording, unwrapped

#: How a call is recorded that cannot run on functional tensors, such as a
#: choice of two graphs.
CALLS: dict[Callable, Callable] = {}
#: What records other calls in place of a node's; it gives their result, or
#: None if it has nothing better.
INSTEAD: list[Callable[[Player, fx.Node], torch.Tensor | None]] = []
#: What gives a better form of a joint graph, and leaves it alone.
PASSES: list[Callable[[fx.Graph, FakeTensorMode], fx.Graph]] = []


def record(graph: fx.GraphModule, example_inputs, seeded: bool = False,
           whole: bool = False) -> Joint:
    """The joint forward and backward graph of a torch-level graph.

    `example_inputs`: fake or real tensors, or numbers, one for each
    placeholder; more are inputs of the joint graph alone. Symbolic sizes
    are those of fake tensors. `seeded`: random numbers are computed from a
    seed. `whole`: every floating result has a tangent, and no gradient is
    None. Raises BackendError with a reason if the graph cannot be
    expressed so.
    """
    examples = list(example_inputs)
    modes = [each.fake_mode for each in examples
             if isinstance(each, FakeTensor)]
    recorder = RecordingMode(
        modes[0] if modes else detect_fake_mode(examples)
        or FakeTensorMode(), seeded)
    with torch.enable_grad():
        inputs = [Input(recorder, example, position)
                  for position, example in enumerate(examples)]
    with unchanged_state(), recording(recorder):
        with InPlaceWrites(recorder):
            outputs = Player(graph, recorder).run(
                *(each.given for each in inputs))
        if not isinstance(outputs, (tuple, list)):
            outputs = outputs,
        written = [each for each in inputs if each.written]
        with refusing("what the results are"):
            tracked = [each for each in written if each.tracked]
            results, fresh = describe_results(recorder, outputs, inputs,
                                              tracked)
        written = [each for each in written if each not in tracked]
        ends = fresh + [each.given for each in written]
        values = [*map(unwrapped, ends)]
    leaves = [each for each in inputs if each.wants_gradient]
    tangents = [k for k, end in enumerate(fresh)
                if leaves and (end.grad_fn is not None or whole and (
                    end.is_floating_point() or end.is_complex()))]
    gradients = differentiate(recorder, [ends[k] for k in tangents], leaves,
                              whole) if tangents else []
    recorder.graph.output(tuple(recorder.argument([*values, *gradients])))
    joint = without_dead(recorder.graph)
    with (unchanged_state(), torch.no_grad(),
          torch._C._DisableAutocast(), python_forms(recorder.sizes)):
        for improved in PASSES:
            joint = improved(joint, recorder.fake_mode)
    mutated = tuple(each.position for each in written)
    unseen = tuple(each.position for each in written
                   if each.given._version == each.version)
    finish(joint, mutated, len(fresh))
    return Joint(
        _LazyGraphModule(recorder.constants, joint, "Joint"), graph,
        len(fresh), results, mutated,
        tuple(each.position for each in tracked),
        tuple(tangents),
        tuple(each.position for each in leaves) if tangents else (),
        unseen=unseen)


def differentiate(recorder: RecordingMode, ends: list, leaves: list,
                  whole: bool) -> list:
    """The gradients of `leaves`, recorded.

    Where there is none it is None, or zeros if it is to be `whole`.
    """
    tangents = [torch._to_functional_tensor(recorder.tangent(
        unwrapped(end), position)) for position, end in enumerate(ends)]
    flows = [(end, tangent) for end, tangent in zip(ends, tangents)
             if end.grad_fn is not None]
    with (unchanged_state(), recording(recorder),
          torch._C._DisableAutocast(), refusing("the backward")):
        return [*map(unwrapped, torch.autograd.grad(
            [end for end, _ in flows], [each.leaf for each in leaves],
            [tangent for _, tangent in flows], allow_unused=True,
            materialize_grads=whole))]


class Player(fx.Interpreter):
    """Plays a torch-level graph on functional tensors, line by line."""

    def __init__(self, graph: fx.GraphModule, recorder: RecordingMode):
        super().__init__(graph, garbage_collect_values=False)
        self.recorder, self.extra_traceback = recorder, False

    def run_node(self, node: fx.Node):
        """The value of a node, recorded as its line's."""
        line = where_of(node)
        self.recorder.enter(node.name, line, node.meta.get("recompute"))
        with refusing(node.name, line):
            for other in INSTEAD:
                if (made := other(self, node)) is not None:
                    return made
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            return getattr(self, node.op)(node.target, args, kwargs)

    def call_function(self, target, args, kwargs):
        """The result of a call; it has a backward if it needs one."""
        if target in CALLS:
            return CALLS[target](self.recorder, *args, **kwargs)
        made = super().call_function(target, args, kwargs)
        require_backward(target, args)
        if isinstance(made, FakeTensor):  # its arguments are all numbers
            return torch._to_functional_tensor(made)
        return made

    def get_attr(self, target, args, kwargs):
        """A graph that the graph holds; what else it needs is an input."""
        held = super().get_attr(target, args, kwargs)
        if not isinstance(held, fx.GraphModule):
            raise BackendError(f"the graph holds {target}, which should be "
                               "an input")
        return held


def require_backward(op: object, args: tuple) -> None:
    """Raise if an operator of the user's has no backward of its own.

    Eager may find one inside of it, where a fake kernel shows none.
    """
    packet = getattr(op, "overloadpacket", op)
    name = getattr(packet, "_qualified_op_name", "aten::")
    if name.startswith(("aten::", "prims::", "minicompile::")) or not any(
            given.requires_grad for given in tensors_of(args)):
        return
    if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
               for key in ("Autograd", "AutogradCPU", "AutogradCUDA",
                           "CompositeImplicitAutograd")):
        raise BackendError(f"{name} has no backward; give it one with "
                           "torch.library.register_autograd")


@contextmanager
def refusing(what: str, line: Where | None = None):
    """Any exception inside becomes a BackendError that names `what`."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        place = f" at {line}" if line else ""
        raise BackendError(f"recording {what}{place} failed: "
                           f"{brief(error)}") from error


@contextmanager
def unchanged_state():
    """Torch's switches are put back, whatever the graph sets them to.

    Inference mode is off, because it would hide what is written; and the
    detection of anomalies, which looks for NaN in each gradient.
    """
    grad = torch.is_grad_enabled()
    with (kept(), torch.inference_mode(False), torch.set_grad_enabled(grad),
          torch.autograd.set_detect_anomaly(False),
          torch.autograd.set_multithreading_enabled(False)):
        torch.set_autocast_cache_enabled(False)
        yield
