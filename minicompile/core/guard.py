"""Where a Python object came from, and what a graph relies on there.

In: nothing but the call. Out: a source is an expression, valid at the next
call, that reads the same place. `L` is the tuple of the call's local values
in the order of the code's variable names; `F` is the function that was
called. A guard says what must hold at a source; a graph input is fetched
from one. Tracing produces guards, chapter 2 turns them into one check
function. PyTorch's are in torch/_dynamo/source.py, torch/_guards.py and
torch/_dynamo/guards.py.
"""

from __future__ import annotations

import builtins
import enum
import functools
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, make_dataclass
from keyword import iskeyword

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.graph import _Namespace

from .errors import Where
from .index import Interned
from .sizes import SCALARS


class Source(metaclass=Interned):
    """A place an object can be read from. Prints as the user wrote it.

    `text` is how it is read, `said` how a person writes it where that
    differs; both are formats of the parts.
    """

    text = said = ""

    @staticmethod
    def identity(part: object) -> object:
        """The key that tells a part of a source from other parts."""
        return part if isinstance(part, Source) else repr(part)

    def form(self, write: Callable[[Source], str], text: str = "") -> str:
        """Text that reads the place; `write` gives its base's text."""
        def said(name, part):
            if isinstance(part, Source):
                return write(part)
            return repr(part) if name == "key" else part

        return (text or self.text).format_map({
            name: said(name, part) for name, part in vars(self).items()})

    def code(self) -> str:
        """The Python expression over `L` and `F` that reads this place."""
        return self.form(Source.code)

    def __str__(self) -> str:
        return self.form(str, self.said)

    @property
    def base(self) -> Source | None:
        """The place this one is read through, or None for a root."""
        return vars(self).get("owner")


def chain(source: Source | None) -> Iterator[Source]:
    """The source and all that it is read through."""
    while source is not None:
        yield source
        source = source.base


def printable(value: object) -> bool:
    """Whether repr(value) is Python for the value."""
    if type(value) in (tuple, list):
        return all(map(printable, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str, bytes)


#: Immutable values that may stand in a graph as they are.
IMMUTABLE = {type(None), bool, int, float, complex, str, bytes, type(...),
             torch.dtype, torch.device, torch.layout, torch.memory_format}

#: Immutable values, guarded by equality and then used as they are.
CONSTANTS = IMMUTABLE | {slice, range, type(NotImplemented), *SCALARS}


#: Objects that are what they are: guarded by identity. A number or a text
#: of a class of its own is, too: C code reads it wherever it finds it.
IDENTITIES = (type, types.ModuleType, types.FunctionType,
              types.BuiltinFunctionType, types.MethodDescriptorType,
              types.WrapperDescriptorType, types.MethodWrapperType,
              types.GetSetDescriptorType, types.ClassMethodDescriptorType,
              enum.Enum, re.Pattern, torch._ops.OpOverload,
              torch._ops.OpOverloadPacket, torch._C._SDPBackend,
              types.GenericAlias, types.UnionType, typing._Final,
              typing.TypeVar, frozenset, numpy.ufunc,
              functools._lru_cache_wrapper, torch.jit.ScriptFunction,
              staticmethod, classmethod, property, types.CodeType,
              type(sys.version_info), int, float, complex, str, bytes)

#: In place of a value where there is none.
ABSENT = object()


def is_a(value: object, kinds) -> bool:
    """`isinstance`, but no object is asked for its `__class__`."""
    return issubclass(type(value), kinds)


def is_constant(value: object) -> bool:
    """Whether a value never changes, at any depth."""
    if is_a(value, tuple):
        return all(map(is_constant, tuple.__iter__(value)))
    return type(value) in CONSTANTS or is_a(value, IDENTITIES)


@functools.cache
def trusted(name: str | None) -> bool:
    """Whether a module's functions and classes never change.

    True of torch, the standard library and this package but for its
    models: patching them is not noticed, and no line is the user's.
    """
    root = (name or "").partition(".")[0]
    ours = root == "minicompile" and not name.endswith(".models")
    return ours or root == "torch" or root in sys.stdlib_module_names


def home(value) -> str | None:
    """The module of a class, or of a function: of a user's, where it is
    written, as functools.wraps() names another; else where it is shown."""
    if type(value) is types.FunctionType and not trusted(
            name := value.__globals__.get("__name__")):
        return name
    return value.__module__


def source_class(name: str, parts: str, text: str, said: str = ""
                 ) -> type[Source]:
    """A class of sources: the names of its parts, how one is read, said."""
    return make_dataclass(name, parts.split(), bases=(Source,), frozen=True,
                          eq=False, namespace={"text": text, "said": said})


#: A parameter of the called function: `position` in its frame.
Local = source_class("Local", "name position", "L[{position}]", "{name}")

#: The called function object itself.
Function = source_class("Function", "name", "F", "{name}")

#: The value that a dict holds at `key`, read without running its class's
#: own `__getitem__` or `__missing__`.
Stored = source_class("Stored", "owner key", "dict.get({owner}, {key})",
                      "{owner}[{key}]")

#: `function(owner)` for a named, pure function such as `type`.
Call = source_class("Call", "function owner", "{function}({owner})")


class Constant(source_class("Constant", "name value", "{name}")):
    """An object the generated code holds by name, such as a class."""

    @staticmethod
    def identity(part: object) -> object:
        """A name by its text, the object by which one it is."""
        return part if type(part) is str else id(part)


class Attribute(source_class("Attribute", "owner name", "")):
    """`owner.name`."""

    @property
    def text(self) -> str:
        plain = self.name.isascii() and self.name.isidentifier()
        return ("{owner}.{name}" if plain and not iskeyword(self.name)
                else "getattr({owner}, {name!r})")


class Item(source_class("Item", "owner key", "{owner}[{key}]")):
    """`owner[key]`, the key a constant or read from a place of its own."""

    def __str__(self) -> str:
        """As a person writes a module's part, or a module's global."""
        match self.owner:
            case Attribute(owner, "_parameters" | "_buffers" | "_modules"
                           | "__dict__"):
                return f"{owner}.{self.key}"
            case Constant(name) if "_globals" in name:
                return str(self.key)
        return super().__str__()


#: The classes of tensors that are no more than a tensor.
ORDINARY = {FakeTensor, torch.Tensor, torch.nn.Parameter}


def is_plain(x: torch.Tensor) -> bool:
    """Whether the tensor's memory has its elements as they are."""
    return x.layout is torch.strided and not (
        x.is_neg() or x.is_conj() or x._is_zerotensor() or x.is_nested
        or x.is_quantized or torch._is_functional_tensor(x))


@dataclass(frozen=True)
class TensorFacts:
    """The facts that a graph assumes about one input tensor.

    A size or stride that is symbolic is None.
    """

    type: type
    dtype: object
    device: object
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    requires_grad: bool

    def __str__(self) -> str:
        sizes, strides = (str(tuple(numbers)).replace("None", "?")
                          for numbers in (self.shape, self.stride))
        dtype = str(self.dtype).removeprefix("torch.")
        return (f"{dtype} {sizes}, strides {strides}, {self.device}"
                f"{', requires grad' * self.requires_grad}")


@dataclass(frozen=True)
class Guard:
    """`source` must satisfy `kind` with `expected`; `where` is why.

    Chapter 2 has the table of kinds. A `relation` is a text about several
    sources, `{0}` being the first; the `state` of torch has none.
    """

    source: Source | tuple[Source, ...] | None
    kind: str
    expected: object
    where: Where | None = None

    def key(self) -> tuple:
        """Two guards with one key say the same; tracing keeps the first."""
        try:
            hash(self.expected)
            expected = (type(self.expected), self.expected)
        except TypeError:
            expected = (type(self.expected), id(self.expected))
        return (self.source, self.kind, expected)

    @property
    def places(self) -> tuple[Source, ...]:
        """The sources whose values the guard is about."""
        if isinstance(self.source, tuple):
            return self.source
        return () if self.source is None else (self.source,)

    def __str__(self) -> str:
        if self.kind == "relation":
            return f"torch: relation {self.expected.format(*self.source)}"
        place = "torch" if self.source is None else str(self.source)
        expected = self.expected  # a class, function or code by its name
        name = getattr(expected, "__name__", None) or getattr(
            expected, "co_name", None)
        return f"{place}: {self.kind} {name or repr(expected)}"


class Identifiers:
    """The objects that a generated text calls by name."""

    def __init__(self, values: dict[str, object], taken: Iterable[str]):
        self.values, self.known = values, {}
        self.namespace = _Namespace()
        self.namespace._used_names |= {*values, *taken}

    def fresh(self, wish: str) -> str:
        """An identifier like `wish` that is not in use; never `v0`."""
        return self.namespace.create_name(
            re.sub(r"[\W_]+|^v(?=\d)", "_", wish).strip("_"), None)

    def name(self, wish: str, value: object) -> str:
        """A name like `wish` for `value`, or the builtin that it is."""
        if id(value) not in self.known:
            if vars(builtins).get(wish) is not value:
                wish = self.fresh(wish)
            self.known[id(value)] = wish
            self.values[wish] = value
        return self.known[id(value)]
