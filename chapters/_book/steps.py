"""A trace, step by step: each instruction, and what became of it.

In: a function and the values of its parameters. Out: a list of steps that
prints itself as a table. A step has the instruction, the stack after it,
and the graph nodes and guards that it added.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
from types import FunctionType

import torch

from minicompile.core.graph import value
from minicompile.guards.explain.reasons import describe
from minicompile.core.guard import CONSTANTS
from minicompile.trace import History, traced_by
from minicompile.trace.frame import Null
from minicompile.trace.tracer import Tracer


@dataclass
class TracedStep:
    """One instruction that was run, `depth` frames deep."""

    depth: int
    line: int
    opcode: str
    argument: str
    stack: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.line:4} {'  ' * (self.depth - 1)}{self.opcode}"
        added = [f"     + {node}" for node in self.nodes] + [
            f"     ? {guard}" for guard in self.guards]
        return "\n".join([f"{name:<26} {self.argument:<14} "
                          f"| {', '.join(self.stack)}".rstrip(),
                          *(f"{each:.72}" for each in added)])


class Steps(list[TracedStep]):
    """The steps of a trace, in order; `str()` is a table.

    Nodes of the graph stand behind a `+`, guards behind a `?`.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def steps(function: FunctionType, *locals: object) -> Steps:
    """The steps of one trace, given the values of all parameters.

    Raises Unsupported, as the trace does, if it cannot be one graph.
    """
    watching = Watching(function, History())
    traced_by(watching, locals)
    watching.finish()
    return watching.steps


class Watching(Tracer):
    """A tracer that notes what each instruction leaves."""

    def __init__(self, function: FunctionType, history: History):
        super().__init__(function, history)
        self.steps = Steps([TracedStep(
            1, function.__code__.co_firstlineno, "(arguments)", "")])
        self.nodes, self.guards = 0, 0

    def tick(self) -> int:
        """Finish the step before, and begin one."""
        self.finish()
        self.frame = self.frames[-1]
        step = self.frame.current()
        self.steps.append(TracedStep(
            len(self.frames), step.line, step.name,
            "" if step.argument is None else worded(step.argument)))
        return super().tick()

    def finish(self) -> None:
        """Note what the last step left: its stack, nodes and guards."""
        nodes = [node for node in self.recorder.graph.nodes
                 if node.op not in ("placeholder", "output")]
        guards = list(self.outside.guards.values())
        last = self.steps[-1]
        last.stack = tuple(map(worded, self.frame.stack)) if (
            len(self.steps) > 1) else ()
        last.nodes = tuple(f"{node} {describe(value(node))}"
                           for node in nodes[self.nodes:])
        last.guards = tuple(map(str, guards[self.guards:]))
        self.nodes, self.guards = len(nodes), len(guards)


def worded(given: object) -> str:
    """A value of the traced program, in a word or two."""
    match given:
        case torch.Tensor():
            return describe(given)
        case Null():
            return "NULL"
        case tuple():
            return f"({', '.join(map(worded, given))})"
    if type(given) in CONSTANTS:
        return shorten(str(given), 24, placeholder="…")
    return getattr(given, "__name__", None) or type(given).__name__
