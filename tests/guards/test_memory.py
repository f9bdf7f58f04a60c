"""Guards keep nothing alive, and nothing passes for what has died."""

import gc
import weakref

import pytest
import torch
from torch import nn

from minicompile.core.guard import Attribute, Guard, Item
from tests.guards.say import X, Y, explain, module_guards


class Thing:
    pass


def test_a_dead_model_is_freed_and_its_check_never_holds(build):
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6)))
    guards = list(module_guards(model, X))
    guards += [Guard(Item(Attribute(X, "_modules"), key), "is", layer)
               for key, layer in model._modules.items()]
    guards.append(Guard(Y, "is", model[0].weight))
    check = build(guards, {})
    weight = model[0].weight
    assert check((model, weight), None)
    dead = [weakref.ref(part) for part in (model, model[3], weight)]
    del model, weight, guards
    gc.collect()
    assert [ref() for ref in dead] == [None] * 3
    assert not check((None, None), None)


@pytest.mark.parametrize("count", [1, 12])
def test_an_object_at_a_dead_one_s_address_is_another(build, count):
    for _ in range(100):  # until the allocator uses an address again
        things = [Thing() for _ in range(count)]
        check = build([Guard(Item(X, at), "is", thing)
                       for at, thing in enumerate(things)], {})
        assert check((things,), None)
        address, crowd = id(things.pop()), [Thing() for _ in range(1000)]
        again = [thing for thing in crowd if id(thing) == address]
        if again:
            break
    things += again
    assert len(things) == count, "no address was used again"
    assert not check((things,), None)


def test_alive_tells_when_an_entry_can_go():
    from minicompile.guards import build_check
    thing = Thing()
    check = build_check([Guard(X, "is", thing)], {})
    assert check.alive
    del thing
    assert not check.alive
    assert explain(check, (None,), None) == ["`x` was there, is deleted"]


def test_a_check_dies_with_its_last_user(build):
    thing = torch.zeros(2)
    check = build([Guard(X, "is", thing)], {"big": (big := Thing())})
    dead = weakref.ref(big)
    del big
    assert dead() is not None and check((thing,), None)
    del check
    gc.collect()
    assert dead() is None
