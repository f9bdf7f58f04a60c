"""The options of compile(), checked once and then handed down unchanged.

In: the mode and the options that the user gave. Out: one frozen `Options`.
A row of the reference knows names of torch.compile's that scripts set: what
only affects speed is accepted with a hint. Any other raises OptionError.
PyTorch's are in torch/_inductor/config.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import log
from .errors import OptionError, one_of

#: The options that each mode of torch.compile sets here.
MODES: dict[str, dict[str, object]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}

#: What an option's name means here; the last one.
MEANING: list[Callable[[str], str]] = [str]

#: Options that do nothing, and what happens instead.
HINTS = dict.fromkeys(
    ("activation_memory_budget", "memory", "numerics", "cudagraphs",
     "replay_check"),
    "the file of minicompile that heeds it is not there")

#: Whether a value of an option is right, and what it should be; for other
#: options, an object of the default's type.
SHOULD_BE: dict[str, tuple[Callable[[object], bool], str]] = {
    "activation_memory_budget": (lambda share: 0 <= share <= 1,
                                 "a share of the default, 0 to 1"),
    "numerics": (("eager", "fast").__contains__, "'eager' or 'fast'"),
    "cpu_backend": (("cpp", "triton").__contains__, "'cpp' or 'triton'")}


@dataclass(frozen=True)
class Options:
    """How to compile. Every stage reads this, none writes it."""

    activation_memory_budget: float = 1.0  # share of default saved bytes
    memory: object = None  # bound on the peak: "12GiB", a share, "min"
    cudagraphs: bool = False  # record CUDA programs, replay them
    cpu_backend: str = "cpp"  # or "triton" (its interpreter)
    numerics: str = "eager"  # or "fast": kernels on a GPU round differently
    fallback_random: bool = False  # random numbers are eager's
    recompile_limit: int = 8  # entries of one function
    accumulated_recompile_limit: int = 256  # those that died included
    suppress_errors: bool = True  # a stage's fault is only a warning
    replay_check: bool = False  # poison and compare, for finding faults
    trace_enabled: bool = False  # each stage's text, in minicompile_debug

    def __post_init__(self):
        for name, value in vars(self).items():
            kind = type(getattr(Options, name))
            fits, what = SHOULD_BE.get(name, (
                lambda value: True, f"a {kind.__name__}"))
            kinds = {float: (int, float), type(None): object}
            if not isinstance(value, kinds.get(kind, kind)) or (
                    isinstance(value, bool) != (kind is bool)
                    ) or not fits(value):
                raise OptionError(
                    f"option {name}={value!r} should be {what}")
        if self.memory is not None and self.activation_memory_budget != 1:
            raise OptionError("give memory, a bound on the peak, or "
                              "activation_memory_budget, not both")


def make_options(mode: str | None, given: dict | None) -> Options:
    """Options from compile()'s `mode` and `options`; errors list names.

    As in torch.compile, a call gives a mode or options, and a `-` in a
    name means `_`. An option of HINTS that is turned on warns once.
    """
    if not isinstance(given or {}, dict):
        raise OptionError(f"options={given!r} should be a dict")
    if mode is not None and given is not None:
        raise OptionError("give a mode or options, not both; "
                          f"list_mode_options({mode!r}) has the mode's")
    one_of("mode", mode or "default", MODES)
    chosen = {}
    for name, value in (given or MODES[mode or "default"]).items():
        name = MEANING[-1](str(name).replace("-", "_"))
        if name in vars(Options()) and name not in HINTS:
            if name in chosen and chosen[name] != value:
                raise OptionError(f"option {name} has two values")
            chosen[name] = value
        elif value:
            why = HINTS.get(name, "no file of minicompile knows it")
            log.warn_once(f"option {name!r} has no effect: {why}")
    return replace(Options(), **chosen)
