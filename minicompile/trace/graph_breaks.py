"""A graph break: what Python does between two graphs, and what goes on.

In: the frames of a trace that stopped before an instruction. Out: the
text of `finish`, which performs that instruction on real values and
calls the continuation with what the frames hold. Frames that wait
become one function, so what is left of a call is one graph. PyTorch's is
torch/_dynamo/symbolic_convert.py:break_graph_if_unsupported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FunctionType

from .bytecode import NULL_ABOVE, live
from .frame import OPCODES, NO_ROW, Frame, is_direct
from .opcodes import TRUTH
from .reasons import unsupported
from .reconstruct import Rebuild
from .resume import EMPTY, VALUE, going_on, made_once, placed, single
from .interpreter_objects import Handled


def waiting(error: BaseException) -> list[Frame]:
    """The frames, outermost first, that can be left waiting.

    The exception came through them. The list ends where something other
    than a plain call stands between two of them.
    """
    frames, direct = [], True
    here = error.__traceback__
    while here is not None:
        code, names = here.tb_frame.f_code, here.tb_frame.f_locals
        if code is Frame.run.__code__:
            if not frames or names["self"] is not frames[-1]:
                if frames and not direct or _standard(names["self"]):
                    break
                frames.append(names["self"])
            direct = True
        elif not is_direct(code):
            direct = False
        here = here.tb_next
    return frames


def _standard(frame: Frame) -> bool:
    """Whether a frame belongs to the standard library: one step to us."""
    root = str(frame.globals.get("__name__")).partition(".")[0]
    return root in sys.stdlib_module_names - {"__main__"}


@dataclass(frozen=True)
class Continuation:
    """The rest of a call: a function of what was there at the break."""

    function: FunctionType


@dataclass(frozen=True)
class Link:
    """How one frame goes on: a function, and the values it takes.

    `function` also takes what the break, or the frame called, returns,
    and if it `catches`, an exception or None.
    """

    function: FunctionType
    catches: bool
    values: tuple[str, ...]


_END = object()


def ending(tracer, result) -> tuple[Rebuild, str]:
    """`finish` at the end of a call: effects and result, and its text."""
    rebuild = Rebuild(tracer)
    returned = rebuild.value(result)
    body = [*rebuild.writes(), *switched(rebuild)]
    if body:
        returned = rebuild.hold(returned)
    return rebuild, rebuild.function([*body, f"return {returned}"])


def breaking(tracer, frames) -> tuple[Rebuild, str]:
    """`finish` where the trace of some frames stopped, and its text."""
    at = Break(tracer, frames[-1])
    operation, ways = at.operation()
    links = [(at.link(at.frame, *way), way[2].count(VALUE))
             for way in ways]
    outer = [link for frame in reversed(frames[:-1])
             for link in at.links(frame)]
    body = [*at.rebuild.writes(), *switched(at.rebuild)]
    return at.rebuild, at.rebuild.function(
        [*body, *at.tail(operation, links, outer)])


class Break:
    """The statements that leave one instruction to Python."""

    def __init__(self, tracer, frame: Frame):
        self.tracer, self.frame = tracer, frame
        self.step = frame.current()
        self.rebuild = Rebuild(tracer)
        self.local, self.name = self.rebuild.local, self.rebuild.known

    # The operation

    def operation(self) -> tuple[str, list[tuple]]:
        """An expression, and the one or two ways to go on after it.

        A way is an offset, the stack there, and what comes on top of it.
        """
        step, program, stack = self.step, self.frame.program, [
            *self.frame.stack]
        below, behind = stack[:-1], program.bounds(step.offset)[1]
        jump = (program.instructions[self.frame.next]
                if step.name == "TO_BOOL" else step)
        if jump.name in TRUTH:
            when, stays = TRUTH[jump.name]
            target = program.instructions[jump.argument].offset
            ways = [(program.bounds(target)[0], stack if stays else below,
                     []), (program.bounds(jump.offset)[1], below, [])]
            return (f"{self.name(bool)}({self.local(stack[-1])})",
                    ways if when else ways[::-1])
        if step.name == "FOR_ITER":
            ends = program.instructions[step.argument].offset
            return (f"{self.name(next)}({self.local(stack[-1])}, "
                    f"{self.end()})", [
                        (behind, stack, [VALUE]),
                        (program.bounds(ends)[0], below, [])])
        if step.name == "LOAD_ATTR":
            name, called = step.argument
            pushes = [VALUE, EMPTY] if NULL_ABOVE else [EMPTY, VALUE]
            return (f"{self.name(getattr)}({self.local(stack[-1])}, "
                    f"{name!r})",
                    [(behind, below, pushes if called else [VALUE])])
        return self.single(behind)

    def single(self, behind: int) -> tuple[str, list[tuple]]:
        """The instruction itself, run by CPython on the real stack."""
        frame, step, program = self.frame, self.step, self.frame.program
        taken, count = performed(step)
        place, values = placed(
            self.rebuild, frame, step.offset, frame.stack,
            live(frame.code)[program.at(step.offset)])
        made = made_once(single, place, frame.function, taken, count)
        name = self.tracer.outside.constant(made, f"line_{step.line}")
        rest = frame.stack[:len(frame.stack) - taken]
        return (f"{name.code()}({', '.join(values)})",
                [(behind, rest, [VALUE] * count)])

    def end(self) -> str:
        """The name of what stands for the end of a loop."""
        return self.tracer.outside.constant(_END, "end").code()

    # Frames

    def links(self, frame: Frame) -> Iterator[Link]:
        """How a frame that waits for its callee goes on.

        A chain goes on with what it has not called yet.
        """
        if any(isinstance(value, Handled) for value in frame.stack):
            raise unsupported("code", "a frame that handles an exception")
        if frame.function in _chains:
            links = _chains[frame.function]
            for at in range(frame.names["at"] + 1, len(links)):
                yield replace(links[at], values=tuple(
                    self.local(frame.names[name])
                    for name in parameters(at, links[at])))
            return
        behind = frame.program.bounds(frame.current().offset)[1]
        yield self.link(frame, behind, frame.stack, [VALUE])

    def link(self, frame: Frame, after: int, stack, pushes=()) -> Link:
        """How a frame goes on at `after`, with what is pushed."""
        program, alive = frame.program, live(frame.code)
        offset = frame.current().offset
        handler, names = program.handler(offset), alive[program.at(after)]
        if handler is not None:
            names |= alive[program.at(handler.target)]
        place, values = placed(self.rebuild, frame, after, stack, names)
        place = replace(place, stack=(*place.stack, *pushes))
        more = () if handler is None else (offset,)
        return Link(made_once(going_on, place, frame.function, *more),
                    handler is not None, tuple(values))

    # Text

    def tail(self, operation: str, ways: list, outer: list[Link]
             ) -> list[str]:
        """Statements: perform the operation, then go on."""
        value = self.rebuild.fresh()
        calls = ["return " + self.call([link, *outer], [
            *self.got(value, count), *["None"] * link.catches])
            for link, count in ways]
        after = calls[:1]
        if len(calls) == 2:
            loop = self.step.name == "FOR_ITER"
            test = f"{value} is {self.end()}" if loop else f"not {value}"
            after = [f"if {test}:", f"    {calls[1]}", calls[0]]
        [first, count], *_ = ways
        links = [first, *outer]
        while links and not links[0].catches:
            del links[0]
            count = 1
        if not links:
            return [f"{value} = {operation}", *after]
        failed = self.rebuild.fresh()
        return [*caught([f"{value} = {operation}"], failed),
                "    return " + self.call(links, [
                    *["None"] * count, f"{failed}.pop()"]), *after]

    def got(self, value: str, count: int) -> list[str]:
        """The values that the operation pushes; None for a dropped one."""
        if count != 1:
            return [f"{value}[{i}]" for i in range(count)]
        program = self.frame.program
        at = program.at(program.bounds(self.step.offset)[1])
        following = program.instructions[at]
        drops = following.name == "POP_TOP" or (
            following.name == "STORE_FAST" and following.argument
            not in live(self.frame.code)[at + 1])
        return ["None" if drops else value]

    def call(self, links: list[Link], got: list[str]) -> str:
        """A call of the continuation made of some links."""
        links[0] = replace(links[0], values=(*links[0].values, *got))
        function = chained(links)
        name = self.tracer.outside.constant(
            continuation(function), f"resume_{function.__name__}").code()
        values = [text for link in links for text in link.values]
        return f"{name}({', '.join(values)})"


def caught(body: list[str], failed: str) -> list[str]:
    """Statements: `body`, and a test whether it raised, into `failed`."""
    return [f"{failed} = []", "try:", *(f"    {line}" for line in body),
            f"except BaseException as {failed}_:",
            f"    {failed}.append({failed}_)", f"if {failed}:"]


def performed(step) -> list[int]:
    """What an instruction takes and pushes, if a break may perform it."""
    takes, pushes, _ = OPCODES.get(step.name, NO_ROW)
    if pushes is None:
        raise unsupported("opcode", step.name)
    return [number(step.argument) if callable(number) else number
            for number in (takes, pushes)]


def switched(rebuild: Rebuild) -> list[str]:
    """Statements that leave torch's switches as the trace left them.

    The graph leaves them as it found them.
    """
    tracer = rebuild.tracer
    for _, back in reversed(tracer.turned):
        tracer.recorder.effect(*back)
    return [f"{rebuild.known(turn)}({rebuild.values(how)})"
            for (turn, *how), _ in tracer.turned]


# Functions, each made once

_chained: dict[tuple, FunctionType] = {}
_chains: dict[FunctionType, list[Link]] = {}
continuation = functools.cache(Continuation)


def chained(links: list[Link]) -> FunctionType:
    """One function that goes on in several frames, the innermost first."""
    if len(links) == 1:
        return links[0].function
    key = tuple((k.function, k.catches, len(k.values)) for k in links)
    if key not in _chained:
        names: dict = {"__name__": "minicompile"}
        names |= {f"f{at}": link.function for at, link in enumerate(links)}
        exec(compile(chain_text(links), "<minicompile>", "exec"), names)
        function = _chained[key] = names["resume"]
        function.__name__ = links[-1].function.__name__
        _chains[function] = links
    return _chained[key]


def chain_text(links: list[Link]) -> str:
    """The source of a chain: `at` says which link is being called."""
    body: list[str] = []
    for at, link in enumerate(links):
        given = [*parameters(at, link), *["r"] * bool(at)]
        if at and link.catches:
            body = [*caught(body, "failed"), "    r = None"]
            given.append("failed.pop() if failed else None")
        body += [f"at = {at}", f"r = f{at}({', '.join(given)})"]
    heading = ", ".join(name for at, link in enumerate(links)
                        for name in parameters(at, link))
    return "\n    ".join([f"def resume({heading}):", *body, "return r"])


def parameters(at: int, link: Link) -> list[str]:
    """The names under which a chain takes the values of a link."""
    return [f"p{at}_{number}" for number in range(len(link.values))]
