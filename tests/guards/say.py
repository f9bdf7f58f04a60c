"""Short ways to say sources and guards in tests."""

import torch

from minicompile.core.guard import (Attribute, Function, Guard, Item,
                                    Local, TensorFacts)
from minicompile.core.state import global_state
from minicompile.guards.explain.reasons import failures

F = Function("f")
X, Y, Z = (Local(name, at) for at, name in enumerate("xyz"))
STATE = Guard(None, "state", global_state())


def explain(check, *call):
    """Every guard that does not hold, with its old and new value."""
    return [*failures(check, *call)]


def facts(tensor):
    """The facts about a tensor as a trace states them."""
    return TensorFacts(type(tensor), tensor.dtype, tensor.device,
                       tuple(tensor.shape), tuple(tensor.stride()),
                       tensor.requires_grad)


def tensor(source, value):
    return Guard(source, "tensor", facts(value))


def relation(text, *sources):
    return Guard(sources, "relation", text)


def module_guards(module, source):
    """What a graph relies on that runs every part of a module."""
    yield Guard(source, "type", type(module))
    yield Guard(Attribute(source, "training"), "equal", module.training)
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        yield Guard(Attribute(source, hooks), "length", 0)
    for kind, make in (("_parameters", tensor), ("_buffers", tensor),
                       ("_modules", None)):
        names = Attribute(source, kind)
        yield Guard(names, "type", dict)
        for key, value in getattr(module, kind).items():
            place = Item(names, key)
            if value is None:
                yield Guard(place, "is", None)
            elif make is not None:
                yield make(place, value)
            else:
                yield from module_guards(value, place)
        if kind == "_modules":
            yield Guard(names, "keys", tuple(module._modules))


def randn(*shape, **options):
    return torch.randn(*shape, **options)
