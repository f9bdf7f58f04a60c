"""torch.cond: eager's torch.cond is the judge, values and gradients."""

import itertools
import pytest
import torch
from torch import nn

import minicompile
from minicompile.trace import trace
from tests.same import close

BACKENDS = ("eager", "split", "fused")


def rising(x, w):
    return torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(),
                      lambda x, w: x @ w * 2, (x, w)).cos()


def one_sided(x, w):
    """One branch uses an operand, or a gradient, that the other does not."""
    a, b = torch.cond(x.mean() > 0, lambda x, w: (x * 2, x.detach() * 3),
                      lambda x, w: (w.sigmoid().reshape(3, 4), x.exp()),
                      (x * 1, w * 1))
    return a.exp() * b


def closing(x, w):
    """Branches read what is around them."""
    y = x.relu()

    def yes(v):
        return v * y @ w

    return torch.cond(x[0, 0] > 0, yes, lambda v: v @ w, (x.sin(),))


def nested(x, w):
    def inner(v):
        return torch.cond(v.sum() > 3, torch.tanh, torch.sigmoid, (v,))
    return torch.cond(w.sum() > 0, inner, lambda v: v.clone(), (x * w.t(),))


def python_bool(x, w):
    return torch.cond(x.shape[0] > 2, lambda v: v + 1, lambda v: v - 1, (x,))


def structured(x, w):
    made = torch.cond(x.sum() > 0, lambda x: {"a": x + 0, "b": (x * 2,)},
                      lambda x: {"a": x.cos(), "b": (x.exp(),)}, (x,))
    return made["a"] * made["b"][0]


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.left, self.right, (x,)).relu()


def pair(sign):
    torch.manual_seed(0)
    x = (torch.rand(3, 4) * sign).requires_grad_()
    return x, (torch.rand(4, 3) * sign).requires_grad_()


def both(fn, args):
    """Results, and gradients by all arguments."""
    made = fn(*args)
    first = made[0] if isinstance(made, tuple) else made
    found = torch.autograd.grad(first.sum(), args, allow_unused=True)
    return made, [g if g is None else g.contiguous() for g in found]


@pytest.mark.slow(sample=4)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [rising, one_sided, closing, nested,
                                python_bool, structured])
def test_as_eager(fn, backend):
    torch._dynamo.reset()
    compiled = minicompile.compile(fn, backend=backend, fullgraph=True)
    for sign in (1, -1, 1):
        close(both(compiled, pair(sign)), both(fn, pair(sign)))
        with torch.no_grad():
            close(compiled(*pair(sign)), fn(*pair(sign)))
    stats = compiled.stats()
    assert stats.graphs == 2 and not stats.fallbacks, stats


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_module(backend):
    torch._dynamo.reset()
    model = Gate()
    compiled = minicompile.compile(model, backend=backend, fullgraph=True)
    for sign in (1, -1):
        got = both(lambda *a: compiled(a[0]),
                   (pair(sign)[0], *model.parameters()))
        want = both(lambda *a: model(a[0]),
                    (pair(sign)[0], *model.parameters()))
        close(got, want)
    assert not compiled.stats().fallbacks


def test_the_graph_holds_both():
    text = str(trace(rising, pair(1)))
    assert text.count("def graph_") == 2
    graph = trace(closing, pair(1)).graph
    node, = graph.graph.find_nodes(
        op="call_function", target=torch.ops.higher_order.cond)
    assert len(node.args[3]) == 3  # the operand, and what is read around


@pytest.mark.parametrize("yes, no, what", [
    (lambda x: x[0] + 1, lambda x: x + 1, "other shapes"),
    (lambda x: x.double(), lambda x: x * 1, "other shapes"),
    (lambda x: (x * 1, x * 2), lambda x: x * 1, "other shapes"),
    (lambda x: x.view(-1), lambda x: x * 1, "one memory"),
    (lambda x: x.mul_(2), lambda x: x, "writes"),
    (lambda x: SEEN.append(1) or x, lambda x: x, "changes something")])
def test_branches_that_cannot_be_chosen_between(yes, no, what):
    compiled = minicompile.compile(
        lambda x: torch.cond(x.sum() > 0, yes, no, (x,)), fullgraph=True)
    with pytest.raises(minicompile.Unsupported, match=what) as error:
        compiled(torch.ones(3))
    assert error.value.kind == "branch" and error.value.hint
    assert not SEEN


SEEN: list = []


def in_a_list(said, box, x):
    said.append(1)
    return x * 1


def in_a_dict_of_an_object(said, box, x):
    box.kept["x"] = 1
    return x * 1


def of_a_generator(said, box, x):
    return x * next(box.steps)


def in_a_key(said, box, x):
    box.names["new"] = box.names.pop("old")
    return x * 1


def of_an_iterator(said, box, x):
    return x * next(box.turns)[1]


def of_a_count(said, box, x):
    return x * next(box.count)


def of_a_cycle(said, box, x):
    return x * next(box.cycle)


def in_a_slot(said, box, x):
    box.slot.a = 2
    return x * 1


def in_a_subclass(said, box, x):
    box.kind.a = 2
    return x * 1


def in_a_ring(said, box, x):
    box.ring[0].append(2)
    return x * 1


def in_a_default(said, box, x):
    box.function.__defaults__ = (2,)
    return x * 1


@pytest.mark.parametrize("effect", [
    in_a_list, in_a_dict_of_an_object, of_a_generator, of_an_iterator,
    in_a_key, of_a_count, of_a_cycle, in_a_slot, in_a_subclass,
    in_a_ring, in_a_default])
def test_a_branch_changes_nothing_that_the_function_made(effect):
    class Box:
        pass

    class Slot:
        __slots__ = ("a",)

    class Names(dict):
        pass

    def chosen(x):
        said, box = [], Box()
        box.count, box.cycle = itertools.count(), itertools.cycle((1, 2))
        box.slot, box.kind, box.function = Slot(), Names(), lambda by=1: by
        box.ring = []
        box.ring.append(box.ring)
        box.slot.a = [next(box.cycle) for _ in range(3)][0]
        box.kept, box.steps = {}, (step for step in (1, 2))
        box.turns, box.names = enumerate([3, 4]), {"old": 1}
        return torch.cond(x.sum() > 0, lambda v: effect(said, box, v),
                          lambda v: v * 2, (x,)), said, len(box.kept)

    with pytest.raises(minicompile.Unsupported, match="changes something"):
        minicompile.compile(chosen, fullgraph=True)(torch.ones(3))


def test_iterators_are_made_again_where_each_stands():
    """Their states are temporary objects, whose ids may be used again."""
    def function(x):
        made = []
        for first in range(6):
            cycle, pairs = itertools.cycle((first, 2)), enumerate([3, 4])
            slices = itertools.islice([5, 6, 7], 3)
            made += [cycle, pairs, slices, itertools.accumulate([first, 1])]
            for each in made[first:]:
                next(each, None)
        return x + 1, made

    def rest(made):
        return [[*itertools.islice(each, 4)] for each in made]

    want = rest(function(torch.ones(1))[1])
    compiled = minicompile.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        assert rest(compiled(torch.ones(1))[1]) == want


def test_a_branch_may_read_what_nobody_read_before():
    table, scale = [2.0, 3.0], {"by": 4.0}

    def chosen(x):
        def yes(v):
            made = [scale["by"]]
            made.append(table[1])
            return v * made[0] * made[1]
        return torch.cond(x.sum() > 0, yes, lambda v: v * 2, (x,))

    compiled = minicompile.compile(chosen, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [12, 12]
    assert compiled(-torch.ones(2)).tolist() == [-2, -2]


def test_random_numbers_in_a_branch_are_drawn_again_as_in_eager():
    """The backward of PyTorch's torch.cond runs the branch once more."""
    def dropping(x):
        return torch.cond(x.sum() > 0, lambda v: nn.functional.dropout(v),
                          lambda v: v * 2, (x,))

    compiled = minicompile.compile(dropping, fullgraph=True)
    x = torch.rand(40, 40, requires_grad=True)
    for run in (dropping, compiled):
        torch._dynamo.reset()
        y = run(x)
        grad, = torch.autograd.grad(y.sum(), x)
        for each in (y / x, grad):
            assert each.unique().tolist() == [0, 2]
            assert 0.4 < each.mean() / 2 < 0.6
        assert (grad * x).ne(y).any()
    assert not compiled.stats().fallbacks


def test_dynamos_cond_is_taken():
    torch._dynamo.reset()
    got = both(torch.compile(rising, backend=minicompile.backend,
                             fullgraph=True), pair(1))
    close(got, both(rising, pair(1)))


def test_a_cond_on_the_cpu_is_not_recorded_as_a_cuda_graph():
    compiled = minicompile.compile(rising, mode="reduce-overhead")
    close(compiled(*pair(1)), rising(*pair(1)))
    entry, = compiled.cache.entries
    assert entry.lowered.graphed.blocked == (
        "not all tensors are on a CUDA device")
