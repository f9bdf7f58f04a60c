"""Dispatch: which compiled graph runs a call, and when to make another.

In: a function, and how it is to be compiled. Out: a callable that behaves
the same. A call looks for an entry whose guards hold. If there is none,
the function is traced, the graph goes down the pipeline, and the entry is
kept. The reference adds what else may happen at a miss: limits, stances,
further attempts, and entries shared between modules. PyTorch's cache
lookup is C++; the rest is torch/_dynamo/eval_frame.py and
convert_frame.py.
"""

from __future__ import annotations

import functools
import math
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import fx

from ..core import load, log
from ..core.errors import Unsupported
from ..core.guard import Guard
from ..core.state import eager_is_watched
from ..guards import Check, build_check
from ..pipeline import OURS, CompiledGraph, Settings, compile_graph
from ..trace import CONTINUATIONS, History, Trace, trace
from ..trace.tracer import taking


@dataclass(frozen=True)
class Entry:
    """One compiled graph: `run(L, F, inputs)`, with what `check` gives."""

    check: Check
    run: Callable
    trace: Trace
    lowered: CompiledGraph


#: The function that runs a call, and the graph's inputs in that call.
Found = tuple[Callable, list] | None

#: The check of no entry, and how to run none.
NOTHING = (lambda L, F: None), None

#: How many calls with arguments of the same types may raise before they
#: are left alone.
ATTEMPTS = 8

#: As long as this holds something, no call runs compiled.
FORCED_EAGER: list[str] = []


@dataclass
class Stats:
    """Counts of what has happened to a compiled function."""

    graphs: int = 0
    shared: int = 0  # those taken from another module of the same class
    recompiles: int = 0
    reasons: list[str] = field(default_factory=list)  # of recompiles
    dynamic: list[str] = field(default_factory=list)  # the new symbols
    graph_breaks: int = 0
    kernels: int = 0
    fallbacks: Counter = field(default_factory=Counter)
    replays: Counter = field(default_factory=Counter)


class Cache:
    """The compiled entries of one function, most recent first.

    A continuation after a graph break is a function with a cache of its
    own. `root` is the cache of the function that was called: it counts
    for all, and knows every continuation.
    """

    def __init__(self, function: types.FunctionType, settings: Settings,
                 name: str, root: Cache | None = None):
        self.function, self.settings = function, settings
        self.name, self.root = name, root or self
        self.lock = threading.RLock()
        self.watch = None  # explain()'s hook, called when an entry holds
        self.rebind()
        self.clear()

    def rebind(self) -> None:
        """Take the function's code as it is now."""
        self.code = code = self.function.__code__
        self.bind = make_bind(self.function)
        count = len(taking(code).co_varnames)
        self.count = count if count == code.co_argcount else -1

    def clear(self) -> None:
        """Forget every entry and every fact learnt."""
        self.entries: tuple[Entry, ...] = ()
        self.first = NOTHING
        self.made = 0
        self.refused: Counter[tuple[type, ...]] = Counter()
        self.history = History(
            self.settings.dynamic, not self.settings.chosen.cudagraphs
            and self.settings.backend in OURS)
        if self.root is self:
            self.counted, self.breaks = Stats(), []
            self.continuations: dict[types.FunctionType, Callable] = {}
        else:
            self.history.counters = self.root.history.counters

    def goes_on(self, function: types.FunctionType) -> Callable:
        """The compiled form of a continuation, one for each place."""
        return self.root.continuations.setdefault(function, wrap(
            function, self.settings, self.name, self.root))

    def family(self) -> list[Cache]:
        """The caches of the function that was called and what goes on."""
        return [self.root, *(compiled.cache for compiled
                             in self.root.continuations.values())]

    def stats(self) -> Stats:
        """A copy of the counts so far."""
        found = deepcopy(self.root.counted)
        for entry in chain(*(cache.entries for cache in self.family())):
            found.fallbacks += entry.lowered.notes
            if entry.lowered.graphed:
                found.replays += entry.lowered.graphed.stats
        return found

    def find(self, locals: tuple) -> Found:
        """The entry that holds in this call, put first, and its inputs."""
        for entry in self.entries:
            inputs = entry.check.function(locals, self.function)
            if inputs is not None:
                if self.root.watch:
                    self.root.watch(entry, inputs)
                if self.lock.acquire(blocking=False):
                    self._keep(entry)
                    self.lock.release()
                return entry.run, inputs
        return None

    def _keep(self, entry: Entry) -> None:
        """Put the entry first."""
        self.entries = (entry, *(other for other in self.entries
                                 if other is not entry))
        self.first = entry.check.function, entry.run

    def miss(self, locals: tuple) -> Found:
        """The entry for a call, compiled if need be; None means eager."""
        fallbacks = self.root.counted.fallbacks
        if self.function.__code__ is not self.code:
            fallbacks["code replaced"] += 1
            return self.rebind()  # the old code bound these locals
        found, kinds = self.find(locals), tuple(map(type, locals))
        if found or self.refused[kinds] >= ATTEMPTS or eager_is_watched():
            return found
        hide = torch._C._autograd._saved_tensors_hooks_set_tracing
        with self.lock:
            before = hide(True)  # from a checkpoint's hooks, which count
            try:  # another thread may have compiled it
                for way in (Cache.find, *AT_MISS):
                    if found := way(self, locals):
                        return found
                fallbacks["changed while compiling"] += 1
            except Unsupported as refusal:
                if self.settings.fullgraph:
                    raise
                self.root.breaks.append(Unsupported(*refusal.args))
                self.run_eager(kinds, refusal.kind, refusal)
            finally:
                hide(before)
                log.enter("")
        return None

    def run_eager(self, kinds: tuple, kind: str, why: object) -> None:
        """Let calls with arguments of these types run eager; warn.

        A call that raised is tried a few times more: it may not again.
        """
        self.refused[kinds] += 1 if kind == "exception" else ATTEMPTS
        self.root.counted.fallbacks[kind] += 1
        if self.refused[kinds] >= ATTEMPTS:
            log.warn_once(f"minicompile runs {self.name} as eager: {why}")

    def compile(self, locals: tuple) -> Found:
        """The entry that is made for a call, if it holds then."""
        asked = self.settings
        log.enter("trace")
        traced = trace(self.function, locals, history=self.history,
                       breaks=not asked.fullgraph)
        log.show("graph_code", traced)
        for found in traced.breaks:
            log.show("graph_breaks", found)
        nodes = operations(traced.graph)
        lowered = compile_graph(
            traced.graph, traced.example_inputs, asked
            ) if nodes else CompiledGraph(lambda inputs: ())
        log.enter("guards")
        self.add(link(traced, (*traced.guards, *traced.sizes.guards()),
                      lowered, self.goes_on))
        self.made += 1
        self.root.breaks += traced.breaks
        stats = self.root.counted
        stats.graphs += bool(nodes)
        stats.graph_breaks += len(traced.breaks)
        stats.fallbacks += Counter(filter(None, [lowered.fallback]))
        stats.kernels += lowered.kernels
        return self.find(locals)

    def add(self, entry: Entry) -> None:
        """Keep an entry, until an object that its guards require dies."""
        log.show("guards", entry.check)
        self._keep(entry)
        entry.check.names.mourners.append(self.forget)

    def forget(self) -> None:
        """Drop the entries that can never hold again."""
        self.first = NOTHING
        self.entries = tuple(entry for entry in self.entries
                             if entry.check.alive)


#: What is tried at a miss, in order. Each may find an entry, raise an
#: error, or leave the call to the next.
AT_MISS: list[Callable[[Cache, tuple], Found]] = [Cache.compile]


class Rest(functools.partial):
    """The rest of a call behind a graph break: `finish` returns it."""


def link(traced: Trace, guards: Iterable[Guard], lowered: CompiledGraph,
         goes_on: Callable) -> Entry:
    """The entry: check and fetch inputs, run the graph, rebuild results."""
    names = {"math": math, "torch": torch, **traced.constants}
    names |= {name: functools.partial(Rest, goes_on(value))
              for name, value in names.items()
              if type(value) is types.FunctionType
              and value in CONTINUATIONS}
    exec(traced.finish, names)
    check = build_check(
        guards, traced.constants,
        traced.sources if operations(traced.graph) else ())
    traced = replace(traced, guards=(), sizes=None)
    return Entry(check, RUNS[-1](traced, lowered.call, names["finish"]),
                 traced, lowered)


def straight(traced: Trace, graph: Callable, finish: Callable) -> Callable:
    """`run`: the graph, then what rebuilds the result."""
    return lambda L, F, inputs: finish(L, F, graph(inputs))


#: What makes the `run` of an entry; the last is in use.
RUNS: list[Callable[[Trace, Callable, Callable], Callable]] = [straight]


def operations(graph: fx.GraphModule) -> list[fx.Node]:
    """The nodes of a graph that do something."""
    return [node for node in graph.graph.nodes
            if node.op not in ("placeholder", "output")]


def make_bind(function: types.FunctionType) -> Callable:
    """A function of the same signature that returns its local values."""
    made = types.FunctionType(taking(function.__code__), {})

    def bind(*args, **kwargs):
        made.__defaults__ = function.__defaults__  # they may be others now
        made.__kwdefaults__ = function.__kwdefaults__
        return made(*args, **kwargs)
    return bind


def wrap(function: types.FunctionType, settings: Settings,
         name: str | None = None, root: Cache | None = None) -> Callable:
    """The compiled form of a Python function, of the same signature."""
    cache = Cache(function, settings, name or function.__qualname__, root)

    @functools.wraps(function)
    def compiled(*args, **kwargs):
        if FORCED_EAGER:
            return function(*args, **kwargs)
        locals = args
        if kwargs or len(args) != cache.count:
            try:
                locals = cache.bind(*args, **kwargs)
            except TypeError:
                locals = None
            if locals is None:
                return function(*args, **kwargs)
        check, run = cache.first
        inputs = check(locals, function)
        if inputs is None:
            found = cache.miss(locals)
            if found is None:
                return function(*args, **kwargs)
            run, inputs = found
        result = run(locals, function, inputs)
        while type(result) is Rest and root is None:
            result = result()  # never inside the one before
        return result

    compiled.cache, compiled.stats = cache, cache.stats
    cache.user = weakref.ref(compiled)
    compiled._torchdynamo_orig_callable = function  # a trace enters it
    compiled._torchdynamo_inline = function  # so does torch.compile's
    CACHES.add(cache)
    return compiled


#: Every live cache, for reset().
CACHES: weakref.WeakSet[Cache] = weakref.WeakSet()


load(__name__, __path__)
