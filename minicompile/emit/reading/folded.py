"""A program in lines of a readable length.

In: a program's text. Out: the same, its long calls folded.
"""

from __future__ import annotations

import re
import textwrap

from ..program import FINISHES


def folded(source: str) -> str:
    """The program, its long calls broken after their first brackets."""
    def broken(call: re.Match) -> str:
        return call[0] if len(call[0]) <= 79 else "\n".join([
            call[1], textwrap.fill(
                call[2], 79, initial_indent=" " * 8, break_long_words=False,
                subsequent_indent=" " * 8, break_on_hyphens=False)])
    return re.sub(r"^(    [^\s#(][^#(\n]*\()([^'\"\n]*)$", broken, source,
                  flags=re.MULTILINE)


FINISHES.append(folded)
