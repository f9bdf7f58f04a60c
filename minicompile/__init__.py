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
from .trace import is_compiling

__version__ = "0.1.0"

__all__ = ["BackendError", "ConstraintViolation", "GraphBreak", "Kernel",
           "MinicompileError", "OptionError", "RecompileLimit", "Report",
           "Unsupported", "backend", "compile", "compile_module_", "errors",
           "explain", "is_compiling", "list_backends",
           "list_mode_options", "list_options", "register_backend", "reset",
           *TOOLS]

globals().update(TOOLS)
