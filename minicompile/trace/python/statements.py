"""The statements that few models need, and breaks at an `if` or a loop.

In: a frame, the instruction's argument, the values it takes off the
stack. Out: the values that CPython would push; where a trace cannot go
on, the function that Python calls between two graphs.
Python makes a class, too: the `class` statement is a graph break.
PyTorch has torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase.
"""

import builtins
import functools
import importlib.util
import operator
import sys
from types import CellType, CodeType, FunctionType

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ...core.guard import ABSENT, Item, is_a, trusted
from .. import attributes
from ..bytecode import NULL_ABOVE, decode
from ..frame import (LOAD_FAST, NULL, OPCODES, TRUTH, Frame, load_cell,
                     load_global, opcode, store_cell)
from ..graph_breaks import (OPERATIONS, Break, FrameState, Named, _lines,
                            going_on, made_once, op, placed, varint)
from ..reasons import WAYS, Raised, unsupported
from ..reconstruct import Rebuild
from .callbacks import really
from .objects import same

#: Rows of one expression; `f` is the frame.
OPCODES |= {
    "IS_OP": (2, 1, lambda f, invert, a, b: (
        same(f.tracer, a, b) is not bool(invert))),
    "CONTAINS_OP": (2, 1, lambda f, invert, key, owner: (
        f.tracer.call(operator.contains, (owner, key)) is not bool(
            invert))),
    "UNARY_NOT": (1, 1, lambda f, _, x: not f.tracer.truth(x)),
    "BUILD_SLICE": (int, 1, lambda f, _, *values: slice(*values)),
    "BUILD_CONST_KEY_MAP": (lambda count: count + 1, 1, (
        lambda f, _, *values: dict(zip(values[-1], values)))),
    "STORE_SUBSCR": (3, 0, lambda f, _, value, owner, key: (
        f.tracer.ask(operator.setitem, owner, key, value))),
    "BINARY_SLICE": (3, 1, lambda f, _, owner, *ends: f.tracer.ask(
        operator.getitem, owner, slice(*ends))),
    "BUILD_SET": (int, 1, lambda f, _, *values: f.tracer.native(
        set, (map(f.tracer.key, values),))),
    "SET_ADD": (1, 0, lambda f, depth, x: f.tracer.call(
        set.add, (f.stack[-depth], x))),
    "SET_UPDATE": (1, 0, lambda f, depth, x: f.tracer.call(
        set.update, (f.stack[-depth], x))),
    "MAP_ADD": (2, 0, lambda f, depth, key, value: f.tracer.ask(
        operator.setitem, f.stack[-depth], key, value)),
    "DICT_UPDATE": (1, 0, lambda f, depth, x: f.tracer.call(
        dict.update, (f.stack[-depth], f.tracer.mapping(x)))),
    "STORE_SLICE": (4, 0, lambda f, _, value, owner, *ends: (
        f.tracer.ask(operator.setitem, owner, slice(*ends), value))),
    "DELETE_DEREF": (0, 0, lambda f, name: (
        load_cell(f.tracer, f.names[name], name),  # or it raises
        store_cell(f.tracer, f.names[name], ABSENT))),
    "STORE_GLOBAL": (1, 0, lambda f, name, value: WAYS["write"](
        f.tracer.outside, f.tracer.outside.globals(f.globals), name,
        value)),
    "LOAD_SUPER_ATTR": (3, None, lambda f, found, maker, *of: f.push(
        attributes.load_attr(f.tracer, f.tracer.call(maker, of), found[0]),
        found[1])),
    "CALL_INTRINSIC_2": (2, 1, None),
    "LOAD_BUILD_CLASS": (0, 1, lambda f, _: builtins.__build_class__),
    **{name: (takes, pushes, lambda f, _, *values, _call=call: (
        f.tracer.call(_call, values))) for name, takes, pushes, call in (
            ("UNARY_NEGATIVE", 1, 1, operator.neg),
            ("UNARY_POSITIVE", 1, 1, operator.pos),
            ("UNARY_INVERT", 1, 1, operator.invert),
            ("DELETE_SUBSCR", 2, 0, operator.delitem))}}


@opcode(0, None)
def DELETE_FAST(frame, name):
    LOAD_FAST(frame, name)
    del frame.stack[-1], frame.names[name]


@opcode(0, 0)
def DELETE_GLOBAL(frame, name):
    load_global(frame.tracer, frame.globals, name)
    OPCODES["STORE_GLOBAL"][2](frame, name, ABSENT)


@opcode(2)
def IMPORT_NAME(frame, name, level, below):
    found = really(frame.tracer, importlib.__import__, (
        name, frame.globals, None, below, level))
    key = importlib.util.resolve_name(
        "." * level + name, frame.globals.get("__package__"))
    key, outside = key if below else key.split(".")[0], frame.tracer.outside
    return found if trusted(key) else outside.admit(found, Item(
        outside.constant(sys.modules, "modules"), key))


@opcode(0)
def IMPORT_FROM(frame, name):
    found = frame.tracer.call(getattr, (frame.stack[-1], name, ABSENT))
    if found is ABSENT:  # a module that is being imported, or an error
        raise unsupported("attribute", f"{name}, imported,")
    return found


@opcode(1, lambda counts: (counts & 255) + (counts >> 8) + 1)
def UNPACK_EX(frame, counts, given):
    values = frame.tracer.unpacked(given)
    before, after = counts & 255, counts >> 8
    if len(values) < before + after:
        raise Raised(ValueError(
            "not enough values to unpack (expected at least "
            f"{before + after}, got {len(values)})"))
    end = len(values) - after
    frame.stack += [*values[:before], values[before:end],
                    *values[end:]][::-1]

# Breaks at an `if`, a loop, an attribute

#: The code of a call.
CALL = (lambda function, *given: function(*given)).__code__


def at_line(place: FrameState, line: int) -> CodeType:
    """The code of a call, which a traceback shows as a line of a frame."""
    return CALL.replace(
        co_filename=place.code.co_filename, co_name=place.code.co_name,
        co_qualname=place.code.co_qualname, co_firstlineno=line,
        co_linetable=_lines(len(CALL.co_code) // 2, 0))


def question(at: Break, function, *given: str) -> list[str]:
    """A function called on values, at the user's line."""
    made = made_once(at_line, FrameState(at.frame.program.code, 0, ()),
                     at.frame.function, line := at.step.line)
    return [at.outside.constant(made, f"line_{line}").code(),
            at.rebuild.known(function), *given]


def ask_truth(at: Break) -> tuple:
    """A value's truth: on in one branch or the other, or with the truth."""
    steps, stack = at.frame.program.instructions, at.frame.stack
    jump = steps[at.frame.next] if at.step.name == "TO_BOOL" else at.step
    operation = question(at, bool, at.rebuild.value(stack[-1]))
    if jump.name not in TRUTH:
        return operation, [at.on(stack[:-1])]
    when, stays = TRUTH[jump.name]
    return operation, [
        ("value" if when else "not value",
         steps[jump.argument].start, stack if stays else stack[:-1]),
        ("", jump.end, stack[:-1])]


def ask_next(at: Break) -> tuple:
    """An iterator's next item: on in the loop, or behind it."""
    steps, stack = at.frame.program.instructions, at.frame.stack
    end = at.outside.constant(ABSENT, "end").code()
    return question(at, next, at.rebuild.value(stack[-1]), end), [
        (f"value is {end}", steps[at.step.argument].start,
         stack[:-1]), at.on(stack)]


def ask_attribute(at: Break) -> tuple:
    """An object's attribute, with the NULL that a call expects."""
    (name, called), stack = at.step.argument, at.frame.stack
    pair = [Named("value"), NULL][::1 if NULL_ABOVE else -1]
    return question(at, getattr, at.rebuild.value(stack[-1]), repr(name)), [
        ("", at.step.end, [*stack[:-1], *pair]) if called
        else at.on(stack[:-1])]


def enter(at: Break) -> tuple:
    """A `with`, in a function that has no tensor all of its call: it holds
    a lock or reads a file, and what it prepares is not to be compiled."""
    if at.frames[1:] and not any(is_a(each, (Tensor, CellType))
                                 for each in tree_leaves(at.frame.names)):
        raise unsupported("code", "a function without tensors")
    return at.single()


OPERATIONS |= {**dict.fromkeys((*TRUTH, "TO_BOOL"), ask_truth),
               "FOR_ITER": ask_next, "LOAD_ATTR": ask_attribute,
               "BEFORE_WITH": enter}

# What the rest of a frame reads

#: Opcodes that do not go on with the next instruction.
_LEAVING = {"JUMP", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"}


@functools.cache
def lives(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each position, the names whose values may still be read."""
    whole = decode(code)
    steps = [*enumerate(whole.instructions)]
    alive, before = [frozenset()] * (len(steps) + 1), None
    while before != alive:
        before = list(alive)
        for at, step in reversed(steps):
            names = frozenset() if step.name in _LEAVING else alive[at + 1]
            if "JUMP" in step.name or step.name in ("FOR_ITER", "SEND"):
                names |= alive[step.argument]
            if step.name == "STORE_FAST":
                names -= {step.argument}
            elif "_FAST" in step.name or "DEREF" in step.name:
                names |= {step.argument}
            if row := whole.handler(step.offset):
                names |= alive[whole.at(row.target)]
            alive[at] = names
    return tuple(alive)



def live(frame: Frame, offset: int) -> frozenset[str]:
    """The names that are read from `offset` on, by a handler or super().
    """
    code, handler = frame.program.code, frame.handler()
    of_super = {"__class__", *code.co_varnames[:1]} if (
        "__class__" in code.co_freevars) else ()
    return frozenset(of_super).union(*(
        lives(frame.code)[frame.program.at(each)]
        for each in (offset, *(handler or ())[:1])))


WAYS["live"] = live

# Breaks in a callee


def returning(rebuild: Rebuild, outer: list[Frame], function, values: list
              ) -> tuple[FunctionType, list[str]]:
    """The function that goes on in the frames that wait: each calls the
    next."""
    for frame in reversed(outer):
        place, held = placed(rebuild, frame, behind(frame), frame.stack)
        function = made_once(calling, place, frame.function,
                             frame.handler(), function)
        values = [*held, *values]
    return function, values


def behind(frame: Frame) -> int:
    """The offset where a frame goes on when its callee has returned.

    A continuation that calls another jumps to that place.
    """
    step, steps = frame.current(), frame.program.instructions
    return step.end if step.offset >= 0 else steps[
        steps[frame.next].argument].start


def calling(state: FrameState, handler, inner: FunctionType) -> CodeType:
    """Code that rebuilds the frame, calls `inner`, and goes on.

    The arguments behind the frame's own are those of `inner`.
    """
    count, code = inner.__code__.co_argcount, state.code
    callee = op("PUSH_NULL"), op("LOAD_CONST", len(code.co_consts))
    body = b"".join([*callee[::-1 if NULL_ABOVE else 1], *(
        op("LOAD_FAST", state.arguments() + at) for at in range(count))])
    body += op("BUILD_TUPLE", count) + op("CALL_FUNCTION_EX")
    made = going_on(state, body, count, (inner,))
    if handler:
        shift = len(made.co_code) - len(code.co_code)
        end = -len(op("JUMP_FORWARD", state.offset // 2))
        made = made.replace(co_exceptiontable=handlers([
            (end - len(body), end, *handler)], shift)
            + made.co_exceptiontable)
        decode(made, code, shift)
    return made


def handlers(rows, shift: int) -> bytes:
    """An exception table of rows that are moved by `shift` bytes."""
    table = b""
    for start, end, target, depth, lasti in rows:
        row = b"".join(varint(value, -1) for value in (
            (start + shift) // 2, (end - start) // 2,
            (target + shift) // 2, depth << 1 | lasti))
        table += bytes((row[0] | 128,)) + row[1:]
    return table


def left_waiting(frames: list[Frame]) -> list[Frame]:
    """The frames, but those of the standard library that end the list: what
    it does for the program is one step to us."""
    homes = [str(frame.globals.get("__name__")).partition(".")[0]
             for frame in frames]
    while homes[1:] and homes[-1] in sys.stdlib_module_names:
        homes.pop()
    return frames[:len(homes)]


WAYS |= {"return": returning, "handlers": handlers,
         "waits": left_waiting}

# Patterns

OPCODES |= {
    "GET_LEN": (0, 1, lambda frame, _: frame.tracer.call(
        len, (frame.stack[-1],))),
    "MATCH_MAPPING": (0, 1, lambda frame, _: bool(
        type(frame.stack[-1]).__flags__ & 1 << 6)),
    "MATCH_SEQUENCE": (0, 1, lambda frame, _: bool(
        type(frame.stack[-1]).__flags__ & 1 << 5)),
}


#: The flag of classes such as int, of which `case int(n)` takes all.
MATCH_SELF = 1 << 22


@opcode(0)
def MATCH_KEYS(frame, _):
    mapping, keys = frame.stack[-2:]
    call = frame.tracer.call
    if all(call(operator.contains, (mapping, key)) for key in keys):
        return tuple(call(operator.getitem, (mapping, key))
                     for key in keys)


@opcode(3)
def MATCH_CLASS(frame, count, value, kind, names):
    call = frame.tracer.call
    if not call(isinstance, (value, kind)):
        return None
    given = call(getattr, (kind, "__match_args__", (
        ABSENT,) * (kind.__flags__ & MATCH_SELF > 0))) if count else ()
    if type(given) is not tuple or len(given) < count or (
            not {*given[:count]}.isdisjoint(names)):
        raise unsupported("opcode", "a wrong pattern")
    names = (*given[:count], *names)  # ABSENT is the whole value
    found = tuple(value if name is ABSENT else call(
        getattr, (value, name, ABSENT)) for name in names)
    return None if any(each is ABSENT for each in found) else found
