"""PyTorch's own operators and modules, each sample run eager and compiled.

In: a sample of `op_db` or `module_db`, which PyTorch keeps to test itself.
Out: a `Verdict`: compiled, left to eager (with the reason) or
wrong. Everything eager lets one see is compared: values, structure,
strides, aliases, writes, gradients (None is not zero), and exceptions.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import minicompile
from minicompile.core import log
from tests.judge import judged
from tests.split import judge

pytest.importorskip("expecttest", reason="PyTorch's samples need it")
from torch.testing._internal import (  # noqa: E402
    common_methods_invocations)
from torch.testing._internal.common_modules import (  # noqa: E402
    module_db)

#: What a sample can come to; the last is a bug of ours.
STATUSES = ("compiled", "refused", "wrong")

op_db = common_methods_invocations.op_db

# Random operators there seed the generator themselves; here the judge does.
common_methods_invocations.wrapper_set_seed = (
    lambda function, *args, **kwargs: function(*args, **kwargs))

#: Their values are whatever was in the memory.
UNSET = ("empty", "new_empty")


@dataclass(frozen=True)
class Verdict:
    """What came of one sample; `reason` unless it was compiled."""

    status: str
    reason: str = ""


@dataclass(frozen=True)
class Case:
    """One sample: a function of flat `leaves`, and what it holds.

    `make(wrap)` gives both; `wrap` says how the operator is called.
    """

    suite: str
    name: str
    dtype: str
    sample: int
    leaves: tuple
    make: Callable

    @property
    def key(self) -> str:
        return f"{self.suite} {self.name} {self.dtype} {self.sample}"


def entries(suite: str) -> dict:
    """PyTorch's description of each entry of a suite, by its name."""
    if suite == "modules":
        return {entry.name: entry for entry in module_db}
    found = {entry.full_name: entry for entry in op_db}
    if suite == "in place":
        found = {name: entry for name, entry in found.items()
                 if entry.inplace_variant is not None}
    if suite == "errors":
        found = {name: entry for name, entry in found.items()
                 if entry.error_inputs_func is not None}
    return found


def names(suite: str, dtype: str = "float32",
          device: str = "cpu") -> list[str]:
    """The entries of a suite that take a dtype on a device."""
    return sorted(name for name, entry in entries(suite).items()
                  if getattr(torch, dtype) in (
                      entry.dtypes if suite == "modules" else
                      entry.supported_dtypes(device)))


def chosen(suite: str, seed: int, share: float) -> list[str]:
    """A share of the entries, by the seed."""
    known = names(suite)
    return sorted(random.Random(seed).sample(known, round(
        share * len(known))))


def cases(suite: str, name: str, dtype: str, limit: int | None = None,
          seed: int = 0, device: str = "cpu") -> Iterator[Case]:
    """At most `limit` samples of an entry, spread over all it has."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [*MAKERS[suite](entries(suite)[name],
                               getattr(torch, dtype), device)]
    step = max(1, len(made) // (limit or len(made) or 1))
    for position in range(seed % step, len(made), step)[:limit]:
        leaves, make = made[position]
        yield Case(suite, name, dtype, position, tuple(leaves), make)


def has_gradients(dtype: torch.dtype) -> bool:
    """Whether a tensor of this dtype may require grad."""
    return dtype.is_floating_point or dtype.is_complex


def _operators(entry, dtype, device) -> Iterator[tuple]:
    """(leaves, make) of each sample of an OpInfo."""
    for sample in entry.sample_inputs(
            device, dtype, requires_grad=(
                entry.supports_autograd and has_gradients(dtype))):
        yield _called(entry.op, (sample.input, *sample.args), sample.kwargs)


def _errors(entry, dtype, device) -> Iterator[tuple]:
    """(leaves, make) of each sample that an OpInfo says must raise."""
    for error in entry.error_inputs(device):
        sample = error.sample_input
        yield _called(entry.op, (sample.input, *sample.args), sample.kwargs)


def _in_place(entry, dtype, device) -> Iterator[tuple]:
    """(leaves, make) of each sample, written into its first argument."""
    for sample in entry.sample_inputs(
            device, dtype, requires_grad=(
                entry.supports_inplace_autograd
                and has_gradients(dtype))):
        if not sample.broadcasts_input:
            yield _called(entry.inplace_variant,
                          (sample.input, *sample.args), sample.kwargs)


def _called(function, args, kwargs) -> tuple:
    """The leaves of the arguments, and what calls `function` on them."""
    def target(args, kwargs):
        return function(*args, **kwargs)

    def wrapping(wrap):
        wrapped = wrap(target)
        return lambda *args, **kwargs: wrapped(args, kwargs), []
    return _flattened(wrapping, args, kwargs)


def _flattened(wrapping, args, kwargs) -> tuple:
    """The leaves, and a maker of functions of them."""
    leaves, spec = tree_flatten((args, kwargs))

    def make(wrap):
        wrapped, held = wrapping(wrap)

        def run(*leaves):
            args, kwargs = tree_unflatten(leaves, spec)
            return wrapped(*args, **kwargs)
        return run, held
    return leaves, make


def _modules(entry, dtype, device) -> Iterator[tuple]:
    """(leaves, make) of each sample of a ModuleInfo, training and not."""
    for training in (True, False):
        for sample in entry.module_inputs_func(
                entry, device=device, dtype=dtype, requires_grad=True,
                training=training):
            if sample.forward_input is not None:
                yield _module(entry, dtype, device, sample, training)


def _module(entry, dtype, device, sample, training: bool) -> tuple:
    """The leaves of the inputs, and what runs a copy of the module."""
    built = entry.module_cls(*sample.constructor_input.args,
                             **sample.constructor_input.kwargs)
    built = built.to(device, dtype).train(training)
    given = sample.forward_input
    if isinstance(built, torch.nn.modules.lazy.LazyModuleMixin):
        built(*given.args, **given.kwargs)  # now it has parameters

    def wrapping(wrap):
        module = copy.deepcopy(built)
        wrap = wrap(module)
        return wrap, [*module.parameters(), *module.buffers()]
    return _flattened(wrapping, given.args, given.kwargs)


MAKERS = {"operators": _operators, "errors": _errors,
          "in place": _in_place, "modules": _modules}


def examine(case: Case, backend: str = "split") -> Verdict:
    """Eager and compiled, side by side: what there is to say."""
    made: list = []

    def compiled(target):
        made.append(minicompile.compile(
            target, backend=backend, options={"fallback_random": True}))
        return made[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.warn_once.cache_clear()
        want = seen(case, lambda target: target)
        got = seen(case, compiled)
        difference = differing(case, got, want)
    if difference:
        return Verdict("wrong", difference)
    reason = why_not(made[0])
    return Verdict("refused" if reason else "compiled", reason)


def seen(case: Case, wrap) -> dict:
    """What a call shows, or the exception that it raises."""
    torch.manual_seed(1)
    function, held = case.make(wrap)
    form = []

    def flat(*leaves):
        results, spec = tree_flatten(function(*leaves))
        form.append(str(spec))
        return results
    try:
        found = judge.observe(flat, list(case.leaves),
                              leaves=case.suite != "in place",
                              held=held)
    except Exception as error:
        return {"form": form, "raises": error}
    return {"form": form, **found}


def differing(case: Case, got: dict, want: dict) -> str:
    """The first thing in which two observations differ, or ''."""
    if got["form"] != want["form"]:
        return (f"returns {got['form']}, not {want['form']}; raises "
                f"{got.get('raises')!r}, not {want.get('raises')!r}")
    if "raises" in want or "raises" in got:
        mine, theirs = got.get("raises"), want.get("raises")
        same = isinstance(mine, type(theirs))
        return "" if same else f"raises {mine!r}, not {theirs!r}"
    for name, expected in want.items():
        if case.name.startswith(UNSET) and name in ("results", "written"):
            continue
        try:
            judged(judge.close, got[name], expected,
                   lambda *leaves, name=name: alone(case, leaves)[name],
                   *case.leaves)
        except AssertionError as error:
            return f"{name}: {error}"
    return ""


def alone(case: Case, leaves) -> dict:
    """What eager shows with these leaves, modules in double precision."""
    return seen(replace(case, leaves=leaves), lambda target: target.double()
                if isinstance(target, torch.nn.Module) else target)


def why_not(compiled) -> str:
    """Why a call was not compiled whole; '' if it was."""
    stats = compiled.stats()
    if stats.fallbacks:
        return "; ".join(stats.fallbacks)
    breaks = compiled.cache.breaks
    if breaks:
        return "; ".join(f"{each.kind}: {each.reason}" for each in breaks)
    return "" if stats.graphs else "no graph"


def asked(case: Case) -> bool:
    """Whether torch.compile takes a sample as one graph."""
    torch._dynamo.reset()
    compiled, _ = case.make(lambda target: torch.compile(
        target, backend="aot_eager", fullgraph=True))
    leaves, _ = judge.fresh(case.leaves, case.suite != "in place")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [each for each in tree_flatten(compiled(*leaves))[0]
                       if isinstance(each, torch.Tensor)]
            ends = [each for each in results if each.grad_fn is not None]
            if ends:
                torch.autograd.backward(
                    ends, [torch.ones_like(each) for each in ends])
    except Exception:
        return False
    return True


def told(case: Case, verdict: Verdict) -> dict:
    """A verdict as a line of JSON."""
    return {"key": case.key, "suite": case.suite, "name": case.name,
            "dtype": case.dtype, "sample": case.sample, **asdict(verdict)}
