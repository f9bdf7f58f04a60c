"""C++ text as it grows: lines, blocks, loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..core.index import Variable, may_exceed
from .cpp_text import place


@dataclass
class Lines:
    """Lines of C++, indented by the blocks that are open."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def add(self, *lines: str) -> None:
        """Write lines; a pragma starts at the margin."""
        for line in lines:
            depth = 0 if line.startswith("#") else self.depth
            self.lines.append("    " * depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head { ... }` around what is written inside."""
        self.add(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add("}")

    def loop(self, name: str | Variable, stop: object, start: object = 0,
             step: int = 1):
        """A loop from `start` until `stop`."""
        forward = f"++{name}" if step == 1 else f"{name} += {step}"
        return self.block(f"for (int64 {name} = {start}; {name} < {stop}; "
                          f"{forward})")

    def blocks(self, variable: Variable, step: int):
        """A loop over the starts `v_` of a variable's blocks."""
        name = variable if step == 1 else f"{variable}_"
        return self.loop(name, place(variable.size), step=step)

    def within(self, variable: Variable, step: int):
        """A loop over the block that starts at `v_`, if it has blocks."""
        size, start = variable.size, f"{variable}_"
        if not may_exceed(size, step):
            return self.loop(variable, place(size))
        stop = f"{start} + {step}"
        if size % step != 0:
            stop = f"smaller<int64>({stop}, {place(size)})"
        return self.loop(variable, stop, start)
