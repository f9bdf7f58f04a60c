"""Each kind of guard as Python conditions on a name.

In: a guard and the expression that holds the guarded value. Out: the
conditions as text, cheapest first. Conditions never call a method of a
value whose type has not been settled before, and never trust __eq__.
PyTorch's counterpart is GuardBuilder in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import torch

from ..core.guard import GlobalState, Guard, TensorFacts
from .constants import fingerprint, plain, single
from .held import Names, held_weakly
from .state import NEVER_ACTIVE, SWITCHES, any_autocast, autocast


def on_type(names: Names, guard: Guard, x: str) -> list[str]:
    """The class of x, exactly."""
    kind = guard.expected
    return [f"type({x}) is {names.constant(kind.__name__, kind)}"]


def on_identity(names: Names, guard: Guard, x: str) -> list[str]:
    """x is that very object, compared by id where it is held weakly."""
    value = guard.expected
    if single(value):
        return [f"{x} is {names.literal('value', value)}"]
    wish = str(guard.source)
    if held_weakly(value):
        return [f"id({x}) == {names.identity(wish, value)}"]
    return [f"{x} is {names.constant(f'the_{wish}', value)}"]


def on_constant(names: Names, guard: Guard, x: str) -> list[str]:
    """x is a constant that nothing can tell from the expected one."""
    value = guard.expected
    if single(value):
        return [f"{x} is {names.literal('value', value)}"]
    if plain(value):
        kind = names.constant(type(value).__name__, type(value))
        wanted = names.literal("value", value)
        return [f"type({x}) is {kind}", f"{x} == {wanted}"]
    like = names.constant("fingerprint", fingerprint)
    expected = names.constant("fingerprint_of_" + str(guard.source),
                              fingerprint(value))
    return [f"{like}({x}) == {expected}"]


def on_tensor(names: Names, guard: Guard, x: str) -> list[str]:
    """x has the metadata the graph was made for, and no lazy bits."""
    facts: TensorFacts = guard.expected
    kind = names.constant(facts.type.__name__, facts.type)
    conditions = [
        f"type({x}) is {kind}",
        f"{x}.dtype is {names.literal('dtype', facts.dtype)}",
        f"{x}.shape == {names.literal('shape', tuple(facts.shape))}",
        on_device(names, facts, x),
        f"{x}.requires_grad" if facts.requires_grad else
        f"not {x}.requires_grad",
        f"{x}.layout is {names.literal('layout', torch.strided)}",
        on_stride(names, facts, x),
        f"not {x}.is_neg()"]
    if facts.dtype.is_complex:
        conditions.append(f"not {x}.is_conj()")
    return conditions


def on_device(names: Names, facts: TensorFacts, x: str) -> str:
    """x is on the device; the CPU has a quicker question."""
    if facts.device.type == "cpu":
        return f"{x}.is_cpu"
    return f"{x}.device == {names.literal('device', facts.device)}"


def on_stride(names: Names, facts: TensorFacts, x: str) -> str:
    """x has these strides; is_contiguous() tells if no size is 0 or 1."""
    row_major = tuple(itertools.accumulate(
        facts.shape[:0:-1], operator.mul, initial=1))[::-1]
    if facts.shape and min(facts.shape) > 1 and facts.stride == row_major:
        return f"{x}.is_contiguous()"
    return f"{x}.stride() == {names.literal('stride', tuple(facts.stride))}"


def on_length(names: Names, guard: Guard, x: str) -> list[str]:
    """x has that many items."""
    return [f"len({x}) == {names.literal('length', guard.expected)}"]


def on_keys(names: Names, guard: Guard, x: str) -> list[str]:
    """Iterating over x gives these constants in this order."""
    keys = guard.expected
    if not keys:
        return [f"(*{x},) == ()"]
    if all(type(key) is str for key in keys):
        return [f"{{*map(type, {x})}} == {{str}}",
                f"(*{x},) == {names.literal('keys', keys)}"]
    like = names.constant("fingerprint", fingerprint)
    expected = names.constant("keys_of_" + str(guard.source),
                              fingerprint(keys))
    return [f"{like}((*{x},)) == {expected}"]


def on_attribute(names: Names, guard: Guard, x: str) -> list[str]:
    """x has, or has not, an attribute of that name."""
    attribute, there = guard.expected
    name = names.literal("name", attribute)
    return [f"{'' if there else 'not '}hasattr({x}, {name})"]


def on_member(names: Names, guard: Guard, x: str) -> list[str]:
    """The key is, or is not, in the container."""
    member, there = guard.expected
    key = names.literal("key", member)
    return [f"{key} {'' if there else 'not '}in {x}"]


def on_alias(names: Names, guard: Guard, x: str, ys: tuple) -> list[str]:
    """Places hold one object, or two, or memory of their own."""
    match guard.kind:
        case "same":
            return [f"{x} is {ys[0]}"]
        case "different":
            return [f"{x} is not {ys[0]}"]
    return [f"{names.constant('apart', apart)}({', '.join(ys)})"]


def apart(*tensors: torch.Tensor) -> bool:
    """Whether no two of the tensors share memory."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    spans = sorted((storage.data_ptr(), storage.nbytes())
                   for storage in storages if storage.nbytes())
    return all(start + size <= following for (start, size), (following, _)
               in itertools.pairwise(spans))


def on_state(names: Names, guard: Guard) -> list[str]:
    """Torch's switches stand as they did, and no mode is active."""
    state: GlobalState = guard.expected
    conditions = [
        f"{names.constant(read.__name__, read)}() is "
        f"{names.literal(switch, getattr(state, switch))}"
        for switch, read in SWITCHES.items()]
    conditions += [f"not {names.constant(read.__name__, read)}()"
                   for read in NEVER_ACTIVE.values()]
    current = names.constant("autocast", autocast)
    anywhere = names.constant("any_autocast", any_autocast)
    return conditions + (
        [f"{current}() == {names.literal('autocast', state.autocast)}"]
        if state.autocast else [f"not {anywhere}()"])


#: How each kind of guard is written, on the value x of its source.
CONDITIONS: dict[str, Callable[[Names, Guard, str], list[str]]] = {
    "type": on_type, "is": on_identity, "equal": on_constant,
    "tensor": on_tensor, "length": on_length, "keys": on_keys,
    "has": on_attribute, "contains": on_member}


def conditions_of(names: Names, guard: Guard, x: str, ys: tuple
                  ) -> list[str]:
    """The conditions of any guard on x, and on ys where it compares."""
    match guard.kind:
        case "state":
            return on_state(names, guard)
        case "same" | "different" | "apart":
            return on_alias(names, guard, x, ys)
        case kind:
            return CONDITIONS[kind](names, guard, x)
