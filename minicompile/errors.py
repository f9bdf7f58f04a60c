"""What minicompile raises about itself, each with its reason."""

from .core.errors import (BackendError, ConstraintViolation,
                          MinicompileError, OptionError, RecompileLimit,
                          Unsupported)

__all__ = ["BackendError", "ConstraintViolation", "MinicompileError",
           "OptionError", "RecompileLimit", "Unsupported"]
