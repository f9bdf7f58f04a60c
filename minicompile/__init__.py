"""minicompile: a compiler for PyTorch programs that can be read whole."""

from typing import TYPE_CHECKING

from . import errors
from .core import TOOLS, load
from .core.errors import (BackendError, ConstraintViolation, GraphBreak,
                          MinicompileError, OptionError, RecompileLimit,
                          Unsupported)
from .dispatch.driver import compile, reset
from .trace import is_compiling

if TYPE_CHECKING:  # TOOLS, for editors and type checkers
    from .core.disk.entries import load_cache, save_cache
    from .core.machines.calibration import keep as calibrate, register_cost
    from .core.torch.options import list_mode_options, list_options
    from .dispatch.policy.interop import (backend, compile_module_,
                                          list_backends, register_backend)
    from .dispatch.policy.misses import set_stance
    from .report.debugging.diagnose import diagnose
    from .report.views.explain import Kernel, Report, explain
    from .report.views.tour import command as tour
    from .split.torch.partitioner import partition_joint_module as partition
    from .trace.torch.marks import (allow_in_graph, disable,
                                    disallow_in_graph, graph_break,
                                    mark_dynamic, mark_static)

__version__ = "0.1.0"

__all__ = ["BackendError", "ConstraintViolation", "GraphBreak", "Kernel",
           "MinicompileError", "OptionError", "RecompileLimit", "Report",
           "Unsupported", "allow_in_graph", "backend", "calibrate",
           "compile", "compile_module_", "diagnose", "disable",
           "disallow_in_graph", "errors", "explain", "graph_break",
           "is_compiling", "list_backends", "list_mode_options",
           "list_options", "load_cache", "mark_dynamic", "mark_static",
           "partition", "register_backend", "register_cost", "reset",
           "save_cache", "set_stance", "tour"]

load(f"{__name__}.report", [f"{__path__[0]}/report"])
globals().update(TOOLS)
