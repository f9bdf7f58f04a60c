"""Builtins that call back, written in Python: the tracer follows them.

In: a call of `sorted` or `dict.setdefault`. Out: what it gives, found by
tracing the function here in its place, like a function of the program's.
PyTorch's are in torch/_dynamo/polyfills/.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import OrderedDict, _count_elements, defaultdict

from ..attributes import type_of
from ..calls import polyfill
from ..constant_types import CONSTANTS
from ..native import look
from ..rules import WRITING, registered, rule
from ..interpreter_objects import Callback


def in_order(keys, reverse=False):
    """The numbers of the keys, sorted: a rule, which runs in C."""
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)


@rule(in_order)
def _in_order(tracer, keys, reverse):
    return tracer.native(in_order, (look(tracer, keys), reverse))


@polyfill(sorted)
def sort(iterable, /, *, key=None, reverse=False):
    values = [*iterable]
    keys = values if key is None else [key(each) for each in values]
    return [values[at] for at in in_order(keys, reverse)]


@polyfill(list.sort)
def sort_in_place(self, /, *, key=None, reverse=False):
    values = self[:]
    self.clear()
    try:
        values = sort(values, key=key, reverse=reverse)
        if self:
            raise ValueError("list modified during sort")
    finally:
        self[:] = values


def _best(function, better):
    """Give `min` or `max` a rule: traced, but for plain numbers."""
    @polyfill()
    def best(*values, key=None, **default):
        values = [*(values[0] if len(values) == 1 else values)]
        if not values:
            return function((), **default)
        found = values[0]
        most = found if key is None else key(found)
        for each in values[1:]:
            rank = each if key is None else key(each)
            if better(rank, most):
                found, most = each, rank
        return found

    @rule(function)
    def choose(tracer, *values, **more):
        kinds = {*map(type_of, values)}
        if len(values) > 1 and not more and kinds <= CONSTANTS or (
                kinds == {tuple} and not any(values)):
            return tracer.natively(function, values, more)
        return tracer.call(best, values, more)


_best(min, operator.lt)
_best(max, operator.gt)


@polyfill(any)
def any_of(iterable, /):
    for each in iterable:  # noqa: SIM110
        if each:
            return True
    return False


@polyfill(all)
def all_of(iterable, /):
    for each in iterable:  # noqa: SIM110
        if not each:
            return False
    return True


@polyfill(functools.reduce)
def reduce(function, iterable, /, *first):
    steps = iter(iterable)
    if first:
        [value] = first
    else:
        try:
            value = next(steps)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial "
                            "value") from None
    for each in steps:
        value = function(value, each)
    return value


@polyfill()
def is_true(function, value):
    return bool(value if function is None else function(value))


for _kind in (filter, itertools.filterfalse, itertools.takewhile,
              itertools.dropwhile):
    rule(_kind)(lambda tracer, function, values, _kind=_kind:
                tracer.native(_kind, (
                    Callback(tracer, functools.partial(is_true, function)),
                    tracer.iterate(values))))


@polyfill(_count_elements)
def count_elements(mapping, iterable, /):
    for each in iterable:
        mapping[each] = mapping.get(each, 0) + 1


# Methods of dicts


@polyfill(vars(dict)["fromkeys"])
def fromkeys(iterable, value=None, /):
    return {key: value for key in iterable}


def get(self, key, default=None, /):
    return dict.__getitem__(self, key) if dict.__contains__(
        self, key) else default


def setdefault(self, key, default=None, /):
    if not dict.__contains__(self, key):
        dict.__setitem__(self, key, default)
    return dict.__getitem__(self, key)


def pop(self, key, /, *default):
    if default and not dict.__contains__(self, key):
        return default[0]
    value = dict.__getitem__(self, key)
    dict.__delitem__(self, key)
    return value


def popitem(self, /):
    keys = [*dict.keys(self)]
    if not keys:
        raise KeyError("popitem(): dictionary is empty")
    return keys[-1], pop(self, keys[-1])


def clear(self, /):
    for key in [*dict.keys(self)]:
        dict.__delitem__(self, key)


@polyfill(dict.update, OrderedDict.update)
def update(self, /, *others, **more):
    for other in (*others, more):
        for key, value in dict(other).items():
            dict.__setitem__(self, key, value)


def ior(self, other, /):
    update(self, other)
    return self


@polyfill(defaultdict.__missing__)
def missing(self, key, /):
    if self.default_factory is None:
        raise KeyError(key)
    value = self.default_factory()
    dict.__setitem__(self, key, value)
    return value


WRITING |= {name: registered(polyfill()(written)) for name, written in (
    ("get", get), ("setdefault", setdefault), ("pop", pop),
    ("popitem", popitem), ("clear", clear), ("update", update),
    ("__ior__", ior), ("__missing__", missing))}
