"""Checks of tensors, their memory and dict stamps in C++.

In: rows of the table of kinds, and all guards. Out: a row that checks a
tensor in C++, which reads its metadata straight from memory. And one guard
for each dict: as long as no class, __dict__ or dict below it has changed,
only the tensors there are checked. CPython counts such changes, and
comparing counts is quicker: a check tests all the parts below such a dict
in a function of its own, which it calls after a change. The C++ is
compiled once for a version of Python and of torch, which takes about three
seconds. Without a compiler or Python.h the rows of the road stay.
PyTorch's are in torch/csrc/dynamo/guards.cpp; it kept stamps, too:
use_recursive_dict_tags_for_guards in torch/_dynamo/config.py.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache, partial
from types import ModuleType

import torch

from ...core import log
from ...core.torch.extension import TENSORS, begun
from ...core.guard import (Attribute, Constant, Guard, Source, TensorFacts,
                           chain, printable)
from .. import KINDS, MERGED, Names, body

FUNCTIONS = r"""
// Whether all numbers are as expected; INT64_MIN stands for any number.
bool agree(c10::IntArrayRef numbers, const int64_t *expected) {
    return std::equal(numbers.begin(), numbers.end(), expected,
        [](auto is, auto should) {
            return is == should || should == INT64_MIN; });
}

// Whether x is a tensor as packed() says.
bool holds(PyObject *x, PyObject *packed) try {
    if ((PyObject *)Py_TYPE(x) != PyTuple_GET_ITEM(packed, 0))
        return false;
    auto &is = *((Variable *)x)->tensor;
    auto &like = *((Variable *)PyTuple_GET_ITEM(packed, 1))->tensor;
    auto numbers = PyTuple_GET_ITEM(packed, 2);
    auto sizes = (const int64_t *)PyBytes_AS_STRING(numbers);
    auto strides = sizes + PyBytes_GET_SIZE(numbers) / sizeof *sizes / 2;
    auto graph = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    return is.dtype() == like.dtype() && is.device() == like.device()
        && is.key_set() - graph == like.key_set() - graph  // no lazy bits
        && is.requires_grad() == like.requires_grad()
        && (ptrdiff_t)is.sizes().size() == strides - sizes
        && agree(is.sizes(), sizes) && agree(is.strides(), strides);
} catch (...) { return false; }  // such as one without strides

ASK(agrees) {
    return PyBool_FromLong(holds(given[0], given[1]));
}
// Whether objects are tensors of these classes, and share no memory.
ASK(disjoint_memory) try {
    std::vector<std::pair<uintptr_t, size_t>> spans;
    for (Py_ssize_t i = 1; i < passed; i++) {
        auto kind = (PyObject *)Py_TYPE(given[i]);
        if (PySequence_Contains(given[0], kind) < 1) Py_RETURN_FALSE;
        auto &storage = ((Variable *)given[i])->tensor->storage();
        if (storage.nbytes())
            spans.push_back({(uintptr_t)storage.data(), storage.nbytes()});
    }
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); i++)
        if (spans[i - 1].first + spans[i - 1].second > spans[i].first)
            Py_RETURN_FALSE;
    Py_RETURN_TRUE;
} catch (...) { Py_RETURN_FALSE; }  // such as one without memory

// A place in memory, and what was found there. A stamp is a list of these,
// then one for each tensor. Before them stands the object that it is
// about, and how many places there are.
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
    if (parts == Py_None) {
        tensors.push_back({x, 0});
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

static PyMethodDef entries[] = {
    ENTRY(address), ENTRY(agrees), ENTRY(disjoint_memory), ENTRY(stamped),
    ENTRY(settled), {}};
MODULE(questions)
"""

#: The expected value of a symbolic size.
ANY = -1 << 63


#: Begins to compile the module, while the first call is traced.
begin_compiling = partial(begun, "questions", FUNCTIONS)


@cache
def compiled() -> ModuleType | None:
    """The module; None, said once, if it cannot be made here."""
    try:
        return begin_compiling().result()
    except ImportError as error:
        log.show("guards", f"guards are asked in Python: {error}")
        return None


@lru_cache(maxsize=1024)
def packed(facts: TensorFacts) -> tuple[type, torch.Tensor, bytes]:
    """The form of a tensor's facts that C++ compares with: its class, a
    tensor with its metadata, its sizes and strides."""
    like = torch.empty(0, dtype=facts.dtype, device=facts.device,
                       requires_grad=facts.requires_grad)
    return facts.type, like, array("q", [
        ANY if size is None else size
        for size in (*facts.shape, *facts.stride)]).tobytes()


def on_tensor(names: Names, guard: Guard) -> str:
    """A tensor of this class and metadata."""
    if compiled() is None or guard.expected.type not in TENSORS:
        return IN_PYTHON(names, guard)
    facts = names.name(str(guard.expected), packed(guard.expected))
    return f"{names.name('agrees', compiled().agrees)}({{0}}, {facts})"


IN_PYTHON, KINDS["tensor"] = KINDS["tensor"], on_tensor

#: A dict is worth a stamp if so many guards are below it.
WORTH_A_STAMP = 8

#: Whether changes are counted: all are in CPython before 3.13.
COUNTED = sys.version_info < (3, 13)

#: The guards whose answer is in the dict, or the value, they are on.
OF_DICTS = ("type", "length", "keys", "contains", "lacks", "equal", "is")


def stamped(guards: list[Guard]) -> Iterator[Subtree]:
    """The topmost dicts that are worth a stamp."""
    at: dict[Source, list[Guard]] = defaultdict(list)
    below: dict[Source | None, dict] = defaultdict(dict)
    for guard in guards:
        for place in guard.places:
            at[place] += [guard] * (len(guard.places) == 1)
            for each in chain(place):
                below[each.base][each] = True
    waiting = [*below[None]]
    for source in waiting:
        found = Subtree(at, below, source)
        if len(found.facts) + 2 * len(found.tensors) >= WORTH_A_STAMP:
            yield found
        else:
            waiting += below[source]


class Subtree:
    """The parts to watch below a dict, and the guards that they replace.

    A node is a class, or None for any dict, with its parts: names, each
    with the node of its value, or with None. A tensor has None instead.
    """

    def __init__(self, at: dict, below: dict, root: Source):
        self.at, self.below, self.root = at, below, root
        self.facts: list[Guard] = []
        self.tensors: list[Guard] = []
        self.node = any(guard.kind == "type" and guard.expected is dict
                        for guard in at[root]) and self.look(root)
        self.facts = [each for each in self.facts if each.kind in OF_DICTS]

    def look(self, source: Source) -> tuple | None:
        """The node of a place; None if it can change without a trace."""
        at = {guard.kind: guard for guard in self.at[source]}
        kind = at["type"].expected if "type" in at else None
        if {*at} == {"tensor"} and at["tensor"].expected.type in TENSORS:
            self.tensors.append(at["tensor"])
            return at["tensor"].expected.type, None
        if kind is None and {*at} != {"length"} or kind and not (
                kind is dict or kind.__dictoffset__ != 0
                and kind.__getattribute__ is object.__getattribute__):
            return None
        self.facts += self.at[source]
        return kind, tuple(self.parts(kind, source))

    def parts(self, kind: type | None, source: Source
              ) -> Iterator[tuple[object, tuple | None]]:
        """The values read from a dict or an object's __dict__, by name."""
        for child in self.below[source] if kind else ():
            guards = self.at[child]
            key = getattr(child, "key" if kind is dict else "name", None)
            if type(key) not in (str, int):
                continue
            if type(child) is Attribute and key == "__dict__":
                self.facts += guards
            if kind is not dict and any(key in vars(each)
                                        for each in kind.__mro__):
                continue
            if guards and all(  # only another object can make them fail
                    each.kind == "is" or each.kind == "equal"
                    and printable(each.expected) for each in guards):
                self.facts += guards
                yield key, None
            elif node := self.look(child):
                yield key, node


def merge_stamped(names: Names, guards: list[Guard],
                  inputs: list[Source]
                  ) -> tuple[list[Guard], list[Source]]:
    """The guards, with one for all below a dict; its tensors as inputs."""
    if compiled() is None:
        return guards, inputs
    names.values["disjoint_memory"] = partial(
        compiled().disjoint_memory, TENSORS)
    for subtree in [*stamped(guards)] if COUNTED else ():
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
    """Nothing below has changed, or the changed parts pass their guards."""
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


log.BEGINS.append(lambda stage: stage == "trace" and begin_compiling())
MERGED.append(merge_stamped)
KINDS["unchanged"] = on_unchanged
