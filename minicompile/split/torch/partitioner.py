"""Our partition inside PyTorch's compilers, as the partitioner of theirs.

In: a joint graph of AOTAutograd. Out: its two halves, in the order that
PyTorch expects: saved inputs are returned too, and sizes go last. Without
this file `minicompile.partition` raises. PyTorch's is
min_cut_rematerialization_partition in torch/_functorch/partitioners.py.
"""

from collections.abc import Callable, Sequence, Set

from torch import fx

from ...core.graph import is_number, placeholders, results
from ...core.options import Options
from ..joint import CHOOSE, WRITE, Joint, halves, kept_nodes


def partition(
        joint_module: fx.GraphModule, joint_inputs: Sequence, *,
        num_fwd_outputs: int, activation_memory_budget: float = 1.0,
        memory: object = None,
        choose: Callable[[Joint], Set[str]] | None = None,
        **ignored: object) -> tuple[fx.GraphModule, fx.GraphModule]:
    """(forward, backward) of a joint graph of AOTAutograd.

    `activation_memory_budget` and `memory` are as in compile's options;
    an OptionError says if one is wrong or cannot be met. Or else `choose`
    names the values to save. The arguments that PyTorch passes besides
    (`compiler`, `static_lifetime_input_indices`) change nothing.
    """
    options = Options(activation_memory_budget, memory)
    joint = joint_of(joint_module, num_fwd_outputs)
    saved = choose(joint) if choose else CHOOSE[-1](joint, options)
    kept = kept_nodes(joint, saved | {
        node.name for node in joint.primals if is_number(node)})
    sizes = [node for node in kept if is_number(node)]
    kept = [node for node in kept if not is_number(node)]
    forward, backward = halves(
        joint, [*sizes, *kept], [*joint.outputs, *kept, *sizes],
        joint.tangents)
    for half in (forward, backward):
        returned = half.graph.output_node()
        returned.meta.setdefault("desc", [None] * len(results(half.graph)))
        half.recompile()
    return forward, backward


def joint_of(module: fx.GraphModule, forward_outputs: int) -> Joint:
    """A joint graph of AOTAutograd as one of ours."""
    inputs = [node for node in placeholders(module.graph)
              if not node.name.startswith("tangents_")]
    written = [node.args[0] for node in module.graph.nodes
               if node.target is WRITE]
    return Joint(module, module, forward_outputs, None, tuple(
        inputs.index(node) for node in written if node in inputs), (),
        tuple(range(len(placeholders(module.graph)) - len(inputs))),
        tuple(range(len(inputs))))
