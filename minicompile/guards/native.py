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
PyObject *attributes(PyObject *objects, PyObject *name) {
    static PyObject *word = PyUnicode_InternFromString("__getattribute__");
    static PyObject *usual = _PyType_Lookup(&PyBaseObject_Type, word);
    PyTypeObject *kind = nullptr;
    bool is_own = false;
    return each(objects, [&](PyObject *x) {
        if (Py_TYPE(x) != kind) {
            kind = Py_TYPE(x);
            is_own = _PyType_Lookup(kind, word) == usual
                && !_PyType_Lookup(kind, name);
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
    ENTRY(metadata), ENTRY(address), {}};
static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "questions", nullptr, -1, entries};
PyMODINIT_FUNC PyInit_questions() { return PyModule_Create(&module); }
"""

SOURCE = LOOPS + READING + QUESTIONS


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
