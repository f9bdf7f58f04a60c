"""The reader's files: one a chapter, with a place for every answer.

`python -m chapters._book.exercises` adds the places that are missing in
`exercises/`, and changes nothing that is there. A place has the name and
the parameters of the page's solution, and raises NotImplementedError.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from chapters._book import pages

FOLDER = pages.ROOT / "exercises"
EMPTY = "raise NotImplementedError"
OPENING = '''"""Your answers to the exercises of chapter {chapter}.

The tasks: {where}.
`make exercise N={first}` judges one of them, `make exercise N={chapter}` all.
"""
'''


class Exercise(NamedTuple):
    """A task of a page, and the solution that the page folds away."""

    number: str
    title: str
    page: str
    code: str

    @property
    def names(self) -> list[str]:
        """The names that a test may ask of the answer."""
        return list(dict.fromkeys(name for number, name in asked()
                                  if number == self.number))


@cache
def asked() -> list[tuple[str, str]]:
    """The number and the name in every `answer(…)` of the tests."""
    return [found for path in sorted(pages.ROOT.glob(
                "tests/*/test_*exercises.py"))
            for found in re.findall(r'answer\("([\d.]+)", "(\w+)"\)',
                                    path.read_text())]


@cache
def exercises() -> dict[str, list[Exercise]]:
    """The exercises of each chapter, in the order of their numbers."""
    found = defaultdict(list)
    for page in pages.nav():
        text = (pages.DOCS / page).read_text()
        for block in pages.read(page, text).blocks:
            if number := block.options.get("id"):
                [title] = re.findall(
                    rf"^\*\*{re.escape(number)} ([^*]+)\*\*", text, re.M)
                found[number.split(".")[0]].append(Exercise(
                    number, " ".join(title.split()), page, block.code))
    return {chapter: sorted(made, key=lambda each: int(
        each.number.split(".")[1])) for chapter, made in found.items()}


def signature(made: ast.FunctionDef, indent: str = "") -> str:
    """The first line of a function, and no body."""
    return (f"{indent}def {made.name}({ast.unparse(made.args)}):\n"
            f"{indent}    {EMPTY}\n")


def place(code: str, name: str) -> str:
    """Where the answer `name` goes: what the solution has, left empty."""
    found = [each for each in ast.parse(code).body
             if getattr(each, "name", None) == name]
    match found:
        case [ast.FunctionDef() as function]:
            return signature(function)
        case [ast.ClassDef(body=body)]:
            return f"class {name}:\n" + "\n".join(
                signature(each, "    ") for each in body
                if isinstance(each, ast.FunctionDef))
    return f"{name} = None\n"


def write(folder: Path = FOLDER) -> None:
    """Make the files, and in each the places that it lacks."""
    folder.mkdir(exist_ok=True)
    for chapter, made in exercises().items():
        path = folder / f"chapter_{chapter}.py"
        where = ", ".join(dict.fromkeys(each.page for each in made))
        text = path.read_text() if path.exists() else OPENING.format(
            chapter=chapter, where=where, first=made[0].number)
        has = {each for line in ast.parse(text).body
               for each in (getattr(line, "name", None), *map(
                   ast.unparse, getattr(line, "targets", ())))}
        for each in made:
            missing = [name for name in each.names if name not in has]
            if missing:
                text += f"\n\n# {each.number} {each.title}\n" + "".join(
                    place(each.code, name) for name in missing)
        path.write_text(text)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
