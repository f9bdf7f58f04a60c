"""The vocabulary of all stages, and how a stage loads its reference.

In: a stage. Out: every file in its subfolders, imported. None of them is
needed: without a file there are more graph breaks or slower programs, and
no other values. One that lacks another is left out with it.
"""

from importlib import import_module
from pathlib import Path


def load(package: str, path: list[str]) -> None:
    """Import the files in the subfolders of a package, given its path."""
    for file in sorted(Path(*path).glob("*/*.py")):
        try:
            import_module(f"{package}.{file.parent.name}.{file.stem}")
        except ImportError as missing:
            if not str(missing.name).startswith("minicompile."):
                raise


load(__name__, __path__)
