"""The questions of a check, compiled.

In: nothing. Out: `answers`, `same` and `tensors` of predicates.py in C++,
which reads a tensor's metadata where it lies. They are compiled once for a
version of Python and of torch, which takes about three seconds; without a
compiler or Python.h the Python is used.
PyTorch's are in torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from types import ModuleType

import torch

from ...core import log
from ...core.extension import extension
from ...core.guard import TensorFacts
from ..predicates import FASTER, Questions

FUNCTIONS = r"""
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

ASK(answers) {
    return all(given[0], given[1], [](auto ask, auto y) {
        PyObject *answer = PyObject_CallNoArgs(ask);
        Py_XDECREF(answer);
        return answer ? answer == y : -1; });
}
ASK(same) {
    Py_ssize_t count = PyList_Size(given[1]);
    return PyBool_FromLong(
        (PyList_CheckExact(given[0]) || PyTuple_CheckExact(given[0]))
        && PySequence_Fast_GET_SIZE(given[0]) == count
        && !memcmp(PySequence_Fast_ITEMS(given[0]),
                   PySequence_Fast_ITEMS(given[1]), count * sizeof *given));
}
ASK(tensors) {
    return all(given[0], given[1], agrees);
}
ASK(metadata) {
    auto found = facts(given[0]);
    return PyBytes_FromStringAndSize((char *)&found, sizeof found);
}
"""

#: The C++ of the module, and the functions that Python sees.
PARTS = [FUNCTIONS]
ENTRIES = ["address", "answers", "same", "tensors", "metadata"]

#: What a symbolic size is expected to be.
ANY = -1 << 63


@cache
def compiled() -> ModuleType | None:
    """The module; None, said once, if it cannot be made here."""
    entries = "".join(f"ENTRY({name}), " for name in ENTRIES)
    table = f"static PyMethodDef entries[] = {{{entries}{{}}}};\n"
    try:
        return extension("questions",
                         "".join(PARTS) + table + "MODULE(questions)\n")
    except ImportError as error:
        log.show("guards", f"guards are asked in Python: {error}")
        return None


def faster() -> Questions | None:
    """The compiled questions, if there is a compiler."""
    found = compiled()
    return found and Questions(found.answers, found.same,
                               found.tensors, described)


FASTER.append(faster)


@lru_cache(maxsize=1024)
def described(facts: TensorFacts) -> bytes:
    """What a tensor of which these are the facts is compared with."""
    like = torch.empty(0, dtype=facts.dtype, device=facts.device)
    start = compiled().metadata(like)[8:14]
    sizes = (ANY if size is None else size
             for size in (*facts.shape, *facts.stride))
    return struct.pack(f"q6sbb{2 * len(facts.shape)}q", id(facts.type),
                       start, facts.requires_grad, len(facts.shape), *sizes)
