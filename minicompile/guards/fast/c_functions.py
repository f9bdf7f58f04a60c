"""Tensors, their memory, switches and long lists, asked about in C++.

In: four rows of the table of kinds. Out: rows that ask the same in C++,
where a tensor's metadata is read as it lies in memory. The C++ is compiled
once for a version of Python and of torch, which takes about three seconds.
Without a compiler or Python.h the rows of the road stay.
PyTorch's are in torch/csrc/dynamo/guards.cpp.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache, partial
from types import ModuleType

import torch

from ...core import log
from ...core.extension import TENSORS, extension
from ...core.guard import Guard, TensorFacts
from ...core.state import (NEVER_ACTIVE, SWITCHES, any_autocast, autocast,
                           modes)
from ..predicates import KINDS, Names, apart, on_apart

FUNCTIONS = r"""
// A tensor's facts, but for sizes and strides, as two words.
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
bool holds(PyObject *x, PyObject *packed) try {
    auto &expected = *(const Facts *)PyBytes_AsString(packed);
    if (Py_TYPE(x) != expected.kind) return false;
    auto is = facts(x);
    if (memcmp(&is, &expected, sizeof is)) return false;
    auto numbers = (const int64_t *)(&expected + 1);
    auto &tensor = *((Variable *)x)->tensor;
    return agree(tensor.sizes(), numbers)
        && agree(tensor.strides(), numbers + is.dims);
} catch (...) { return false; }  // such as one without strides

// Whether the functions of a list give the objects of another.
ASK(answers) {
    for (Py_ssize_t i = 0; i < PyList_Size(given[0]); i++) {
        PyObject *is = PyObject_CallNoArgs(PyList_GET_ITEM(given[0], i));
        Py_XDECREF(is);
        if (!is) return nullptr;
        if (is != PyList_GET_ITEM(given[1], i)) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}
ASK(agrees) {
    return PyBool_FromLong(holds(given[0], given[1]));
}
// Whether objects are tensors of these classes, and share no memory.
ASK(apart) try {
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
// Whether a list or tuple holds the very objects of another list.
ASK(same) {
    Py_ssize_t count = PyList_Size(given[1]);
    return PyBool_FromLong(
        (PyList_CheckExact(given[0]) || PyTuple_CheckExact(given[0]))
        && PySequence_Fast_GET_SIZE(given[0]) == count
        && !memcmp(PySequence_Fast_ITEMS(given[0]),
                   PySequence_Fast_ITEMS(given[1]), count * sizeof *given));
}
ASK(metadata) {
    auto found = facts(given[0]);
    return PyBytes_FromStringAndSize((char *)&found, sizeof found);
}
"""

#: The C++ of the module, and the functions that Python sees.
PARTS = [FUNCTIONS]
ENTRIES = ["address", "answers", "agrees", "apart", "same", "metadata"]

#: What a symbolic size is expected to be.
ANY = -1 << 63

#: So many keys are first compared as objects.
MANY = 32


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


@lru_cache(maxsize=1024)
def packed(facts: TensorFacts) -> bytes:
    """What a tensor of which these are the facts is compared with."""
    like = torch.empty(0, dtype=facts.dtype, device=facts.device)
    start = compiled().metadata(like)[8:14]
    sizes = (ANY if size is None else size
             for size in (*facts.shape, *facts.stride))
    return struct.pack(f"q6sbb{2 * len(facts.shape)}q", id(facts.type),
                       start, facts.requires_grad, len(facts.shape), *sizes)


def on_tensor(names: Names, guard: Guard) -> str:
    """A tensor of this class and metadata."""
    if compiled() is None or guard.expected.type not in TENSORS:
        return IN_PYTHON["tensor"](names, guard)
    facts = names.name(str(guard.expected), packed(guard.expected))
    return f"{names.name('agrees', compiled().agrees)}({{0}}, {facts})"


def on_switches(names: Names, guard: Guard) -> str:
    """Torch's switches, outside autocast, in one call."""
    if compiled() is None or guard.expected.autocast:
        return IN_PYTHON["state"](names, guard)
    asked = dict(zip(SWITCHES.values(), guard.expected))
    asked |= dict.fromkeys(NEVER_ACTIVE.values(), False)
    asked |= {modes: 0, any_autocast: asked.pop(autocast) != ()}
    return (f"{names.name('answers', compiled().answers)}("
            f"{names.name('switches', [*asked])}, "
            f"{names.name('settings', [*asked.values()])})")


def on_memory(names: Names, guard: Guard) -> str:
    """No two of the tensors share memory, in one call."""
    return on_apart(names, guard, partial(
        compiled().apart, TENSORS) if compiled() else apart)


def on_many_keys(names: Names, guard: Guard) -> str:
    """The very keys expected, or others that nothing can tell from them."""
    asked = IN_PYTHON["keys"](names, guard)
    if len(guard.expected) < MANY or compiled() is None:
        return asked
    objects = names.name("objects", [*guard.expected])
    return (f"({names.name('same', compiled().same)}({{0}}, {objects}) "
            f"or {asked})")


IN_PYTHON = KINDS.copy()
KINDS.update(tensor=on_tensor, state=on_switches, apart=on_memory,
             keys=on_many_keys)
