"""The options of compile(), checked once and then handed down unchanged."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from .errors import OptionError, one_of

#: What each mode of torch.compile means here, as options.
MODES: dict[str, dict[str, object]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
}


@dataclass(frozen=True)
class Options:
    """How to compile. Every stage reads this, none writes it."""

    activation_memory_budget: float = 1.0  # share of default saved bytes
    cudagraphs: bool = False  # record CUDA programs, replay them
    cpu_backend: str = "cpp"  # or "triton" (its interpreter)
    double_backward: bool = False  # keep inputs, for second derivatives
    fallback_random: bool = False  # random numbers are eager's
    recompile_limit: int = 8  # entries of one function
    accumulated_recompile_limit: int = 256  # those that died included
    suppress_errors: bool = False  # a BackendError runs as eager, warned

    def __post_init__(self):
        for field in fields(self):
            _check(field, getattr(self, field.name))


def _check(field, value: object) -> None:
    """Raise OptionError unless `value` fits the field of Options."""
    kinds = {"float": (int, float), "int": int, "bool": bool, "str": str}
    kind = kinds[field.type]
    wrong_bool = isinstance(value, bool) and field.type != "bool"
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
    """Options from compile()'s `mode` and `options`; errors list names."""
    mode = "default" if mode is None else mode
    one_of("mode", mode, MODES)
    names = [field.name for field in fields(Options)]
    for name in given or {}:
        one_of("option", name, names)
    return replace(Options(), **{**MODES[mode], **(given or {})})


def list_options() -> list[str]:
    """The names accepted in compile(options={...})."""
    return [field.name for field in fields(Options)]


def list_mode_options(mode: str | None = None) -> dict:
    """What each mode sets, or what `mode` sets."""
    return MODES if mode is None else MODES[mode]
