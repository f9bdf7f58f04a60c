"""minicompile: a compiler for PyTorch programs that can be read whole."""

from . import errors
from .core import TOOLS
from .core.errors import (BackendError, ConstraintViolation,
                          MinicompileError, OptionError, RecompileLimit,
                          Unsupported)
from .core.options import list_mode_options, list_options
from .driver import compile, compile_module_, reset
from .pipeline import backend, list_backends, register_backend
from .report import GraphBreak, Report, explain
from .report import PrintedKernel as Kernel
from .trace import (allow_in_graph, disable, disallow_in_graph, graph_break,
                    is_compiling, mark_dynamic, mark_static)

__version__ = "0.1.0"

__all__ = ["BackendError", "ConstraintViolation", "GraphBreak", "Kernel",
           "MinicompileError", "OptionError", "RecompileLimit", "Report",
           "Unsupported", "allow_in_graph", "backend", "compile",
           "compile_module_", "disable", "disallow_in_graph", "errors",
           "explain", "graph_break", "is_compiling", "list_backends",
           "list_mode_options", "list_options", "mark_dynamic",
           "mark_static", "register_backend", "reset", *TOOLS]

globals().update(TOOLS)
