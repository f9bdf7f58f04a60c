"""Which guards only a change to a dictionary can make fail.

In: the tree of places. Out: dicts below which nothing has to be asked for
as long as no class, __dict__ or dict there has changed, but of tensors.
CPython counts such changes, and comparing counts is quicker: all that is
below such a dict stands in a block that a check skips.
PyTorch did so, too: use_recursive_dict_tags_for_guards in
torch/_dynamo/config.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from ...core.extension import TENSORS
from ...core.guard import Guard
from ...core.source import Attribute, Source
from ..check_codegen import BLOCKS, Places, Text, facts_in_words, unless
from ..predicates import questions
from .c_functions import ENTRIES, PARTS, compiled

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
        if (!agrees(tensor, PyList_GetItem(given[2], at))) {
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

#: Guards whose answer is in the dict, or in the plain value, they are on.
OF_DICTS = ("type", "length", "keys", "contains", "lacks", "equal", "is")

PLAIN = (bool, int, float, str, type(None))

#: So many guards below a dict are worth watching it.
ENOUGH = 8


@dataclass
class Watch:
    """What to watch below a dict, and the guards that it speaks for.

    A node is a class, or None for any dict, with its parts: names, each
    with the node of what is there, or with None. A tensor has its rank
    instead: it is handed over in the order of the graph's inputs.
    """

    node: tuple = ()
    facts: list[Guard] = field(default_factory=list)
    ranked: list[tuple[int, Guard]] = field(default_factory=list)

    @property
    def tensors(self) -> list[Guard]:
        """The guards of tensors, in order."""
        return in_order(self.ranked)

    @property
    def guards(self) -> list[Guard]:
        """All that the block asks."""
        return self.facts + self.tensors

    def write(self, text: Text, root: Source) -> None:
        """Ask about all below the root, unless nothing has changed."""
        names, x = text.names, text.read(root)
        tensors = self.tensors
        described = [questions().described(g.expected) for g in tensors]
        node, seen, facts = (names.listed(*each) for each in (
            ("node", self.node), ("seen", [b""]), ("facts", described)))
        found, stamp = names.fresh("found"), names.fresh("stamp")
        settled, stamped, gather, agree = (
            names.constant(function.__name__, function) for function in (
                compiled().settled, compiled().stamped, gathered,
                compiled().tensors))
        inner = Text(names, Places(self.facts, ()),
                     variables=dict(text.variables))
        inner.write(f"{stamp} = {stamped}({x}, {node})")
        inner.visit([root])
        inner.descend([root])
        inner.write(f"{found} = {gather}({x}, {node})",
                    *facts_in_words(tensors),
                    *unless([f"{agree}({found}, {facts})"]),
                    f"{seen}[0] = {stamp}")
        text.write(f"{found} = {settled}({x}, {seen}, {facts})",
                   f"if {found} is None:",
                   *(f"    {line}" for line in inner.lines))
        text.variables |= {guard.source: f"{found}[{at}]"
                           for at, guard in enumerate(tensors)}
        if tensors:
            text.lists[found] = [guard.source for guard in tensors]

    def look(self, places: Places, source: Source) -> tuple | None:
        """The node of a place; None if it can change without a trace."""
        at = {guard.kind: guard for guard in places.at[source]}
        kind = at["type"].expected if "type" in at else None
        if {*at} == {"tensor"} and at["tensor"].expected.type in TENSORS:
            rank = places.order.get(source, len(places.order))
            self.ranked.append((rank, at["tensor"]))
            return at["tensor"].expected.type, rank
        if kind is None and {*at} != {"length"} or kind and not (
                kind is dict or keeps_to_its_dict(kind)):
            return None
        self.facts += [guard for guard in places.at[source]
                        if guard.kind in OF_DICTS]
        return kind, tuple(self.parts(places, kind, source))

    def parts(self, places: Places, kind: type | None,
              source: Source) -> Iterator[tuple[object, tuple | None]]:
        """What is read from a dict or an object's __dict__, by name."""
        for child in places.below[source] if kind else ():
            guards = places.at[child]
            key = getattr(child, "key" if kind is dict else "name", None)
            if type(key) not in (str, int):
                continue
            if type(child) is Attribute and key == "__dict__":
                self.facts += [guard for guard in guards
                                if guard.kind in OF_DICTS]
            if kind is not dict and any(key in vars(each)
                                        for each in kind.__mro__):
                continue
            if all(map(is_plain, guards)) and guards:
                self.facts += guards
                yield key, None
            elif node := self.look(places, child):
                yield key, node


def watched(places: Places, source: Source | None = None
            ) -> Iterator[tuple[Source, Watch]]:
    """The topmost dicts that are worth watching, with what to watch."""
    if not counted():
        return
    for child in places.below[source]:
        watch = Watch()
        if any(guard.kind == "type" and guard.expected is dict
               for guard in places.at[child]):
            watch.node = watch.look(places, child)
        if len(watch.guards) + len(watch.ranked) >= ENOUGH:
            yield child, watch
        else:
            yield from watched(places, child)


def gathered(x: object, node: tuple) -> list:
    """The tensors to be watched below an object, in order."""
    return in_order([*found_below(x, node)])


def in_order(ranked: list[tuple[int, object]]) -> list:
    """What has ranks, in the order of the ranks."""
    return [each for _, each in sorted(ranked, key=itemgetter(0))]


def found_below(x: object, node: tuple) -> Iterator[tuple[int, object]]:
    """The tensors to be watched below an object, with their ranks."""
    _, parts = node
    if type(parts) is int:
        yield parts, x
        return
    for key, child in parts:
        if child is not None:
            yield from found_below(x[key] if type(x) is dict
                                   else getattr(x, key), child)


def keeps_to_its_dict(kind: type) -> bool:
    """Whether what objects of the class have is in their __dict__."""
    return (kind.__dictoffset__ != 0
            and kind.__getattribute__ is object.__getattribute__)


def is_plain(guard: Guard) -> bool:
    """Whether the guard is about which object it is, or a plain value."""
    return guard.kind == "is" or (
        guard.kind == "equal" and type(guard.expected) in PLAIN)


def counted() -> bool:
    """Whether changes are counted: all are in CPython before 3.13."""
    return sys.version_info < (3, 13) and compiled() is not None


BLOCKS.append(watched)
