"""minicompile: a compiler for PyTorch programs that can be read whole."""

from .core.errors import (BackendError, MinicompileError, OptionError,
                          RecompileLimit, Unsupported)
from .core.options import list_mode_options, list_options
from .driver import compile, reset
from .pipeline import backend, list_backends, register_backend

__all__ = ["BackendError", "MinicompileError", "OptionError",
           "RecompileLimit", "Unsupported", "backend", "compile",
           "list_backends", "list_mode_options", "list_options",
           "register_backend", "reset"]
