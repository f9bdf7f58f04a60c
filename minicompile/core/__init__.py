"""The vocabulary of all stages, and how a stage loads its reference.

In: a stage. Out: every file in its subfolders, imported. None of them is
needed: without a file there are more graph breaks or slower programs, and
no other result. One that lacks another is left out with it.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from .errors import MinicompileError


def absent(*given: object, **named: object) -> None:
    """Stands for a tool whose file is not there: raises."""
    raise MinicompileError("this tool's file in minicompile is not there")


def unmarked(function: Callable | None = None, *given, **named) -> Callable:
    """Stands for a mark whose file is not there: marks nothing."""
    return unmarked if function is None else function


#: What the reference offers to users, by its name in minicompile.
TOOLS: dict[str, Callable] = {
    **dict.fromkeys(("Kernel", "Report", "backend", "calibrate",
                     "compile_module_", "diagnose", "explain",
                     "list_backends", "list_mode_options", "list_options",
                     "load_cache", "partition", "register_backend",
                     "register_cost", "save_cache", "set_stance", "tour"),
                    absent),
    **dict.fromkeys(("allow_in_graph", "disable", "disallow_in_graph",
                     "graph_break", "mark_dynamic", "mark_static"),
                    unmarked)}


def load(package: str, path: list[str]) -> None:
    """Import the files in the subfolders of a package, given its path."""
    for file in sorted(Path(*path).glob("*/*.py")):
        try:
            import_module(f"{package}.{file.parent.name}.{file.stem}")
        except ImportError as missing:
            if not str(missing.name).startswith("minicompile."):
                raise


load(__name__, __path__)
