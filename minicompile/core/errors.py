"""The user's line, and the errors that name it, each with a way out."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from textwrap import shorten

from torch.fx.graph import _parse_stack_trace


@dataclass(frozen=True)
class Where:
    """A line of the user's source: `file:line`, in `function`."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """The source text of the line, stripped; empty if unreadable."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def where_of(node) -> Where | None:
    """The user's line of an FX node: ours, or read from Dynamo's trace."""
    if "where" in node.meta:
        return node.meta["where"]
    found = _parse_stack_trace(node.meta.get("stack_trace"))
    return found and Where(found.file, int(found.lineno), found.name)


class MinicompileError(RuntimeError):
    """Base of everything minicompile raises about itself."""


class Unsupported(MinicompileError):
    """Tracing met something it cannot follow: an error if fullgraph=True,
    and else the record of a graph break.

    `kind` is a short fixed name, `reason` a sentence, `where` the user's
    line, which is also told as `file`, `line` and `source`; `hint` says
    what to write instead.
    """

    def __init__(self, kind: str, reason: str, where: Where | None = None,
                 hint: str = ""):
        super().__init__(kind, reason, where, hint)
        self.kind, self.reason = kind, reason
        self.where, self.hint = where, hint
        self.file, self.line, self.source = (
            where.file, where.line, where.text) if where else ("", 0, "")

    def __str__(self) -> str:
        """Reason, place, source line, hint; one per line."""
        return "\n".join(filter(None, (
            self.reason,
            self.where and f"  at {self.where}, in {self.where.function}",
            self.source and f"    {self.source}",
            self.hint and f"  hint: {self.hint}")))

    def at(self, where: Where) -> Unsupported:
        """The same, placed at `where` if it had no place yet."""
        return self if self.where else Unsupported(
            self.kind, self.reason, where, self.hint)


#: What ended a graph, in a list of breaks.
GraphBreak = Unsupported


class RecompileLimit(MinicompileError):
    """A function was compiled too often, and eager was not allowed."""


class BackendError(MinicompileError):
    """A stage below the trace failed on a graph that eager can run."""


class ConstraintViolation(MinicompileError):
    """A dimension marked dynamic has to be a constant, or out of range."""


class CompileError(BackendError):
    """A kernel does not compile, or there is no compiler: the graph runs
    unfused."""


class OptionError(MinicompileError, ValueError):
    """An option, mode or backend name is unknown or has a bad value."""


def brief(error: Exception) -> str:
    """The error's text, shortened to one line of a message."""
    kind = "" if isinstance(error, MinicompileError) else (
        f"{type(error).__name__}: ")
    return shorten(f"{kind}{error}", 300, placeholder=" …")


def one_of(what: str, given: object, allowed) -> None:
    """Raise OptionError listing `allowed` unless `given` is among them."""
    allowed = list(allowed)
    if given not in allowed:
        names = ", ".join(repr(name) for name in allowed)
        raise OptionError(f"{what} {given!r} is unknown; allowed: {names}")
