"""The questions of bulk.py, compiled.

In: nothing. Out: a module with the same functions, each a loop in C++; or
bulk.py itself, where there is no compiler or no Python.h. Compiled once
for a version of Python and of torch, which takes about three seconds.
PyTorch's are in torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sysconfig
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch

from ..core import log
from ..core.cache import key_of, made, store
from ..core.guard import TensorFacts
from . import bulk

LOOPS = r"""
#include <Python.h>
#include <c10/core/TensorImpl.h>
#include <vector>

// True if holds(x, y) is 1 for each object and what is expected there.
template <class Question>
PyObject *all(PyObject *objects, PyObject *expected, Question holds) {
    Py_ssize_t count = PyList_Size(objects), others = PyList_Size(expected);
    int answer = count < 0 || others < 0 ? -1 : count == others;
    for (Py_ssize_t i = 0; answer == 1 && i < count; i++)
        answer = holds(PyList_GET_ITEM(objects, i),
                       PyList_GET_ITEM(expected, i));
    return answer < 0 ? nullptr : PyBool_FromLong(answer);
}

// A list of read(x) for each object; an error where that gives none.
template <class Reading>
PyObject *each(PyObject *objects, Reading read) {
    Py_ssize_t count = PyList_Size(objects);
    PyObject *values = count < 0 ? nullptr : PyList_New(count);
    for (Py_ssize_t i = 0; values && i < count; i++) {
        PyObject *value = read(PyList_GET_ITEM(objects, i));
        if (value) PyList_SET_ITEM(values, i, value);
        else Py_CLEAR(values);
    }
    return values;
}
"""

READING = r"""
// x.name for each. It is in x.__dict__ if no class defines that name, nor
// how to read attributes; a __getattr__ is only for what is not found.
bool is_usual(PyTypeObject *kind) {
    static PyObject *word = PyUnicode_InternFromString("__getattribute__");
    static PyObject *usual = _PyType_Lookup(&PyBaseObject_Type, word);
    return _PyType_Lookup(kind, word) == usual;
}

PyObject *attributes(PyObject *objects, PyObject *name) {
    PyTypeObject *kind = nullptr;
    bool is_own = false;
    return each(objects, [&](PyObject *x) {
        if (Py_TYPE(x) != kind) {
            kind = Py_TYPE(x);
            is_own = is_usual(kind) && !_PyType_Lookup(kind, name);
        }
        PyObject *all = is_own ? PyObject_GenericGetDict(x, 0) : 0;
        PyObject *value = all ? PyDict_GetItemWithError(all, name) : 0;
        Py_XINCREF(value);
        Py_XDECREF(all);
        PyErr_Clear();
        return value ? value : PyObject_GetAttr(x, name);
    });
}

// How torch/csrc/autograd/python_variable.h begins the Python object of
// a tensor; questions() makes sure of it.
struct Variable {
    PyObject_HEAD
    c10::TensorImpl *tensor;
};

// The numbers that metadata() compares.
std::vector<int64_t> &numbers(PyObject *x) {
    static std::vector<int64_t> row;
    auto *tensor = ((Variable *)x)->tensor;
    auto sizes = tensor->sizes(), strides = tensor->strides();
    row.resize(7 + 2 * sizes.size());
    row[0] = (int64_t)c10::typeMetaToScalarType(tensor->dtype());
    row[1] = (int64_t)tensor->device_type();
    row[2] = tensor->device().index();
    row[3] = (int64_t)tensor->layout();
    row[4] = tensor->is_neg();
    row[5] = tensor->is_conj();
    row[6] = tensor->requires_grad();
    std::copy(strides.begin(), strides.end(),
              std::copy(sizes.begin(), sizes.end(), &row[7]));
    return row;
}
"""

CHANGES = r"""
// When a dict was last changed, by a clock that all dicts share. From 3.13
// on, CPython does not note everything: then nothing is settled.
uint64_t changed(uint64_t dict) {
#if PY_VERSION_HEX < 0x030D0000
    return ((PyDictObject *)dict)->ma_version_tag;
#else
    return 0;
#endif
}

// Another number for a class after each change to it or to its bases.
uint64_t tag(PyTypeObject *kind) {
    return kind->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG
        ? kind->tp_version_tag : 0;
}

uint64_t own_dict(PyObject *x) {
    PyObject **place = _PyObject_GetDictPtr(x);
    return place ? (uint64_t)*place : 0;
}

// Class, tag, dict and its change; then each dict at these names, and its
// change. False if what is there can change without a note.
bool stamp(PyObject *x, PyObject *names, std::vector<uint64_t> &row) {
    auto kind = Py_TYPE(x);
    auto own = own_dict(x);
    if (!own || !is_usual(kind) || !changed(own)) return false;
    row.insert(row.end(), {(uint64_t)kind, tag(kind), own, changed(own)});
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        PyObject *value = PyDict_GetItemWithError((PyObject *)own, name);
        if (!value || _PyType_Lookup(kind, name)) return false;
        bool dict = PyDict_CheckExact(value) || PyODict_CheckExact(value);
        if (!dict && value != Py_None && !PyBool_Check(value)
            && !PyLong_CheckExact(value) && !PyFloat_CheckExact(value)
            && !PyUnicode_CheckExact(value)) return false;
        row.push_back(dict ? (uint64_t)value : 0);
        row.push_back(dict ? changed((uint64_t)value) : 0);
    }
    return tag(kind);
}

// Whether all in the row is as it was. What a dict holds lives for as long
// as the dict does not change, so each address leads somewhere.
bool stands(PyObject *x, uint64_t *row, Py_ssize_t width) {
    auto kind = Py_TYPE(x);
    bool same = (uint64_t)kind == row[0] && tag(kind) == row[1]
        && own_dict(x) == row[2] && changed(row[2]) == row[3];
    for (Py_ssize_t i = 4; same && i < width; i += 2)
        same = !row[i] || changed(row[i]) == row[i + 1];
    return same;
}
"""

QUESTIONS = r"""
#define ASK(name) static PyObject *name( \
    PyObject *, PyObject *const *given, Py_ssize_t)

ASK(field) {
    return attributes(given[0], given[1]);
}
ASK(item) {
    return each(given[0], [&](auto x) {
        if (!PyDict_CheckExact(x)) return PyObject_GetItem(x, given[1]);
        PyObject *value = PyDict_GetItemWithError(x, given[1]);
        if (!value && !PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, given[1]);
        return Py_XNewRef(value); });
}
ASK(pick) {
    return each(given[1], [&](auto at) {
        return Py_XNewRef(PyList_GetItem(given[0], PyLong_AsLong(at))); });
}
ASK(stamped) {
    std::vector<uint64_t> rows;
    for (Py_ssize_t i = 0; i < PyList_Size(given[0]); i++)
        if (!stamp(PyList_GET_ITEM(given[0], i), given[1], rows)) {
            rows.clear();
            break;
        }
    PyErr_Clear();
    return PyBytes_FromStringAndSize((char *)rows.data(), 8 * rows.size());
}
ASK(settled) {
    Py_ssize_t count = PyList_Size(given[0]);
    Py_ssize_t size = PyByteArray_Size(given[1]) / 8;
    auto rows = (uint64_t *)PyByteArray_AsString(given[1]);
    Py_ssize_t width = count > 0 && size % count == 0 ? size / count : 0;
    bool same = width > 0;
    for (Py_ssize_t i = 0; same && i < count; i++, rows += width)
        same = stands(PyList_GET_ITEM(given[0], i), rows, width);
    return PyBool_FromLong(same);
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
ASK(equal) {
    return all(given[0], given[1], [](auto x, auto y) {
        return Py_TYPE(x) != Py_TYPE(y) ? 0
               : PyObject_RichCompareBool(x, y, Py_EQ); });
}
ASK(answers) {
    return all(given[0], given[1], [](auto ask, auto y) {
        PyObject *answer = PyObject_CallNoArgs(ask);
        Py_XDECREF(answer);
        return answer ? answer == y : -1; });
}
ASK(tensors) try {
    return all(given[0], given[2], [&](auto x, auto y) {
        if ((PyObject *)Py_TYPE(x) != given[1]) return false;
        auto &row = numbers(x);
        auto expected = (const int64_t *)PyBytes_AsString(y);
        return (size_t)PyBytes_Size(y) == 8 * row.size() && std::equal(
            row.begin(), row.end(), expected, [](auto is, auto should) {
                return is == should || should == INT64_MIN; }); });
} catch (...) { Py_RETURN_FALSE; }  // such as one without strides
ASK(metadata) {
    auto &row = numbers(given[0]);
    return PyBytes_FromStringAndSize((char *)row.data(), 8 * row.size());
}
ASK(address) {
    return PyLong_FromVoidPtr(((Variable *)given[0])->tensor);
}

#define ENTRY(name) {#name, (PyCFunction)(void *)name, METH_FASTCALL}
static PyMethodDef entries[] = {
    ENTRY(field), ENTRY(item), ENTRY(pick), ENTRY(exact), ENTRY(sized),
    ENTRY(holding), ENTRY(equal), ENTRY(answers), ENTRY(tensors),
    ENTRY(metadata), ENTRY(address), ENTRY(stamped), ENTRY(settled),
    {}};
static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "questions", nullptr, -1, entries};
PyMODINIT_FUNC PyInit_questions() { return PyModule_Create(&module); }
"""

SOURCE = LOOPS + READING + CHANGES + QUESTIONS


#: The classes whose objects `tensors` can look into.
KINDS = (torch.Tensor, torch.nn.Parameter)


#: What a symbolic size is expected to be.
ANY = -1 << 63


@cache
def questions() -> ModuleType:
    """The module of questions: compiled, or in Python if that fails."""
    try:
        library = made(key_of(SOURCE, *command()), ".so", build)
        spec = spec_from_file_location("questions", library)
        compiled = module_from_spec(spec)
        spec.loader.exec_module(compiled)
        for x in (kind(torch.empty(0)) for kind in KINDS):
            if compiled.address(x) != x._cdata:
                raise ImportError("tensors begin otherwise in this torch")
    except (OSError, ImportError, subprocess.CalledProcessError) as error:
        log.show("guards", f"guards are asked in Python: {error}")
        return bulk
    compiled.described = described
    return compiled


def described(facts: TensorFacts) -> bytes:
    """What metadata() gives for a tensor of which these are the facts."""
    like = torch.empty(0, dtype=facts.dtype, device=facts.device)
    start = questions().metadata(like)[:6 * 8]
    sizes = (ANY if size is None else size
             for size in (*facts.shape, *facts.stride))
    rest = (facts.requires_grad, *sizes)
    return start + struct.pack(f"{len(rest)}q", *rest)


def command() -> tuple[str, ...]:
    """The compiler and its flags, with the headers of this torch."""
    torch_is_at = Path(torch.__file__).parent
    return (os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-shared",
            "-fPIC", "-w", f"-I{sysconfig.get_path('include')}",
            f"-I{torch_is_at / 'include'}", f"-L{torch_is_at / 'lib'}",
            f"-DTORCH={torch.__version__!r}", "-lc10")


def build(target: Path) -> None:
    """Compile to `target`."""
    compiler, *flags = command()
    subprocess.run([compiler, str(store(SOURCE, ".cpp")), "-o", str(target),
                    *flags], check=True, capture_output=True, text=True)
