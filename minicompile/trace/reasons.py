"""Why a trace can stop: every kind, with its sentence and its way out.

In: a kind and the details of one case. Out: `Unsupported`, placed at the
user's line where it is caught first. Also `Raised`, which carries an
exception of the user's program through the interpreter. PyTorch's
sentences are in torch/_dynamo/exc.py and graph_break_registry.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.errors import Unsupported

_MOVE = "move it out of the compiled function"

#: kind -> (sentence with the case's details, what to write instead)
REASONS = {
    "data-dependent": (
        "{what} needs the values of a tensor, which a trace does not have",
        "use torch.where or another tensor operation, or move the "
        "decision out of the compiled function"),
    "builtin": ("the C function {what} cannot be followed", _MOVE),
    "library": ("{what} belongs to a library that is not traced", _MOVE),
    "disabled": ("{what} is marked to be left alone",
                 "remove disable() if the function can be compiled"),
    "opcode": ("the bytecode instruction {what} is not supported", _MOVE),
    "exception": (
        "{what} is raised while tracing",
        "the function runs as it is, so that the exception reaches you"),
    "argument": (
        "an operator cannot be recorded with the argument {what}",
        "pass tensors, numbers, strings, dtypes, devices and containers "
        "of them"),
    "input": ("{what} cannot become a graph input",
              "pass a plain torch.Tensor or nn.Parameter"),
    "untracked": ("{what} came out of a call that was not recorded",
                  "call the tensor operation directly"),
    "aliasing": (
        "inputs {what} share memory and one of them is written to",
        "pass a clone of one of them"),
    "effect": ("{what} changes something outside the function in a way "
               "that cannot be replayed", _MOVE),
    "result": ("{what} cannot be rebuilt after the graph has run",
               "return tensors, constants, containers or plain objects"),
    "attribute": ("{what} cannot be looked up by a trace",
                  "use a plain attribute"),
    "recursion": ("calls are nested deeper than {what}",
                  "write the recursion as a loop"),
    "gradient": ("{what} runs autograd inside the compiled function",
                 "call it outside, on the result"),
    "code": ("{what} is not a plain Python function",
             "compile a function, a method or an nn.Module"),
    "internal": ("minicompile itself failed: {what}",
                 "please report it; the function runs as it is"),
}


def unsupported(kind: str, what: object) -> Unsupported:
    """The error for one case of `kind`; its place is added later."""
    sentence, hint = REASONS[kind]
    return Unsupported(kind, sentence.format(what=what), None, hint)


def internal(error: Exception) -> Unsupported:
    """The error for a failure of our own, never the program's."""
    return unsupported("internal", f"{type(error).__name__}: {error}")


def refusing(kind: str, what: str) -> Callable:
    """A way that is not there: a graph break."""
    def refuse(*given, **named):
        raise unsupported(kind, what)
    return refuse


#: Where the road ends. Rows of the reference go on from there: how C code
#: looks at objects, gets its arguments, and runs if it may call back; how
#: objects are asked. Without such a row, there is a graph break.
WAYS: dict[str, Callable] = {name: refusing(kind, what) for (
    name, kind, what) in (
    ("run", "builtin", "that may call Python"),
    ("operator", "builtin", "of an operator on objects"),
    ("super", "attribute", "an attribute of super()"),
    ("stored", "attribute", "a value that C code keeps"),
    ("marked", "disabled", "a function"), ("out", "effect", "out="),
    ("perform", "opcode", "in a `try`"),
    ("return", "code", "a function that another one has called"))}


class Raised(Exception):
    """The traced program raised `exception` (a real exception object)."""

    def __init__(self, exception: BaseException):
        self.exception = exception
        super().__init__(exception)


class Stopped(BaseException):
    """The trace reached the instruction to stop at, in these frames."""


@dataclass(frozen=True)
class GraphBreak:
    """Where and why a function could not be one graph."""

    kind: str
    reason: str
    hint: str
    file: str = ""
    line: int = 0
    source: str = ""

    @staticmethod
    def of(refusal: Unsupported) -> GraphBreak:
        """The record of a refusal."""
        where = refusal.where
        return GraphBreak(
            refusal.kind, refusal.reason, refusal.hint,
            *((where.file, where.line, where.text) if where else ()))

    def __str__(self) -> str:
        place = f" at {self.file}:{self.line}  {self.source}"
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{self.reason}{place if self.file else ''}{hint}"
