"""The values to save within a budget, and backwards of other results.

In: a joint graph. Out: the values to save within the user's bounds, each
plan scored by both its halves, fused; and a compiled backward from other
results than the likely ones, when their tangents come. Without this file
no budget bounds a plan, and such a backward runs operator by operator.
PyTorch's is torch/_functorch/partitioners.py; there the backward is always
that of all results.
"""

from functools import partial

from ... import fusion
from ...budget.memory.bound import choose
from ...core import log
from ...core.errors import brief
from ...core.graph import Boxed, boxed, value
from ...core.options import HINTS, Options
from ...core.schedule import Schedule
from ...core.torch.symbols import sizes_of
from ...pipeline import BACKWARDS, program_of
from ...split import CHOOSE, Joint, Pair, partition
from ...split.prices.min_cut import cut


def saved_within(joint: Joint, options: Options) -> frozenset[str]:
    """The names of the values to save within the budget."""
    return choose(joint, options.activation_memory_budget, cut=cut,
                  bound=options.memory, fused=partial(fused_halves, joint))


def fused_halves(joint: Joint, saved: frozenset[str]
                 ) -> dict[str, Schedule]:
    """The schedules of both halves if these values are saved, which are
    compiled if this plan is chosen."""
    pair = joint.plans[saved] = partition(joint, saved, joint.likely)
    for half in pair.halves().values():
        half.meta["fused"] = fusion.fuse(half, pair.donated)
    return {name: half.meta["fused"] for name, half
            in pair.halves().items()}


def compiled_backward(pair: Pair, joint: Joint, options: Options,
                      graphed: object) -> Boxed:
    """The backward of the pair as kernels, unless one fails, or relies on
    facts about sizes that no guard holds. It is graphed if the forward is.
    """
    env = sizes_of(map(value, joint.primals))
    known = env and len(env.guards)
    try:
        _, program = program_of(pair.backward, options, pair.donated)
        if (env and len(env.guards)) == known:
            run = program.ready().run
            return graphed.another(
                program, options.replay_check) if graphed else run
    except Exception as failed:
        log.warn_once(f"minicompile does not fuse: {brief(failed)}")
    finally:
        log.enter("")
    return boxed(pair.backward)


CHOOSE.append(saved_within)
BACKWARDS.append(compiled_backward)
for name in "memory", "activation_memory_budget":
    HINTS.pop(name)  # it has an effect
