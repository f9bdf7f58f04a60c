"""A graph that was compiled before, perhaps by another process.

In: a traced graph and its inputs. Out: a CompiledGraph, from an entry of
the disk's cache if there is one. The name of an entry is the hash of all
that the stages after the trace read: the graph's text, facts about each
input, switches, options, versions, the machine. An entry is plain data:
FACTS, what a replay has to know, and the texts of programs, which run only
if the hash at its end is that of the whole. If sizes vary, it has the facts
about them that the stages relied on, and they are guarded again. A graph
that no text can say is compiled in each process. Without this file all are.
PyTorch's is torch/_inductor/codecache.py:FxGraphCache.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import extract_tensor_metadata
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.graph import _custom_builtins
from torch.utils._pytree import tree_leaves
from torch.utils._sympy import functions

from ...core import log
from ...core.cache import key_of
from ...core.disk.entries import find, keep_entry
from ...core.guard import IMMUTABLE, ORDINARY
from ...core.machines.cost import machine, name_of
from ...core.options import Options
from ...core.sizes import SYMBOLIC, hint
from ...core.state import global_state, kept, settings
from ...core.torch.options import asked
from ...core.torch.symbols import sizes_of
from ...emit.cpp import processor
from ...emit.program import load_program
from ...pipeline import LOWER, CompiledGraph, backward_from, lower_ours
from ...replay import GRAPHED
from ...split.runtime import FACTS, make_runtime

#: The classes of arguments that a graph's text says.
SAYABLE = IMMUTABLE | {fx.Node, slice}

#: The questions about PyTorch's backends, such as mkldnn's and attention's.
BACKENDS_ASKED = [name for name in dir(torch._C) if re.fullmatch(
    r"_get_\w+_(enabled|order|precision)", name)]

#: The packages whose files no user replaces.
KNOWN = {*sys.stdlib_module_names, "minicompile", "torch", "torchgen",
         "numpy", "sympy", "triton", "rich"}

#: The stages after the trace; names in their modules that change nothing
#: of what they make.
STAGES = tuple(f"minicompile.{stage}" for stage in (
    "core", "split", "budget", "fusion", "emit", "replay", "pipeline"))
UNREAD_NAMES = ("BACKENDS", "BEGINS", "__builtins__")


def graph_text(graph: fx.GraphModule) -> str | None:
    """The graph as a Python function of PyTorch's operators; None if it
    calls or holds something else."""
    leaves: list = []
    for node in graph.graph.nodes:
        if node.op in ("get_attr", "call_module") or getattr(
                node.meta.get("example_value"),  # Dynamo's
                "_has_symbolic_sizes_strides", False):
            return None
        fx.node.map_aggregate((node.args, node.kwargs), leaves.append)
    code = graph.graph.python_code("self")
    says = {*map(type, leaves)} <= SAYABLE and (
        code.globals.keys() <= _custom_builtins.keys())
    spaces = {*re.findall(r"torch\.ops\.(\w+)", code.src)}
    return code.src if says and spaces <= {"aten", "prims"} else None


def facts_of(inputs: Sequence) -> list | None:
    """All that is known of the inputs, but their elements; None if they
    are more than tensors, and sizes or numbers that vary."""
    tensors = [each for each in inputs if type(each) not in SYMBOLIC]
    env = sizes_of(inputs)
    if any(type(each) not in ORDINARY
           or each._has_symbolic_sizes_strides and not env
           for each in tensors):
        return None
    memory = [*map(torch._C._storage_id, tensors)]
    return [*((extract_tensor_metadata(each), each.is_leaf, each._is_view(),
               memory.index(place), name_of(each.device),
               machine(each.device))
              for each, place in zip(tensors, memory)),
            [hint(each) if type(each) in SYMBOLIC else ""
             for each in inputs], learnt(env)]


def learnt(env: ShapeEnv | None) -> tuple[list[str], list[str]]:
    """The facts about sizes that vary, in the order they were learnt; and
    the range and value of each size, and what stands for it."""
    if env is None:
        return [], []
    return [sympy.srepr(guard.expr) for guard in env.guards], sorted(
        f"{symbol} in [{reach.lower}, {reach.upper}] is "
        f"{env.backed_var_to_val.get(symbol)} or "
        f"{env.replacements.get(symbol)}"
        for symbol, reach in env.var_to_range.items())


@cache
def versions() -> str:
    """The hash of our own files, with the versions of all else."""
    package, triton = Path(__file__).parents[2], ""
    with suppress(metadata.PackageNotFoundError):
        triton = metadata.version("triton")
    return key_of(sys.version, torch.__version__, triton, processor(), *(
        f"{path.relative_to(package)}\0{path.read_text('utf-8')}"
        for path in sorted(package.rglob("*.py"))))


def ours_alone() -> bool:
    """Whether no function of the stages, or row of a table, is a user's,
    which no hash would cover."""
    homes = {getattr(each, "__module__", None)
             for name, module in [*sys.modules.items()]
             if name.startswith(STAGES)
             for each in tree_leaves([value for key, value in [
                 *vars(module).items()] if key not in UNREAD_NAMES])}
    return {f"{home or 'torch'}".split(".")[0] for home in homes} <= KNOWN


def name_of_entry(graph: fx.GraphModule, inputs: Sequence, depth: str,
                  options: Options) -> str | None:
    """The name of the graph's entry; None if it is to have none."""
    if depth != "fused" or options.trace_enabled or asked():
        return None
    text, known = graph_text(graph), facts_of(inputs)
    if text is None or known is None or not ours_alone():
        return None
    regions = [node.meta.get("recompute") for node in graph.graph.nodes]
    state = [global_state(), sorted(
        f"{turn.__name__}{how}" for turn, *how in settings()),
             [getattr(torch._C, name)() for name in BACKENDS_ASKED],
             os.environ.get("TRITON_INTERPRET")]
    return key_of(versions(), text, *map(repr, (
        regions, known, options, state))) + ".json"


class Warm(SimpleNamespace):
    """A compiled graph that was found. Its stages run `again` when someone
    asks what they made."""

    fallback = ""

    def __getattr__(self, name: str):
        return getattr(self.again(), name)


def written(made: CompiledGraph, env: ShapeEnv | None) -> bytes | None:
    """A compiled graph as an entry; None if it holds what no text says."""
    if not made.programs or any(
            program.text.given for program in made.programs.values()):
        return None
    shared = made.joint.results
    results = graph_text(shared) if shared else ""
    return None if results is None else json.dumps({
        "kernels": made.kernels, "results": results,
        "learnt": learnt(env),
        "tapes": made.graphed and made.graphed.tapes,
        "programs": {name: program.source for name, program
                     in made.programs.items()},
        "facts": repr({name: find(made.joint, made.pair)
                       for name, find in FACTS.items()})}).encode()


def read_entry(content: bytes, graph: fx.GraphModule, inputs: Sequence,
               options: Options,
               again: Callable[[], CompiledGraph]) -> Warm:
    """The compiled graph of an entry that is sound. The facts that its
    stages learnt about sizes are guarded."""
    held, notes, results = json.loads(content), Counter(), None
    graphed, env = None, sizes_of(inputs)
    guards, ranges = held["learnt"]
    names = {**vars(sympy), **vars(functions)}
    if not all([env.evaluate_expr(eval(text, names)) for text in guards]
               ) or learnt(env)[1] != ranges:
        raise ValueError("other facts about sizes")
    facts = SimpleNamespace(**eval(
        held["facts"], {"torch": torch, "device": torch.device}))
    runs = {name: load_program(source, {})[1]
            for name, source in held["programs"].items()}
    if held["tapes"] is not None:
        graphed = GRAPHED[-1](
            {name: SimpleNamespace(run=run) for name, run in runs.items()},
            inputs, facts.forward_outputs, facts.mutated,
            tapes=held["tapes"])
        runs = {name: getattr(graphed, name) for name in runs}
    if held["results"]:
        names = {name: each.obj for name, each in _custom_builtins.items()}
        exec(held["results"], names)
        results = SimpleNamespace(forward=partial(names["forward"], None))
    call = make_runtime(
        SimpleNamespace(source=graph, results=results), None, **runs,
        notes=notes, facts=facts, others=partial(
            backward_from, lambda: again().joint, facts.saved, options,
            graphed))
    return Warm(call=call, notes=notes, kernels=held["kernels"],
                graphed=graphed, again=again)


def looked_up(graph: fx.GraphModule, inputs: Sequence, depth: str,
              options: Options) -> CompiledGraph:
    """The graph of an entry, or else the stages' own, which is kept."""
    name = name_of_entry(graph, inputs, depth, options)
    if name is None:
        return lower_ours(graph, inputs, depth, options)
    before, inference = settings(), torch.is_inference_mode_enabled()

    @cache
    def again() -> CompiledGraph:
        with torch.inference_mode(inference), kept(before):
            return lower_ours(graph, inputs, depth, options)

    try:
        if content := find(name):
            return read_entry(content, graph, inputs, options, again)
    except Exception as error:
        log.show("perf_hints", f"{name} is of no use: {error}")
    made = lower_ours(graph, inputs, depth, options)
    if content := written(made, sizes_of(inputs)):
        keep_entry(name, lambda: content, True)
    return made


LOWER.append(looked_up)
