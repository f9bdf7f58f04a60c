"""Which guards only a change to a dictionary can make fail.

In: all guards. Out: one guard for each dict below which nothing has to be
asked for as long as no class, __dict__ or dict there has changed, but of
tensors. CPython counts such changes, and comparing counts is quicker: a
check asks about all that is below such a dict in a function of its own,
which it calls after a change.
PyTorch did so, too: use_recursive_dict_tags_for_guards in
torch/_dynamo/config.py.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter

from ...core.extension import TENSORS
from ...core.guard import Guard
from ...core.source import Attribute, Constant, Source, chain
from .. import MERGED, body
from ..predicates import KINDS, Names
from .c_functions import ENTRIES, PARTS, compiled, packed

CHANGES = r"""
// A place in memory, and what was found there. A stamp is a list of these,
// then one for each tensor: where it is, and its rank. Before them stands
// the object that it is about, and how many places there are.
struct Word { const void *at; uint64_t is; };
using Words = std::vector<Word>;

// Whether what an instance has is read as usual: from its __dict__, if no
// class defines that name; a __getattr__ is for what is not found.
bool is_usual(PyTypeObject *kind) {
    static PyObject *word = PyUnicode_InternFromString("__getattribute__");
    static PyObject *usual = _PyType_Lookup(&PyBaseObject_Type, word);
    return _PyType_Lookup(kind, word) == usual;
}

template <class Value> void note(Words &words, const Value *at) {
    static_assert(sizeof(Value) <= 8);
    words.push_back({at, *(const uint64_t *)at});
}

// Note all that `node` says is to be watched of x, so that x is reached by
// the places before it. False if something can change without a trace.
bool watch(PyObject *x, PyObject *node, Words &words, Words &tensors) {
    PyObject *wanted = PyTuple_GetItem(node, 0);
    PyObject *parts = PyTuple_GetItem(node, 1), *own = x;
    auto kind = Py_TYPE(x);
    if (wanted != Py_None && wanted != (PyObject *)kind) return false;
    if (PyLong_Check(parts)) {
        tensors.push_back({x, PyLong_AsUnsignedLongLong(parts)});
        return true;
    }
    bool is_dict = PyDict_CheckExact(x) || PyODict_CheckExact(x);
    if (!is_dict) {
        PyObject **place = _PyObject_GetDictPtr(x);
        if (wanted == Py_None || !place || !*place || !is_usual(kind)
            || !(kind->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG))
            return false;
        note(words, &x->ob_type);
        note(words, &kind->tp_version_tag);
        note(words, place);
        own = *place;
    }
    note(words, &((PyDictObject *)own)->ma_version_tag);
    for (Py_ssize_t i = 0; i < PyTuple_Size(parts); i++) {
        PyObject *key = PyTuple_GetItem(PyTuple_GetItem(parts, i), 0);
        PyObject *child = PyTuple_GetItem(PyTuple_GetItem(parts, i), 1);
        PyObject *value = PyDict_GetItemWithError(own, key);
        if (!value || (!is_dict && _PyType_Lookup(kind, key))
            || (child != Py_None && !watch(value, child, words, tensors)))
            return false;
    }
    return true;
}

// The stamp of x, or an empty one.
ASK(stamped) {
    Words words{{given[0], 0}}, tensors;
    if (!watch(given[0], given[1], words, tensors))
        words.clear(), tensors.clear();
    else words[0].is = words.size();
    std::stable_sort(tensors.begin(), tensors.end(),
                     [](auto &a, auto &b) { return a.is < b.is; });
    words.insert(words.end(), tensors.begin(), tensors.end());
    PyErr_Clear();
    return PyBytes_FromStringAndSize((char *)words.data(),
                                     sizeof(Word) * words.size());
}

// The tensors below x, if x is as the stamp in a list says and they are as
// described; else None.
ASK(settled) {
    PyObject *stamp = PyList_GetItem(given[1], 0), *found;
    auto word = (const Word *)PyBytes_AsString(stamp);
    auto end = word + PyBytes_Size(stamp) / sizeof(Word);
    if (word == end || word->at != given[0]) Py_RETURN_NONE;
    for (auto tensors = word + word->is; ++word < tensors;)
        if (*(const uint64_t *)word->at != word->is) Py_RETURN_NONE;
    found = PyList_New(PyList_Size(given[2]));
    for (Py_ssize_t at = 0; word < end; word++, at++) {
        auto tensor = (PyObject *)word->at;
        if (!holds(tensor, PyList_GetItem(given[2], at))) {
            Py_DECREF(found);
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(found, at, Py_NewRef(tensor));
    }
    return found;
}
"""

PARTS.append(CHANGES)
ENTRIES.extend(("stamped", "settled"))

#: A dict is worth a stamp if so many guards are below it.
WORTH_A_STAMP = 8

#: The guards whose answer is in the dict, or the value, they are on.
OF_DICTS = ("type", "length", "keys", "contains", "lacks", "equal", "is")

#: The rank of a tensor that is no input.
LAST = 1 << 32


class Places:
    """The guards at each source, and what is read through it."""

    def __init__(self, guards: list[Guard], inputs: list[Source]):
        self.at: dict[Source, list[Guard]] = defaultdict(list)
        self.below: dict[Source | None, dict] = defaultdict(dict)
        self.order = {source: at for at, source in enumerate(inputs)}
        for guard in guards:
            for place in guard.places:
                if len(guard.places) == 1:
                    self.at[place].append(guard)
                for each in chain(place):
                    self.below[each.base][each] = True

    def stamped(self, source: Source | None = None) -> Iterator[Subtree]:
        """The topmost dicts that are worth a stamp."""
        for child in self.below[source]:
            found = Subtree(self, child)
            if len(found.facts) + 2 * len(found.tensors) >= WORTH_A_STAMP:
                yield found
            else:
                yield from self.stamped(child)


class Subtree:
    """What to watch below a dict, and the guards that it speaks for.

    A node is a class, or None for any dict, with its parts: names, each
    with the node of what is there, or with None. A tensor has its rank
    instead: it is handed over in the order of the graph's inputs.
    """

    def __init__(self, places: Places, root: Source):
        self.places, self.root = places, root
        self.facts: list[Guard] = []
        self.ranked: list[tuple[int, Guard]] = []
        self.node = any(
            guard.kind == "type" and guard.expected is dict
            for guard in places.at[root]) and self.look(root)
        self.ranked.sort(key=itemgetter(0))
        self.tensors = [guard for _, guard in self.ranked]

    def look(self, source: Source) -> tuple | None:
        """The node of a place; None if it can change without a trace."""
        at = {guard.kind: guard for guard in self.places.at[source]}
        kind = at["type"].expected if "type" in at else None
        if {*at} == {"tensor"} and at["tensor"].expected.type in TENSORS:
            rank = self.places.order.get(source, LAST)
            self.ranked.append((rank, at["tensor"]))
            return at["tensor"].expected.type, rank
        if kind is None and {*at} != {"length"} or kind and not (
                kind is dict or kind.__dictoffset__ != 0
                and kind.__getattribute__ is object.__getattribute__):
            return None
        self.take(self.places.at[source])
        return kind, tuple(self.parts(kind, source))

    def take(self, guards: list[Guard]) -> None:
        """Speak for the guards that a change to a dict would tell."""
        self.facts += [each for each in guards if each.kind in OF_DICTS]

    def parts(self, kind: type | None, source: Source
              ) -> Iterator[tuple[object, tuple | None]]:
        """What is read from a dict or an object's __dict__, by name."""
        for child in self.places.below[source] if kind else ():
            guards = self.places.at[child]
            key = getattr(child, "key" if kind is dict else "name", None)
            if type(key) not in (str, int):
                continue
            if type(child) is Attribute and key == "__dict__":
                self.take(guards)
            if kind is not dict and any(key in vars(each)
                                        for each in kind.__mro__):
                continue
            if guards and all(map(is_settled, guards)):
                self.facts += guards
                yield key, None
            elif node := self.look(child):
                yield key, node


def is_settled(guard: Guard) -> bool:
    """Whether only another object at its place can make a guard fail."""
    return guard.kind == "is" or (
        guard.kind == "equal" and type(guard.expected) in (
            bool, int, float, str, type(None)))


def merge_stamped(names: Names, guards: list[Guard],
                  inputs: list[Source]
                  ) -> tuple[list[Guard], list[Source]]:
    """The guards, those below a dict being one; its tensors as inputs."""
    for subtree in [*Places(guards, inputs).stamped()] if counted() else ():
        subtree.found = names.fresh("found")
        apart = {*map(id, subtree.facts + subtree.tensors)}
        guards = [guard for guard in guards if id(guard) not in apart]
        guards.append(Guard(subtree.root, "unchanged", subtree))
        tensors = [guard.source for guard in subtree.tensors]
        kept = {source: Constant(f"{subtree.found}[{at}]", None)
                for at, source in enumerate(tensors)}
        at = next((at for at, source in enumerate(inputs)
                   if source in kept), 0)
        if tensors and inputs[at:at + len(kept)] == tensors:  # in a row
            inputs[at:at + len(kept)] = [
                Constant(f"*{subtree.found}", None)]
        inputs = [kept.get(source, source) for source in inputs]
    return guards, inputs


def on_unchanged(names: Names, guard: Guard) -> str:
    """Nothing below has changed, or what has is as it should be."""
    subtree, root = guard.expected, names.fresh(str(guard.source))
    found, tensors = subtree.found, subtree.tensors
    node, seen, facts, ask, take = (names.name(*each) for each in (
        ("node", subtree.node), ("seen", [b""]),
        ("facts", [packed(each.expected) for each in tensors]),
        ("settled", compiled().settled), ("stamped", compiled().stamped)))
    *lines, last = body(names, subtree.facts + tensors, [
        each.source for each in tensors], {guard.source: root})
    below, stamp = names.fresh("below"), names.fresh("stamp")
    names.functions.append("\n    ".join([
        f"def {below}({root}):", f"{stamp} = {take}({root}, {node})",
        *lines, f"{seen}[0] = {stamp}", last]) + "\n\n\n")
    return (f"({found} := {ask}({{0}}, {seen}, {facts})) is not None"
            f"\n{' ' * 12}or ({found} := {below}({{0}})) is not None")


def counted() -> bool:
    """Whether changes are counted: all are in CPython before 3.13."""
    return sys.version_info < (3, 13) and compiled() is not None


MERGED.append(merge_stamped)
KINDS["unchanged"] = on_unchanged
