"""Misses: entries are shared; a stance or a limit may say no.

In: a call that no entry of its cache fits. Out: an entry of another
cache, an error, eager, or an entry that is compiled, with the reason told.
A program that has warmed up must not stop to compile, one that compiles
for every call is slower than eager, and blocks that are alike are compiled
once. If a graph raises that has written nothing, Python makes the call
again. PyTorch's are set_stance in torch/compiler/__init__.py, and
torch/_dynamo/cache_size.py.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from weakref import WeakSet

import torch
from torch import nn

from ...core import log
from ...core.errors import (BackendError, MinicompileError,
                            RecompileLimit, Unsupported, brief, one_of)
from ...core.graph import FAILED
from ...core.options import SHOULD_BE, Options
from ...core.state import turns
from ...guards.explain.reasons import failures
from ...pipeline import OURS, place_of
from ...trace import History, Trace, trace
from .. import (AT_MISS, ATTEMPTS, CACHES, FORCED_EAGER, RUNS, Cache,
                Found, link, straight)


def why(cache: Cache, locals: tuple) -> list[list[str]]:
    """Why each entry does not fit."""
    reasons = [[f"{cache.name}: {failure}" for failure in
                failures(entry.check, locals, cache.function)]
               for entry in cache.entries]
    for number, each in enumerate(reasons):
        for reason in each:
            log.show("recompiles", f"entry {number}: {reason}")
    return reasons


def shared(cache: Cache, locals: tuple) -> Found:
    """The entry of another module's cache that fits this call.

    It becomes one of `cache`, with a check of its own; what its graph
    notes counts in the cache that made it.
    """
    asked = cache.settings
    if (len(cache.entries) >= asked.chosen.recompile_limit
            or asked.chosen.cudagraphs or asked.backend not in OURS
            or cache.root is cache and not isinstance(
                next(iter(locals), None), nn.Module)):
        return None
    for entry in [entry for other in list(CACHES)
                  if other.function is cache.function
                  and other.settings == asked and other.root.user()
                  for entry in other.entries]:
        if entry.check(locals, cache.function):
            lowered = type(entry.lowered)(
                **vars(entry.lowered) | {"notes": Counter()})
            cache.add(link(entry.trace, entry.check.guards, lowered,
                           cache.goes_on))
            cache.root.counted.shared += 1
            return cache.find(locals)
    return None


def failing(cache: Cache, locals: tuple) -> None:
    """The call is an error, which says why no entry fits."""
    raise RecompileLimit("\n".join([
        f"{cache.name} would be compiled, and the stance is "
        "fail_on_recompile", *sum(why(cache, locals), [])]))


def eager_first(cache: Cache, locals: tuple) -> Found:
    """The first call runs as eager, and only shows its sizes."""
    if cache.made or cache.history in MET:
        return None
    MET.add(cache.history)
    trace(cache.function, locals, history=cache.history,
          breaks=not cache.settings.fullgraph)
    return eager(cache, locals)


#: The histories that have seen a first call under such a stance.
MET: WeakSet[History] = WeakSet()


def eager(cache: Cache, locals: tuple) -> Found:
    """The call runs as eager; nothing is learnt of the next one."""
    return lambda L, F, inputs: called_again(F, L), []


#: What each stance does before a call is compiled.
STANCES = {"default": lambda *_: None, "force_eager": eager,
           "eager_on_recompile": eager, "fail_on_recompile": failing,
           "eager_then_compile": eager_first,
           "aot_eager_then_compile": eager_first}

ours = "default"


def take(stance: str) -> None:
    """Take a stance, for all threads."""
    global ours
    one_of("stance", stance, STANCES)
    ours = stance
    FORCED_EAGER[:] = [stance] * (stance == "force_eager")


take._torchdynamo_disable = True  # compiled code stops for it


class set_stance(ContextDecorator):
    """Take a stance: for good, in a `with` block, or for a function.

    `set_stance("force_eager")` may be called, entered or used as a
    decorator. An unknown name is an OptionError.
    """

    def __init__(self, stance: str = "default"):
        self.stance, self.before = stance, ours
        take(stance)

    def __call__(self, function: Callable) -> Callable:
        take(self.before)
        return super().__call__(function)

    def _recreate_cm(self) -> set_stance:
        return set_stance(self.stance)  # before is what holds at the call

    def __enter__(self) -> None:
        take(self.stance)

    def __exit__(self, *error: object) -> None:
        take(self.before)


def standing(cache: Cache, locals: tuple) -> Found:
    """Ask the stance about a miss: ours, or torch.compiler's.

    That one is read where PyTorch keeps it, if its compiler is loaded.
    """
    theirs = sys.modules.get("torch._dynamo.eval_frame")
    return STANCES.get(ours if ours != "default" or theirs is None else (
        theirs._stance.stance), eager)(cache, locals)


#: How many reasons a full cache tells.
TOLD = 8
FULL = """{name} was compiled {count} times, which is its {limit}. A call
that fits none of its graphs will get no other. The latest reasons:
{reasons}
  hint: let sizes be dynamic, pass numbers that vary as tensors, or set
  options={{"{limit}": ...}}"""


SHOULD_BE |= dict.fromkeys(
    ("recompile_limit", "accumulated_recompile_limit"),
    (lambda limit: limit >= 1, "a number of entries, at least 1"))


def limited(cache: Cache, locals: tuple) -> None:
    """Raise if a limit allows no further entry.

    A limit that the user has not set is torch.compile's, if that is
    loaded.
    """
    theirs = sys.modules.get("torch._dynamo.config")
    for limit, count in {
            "recompile_limit": len(cache.entries),
            "accumulated_recompile_limit": cache.made}.items():
        allowed = getattr(cache.settings.chosen, limit)
        if allowed == getattr(Options, limit):
            allowed = getattr(theirs, limit, allowed)
        if not cache.made or count < allowed:
            continue
        reasons = dict.fromkeys(
            sum(why(cache, locals)[:1], cache.root.counted.reasons))
        text = FULL.format(name=cache.name, count=count, limit=limit,
                           reasons="\n".join([*reasons][-TOLD:]))
        if cache.settings.fullgraph:
            raise RecompileLimit(text)
        cache.refused = defaultdict(lambda: ATTEMPTS)  # all calls
        raise Unsupported("recompile limit", text)


def attempted(cache: Cache, locals: tuple) -> Found:
    """The entry compiled for a call, with the reason and the symbols told.

    If symbols fail, it is compiled for these sizes.
    """
    stats, reasons, known = cache.root.counted, why(
        cache, locals), cache.history
    if cache.made:
        stats.recompiles += 1
        stats.reasons += sum(reasons[:1], [])
    while True:
        try:
            return cache.compile(locals)
        except BackendError as failure:
            if known.symbols and not known.never:
                log.warn_once(f"minicompile compiles {cache.name} for each "
                              f"size anew: {brief(failure)}")
                stats.fallbacks["static shapes"] += 1
                known.dynamic, known.never = False, True
                continue
            raise
        except Unsupported as refusal:
            if refusal.kind == "exception" and cache.settings.fullgraph:
                return partial(raising, refusal), []
            raise
        finally:
            for place, reason in known.symbols.items():
                if (what := f"{cache.name}: {place} {reason}"
                        ) not in stats.dynamic:
                    stats.dynamic.append(what)
                    log.show("dynamic", what)


AT_MISS[:] = [shared, standing, limited, attempted]


def raising(refusal: Unsupported, L: tuple, F: Callable, inputs: list):
    """The exception that Python raises; the refusal, if it raises none."""
    called_again(F, L)
    raise refusal

# Graphs that fail

#: Where operators come from that only compute.
_OPERATORS = ("torch", "_operator", "builtins", "math")


def repeatable(made: Trace) -> bool:
    """Whether Python may make a call again whose graph raised."""
    return all(
        (getattr(node.target, "__module__", None) or "torch").partition(
            ".")[0] in _OPERATORS or turns(node.target)
        for node in made.graph.graph.nodes)


def again(traced: Trace, graph: Callable, finish: Callable) -> Callable:
    """`run`, but Python makes the call again whose graph raises."""
    if not repeatable(traced):
        return straight(traced, graph, finish)

    def run(L: tuple, F: Callable, inputs: list):
        try:
            outputs = graph(inputs)
        except MinicompileError:
            raise
        except Exception as error:
            if torch._C._autograd._top_saved_tensors_default_hooks(False):
                raise  # it may be a hook's, as of a checkpoint around it
            if traced.writes and not str(error).startswith(FAILED):
                raise  # all checks come before the first write
            why = f"{type(error).__name__}: {error}"
        else:
            return finish(L, F, outputs)
        result = called_again(F, L)
        log.warn_once(f"a graph{place_of(traced.graph)} failed, Python ran "
                      f"the call: {why}")
        return result
    return run


def called_again(function: Callable, locals: tuple):
    """The result of the call that begins with these local values."""
    code, rest = function.__code__, [*locals]
    plain = [rest.pop(0) for _ in range(code.co_argcount)]
    named = {name: rest.pop(0) for name in code.co_varnames[
        code.co_argcount:code.co_argcount + code.co_kwonlyargcount]}
    if code.co_flags & inspect.CO_VARARGS:
        plain += rest.pop(0)
    return function(*plain, **named, **(rest.pop(0) if rest else {}))


RUNS.append(again)
