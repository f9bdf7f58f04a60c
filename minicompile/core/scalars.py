"""NumPy's numbers, where NumPy is installed: constants like Python's own.

In: a number. Out: the Python number that torch's operators take it for.
What they return follows from that alone, whatever width the number has.
PyTorch's is torch/_dynamo/variables/tensor.py:NumpyNdarrayVariable.
"""

from __future__ import annotations

try:
    import numpy
except ImportError:
    numpy = None

#: The classes of NumPy's functions of numbers, such as `numpy.sqrt`.
UFUNCS = (numpy.ufunc,) if numpy else ()

#: The class of a number -> what it is to an operator; truths are floats.
SCALARS = {getattr(numpy, name): kind for kind, names in (
    (float, ("float16", "float32", "float64", "bool_")),
    (int, ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"))
) for name in names if hasattr(numpy, name)}
