"""A graph break: what Python does between two graphs, and what goes on.

In: the frames of a trace that stopped before an instruction. Out: the
text of `finish`, which performs that instruction on real values and
calls the continuation with what the frames hold. Frames that wait
become one function, so what is left of a call is one graph. PyTorch's is
torch/_dynamo/symbolic_convert.py:break_graph_if_unsupported.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FunctionType

from .bytecode import NULL_ABOVE, decode, live
from .control import TRUTH
from .reasons import unsupported
from .reconstruct import Rebuild
from .resume import (EMPTY, VALUE, going_on, made_once, origin, placed,
                     single)
from .stand_ins import Handled


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


@dataclass(frozen=True)
class Way:
    """One way to go on; `count` values come from the operation."""

    link: Link
    count: int = 0


#: Instructions a break may perform, and how much they push.
PUSHED = {
    **dict.fromkeys(
        ["CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_OP", "COMPARE_OP",
         "BINARY_SUBSCR", "BINARY_SLICE", "UNARY_NOT", "UNARY_NEGATIVE",
         "UNARY_POSITIVE", "UNARY_INVERT", "GET_ITER", "CONTAINS_OP",
         "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC",
         "CONVERT_VALUE", "IMPORT_NAME", "IMPORT_FROM", "GET_LEN",
         "BUILD_SET", "BUILD_MAP", "BUILD_STRING", "MATCH_KEYS",
         "MATCH_CLASS", "MATCH_MAPPING", "MATCH_SEQUENCE", "LOAD_NAME",
         "WITH_EXCEPT_START", "LOAD_BUILD_CLASS", "CALL_INTRINSIC_2",
         "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"], 1),
    **dict.fromkeys(
        ["STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL",
         "DELETE_ATTR", "DELETE_SUBSCR", "DELETE_GLOBAL", "LIST_EXTEND",
         "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "SET_ADD", "MAP_ADD",
         "RAISE_VARARGS", "STORE_DEREF", "DELETE_DEREF"], 0),
    "BEFORE_WITH": 2,
}

_END = object()


class End:
    """What `finish` says at the end of a call: its effects, its result."""

    def __init__(self, tracer, result):
        self.tracer, self.result = tracer, result
        self.rebuild = Rebuild(tracer)

    def text(self) -> str:
        """The source of finish(L, F, outputs)."""
        rebuild = self.rebuild
        returned = rebuild.value(self.result)
        body = [*rebuild.writes(), *switched(rebuild, self.tracer)]
        if body:
            returned = rebuild.hold(returned)
        return rebuild.function([*body, f"return {returned}"])


class Break:
    """What `finish` says where the trace of some frames stopped."""

    def __init__(self, tracer, frames):
        self.tracer, self.frames = tracer, frames
        self.rebuild = Rebuild(tracer)
        self.local, self.name = self.rebuild.local, self.rebuild.known
        self.frame = frames[-1]
        self.step = self.frame.current()

    def text(self) -> str:
        """The source of finish(L, F, outputs)."""
        operation, ways = self.operation()
        outer = [link for frame in reversed(self.frames[:-1])
                 for link in self.links(frame)]
        writes = self.rebuild.writes()
        tail = self.tail(operation, ways, outer)
        return self.rebuild.function([
            *writes, *switched(self.rebuild, self.tracer), *tail])

    # The operation

    def operation(self) -> tuple[str, list[Way]]:
        """An expression, and the one or two ways to go on after it."""
        frame, step = self.frame, self.step
        steps, stack = frame.program.instructions, list(frame.stack)
        jump = steps[frame.next] if step.name == "TO_BOOL" else step
        if jump.name in TRUTH:
            return self.decision(jump, stack)
        match step.name:
            case "FOR_ITER":
                return self.advance(stack)
            case "TO_BOOL":
                text = f"{self.name(bool)}({self.local(stack.pop())})"
            case "LOAD_ATTR":
                text = (f"{self.name(getattr)}({self.local(stack.pop())}, "
                        f"{step.argument[0]!r})")
            case _:
                return self.single(stack)
        return text, [Way(self.link(frame, self.after(), stack,
                                    result(step)), 1)]

    def decision(self, jump, stack) -> tuple[str, list[Way]]:
        """A jump on the truth of a value: if true, and if not."""
        when, stays = TRUTH[jump.name]
        program, below = self.frame.program, stack[:-1]
        target = program.instructions[jump.argument].offset
        ways = [Way(self.link(self.frame, program.bounds(target)[0],
                              stack if stays else below)),
                Way(self.link(self.frame, program.bounds(jump.offset)[1],
                              below))]
        return (f"{self.name(bool)}({self.local(stack[-1])})",
                ways if when else ways[::-1])

    def advance(self, stack) -> tuple[str, list[Way]]:
        """A loop's next element: go on with it, or behind the loop."""
        program = self.frame.program
        ends = program.instructions[self.step.argument].offset
        return (f"{self.name(next)}({self.local(stack[-1])}, "
                f"{self.end()})",
                [Way(self.link(self.frame, self.after(), stack, [VALUE]),
                     1),
                 Way(self.link(self.frame, program.bounds(ends)[0],
                               stack[:-1]))])

    def single(self, stack) -> tuple[str, list[Way]]:
        """The instruction itself, run by CPython on the real stack."""
        frame, step = self.frame, self.step
        count = pushed(step)
        code, shift = origin(frame.code)
        place, values = self.place(
            frame, step.offset, stack,
            live(code)[decode(code).at(step.offset - shift)])
        made = made_once(single, place, frame.function, count)
        name = self.tracer.outside.constant(made, f"line_{step.line}")
        effect = frame.program.effect(step.offset)
        rest = stack[:len(stack) + effect - count]
        return (f"{name.code()}({', '.join(values)})",
                [Way(self.link(frame, self.after(), rest,
                               [VALUE] * count), count)])

    def after(self) -> int:
        """The offset behind the instruction."""
        return self.frame.program.bounds(self.step.offset)[1]

    def end(self) -> str:
        """The name of what stands for the end of a loop."""
        return self.tracer.outside.constant(_END, "end").code()

    # Frames

    def links(self, frame) -> Iterator[Link]:
        """How a frame that waits for its callee goes on."""
        if frame.function in _chains:
            yield from self.parts(frame)
            return
        step = frame.current()
        after = frame.program.bounds(step.offset)[1]
        yield self.link(frame, after, frame.stack, result(step), step)

    def parts(self, frame) -> Iterator[Link]:
        """What a chain has not called yet, its values found by name."""
        lines, links = _chains[frame.function]
        called = re.search(r"r = f(\d+)", lines[frame.where().line - 1])
        at = int(called[1])
        first = sum(len(link.values) for link in links[:at + 1])
        for link in links[at + 1:]:
            last = first + len(link.values)
            yield replace(link, values=tuple(
                self.local(frame.names[f"p{i}"])
                for i in range(first, last)))
            first = last

    def link(self, frame, after: int, stack, pushes=(), step=None) -> Link:
        """How `frame` goes on at `after` with `stack` and what is pushed.

        `step` is what failed if an exception comes instead.
        """
        step = step or self.step
        code, shift = origin(frame.code)
        program = decode(code)
        handler = program.handler(step.offset - shift)
        alive = live(code)[program.at(after - shift)]
        if handler is not None:
            alive |= live(code)[handler.target]
        place, values = self.place(frame, after, stack, alive)
        place = replace(place, stack=(*place.stack, *pushes))
        failing = step.offset - shift if handler is not None else -1
        return Link(made_once(going_on, place, frame.function, failing),
                    handler is not None, tuple(values))

    def place(self, frame, offset: int, stack, alive):
        """A place, and its values; in frames that wait, no exception."""
        if frame is not self.frame and any(
                isinstance(value, Handled) for value in frame.stack):
            raise unsupported("code", "a frame that handles an exception")
        return placed(self.rebuild, frame, offset, stack, alive)

    # Text

    def tail(self, operation: str, ways: list[Way],
             outer: list[Link]) -> list[str]:
        """Statements: perform the operation, then go on."""
        value = self.rebuild.fresh()
        calls = ["return " + self.call([way.link, *outer], [
            *self.got(value, way.count), *["None"] * way.link.catches])
            for way in ways]
        after = calls[:1]
        if len(calls) == 2:
            loop = self.step.name == "FOR_ITER"
            test = f"{value} is {self.end()}" if loop else f"not {value}"
            after = [f"if {test}:", f"    {calls[1]}", calls[0]]
        links, count = [ways[0].link, *outer], ways[0].count
        while links and not links[0].catches:
            del links[0]
            count = 1
        if not links:
            return [f"{value} = {operation}", *after]
        failed = self.rebuild.fresh()
        return [*attempt([f"{value} = {operation}"], failed),
                "    return " + self.call(links, [
                    *["None"] * count, f"{failed}.pop()"]), *after]

    def got(self, value: str, count: int) -> list[str]:
        """What the operation pushes; None for what is dropped at once."""
        if count != 1:
            return [f"{value}[{i}]" for i in range(count)]
        code, shift = origin(self.frame.code)
        program, after = decode(code), self.after() - shift
        at = program.at(after)
        following = program.instructions[at:at + 1]
        drops = any(step.name == "POP_TOP" or step.name == "STORE_FAST"
                    and step.argument not in live(code)[at + 1]
                    for step in following)
        return ["None" if drops else value]

    def call(self, links: list[Link], got: list[str]) -> str:
        """A call of the continuation made of some links."""
        links[0] = replace(links[0], values=(*links[0].values, *got))
        function = chained(tuple(links))
        name = self.tracer.outside.constant(
            continuation(function), f"resume_{function.__name__}").code()
        values = [text for link in links for text in link.values]
        return f"{name}({', '.join(values)})"


def attempt(body: list[str], failed: str) -> list[str]:
    """Statements: `body`, and a test whether it raised; `failed` has what.
    """
    return [f"{failed} = []", "try:", *(f"    {line}" for line in body),
            f"except BaseException as {failed}_:",
            f"    {failed}.append({failed}_)", f"if {failed}:"]


def pushed(step) -> int:
    """How many values an instruction pushes; refused if unknown."""
    match step.name:
        case "UNPACK_SEQUENCE":
            return step.argument
        case "UNPACK_EX":
            return (step.argument & 255) + (step.argument >> 8) + 1
    if step.name not in PUSHED:
        raise unsupported("opcode", step.name)
    return PUSHED[step.name]


def result(step) -> list[str]:
    """What a call, or an attribute's getter, leaves on the stack."""
    if step.name == "LOAD_ATTR" and step.argument[1]:
        return [VALUE, EMPTY] if NULL_ABOVE else [EMPTY, VALUE]
    return [VALUE]


def switched(rebuild: Rebuild, tracer) -> list[str]:
    """Statements that leave torch's switches as the trace left them.

    The graph leaves them as it found them.
    """
    for _, back in reversed(tracer.turned):
        tracer.recorder.effect(*back)
    return [f"{rebuild.known(turn)}({rebuild.values(how)})"
            for (turn, *how), _ in tracer.turned]


# Functions, each made once

_chained: dict[tuple, FunctionType] = {}
_chains: dict[FunctionType, tuple[list[str], tuple[Link, ...]]] = {}
continuation = functools.cache(Continuation)


def chained(links: tuple[Link, ...]) -> FunctionType:
    """One function that goes on in several frames, the innermost first."""
    if len(links) == 1:
        return links[0].function
    key = tuple((k.function, k.catches, len(k.values)) for k in links)
    if key not in _chained:
        text, names = _chain_text(links)
        exec(compile(text, "<minicompile>", "exec"), names)
        function = _chained[key] = names["resume"]
        function.__name__ = links[-1].function.__name__
        _chains[function] = text.splitlines(), links
    return _chained[key]


def _chain_text(links: tuple[Link, ...]) -> tuple[str, dict]:
    """The source of a chain, one call on a line, and its names."""
    names: dict = {"__name__": "minicompile"}
    body: list[str] = []
    first = 0
    for at, link in enumerate(links):
        values = [f"p{i}" for i in range(first, first + len(link.values))]
        first += len(link.values)
        names[f"f{at}"] = link.function
        values += ["r"] * bool(at)
        if at and link.catches:
            body = [*attempt(body, "failed"), "    r = None"]
            values.append("failed.pop() if failed else None")
        body.append(f"r = f{at}({', '.join(values)})")
    heading = ", ".join(f"p{i}" for i in range(first))
    return "\n    ".join([f"def resume({heading}):", *body, "return r"]
                         ), names
