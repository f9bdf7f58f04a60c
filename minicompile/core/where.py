"""The user's line: every graph node, guard and error can name one."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (.+)')


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
    found = _FRAME.findall(node.meta.get("stack_trace") or "")
    if not found:
        return None
    file, line, function = found[-1]
    return Where(file, int(line), function)
