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
    from .core.disk.entries import (
        load_cache as load_cache, save_cache as save_cache)
    from .core.machines.calibration import (
        keep as calibrate, register_cost as register_cost)
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
    from .report.views.tour import command as tour
    from .split.torch.partitioner import partition_joint_module as partition
    from .trace.torch.marks import (
        allow_in_graph as allow_in_graph, disable as disable,
        disallow_in_graph as disallow_in_graph, graph_break as graph_break,
        mark_dynamic as mark_dynamic, mark_static as mark_static)

__version__ = "0.1.0"

__all__ = ["BackendError", "ConstraintViolation", "GraphBreak",
           "MinicompileError", "OptionError", "RecompileLimit",
           "Unsupported", "calibrate", "compile", "errors", "is_compiling",
           "partition", "reset", "tour", *TOOLS]

load(f"{__name__}.report", [f"{__path__[0]}/report"])
globals().update(TOOLS)
