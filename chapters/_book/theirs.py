"""PyTorch's own sources, counted: what the pages state of their size."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

TORCH = Path(find_spec("torch").origin).parents[1]


def lines(*names: str, code: bool = False) -> int:
    """The lines of files and folders, such as "torch/_dynamo/source.py".

    With `code`, only those that are neither blank nor a comment.
    """
    files = [file for name in names for file in (
        [TORCH / name] if name.endswith(".py")
        else (TORCH / name).rglob("*.py"))]
    return sum(not code or bool(line.strip()) and not line.strip(
        ).startswith("#") for file in files
        for line in file.read_text().splitlines())
