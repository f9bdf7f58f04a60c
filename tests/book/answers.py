"""Answers to a chapter's exercises: the page's own, or the reader's.

The solutions printed in the pages are judged; with `--mine`, as in
`make exercise N=4.1`, the files in exercises/, and `--mine=FOLDER` others.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from chapters._book.exercises import exercises

#: Where the reader's files are, if they are to be judged.
MINE: list[Path] = []


def answer(exercise: str, name: str):
    """What `name` is in the answer to an exercise such as "4.1"."""
    chapter = exercise.split(".")[0]
    for folder in MINE:
        return runpy.run_path(str(folder / f"chapter_{chapter}.py"))[name]
    for each in exercises()[chapter]:
        if each.number == exercise:
            made: dict = {"__name__": f"answer_{exercise}"}
            exec(compile(each.code, f"<{each.page} {exercise}>", "exec"),
                 made)
            return made[name]
    raise LookupError(f"no page has a block with id=\"{exercise}\"")
