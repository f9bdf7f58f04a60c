"""Why a trace can stop: a kind, with its sentence and its way out.

In: a kind and the details of one case. Out: `Unsupported`, placed at the
user's line where it is caught first. Also `Raised`, which carries an
exception of the user's program through the interpreter. PyTorch's
sentences are in torch/_dynamo/exc.py and graph_break_registry.json.
"""

from collections.abc import Callable

from ..core.errors import Unsupported

#: kind -> (sentence with the case's details, what to write instead)
REASONS: dict[str, tuple[str, str]] = {}


def unsupported(kind: str, what: object) -> Unsupported:
    """The error for one case of `kind`; its place is added later."""
    sentence, hint = REASONS.get(kind, (kind + ": {what}", ""))
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
    ("prepare", "builtin", "that looks at objects"),
    ("key", "builtin", "that looks up an object"),
    ("truth", "data-dependent", "the truth of a tensor"),
    ("operator", "builtin", "of an operator on objects"),
    ("mapping", "builtin", "`**` of an object"),
    ("write", "effect", "a write"),
    ("tensor", "attribute", "what a tensor knows"),
    ("subclass", "input", "a tensor of another class"),
    ("marked", "disabled", "a function"), ("out", "effect", "out="),
    ("device", "effect", "a default device"))}


class Raised(Exception):
    """The traced program raised `exception` (a real exception object)."""

    def __init__(self, exception: BaseException):
        self.exception = exception
        super().__init__(exception)


class Stopped(BaseException):
    """The trace reached the instruction to stop at, in these frames."""
