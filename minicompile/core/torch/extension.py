"""C++ that reads Python's objects and PyTorch's tensors, as a module.

In: a name, and C++ that ends in `MODULE(name)`. Out: the module, loaded.
It is compiled once for a version of Python and of torch, which takes
about three seconds. PyTorch's is torch/utils/cpp_extension.py.
"""

import os
import sysconfig
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import torch

from ..cache import library
from ..errors import CompileError

HEAD = r"""
#include <Python.h>
#include <c10/core/TensorImpl.h>
#include <vector>

// How torch/csrc/autograd/python_variable.h begins the Python object of
// a tensor; extension() makes sure of it.
struct Variable {
    PyObject_HEAD
    c10::TensorImpl *tensor;
};

// A function of the module, its entry, and what the module begins with.
#define ASK(name) static PyObject *name( \
    PyObject *self, PyObject *const *given, Py_ssize_t passed)
#define ENTRY(name) {#name, (PyCFunction)(void *)name, METH_FASTCALL}
#define MODULE(name) static PyModuleDef module = { \
        PyModuleDef_HEAD_INIT, #name, nullptr, -1, entries}; \
    PyMODINIT_FUNC PyInit_##name() { return PyModule_Create(&module); }

ASK(address) {
    return PyLong_FromVoidPtr(((Variable *)given[0])->tensor);
}
"""

#: The classes whose objects are known to begin as a Variable does.
TENSORS = (torch.Tensor, torch.nn.Parameter)


def extension(name: str, source: str) -> ModuleType:
    """The module; ImportError if it cannot be made on this machine."""
    def load(path: str) -> ModuleType:
        spec = spec_from_file_location(name, path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    at = Path(torch.__file__).parent
    try:
        module = library(
            HEAD + source, "-std=c++20", "-O3", "-shared", "-fPIC", "-w",
            "-fno-semantic-interposition", f"-I{at / 'include'}",
            f"-I{sysconfig.get_path('include')}", f"-L{at / 'lib'}",
            f"-DTORCH={torch.__version__!r}", "-lc10", load=load)
    except (OSError, CompileError) as error:
        raise ImportError(f"{name} does not compile: {error}") from error
    for x in (kind(torch.empty(0)) for kind in TENSORS):
        if module.address(x) != x._cdata:
            raise ImportError("tensors begin otherwise in this torch")
    return module


@cache
def begun(name: str, source: str) -> Future[ModuleType]:
    """The module, compiled in a thread while other work goes on."""
    TemporaryDirectory().cleanup()  # else a fork may copy its lock, held
    pool = ThreadPoolExecutor(1)
    module = pool.submit(extension, name, source)
    pool.shutdown(wait=False)
    return module


os.register_at_fork(after_in_child=begun.cache_clear)  # no thread there
