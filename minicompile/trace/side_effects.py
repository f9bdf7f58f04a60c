"""Objects from before the call: their places, their guards, their changes.

In: real objects and the sources they were read from. Out: the values the
interpreter uses for them, the guards for the facts it read, and the
writes that are replayed once the graph has run. An object stands for
itself; a list is copied when first read; attributes and dict items are
read through a `Namespace`, which also keeps writes from the real thing.
PyTorch's are torch/_dynamo/variables/builder.py and side_effects.py.
"""

import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from ..core.guard import (ABSENT, CONSTANTS, IDENTITIES, Attribute,
                          Call, Constant, Guard, Identifiers, Item,
                          Source, Stored, TensorFacts, is_a, is_plain,
                          printable, trusted)
from .reasons import WAYS, unsupported
from .recorder import Recorder, settled

#: The placeholder of a value that was not read yet.
UNREAD = object()

#: Methods written in C, bound to an object.
BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)

#: The kinds of `__self__` of C functions that are no methods.
OWNERS = (types.ModuleType, type, type(None),
          type(torch._C._get_tracing_state.__self__))

#: Descriptors of what C code keeps.
SLOTS = types.GetSetDescriptorType, types.MemberDescriptorType

#: So many constants in a sequence are compared in one go.
LONG_LIST = 32

#: Names that mean something else in generated text.
TAKEN = {"L", "F", "check", "outputs", "finish", "graph", "run", "math",
         "torch", "disjoint_memory", "value", "failed", "None"}


def is_bound(value: object) -> bool:
    """Whether this is a method written in C, bound to an object."""
    return is_a(value, BOUND) and not is_a(
        value.__self__, OWNERS)


def passing(value: object) -> bool:
    """Whether a value is of a kind that programs create at every use."""
    return type(value) is frozenset or (
        type(value) is types.FunctionType
        and "<" in value.__code__.co_qualname)  # whatever it wraps


def facts(real: torch.Tensor, fake: torch.Tensor) -> TensorFacts:
    """A graph's assumptions about a tensor that this fake one models."""
    shape, stride = (tuple(None if isinstance(n, torch.SymInt) else n
                           for n in numbers)
                     for numbers in (fake.shape, fake.stride()))
    return TensorFacts(type(real), real.dtype, real.device, shape, stride,
                       real.requires_grad)


def contents(owner: object) -> dict:
    """What an object keeps itself, by name; a cell may be empty."""
    try:
        return {"cell_contents": owner.cell_contents} if is_a(
            owner, types.CellType) else object.__getattribute__(
            owner, "__dict__")
    except (AttributeError, ValueError):
        return {}


def is_hidden(owner: object, name: object) -> bool:
    """Whether `owner.name` is another thing than its `__dict__` holds.

    A `__getattribute__`, a property or a descriptor in Python hides it; a
    name may be no text.
    """
    kind = type(owner)
    found = next((each.__dict__[name] for each in kind.__mro__
                  if name in each.__dict__), None)
    return type(name) is not str or hasattr(
        type(found), "__set__") and not isinstance(found, SLOTS) or (
        type(kind.__getattribute__) is types.FunctionType)


def made_tuple(kind: type, values) -> tuple:
    """A tuple of a class of its own, made without its `__new__`."""
    if kind is torch.Size or hasattr(kind, "n_sequence_fields"):
        return kind(values)  # the latter: torch.return_types.max, say
    return tuple.__new__(kind, values)


@dataclass
class Namespace:
    """One namespace of the outside: items, attributes, or slots.

    `real` is the dict from outside, found at `names`, and `owner` the
    object that is written to. `now` is the dict in its present state,
    `before` the items read from it. `written` has the keys written, in
    order, and says of each whether it was absent then. `numbers` has the
    number that a written key was, if that varies.
    """

    kind: str  # "items" of a dict; "attributes"; "slots", kept in C
    owner: object
    real: dict
    names: Source
    trusted: bool = False
    before: dict = field(default_factory=dict)
    written: dict = field(default_factory=dict)
    numbers: dict = field(default_factory=dict)

    def __post_init__(self):
        """Read a dict past what its class makes of `real[key]`."""
        kind = OrderedDict if is_a(self.real, OrderedDict) else dict
        if type(self.real) is not dict:
            self.real = {key: dict.__getitem__(self.real, key)
                         for key in kind.__iter__(self.real)}
        self.now = kind.fromkeys(self.real, UNREAD)


class Outside:
    """The objects that existed before the call, as far as they matter."""

    def __init__(self, recorder: Recorder):
        self.recorder, self.where = recorder, recorder.where
        self.guards: dict[tuple, Guard] = {}
        # These two hold the objects, so that no id is used twice.
        self.values: dict[int, object] = {}  # id(real) -> value
        self.reals: dict[int, object] = {}  # id(value) -> real
        self.sources: dict[int, Source] = {}  # id(value) -> source
        self.overlays: dict[tuple[int, str], Namespace] = {}
        self.unread: dict[int, Callable] = {}  # id(value) -> what reads it
        self.iterators: dict[int, object] = {}  # id(real) -> a stand-in
        self.identifiers = Identifiers({}, TAKEN)
        self.pending: list[Callable[[], Iterable[tuple]]] = []  # calls

    # Guards and sources

    def guard(self, source: Source | tuple[Source, ...] | None, kind: str,
              expected) -> None:
        """Add a guard, unless it was said before."""
        guard = Guard(source, kind, expected, self.where())
        self.guards.setdefault(guard.key(), guard)

    def relate(self, text: str, *sources: Source) -> None:
        """Add a guard on places, `{0}` the first's value, `{}` all."""
        each = ", ".join(f"{{{at}}}" for at in range(len(sources)))
        self.guard(sources, "relation", text.replace("{}", each))

    def constant(self, value: object, name: str = "") -> Constant:
        """A source for an object that the generated code holds by name."""
        name = name or getattr(value, "__name__", None) or (
            type(value).__name__)
        return Constant(self.identifiers.name(name, value), value)

    def lacks(self, names: Source, key) -> None:
        """Guard that a dict has no such key: one guard for each dict."""
        known = self.guards.get((names, "lacks"))
        keys, where = (known.expected, known.where) if known else (
            (), self.where())
        if key not in {*keys}:  # by hash: a tensor compares as one
            self.guards[names, "lacks"] = Guard(
                names, "lacks", (*keys, key), where)

    def source(self, value: object) -> Source | None:
        """Where a value was read from; None if the trace made it."""
        return self.sources.get(id(value))

    def met(self, value: object, source: Source) -> bool:
        """Whether a value is known; if so, guarded to be at `source`."""
        known = self.source(value)
        if known not in (None, source):
            self.relate("{0} is {1}", source, known)
        return known is not None

    def found_at(self, value: object) -> Source:
        """Where a value was read from, or a name that is kept for it."""
        return self.source(value) or self.constant(value)

    # Reading

    def admit(self, real, source: Source, trusted: bool = False):
        """The value used for `real`, guarded by the facts that it shows."""
        kind, sizes = type(real), self.recorder.sizes
        if (symbol := sizes.symbolic(real, source, self)) is not None:
            self.guard(source, "type", kind)
            return symbol
        if kind in CONSTANTS:
            self.guard(source, "equal", real)
            return real
        if is_a(real, IDENTITIES) and not is_bound(real) and (
                trusted or not passing(real)):
            if not trusted:
                self.guard(source, "is", real)
            return real
        if id(real) in self.values:
            value = self.values[id(real)]
            self.met(value, source)
            return self.whole(value)
        if is_a(real, torch.Tensor):
            return self.remember(real, self._tensor(real, source), source)
        self.guard(source, "type", kind)
        if kind in FIRST:
            return FIRST[kind](self, real, source)
        if issubclass(kind, tuple) and type(
                kind.__getitem__) is not types.FunctionType:
            value = made_tuple(kind, self.elements(real, source))
            return self.remember(real, value, source) if (
                value or kind is not tuple) else value
        if kind is list or is_a(real, (
                types.MethodType, *IDENTITIES)):
            raise unsupported("attribute", f"a {kind.__name__}, {source},")
        return self.remember(real, real, source)

    def elements(self, real, source: Source) -> list:
        """The elements of a sequence; of a long one, all in one guard."""
        places = [(each, Item(source, at)) for at, each in enumerate(real)]
        if len(real) < LONG_LIST or not CONSTANTS.issuperset(
                map(type, real)) or any(
                self.recorder.sizes.symbolic(*each, self) is not None
                for each in places):
            self.guard(source, "length", len(real))
            return [self.admit(*each) for each in places]
        self.guard(source, "keys", tuple(real))
        return [*real]

    def remember(self, real, value, source: Source):
        """`value`, from now on the stand-in of `real`."""
        self.values[id(real)], self.sources[id(value)] = value, source
        self.reals[id(value)] = real
        return value

    def _tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """A tensor as a graph input, guarded by its facts."""
        if type(real) not in (torch.Tensor, nn.Parameter):
            return WAYS["subclass"](self, real, source)
        if not is_plain(real) or (
                torch._C._functorch.is_functorch_wrapped_tensor(real)):
            raise unsupported("input", f"a special tensor, {source},")
        fake = self.recorder.input(real, source)
        self.guard(source, "tensor", facts(real, fake))
        return fake

    # Namespaces: attributes of objects, items of dicts

    def space(self, kind: str, owner) -> Namespace:
        """The namespace through which an object is read from now on.

        Its `__dict__` has the same one, by whatever way it is reached.
        """
        if (key := (id(owner), kind)) not in self.overlays:
            real, place = owner, self.found_at(owner)
            if kind != "items":
                real = contents(self.real(owner)) if (
                    kind == "attributes") else {}
                place = Call(self.constant(contents), place) if is_hidden(
                    owner, "__dict__") else Attribute(place, "__dict__")
                if not self.met(real, place):
                    self.values[id(real)] = real
                    self.sources[id(real)] = place
            self.overlays[key] = self.overlays.setdefault(
                (id(real), "items"), Namespace(kind, owner, real, place))
        for number in self.overlays[key].numbers.values():
            settled(number)  # the next key may be the same, or another
        return self.overlays[key]

    def globals(self, names: dict) -> Namespace:
        """The namespace of a module."""
        name = names.get("__name__") or "module"
        place = self.constant(names, f"{name}_globals")
        if not self.met(names, place):
            self.remember(names, names, place)
            self.space("items", names).trusted = trusted(name)
        return self.space("items", names)

    def place(self, space: Namespace, key) -> Source:
        """Where the value of a key is."""
        items, owner = space.kind == "items", space.owner
        if not items and not is_hidden(owner, key):
            return Attribute(self.found_at(owner), key)
        if not printable(key):
            key = self.found_at(self.values.get(id(key), key))
        return (Stored if items and type(owner) not in (
            dict, OrderedDict) else Item)(space.names, key)

    def read(self, space: Namespace, key):
        """The value at `key`, or ABSENT; either is guarded."""
        key = self.real(key)
        if type(key) is torch.SymInt:  # no such key, as is guarded
            return ABSENT
        value = space.now.get(key, ABSENT)
        if value is UNREAD:
            real, place = space.real[key], self.place(space, key)
            if real is None and type(place) is Stored:  # as if absent
                self.guard(space.names, "contains", key)
            value = WAYS["grown"](self, real, place, space.trusted)
            space.now[key] = space.before[key] = value
        elif id(value) in self.unread:
            WAYS["grown"](self, self.real(value), self.source(value))
        elif value is ABSENT and not (
                key in space.real or space.trusted):
            if is_a(key, torch.Tensor) and not space.real:
                self.guard(space.names, "length", 0)
            else:
                self.lacks(space.names, key)
        return value

    def whole(self, value):
        """The value; a list that was not read yet is read."""
        read = self.unread.get(id(value))
        return read() if read else value

    def real(self, key):
        """An object or a key as it is outside: the tensor of a fake one."""
        return self.reals.get(id(key), key)

    def statements(self, rebuild) -> list[str]:
        """Statements that do what the trace has put off."""
        return [rebuild.call(*call) for ask in self.pending
                for call in ask()]

    # Dicts as a whole

    def keys(self, space: Namespace) -> list:
        """All keys, in order."""
        if any(is_a(key, torch.Tensor) for key in space.real):
            raise unsupported("attribute", "a dict with tensors as keys")
        self.guard(space.names, "keys", tuple(space.real))
        return [*space.now]

    def resolve(self, value):
        """A dict from outside as a real one, which follows its writes.

        So its views and iterators are Python's own, and notice a change.
        """
        if not self.is_dict(value):
            return value
        space = self.space("items", value)
        for key in self.keys(space):
            self.whole(self.read(space, key))
        return space.now

    def is_dict(self, value) -> bool:
        """Whether `value` is a dict that existed before the call."""
        return is_a(value, dict) and id(value) in self.sources

    def is_outside(self, value) -> bool:
        """Whether `value` existed before and stands for itself."""
        return id(value) in self.sources and self.values.get(
            id(value)) is value


#: How an object of each class is read for the first time.
FIRST: dict[type, Callable] = {}
