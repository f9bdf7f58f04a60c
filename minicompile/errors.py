"""The exceptions of minicompile itself, each with its reason."""

from .core.errors import (BackendError, ConstraintViolation,
                          MinicompileError, OptionError, RecompileLimit,
                          Unsupported)

__all__ = ["BackendError", "ConstraintViolation", "MinicompileError",
           "OptionError", "RecompileLimit", "Unsupported"]
