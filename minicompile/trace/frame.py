"""Python's stack machine, run on stand-ins.

In: a function and its local values. Out: its result. Values are
real Python objects, except that tensors are fake; so the same frames run
on concrete values when nothing is outside. A frame can stop and go on,
as a generator does. A row for each opcode, named as `dis` shows it, gets
the values it takes off the stack and gives the one it pushes; the tracer
decides what an operation means. Byterun's shape; PyTorch's is
torch/_dynamo/symbolic_convert.py (InstructionTranslator).
"""

import functools
import operator
import types
from collections.abc import Callable

from ..core.errors import Where
from ..core.guard import ABSENT, Attribute, Item, trusted
from . import attributes
from .bytecode import NULL_ABOVE, Instruction, decode
from .reasons import WAYS, Raised, unsupported

#: How a frame was left: (how, value).
RETURN, YIELD = "return", "yield"


class Null:
    """CPython's stack entry below a callable that has no `self`."""


NULL = Null()


#: opcode -> (values taken off the stack, values pushed, function). The
#: function of (frame, argument, *taken) gives the one value to push. It
#: pushes any other number itself. With None in its place, a graph break
#: cannot leave the instruction to CPython, and the function gives how the
#: frame is left, if it is. A number may be a function of the argument.
OPCODES: dict[str, tuple] = {}

#: The row of an opcode that ends the trace.
NO_ROW = 0, None, None


def opcode(takes, pushes=1) -> Callable:
    """Add the decorated function to the table, under its name."""
    def add(function):
        OPCODES[function.__name__] = takes, pushes, function
        return function
    return add


class Frame:
    """One running function: its names, its stack, its next position."""

    def __init__(self, tracer, function: types.FunctionType, names: dict):
        self.tracer, self.function = tracer, function
        self.code = function.__code__
        self.program = decode(self.code)
        self.names = names
        self.globals = function.__globals__
        self.library = trusted(self.globals.get("__name__"))
        self.stack: list = []
        self.next = self.moment = 0
        self.keywords: tuple[str, ...] = ()

    def current(self) -> Instruction:
        """The instruction being run."""
        return self.program.instructions[max(self.next - 1, 0)]

    def where(self) -> Where:
        """The user's line of the instruction being run."""
        return Where(self.code.co_filename, self.current().line,
                     self.code.co_name)

    def run(self):
        """Run until this frame returns or yields: (how, value).

        A call puts the frame of its callee on the tracer's list.
        """
        tracer, frames = self.tracer, self.tracer.frames
        depth = len(frames)
        frames.append(self)
        try:
            while True:
                frame = frames[-1]
                step = frame.program.instructions[frame.next]
                frame.next += 1
                frame.moment = tracer.tick()
                try:
                    left = frame.step(step)
                except Raised as raised:
                    if "catch" not in WAYS:
                        raise
                    WAYS["catch"](frames, depth, raised)
                else:
                    if left is not None:
                        frames.pop()
                        if len(frames) == depth:
                            return left
                        frames[-1].stack.append(left[1])
        except Exception as error:
            error.place = getattr(error, "place", None) or tracer.where()
            raise
        finally:
            tracer.left = frames[depth:]
            del frames[depth:]

    def step(self, step: Instruction):
        """Run one instruction: None, or how it leaves the frame."""
        takes, pushes, function = OPCODES.get(step.name, NO_ROW)
        if function is None:
            raise unsupported("opcode", step.name)
        at = len(self.stack) - (
            takes(step.argument) if callable(takes) else takes)
        taken, self.stack[at:] = self.stack[at:], ()
        WAYS["taken"](self, step, taken)
        made = function(self, step.argument, *taken)
        if type(made) is Frame:  # its result is pushed when it returns
            self.tracer.frames.append(made)
        elif pushes is None:
            return made
        elif pushes == 1:
            self.stack.append(made)

    def push(self, value, called: int) -> None:
        """Push a value, if called with the NULL that CALL expects."""
        pair = (value, NULL) if NULL_ABOVE else (NULL, value)
        self.stack += pair if called else (value,)

    def jump(self, target: int, jumps: bool = True) -> None:
        """Go on at another position, if so."""
        if jumps:
            self.next = target


# Globals, cells and closures


def load_global(tracer, names: dict, name: str):
    """A global or builtin name."""
    outside, builtins = tracer.outside, names.get("__builtins__", {})
    for each in (names, getattr(builtins, "__dict__", builtins)):
        value = outside.read(outside.globals(each), name)
        if value is not ABSENT:
            return value
    raise Raised(NameError(f"name {name!r} is not defined", name=name))


def closure(tracer, function: types.FunctionType) -> tuple:
    """A function's cells, known to be outside if they are."""
    cells = function.__closure__ or ()
    if cells and not tracer.is_made(function):
        base = Attribute(tracer.outside.found_at(function), "__closure__")
        for index, cell in enumerate(cells):
            tracer.outside.admit(cell, Item(base, index))
    return cells


def unbound_local(name: str) -> Raised:
    return Raised(UnboundLocalError(
        f"cannot access local variable {name!r} where it is not "
        "associated with a value"))


def load_cell(tracer, cell: types.CellType, name: str):
    """A cell's content."""
    value = attributes.own(tracer, cell, "cell_contents")
    if value is ABSENT:
        if name in tracer.frames[-1].program.code.co_cellvars:
            raise unbound_local(name)
        raise Raised(NameError(
            f"cannot access free variable {name!r} where it is not "
            "associated with a value in enclosing scope", name=name))
    return value


def store_cell(tracer, cell: types.CellType, value) -> None:
    """Set a cell's content; outside, the write waits for the end."""
    if tracer.outside.is_outside(cell):
        WAYS["write"](tracer.outside, tracer.outside.space(
            "attributes", cell), "cell_contents", value)
    else:
        cell.cell_contents = value


# Opcodes

#: Rows of one expression; `f` is the frame.
OPCODES |= {
    "POP_TOP": (1, None, lambda f, _, x: None),
    "PUSH_NULL": (0, None, lambda f, _: f.stack.append(NULL)),
    "COPY": (0, None, lambda f, depth: f.stack.append(f.stack[-depth])),
    "SWAP": (int, None, lambda f, _, low, *above: f.stack.extend(
        (*above[-1:], *above[:-1], low))),
    "LOAD_CONST": (0, None, lambda f, value: f.stack.append(value)),
    "LOAD_FAST_AND_CLEAR": (0, None, lambda f, name: f.stack.append(
        f.names.pop(name, NULL))),
    "LOAD_GLOBAL": (0, None, lambda f, found: f.push(load_global(
        f.tracer, f.globals, found[0]), found[1])),
    "COPY_FREE_VARS": (0, None, lambda f, _: f.names.update(zip(
        f.code.co_freevars, closure(f.tracer, f.function)))),
    "LOAD_DEREF": (0, 1, lambda f, name: load_cell(
        f.tracer, f.names[name], name)),
    "STORE_DEREF": (1, 0, lambda f, name, value: store_cell(
        f.tracer, f.names[name], value)),
    "LOAD_ATTR": (1, None, lambda f, found, owner: f.push(
        attributes.load_attr(f.tracer, owner, found[0]), found[1])),
    "BINARY_SUBSCR": (2, 1, lambda f, _, owner, key: f.tracer.ask(
        operator.getitem, owner, key)),
    "BINARY_OP": (2, 1, lambda f, op, a, b: f.tracer.binary(op, a, b)),
    "COMPARE_OP": (2, 1, lambda f, op, a, b: f.tracer.binary(op, a, b)),
    "TO_BOOL": (1, 1, lambda f, _, x: f.tracer.truth(x)),
    "GET_ITER": (1, 1, lambda f, _, x: f.tracer.ask(iter, x)),
    "BUILD_TUPLE": (int, 1, lambda f, _, *values: values),
    "BUILD_LIST": (int, 1, lambda f, _, *values: [*values]),
    "BUILD_MAP": (lambda count: 2 * count, 1, lambda f, _, *values: (
        f.tracer.native(dict, ([*zip(map(f.tracer.key, values[::2]),
                                     values[1::2])],)))),
    "LIST_TO_TUPLE": (1, 1, lambda f, _, values: tuple(values)),
    "LIST_EXTEND": (1, 0, lambda f, depth, x: f.tracer.native(
        f.stack[-depth].extend, (f.tracer.iterate(x),))),
    "LIST_APPEND": (1, 0, lambda f, depth, x: f.stack[-depth].append(x)),
    "JUMP": (0, None, lambda f, target: f.jump(target)),
    "POP_JUMP_IF_NONE": (1, None, lambda f, target, x: f.jump(
        target, x is None)),
    "POP_JUMP_IF_NOT_NONE": (1, None, lambda f, target, x: f.jump(
        target, x is not None)),
    "KW_NAMES": (0, None, lambda f, names: setattr(f, "keywords", names)),
    "RETURN_VALUE": (1, None, lambda f, _, value: (RETURN, value)),
}

# Names


@opcode(0, None)
def LOAD_FAST(frame, name):
    if name not in frame.names:
        raise unbound_local(name)
    frame.stack.append(frame.names[name])


@opcode(1, None)
def STORE_FAST(frame, name, value):
    if value is NULL:
        frame.names.pop(name, None)
    else:
        frame.names[name] = value


@opcode(0, None)
def MAKE_CELL(frame, name):
    cell = frame.tracer.own(types.CellType())
    if name in frame.names:
        cell.cell_contents = frame.names[name]
    frame.names[name] = cell


@opcode(1, 0)
def DICT_MERGE(frame, depth, mapping):
    tracer, target = frame.tracer, frame.stack[-depth]
    for key, value in tracer.mapping(mapping).items():
        if tracer.stored(target, key) is not ABSENT:
            raise unsupported("argument", f"{key!r}, given twice,")
        tracer.ask(operator.setitem, target, key, value)


@opcode(1, int)
def UNPACK_SEQUENCE(frame, count, given):
    values = frame.tracer.unpacked(given, count + 1)
    if len(values) > count:
        raise Raised(ValueError(
            f"too many values to unpack (expected {count})"))
    if len(values) < count:
        raise Raised(ValueError(f"not enough values to unpack (expected "
                                f"{count}, got {len(values)})"))
    frame.stack += reversed(values)


# Jumps and loops

#: Jumps on the truth of the top: whether true jumps, and if it stays.
TRUTH = {"POP_JUMP_IF_TRUE": (True, False),
         "POP_JUMP_IF_FALSE": (False, False),
         "JUMP_IF_TRUE_OR_POP": (True, True),
         "JUMP_IF_FALSE_OR_POP": (False, True)}


def jump_on_truth(when: bool, stays: bool, frame, target, value) -> None:
    """Jump if the value's truth is `when`; keep the value if it `stays`."""
    if frame.tracer.truth(value) is when:
        frame.jump(target)
        frame.stack += [value] * stays


OPCODES |= {name: (1, None, functools.partial(jump_on_truth, *row))
            for name, row in TRUTH.items()}


def advance(frame, step: Callable) -> StopIteration | None:
    """Push what the iterator on top gives next, or return its end."""
    tracer, iterator = frame.tracer, frame.stack[-1]
    try:
        frame.stack.append(
            tracer.ask(next, iterator) if step is next
            else tracer.natively(step, (iterator,), depth=0))
    except Raised as raised:
        if not isinstance(raised.exception, StopIteration):
            raise
        return raised.exception


@opcode(0, None)
def FOR_ITER(frame, target):
    if advance(frame, next) is not None:
        frame.stack.pop()
        frame.jump(target)


# Functions and calls

#: The attributes that a new function is given, by flag.
FUNCTION_PARTS = {4: "__annotations__", 2: "__kwdefaults__",
                  1: "__defaults__"}


@opcode(1, None)
def MAKE_FUNCTION(frame, _, code, cells=None):
    frame.stack.append(frame.tracer.own(types.FunctionType(
        code, frame.globals, closure=cells or tuple(
            types.CellType() for _ in code.co_freevars) or None)))


@opcode(2, None)
def SET_FUNCTION_ATTRIBUTE(frame, flag, value, function):
    if flag == 8:  # the cells come first, and cannot be set
        return MAKE_FUNCTION(frame, None, function.__code__, value)
    if flag == 4 and isinstance(value, tuple):  # of Python 3.11
        value = dict(zip(value[::2], value[1::2]))
    setattr(function, FUNCTION_PARTS[flag], value)
    frame.stack.append(function)


@opcode(lambda count: count + 2)
def CALL(frame, count, *values):
    keywords, frame.keywords = frame.keywords, ()
    return CALL_KW(frame, count, *values, keywords)


@opcode(lambda count: count + 3)
def CALL_KW(frame, _, *values):
    *values, keywords = values
    function, *values = (each for each in values if each is not NULL)
    plain = len(values) - len(keywords)
    return frame.tracer.enter(
        function, values[:plain], dict(zip(keywords, values[plain:])))


@opcode(lambda flags: 3 + (flags & 1))
def CALL_FUNCTION_EX(frame, flags, lower, upper, args, kwargs=None):
    named = frame.tracer.mapping(kwargs) if flags & 1 else {}
    return frame.tracer.enter(upper if lower is NULL else lower,
                              frame.tracer.unpacked(args), named)
