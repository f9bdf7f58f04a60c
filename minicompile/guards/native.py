"""The questions of bulk.py, compiled.

In: nothing. Out: a module with the same functions, each a loop in C++; or
bulk.py itself, where there is no compiler or no Python.h. Compiled once
for a version of Python and of torch, which takes about three seconds.
PyTorch's are in torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from types import ModuleType

import torch

from ..core import log
from ..core.extension import extension
from ..core.guard import TensorFacts
from . import bulk

LOOPS = r"""
// True if holds(x, y) is 1 for each object and what is expected there.
template <class Question>
PyObject *all(PyObject *objects, PyObject *expected, Question holds) {
    PyObject *given = PySequence_Fast(objects, "no list");
    Py_ssize_t others = PyList_Size(expected);
    int answer = !given || others < 0 ? -1
               : PySequence_Fast_GET_SIZE(given) == others;
    for (Py_ssize_t i = 0; answer == 1 && i < others; i++)
        answer = holds(PySequence_Fast_GET_ITEM(given, i),
                       PyList_GET_ITEM(expected, i));
    Py_XDECREF(given);
    return answer < 0 ? nullptr : PyBool_FromLong(answer);
}
"""

READING = r"""
// What metadata() compares, but for sizes and strides, as two words.
struct Facts {
    PyTypeObject *kind;
    int8_t dtype, device, index, layout, is_neg, is_conj, grad, dims;
};

Facts facts(PyObject *x) {
    auto &tensor = *((Variable *)x)->tensor;
    auto device = tensor.device();
    return {Py_TYPE(x), (int8_t)c10::typeMetaToScalarType(tensor.dtype()),
            (int8_t)device.type(), device.index(), (int8_t)tensor.layout(),
            tensor.is_neg(), tensor.is_conj(), tensor.requires_grad(),
            (int8_t)tensor.sizes().size()};
}

// Whether all numbers are as expected; INT64_MIN stands for any number.
bool agree(c10::IntArrayRef numbers, const int64_t *expected) {
    return std::equal(numbers.begin(), numbers.end(), expected,
        [](auto is, auto should) {
            return is == should || should == INT64_MIN; });
}

// Whether x is a tensor as described().
bool agrees(PyObject *x, PyObject *described) try {
    auto &expected = *(const Facts *)PyBytes_AsString(described);
    if (Py_TYPE(x) != expected.kind) return false;
    auto is = facts(x);
    if (memcmp(&is, &expected, sizeof is)) return false;
    auto numbers = (const int64_t *)(&expected + 1);
    auto &tensor = *((Variable *)x)->tensor;
    return agree(tensor.sizes(), numbers)
        && agree(tensor.strides(), numbers + is.dims);
} catch (...) { return false; }  // such as one without strides
"""

CHANGES = r"""
// A place in memory, and what was found there. A stamp is a list of these,
// then one for each tensor, which is just a place. Before them stands the
// object that it is about, and how many places there are.
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

// Whether x is as the stamp says. Its tensors are put into `found` from
// `at` on, if they agree with what `facts` has there.
bool stands(PyObject *x, PyObject *stamp, PyObject *facts, PyObject *found,
            Py_ssize_t &at) {
    auto word = (const Word *)PyBytes_AsString(stamp);
    auto end = word + PyBytes_Size(stamp) / sizeof(Word);
    if (word == end || word->at != x) return false;
    for (auto tensors = word + 1 + word->is; ++word < tensors;)
        if (*(const uint64_t *)word->at != word->is) return false;
    for (; word < end; word++, at++) {
        auto tensor = (PyObject *)word->at;
        if (!agrees(tensor, PyList_GetItem(facts, at))) return false;
        PyList_SET_ITEM(found, at, Py_NewRef(tensor));
    }
    return true;
}
"""

QUESTIONS = r"""
ASK(stamped) {
    Py_ssize_t count = PyList_Size(given[0]);
    PyObject *stamps = PyList_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *x = PyList_GetItem(given[0], i);
        Words words{{x, 0}}, tensors;
        if (!watch(x, PyList_GetItem(given[1], i), words, tensors))
            words.clear(), tensors.clear();
        else words[0].is = words.size() - 1;
        words.insert(words.end(), tensors.begin(), tensors.end());
        PyList_SetItem(stamps, i, PyBytes_FromStringAndSize(
            (char *)words.data(), sizeof(Word) * words.size()));
    }
    PyErr_Clear();
    return stamps;
}
ASK(settled) {
    Py_ssize_t count = PyList_Size(given[0]), at = 0;
    PyObject *found = PyList_New(PyList_Size(given[2]));
    bool same = count == PyList_Size(given[1]);
    for (Py_ssize_t i = 0; same && i < count; i++)
        same = stands(PyList_GET_ITEM(given[0], i),
                      PyList_GET_ITEM(given[1], i), given[2], found, at);
    if (!same) Py_SETREF(found, Py_NewRef(Py_None));
    return found;
}
ASK(exact) {
    return all(given[0], given[0], [&](auto x, auto) {
        return (PyObject *)Py_TYPE(x) == given[1]; });
}
ASK(sized) {
    Py_ssize_t length = PyLong_AsSsize_t(given[1]);
    return all(given[0], given[0], [&](auto x, auto) {
        Py_ssize_t size = PyObject_Size(x);
        return size < 0 ? -1 : size == length; });
}
ASK(holding) {
    return all(given[0], given[0], [&](auto x, auto) {
        int held = PySequence_Contains(x, given[1]);
        return held < 0 ? -1 : held == (given[2] == Py_True); });
}
ASK(lacking) {
    return all(given[0], given[0], [&](auto x, auto) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given[1]); i++)
            if (int held = PySequence_Contains(
                    x, PyTuple_GET_ITEM(given[1], i)))
                return held < 0 ? -1 : 0;
        return 1; });
}
ASK(equal) {
    if (Py_ssize_t count = PyList_Size(given[1]);
        (PyList_CheckExact(given[0]) || PyTuple_CheckExact(given[0]))
        && PySequence_Fast_GET_SIZE(given[0]) == count
        && !memcmp(PySequence_Fast_ITEMS(given[0]),
                   PySequence_Fast_ITEMS(given[1]), count * sizeof *given))
        Py_RETURN_TRUE;  // the very same objects
    return all(given[0], given[1], [](auto x, auto y) {
        if (Py_TYPE(x) != Py_TYPE(y)) return 0;
        if (!PyFloat_CheckExact(x))
            return PyObject_RichCompareBool(x, y, Py_EQ);
        double a = PyFloat_AS_DOUBLE(x), b = PyFloat_AS_DOUBLE(y);
        return int(!memcmp(&a, &b, sizeof a)); });
}
ASK(answers) {
    return all(given[0], given[1], [](auto ask, auto y) {
        PyObject *answer = PyObject_CallNoArgs(ask);
        Py_XDECREF(answer);
        return answer ? answer == y : -1; });
}
ASK(tensors) {
    return all(given[0], given[1], agrees);
}
ASK(metadata) {
    auto found = facts(given[0]);
    return PyBytes_FromStringAndSize((char *)&found, sizeof found);
}

static PyMethodDef entries[] = {
    ENTRY(exact), ENTRY(sized), ENTRY(holding), ENTRY(lacking),
    ENTRY(equal),
    ENTRY(answers), ENTRY(tensors), ENTRY(metadata), ENTRY(address),
    ENTRY(stamped), ENTRY(settled), {}};
MODULE(questions)
"""

SOURCE = LOOPS + READING + CHANGES + QUESTIONS


#: What a symbolic size is expected to be.
ANY = -1 << 63


@cache
def questions() -> ModuleType:
    """The module of questions: compiled, or in Python if that fails."""
    try:
        compiled = extension("questions", SOURCE)
    except ImportError as error:
        log.show("guards", f"guards are asked in Python: {error}")
        return bulk
    compiled.described = described
    return compiled


@lru_cache(maxsize=1024)
def described(facts: TensorFacts) -> bytes:
    """What a tensor of which these are the facts is compared with."""
    like = torch.empty(0, dtype=facts.dtype, device=facts.device)
    start = questions().metadata(like)[8:14]
    sizes = (ANY if size is None else size
             for size in (*facts.shape, *facts.stride))
    return struct.pack(f"q6sbb{2 * len(facts.shape)}q", id(facts.type),
                       start, facts.requires_grad, len(facts.shape), *sizes)
