"""The options of compile(), checked once and then handed down unchanged.

In: the mode and the options that the user gave. Out: one frozen `Options`.
A torch.compile option that only affects speed is accepted with a hint. An
unknown name, or a name that would change results, raises OptionError.
PyTorch's are in torch/_inductor/config.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from . import log
from .errors import OptionError, one_of

#: The options that each mode of torch.compile sets here.
MODES: dict[str, dict[str, object]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}

#: torch.compile's name for an option that has another name here.
ALIASES = {"triton.cudagraphs": "cudagraphs",
           "trace.enabled": "trace_enabled"}

#: A number of bytes, with a unit.
_SIZE = re.compile(r"(\d+\.?\d*) ?(?:([KMGT])(i)?)?B")

_MATMULS = "matrix products stay calls of PyTorch's library"
_FUSED = "fusion decides this by itself"

#: Options of torch.compile that change no result, and what happens here.
HINTS = {
    "max_autotune": _MATMULS, "max_autotune_gemm": _MATMULS,
    "max_autotune_gemm_backends": _MATMULS,
    "max_autotune_pointwise": "kernels are not timed against each other",
    "coordinate_descent_tuning": "kernels are not timed against each other",
    "epilogue_fusion": _MATMULS, "prologue_fusion": _MATMULS,
    "aggressive_fusion": _FUSED, "permute_fusion": _FUSED,
    "shape_padding": "a pass decides which operands it pads",
    "layout_optimization": "a pass decides the layout of convolutions",
    "compile_threads": "kernels compile on all processors",
    "triton.cudagraph_trees": "recordings share one pool of memory",
    "size_asserts": "guards check the inputs",
    "trace.graph_diagram": 'explain(f)(x).save("page.html") draws it',
}


@dataclass(frozen=True)
class Options:
    """How to compile. Every stage reads this, none writes it."""

    activation_memory_budget: float = 1.0  # share of default saved bytes
    memory: object = None  # bound on the peak: "12GiB", a share, "min"
    cudagraphs: bool = False  # record CUDA programs, replay them
    cpu_backend: str = "cpp"  # or "triton" (its interpreter)
    double_backward: bool = False  # keep inputs, for second derivatives
    fallback_random: bool = False  # random numbers are eager's
    recompile_limit: int = 8  # entries of one function
    accumulated_recompile_limit: int = 256  # those that died included
    suppress_errors: bool = False  # a BackendError runs as eager, warned
    trace_enabled: bool = False  # each stage's text, in minicompile_debug

    def __post_init__(self):
        for field in fields(self):
            _check(field, getattr(self, field.name))
        if self.peak_bound and self.activation_memory_budget != 1:
            raise OptionError("give memory, a bound on the peak, or "
                              "activation_memory_budget, not both")

    @property
    def peak_bound(self) -> int | float | str | None:
        """`memory` in bytes, as a share of the peak, "min" or None."""
        bound = self.memory
        if bound is None or bound == "min":
            return bound
        if isinstance(bound, str) and (found := _SIZE.fullmatch(bound)):
            number, prefix, binary = found.groups()
            return int(float(number) * (1024 if binary else 1000) ** (
                " KMGT".index(prefix or " ")))
        if type(bound) in (int, float) and 0 < bound <= 1:
            return float(bound)
        raise OptionError(
            'memory is a size such as "12GiB" or "800MB", a share of the '
            f'peak above 0 and up to 1, or "min", not {bound!r}')


def _check(field, value: object) -> None:
    """Raise OptionError unless `value` fits the field of Options."""
    kinds = {"float": (int, float), "int": int, "bool": bool, "str": str,
             "object": object}
    kind = kinds[field.type]
    wrong_bool = isinstance(value, bool) and field.type in ("float", "int")
    if wrong_bool or not isinstance(value, kind):
        raise OptionError(
            f"option {field.name}={value!r} should be a {field.type}")
    if field.name == "activation_memory_budget" and not 0 <= value <= 1:
        raise OptionError("activation_memory_budget is a share of the "
                          f"default, 0 to 1, not {value!r}")
    if field.name == "cpu_backend":
        one_of("cpu_backend", value, ("cpp", "triton"))
    if field.name.endswith("recompile_limit") and value < 1:
        raise OptionError(f"{field.name} is at least 1, not {value}")


def make_options(mode: str | None, given: dict | None) -> Options:
    """Options from compile()'s `mode` and `options`; errors list names.

    As in torch.compile, a call gives a mode or options, and a `-` in a
    name means `_`. An option of HINTS that is turned on warns once.
    """
    if mode is not None and given is not None:
        raise OptionError("give a mode or options, not both; "
                          f"list_mode_options({mode!r}) has the mode's")
    one_of("mode", mode or "default", MODES)
    chosen = {}
    for name, value in (given or MODES[mode or "default"]).items():
        name = name.replace("-", "_")
        name = ALIASES.get(name, name)
        if name not in HINTS:
            one_of("option", name, list_options())
            chosen[name] = value
        elif value:
            log.warn_once(f"option {name!r} has no effect: {HINTS[name]}")
    return replace(Options(), **chosen)


def list_options() -> list[str]:
    """The names that have an effect in compile(options={...})."""
    return [field.name for field in fields(Options)]


def list_mode_options(mode: str | None = None) -> dict:
    """The options that each mode sets, or those that `mode` sets."""
    if mode is None:
        return {name: dict(options) for name, options in MODES.items()}
    one_of("mode", mode, MODES)
    return dict(MODES[mode])
