"""minicompile: a compiler for PyTorch programs that can be read whole."""

from typing import TYPE_CHECKING

from . import errors
from .core import TOOLS, load
from .core.errors import (BackendError, ConstraintViolation, GraphBreak,
                          MinicompileError, OptionError, RecompileLimit,
                          Unsupported)
from .dispatch.driver import compile, reset
from .trace import is_compiling

if TYPE_CHECKING:  # those of TOOLS that have results of their own
    from .core.torch.options import list_mode_options as list_mode_options
    from .core.torch.options import list_options as list_options
    from .report.views.explain import Kernel as Kernel
    from .report.views.explain import Report as Report
    from .report.views.explain import explain as explain

__version__ = "0.1.0"

__all__ = ["BackendError", "ConstraintViolation", "GraphBreak",
           "MinicompileError", "OptionError", "RecompileLimit",
           "Unsupported", "compile", "errors", "is_compiling", "reset",
           *TOOLS]

load(f"{__name__}.report", [f"{__path__[0]}/report"])
globals().update(TOOLS)
