"""minicompile: a compiler for PyTorch programs that can be read whole."""

import sys
from typing import TYPE_CHECKING

from . import errors
from .core import load
from .core.errors import (BackendError, ConstraintViolation, GraphBreak,
                          MinicompileError, OptionError, RecompileLimit,
                          Unsupported)
from .dispatch.driver import compile, reset
from .trace import is_compiling

if TYPE_CHECKING:  # TOOLS, for editors and type checkers
    from .core.disk.entries import (
        load_cache as load_cache, save_cache as save_cache)
    from .core.machines.calibration import (
        calibrate as calibrate, register_cost as register_cost)
    from .core.torch.options import (
        list_mode_options as list_mode_options,
        list_options as list_options)
    from .dispatch.policy.interop import (
        backend as backend, compile_module_ as compile_module_,
        list_backends as list_backends,
        register_backend as register_backend)
    from .dispatch.policy.misses import set_stance as set_stance
    from .report.debugging.diagnose import diagnose as diagnose
    from .report.views.explain import (
        Kernel as Kernel, Report as Report, explain as explain)
    from .report.views.tour import tour as tour
    from .split.torch.partitioner import partition as partition
    from .trace.torch.marks import (
        allow_in_graph as allow_in_graph, disable as disable,
        disallow_in_graph as disallow_in_graph, graph_break as graph_break,
        mark_dynamic as mark_dynamic, mark_static as mark_static)

#: What the reference offers to users, by the file that has it.
TOOLS = {file: names.split() for file, names in {
    "core.disk.entries": "load_cache save_cache",
    "core.machines.calibration": "calibrate register_cost",
    "core.torch.options": "list_mode_options list_options",
    "dispatch.policy.interop":
        "backend compile_module_ list_backends register_backend",
    "dispatch.policy.misses": "set_stance",
    "report.debugging.diagnose": "diagnose",
    "report.views.explain": "Kernel Report explain",
    "report.views.tour": "tour",
    "split.torch.partitioner": "partition",
    "trace.torch.marks": "allow_in_graph disable disallow_in_graph"
                         " graph_break mark_dynamic mark_static"}.items()}

__version__ = "0.1.0"

__all__ = ["BackendError", "ConstraintViolation", "GraphBreak",
           "MinicompileError", "OptionError", "RecompileLimit",
           "Unsupported", "compile", "errors", "is_compiling", "reset",
           *sum(TOOLS.values(), [])]


def absent(*given: object, **named: object) -> None:
    """Stands for a tool whose file is not there: raises."""
    raise MinicompileError("this tool's file in minicompile is not there")


def unmarked(function: object = None, *given, **named) -> object:
    """Stands for a mark whose file is not there: marks nothing."""
    return unmarked if function is None else function


load(f"{__name__}.report", [f"{__path__[0]}/report"])
globals().update({
    name: getattr(sys.modules.get(f"{__name__}.{file}"), name,
                  unmarked if file.startswith("trace") else absent)
    for file, names in TOOLS.items() for name in names})
