"""Forwards and backwards in any order: no gradient reads stale memory.

The pair under test is written by hand, as the split stage would make it:
the forward returns what the user sees, then what it saves.
"""

import random

import pytest
import torch

import minicompile
from minicompile.replay.cuda import graphs
from minicompile.replay.cuda.graphs import GraphedFunction
from minicompile.split.prices import min_cut
from tests.replay.fake import FakeDevice


def forward(inputs):
    """y = tanh(x @ w); saved: tanh's result, before its clone is out."""
    x, w = inputs
    inputs.clear()
    y = torch.tanh(x @ w)
    return y * 3, y, y.sum(0, keepdim=True)


def backward(inputs):
    """Gradients of 3 * tanh(x @ w) + the saved sum, which is used too."""
    x, w, y, total, gradient = inputs
    inputs.clear()
    inner = 3 * gradient * (1 - y * y) + 0 * total
    return inner @ w.t(), x.t() @ inner, None


def make_region(kind=GraphedFunction):
    return kind(forward, backward, FakeDevice(), visible=1, static={1})


def apply(region):
    """The region as a function that autograd knows."""
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            out, *saved = region.forward([x, w])
            ctx.save_for_backward(x, w, *saved)
            return out

        @staticmethod
        def backward(ctx, gradient):
            x, w, *saved = ctx.saved_tensors
            found = region.backward([x, w, *saved, gradient.contiguous()])
            return found[:2]
    return Pair.apply


def reference(x, w):
    return 3 * torch.tanh(x @ w)


def pair_of_leaves(w):
    x = torch.randn(3, 4, requires_grad=True)
    return x, x.detach().clone().requires_grad_()


@pytest.fixture
def weights():
    w = torch.randn(4, 4, requires_grad=True)
    return w, w.detach().clone().requires_grad_()


@pytest.fixture(autouse=True)
def doubles():
    """In double precision, so that no step is judged by its rounding."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def check(x, x2, w, w2):
    torch.testing.assert_close(x.grad, x2.grad)
    torch.testing.assert_close(w.grad, w2.grad)


def test_steps_are_replayed_and_right(weights):
    w, w2 = weights
    region = make_region()
    f = apply(region)
    for _ in range(6):
        x, x2 = pair_of_leaves(w)
        f(x, w).sum().backward()
        reference(x2, w2).sum().backward()
        check(x, x2, w, w2)
        with torch.no_grad():
            w -= w.grad
            w2 -= w2.grad
    assert region.stats["first call"] == 2
    assert region.stats["replayed"] == 10
    assert len(region.forward.recordings) == 1


def test_a_backward_of_other_results_is_replayed_too(monkeypatch):
    """Each of them behind the same forward."""
    monkeypatch.setattr(graphs, "Cuda", lambda _: FakeDevice())
    monkeypatch.setattr(graphs, "obstacle", lambda schedule: None)
    monkeypatch.setattr(graphs, "TAPES", [graphs.tape_of])
    monkeypatch.setattr(graphs, "WORTH", 0)

    def losses(x, w):
        y = torch.tanh(x @ w)
        return (y * 2).sum(), y.exp(), (y @ w).cos()

    w = torch.randn(4, 4, requires_grad=True)
    made = minicompile.compile(losses, mode="reduce-overhead")
    choose, calls = random.Random(0), 60
    for _ in range(calls):
        x = torch.randn(3, 4, requires_grad=True)
        chosen = choose.choice([(0,), (1,), (0, 2), (0, 1, 2)])
        got, want = (torch.autograd.grad(
            [results[k].sum() for k in chosen], [x, w])
            for results in (made(x, w), losses(x, w)))
        torch.testing.assert_close(got, want)
    graphed = made.cache.entries[0].lowered.graphed
    assert len(graphed.halves) == 5
    for half in graphed.halves[1:]:
        assert half.stats["replayed"] > 5
    assert made.stats().replays["replayed"] > 1.5 * calls


def test_symbolic_sizes(weights):
    """The split's own halves: ints saved, one recording for each size."""
    from minicompile import split
    from tests.split.dynamic import dynamic
    from tests.split.judge import boxed

    def function(x, w):
        return (torch.tanh(x @ w) / x.shape[0]).view(-1)[1:] * x.shape[0]

    example = [torch.randn(3, 4, requires_grad=True), weights[0]]
    known = dynamic(function, example)
    joint = split.record(known.graph, known.inputs)
    pair = split.partition(joint, min_cut.cut(joint).saved)
    region = GraphedFunction(
        boxed(pair.forward), boxed(pair.backward), FakeDevice(),
        visible=joint.forward_outputs)
    run = split.make_runtime(joint, pair, region.forward, region.backward)
    for n in [3, 5, 3, 5, 7, 7, 3, 5] * 2:
        x, x2 = [leaf.expand(n, 4).clone().detach().requires_grad_()
                 for leaf in [torch.randn(1, 4)] * 2]
        w, w2 = weights[0], weights[1]
        w.grad = w2.grad = None
        run(known.given([x, w]))[0].square().sum().backward()
        function(x2, w2).square().sum().backward()
        check(x, x2, w, w2)
    assert len(region.forward.recordings) == 3
    assert region.stats["replayed"] >= 20


def test_forwards_pile_up_before_their_backwards(weights):
    w, w2 = weights
    region = make_region()
    f = apply(region)
    for _ in range(3):
        leaves = [pair_of_leaves(w) for _ in range(7)]
        outs = [f(x, w) for x, _ in leaves]
        refs = [reference(x2, w2) for _, x2 in leaves]
        for out, ref in zip(outs, refs):
            torch.testing.assert_close(out, ref)
        for k in random.sample(range(7), 7):
            gradient = torch.randn(3, 4)
            outs[k].backward(gradient)
            refs[k].backward(gradient)
        for x, x2 in leaves:
            check(x, x2, w, w2)
    assert len(region.forward.recordings) == 4
    assert region.stats["every recording is held by a pending backward"]
    assert region.stats["the forward was not replayed"]


def test_a_retained_graph_can_run_backward_twice(weights):
    w, w2 = weights
    region = make_region()
    f = apply(region)
    for _ in range(4):
        (x, x2), (z, z2) = pair_of_leaves(w), pair_of_leaves(w)
        out, ref = f(x, w), reference(x2, w2)
        out.sum().backward(retain_graph=True)
        ref.sum().backward(retain_graph=True)
        f(z, w).sum().backward()
        reference(z2, w2).sum().backward()
        (out * out).sum().backward()
        (ref * ref).sum().backward()
        check(x, x2, w, w2)
        check(z, z2, w, w2)


def test_a_forward_whose_result_dies_frees_its_recording(weights):
    w, _ = weights
    region = make_region()
    f = apply(region)
    for _ in range(8):
        f(torch.randn(3, 4, requires_grad=True), w)
    assert len(region.forward.recordings) == 1
    assert region.stats["replayed"] == 7


def test_a_pending_forward_keeps_its_recording_from_the_next(weights):
    w, _ = weights
    region = make_region()
    f = apply(region)
    held = [f(torch.randn(3, 4, requires_grad=True), w) for _ in range(3)]
    assert len(region.forward.recordings) == 2
    del held
    f(torch.randn(3, 4, requires_grad=True), w)
    assert len(region.forward.recordings) == 2


def test_gradients_accumulate(weights):
    w, w2 = weights
    f = apply(make_region())
    for _round in range(5):
        for _ in range(3):
            x, x2 = pair_of_leaves(w)
            f(x, w).sum().backward()
            reference(x2, w2).sum().backward()
        check(x, x2, w, w2)


def test_a_gradient_the_user_holds_is_never_overwritten(weights):
    w, _ = weights
    f = apply(make_region())
    held, kept = [], []
    for _ in range(6):
        x = torch.randn(3, 4, requires_grad=True)
        gradient, = torch.autograd.grad(f(x, w).sum(), x)
        held.append(gradient)
        kept.append(gradient.clone())
    torch.testing.assert_close(held, kept, rtol=0, atol=0)


def test_a_call_inside_a_call(weights):
    w, w2 = weights
    f = apply(make_region())
    for _ in range(5):
        x, x2 = pair_of_leaves(w)
        f(f(x, w), w).sum().backward()
        reference(reference(x2, w2), w2).sum().backward()
        check(x, x2, w, w2)


def test_an_exception_between_forward_and_backward(weights):
    w, w2 = weights
    region = make_region()
    f = apply(region)
    for turn in range(8):
        x, x2 = pair_of_leaves(w)
        out, ref = f(x, w), reference(x2, w2)
        if turn % 2:
            del out, ref
            continue
        out.sum().backward()
        ref.sum().backward()
        check(x, x2, w, w2)
    assert len(region.forward.recordings) == 1


@pytest.mark.parametrize("recorded", [False, True])
def test_memory_that_runs_out_in_a_backward(weights, recorded):
    """It is the caller's error, or a recording that is not made; the
    steps after it are right."""
    w, w2 = weights
    faults = []

    def exhausted(inputs):
        if faults:
            raise faults.pop()
        return backward(inputs)

    region = GraphedFunction(forward, exhausted, FakeDevice(), visible=1,
                             static={1})
    f = apply(region)
    for turn in range(6):
        x, x2 = pair_of_leaves(w)
        if turn == (1 if recorded else 0):
            faults.append(torch.OutOfMemoryError("no memory"))
        out, ref = f(x, w), reference(x2, w2)
        if faults and not recorded:
            with pytest.raises(torch.OutOfMemoryError):
                out.sum().backward()
            continue
        out.sum().backward()
        ref.sum().backward()
        check(x, x2, w, w2)
    del out
    assert all(each.free() for each in region.forward.recordings)
    assert region.stats["cannot be recorded: no memory"] == (
        5 if recorded else 0)


def test_saved_values_that_a_hook_replaces(weights):
    w, w2 = weights
    region = make_region()
    f = apply(region)
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.clone(), lambda t: t)
    for turn in range(6):
        x, x2 = pair_of_leaves(w)
        if turn > 2:
            with hooks:
                out = f(x, w)
        else:
            out = f(x, w)
        f(torch.randn(3, 4), w)
        out.sum().backward()
        reference(x2, w2).sum().backward()
        check(x, x2, w, w2)


def test_a_view_of_a_saved_value_keeps_the_recording(weights):
    w, _ = weights
    region = make_region()
    views = []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: (views.append(t[:1].detach()), t)[1], lambda t: t)
    f = apply(region)
    f(torch.randn(3, 4, requires_grad=True), w)
    with hooks:
        out = f(torch.randn(3, 4, requires_grad=True), w)
    before = [view.clone() for view in views]
    del out
    for _ in range(3):
        f(torch.randn(3, 4, requires_grad=True), w)
    torch.testing.assert_close(views, before, rtol=0, atol=0)


def test_a_parameter_that_is_replaced(weights):
    w, w2 = weights
    f = apply(make_region())
    for turn in range(8):
        if turn % 3 == 2:
            w.data = w.data.clone() * 0.5
            w2.data = w2.data.clone() * 0.5
        x, x2 = pair_of_leaves(w)
        f(x, w).sum().backward()
        reference(x2, w2).sum().backward()
        check(x, x2, w, w2)


@pytest.mark.slow(sample=40)
@pytest.mark.parametrize("seed", range(500))
def test_random_programs(seed, impl):
    """Whatever order things come in: bit for bit as without replay."""
    random_program(seed, GraphedFunction if impl == "minicompile" else impl)


def random_program(seed, kind) -> None:
    """Calls, backwards, writes and deaths, in an order by chance."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    region = make_region(kind)
    plain = GraphedFunction(forward, backward, FakeDevice(), visible=1,
                   blocked="for comparison")
    f, g = apply(region), apply(plain)
    ws = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    ws2 = [w.detach().clone().requires_grad_() for w in ws]
    pending, held = [], []
    for _ in range(60):
        match chance.choice(["call", "call", "nest", "back", "keep",
                             "drop", "hold", "step", "write"]):
            case "call" | "nest" as what:
                k = chance.randrange(2)
                x, x2 = pair_of_leaves(None)
                out, ref = f(x, ws[k]), g(x2, ws2[k])
                if what == "nest":
                    out, ref = f(out, ws[k]), g(ref, ws2[k])
                pending.append((out, ref, x, x2))
                assert torch.equal(out, ref)
            case "back" | "keep" as what if pending:
                k = chance.randrange(len(pending))
                out, ref, x, x2 = pending[k]
                gradient, keep = torch.randn(3, 4), what == "keep"
                out.backward(gradient, retain_graph=keep)
                ref.backward(gradient, retain_graph=keep)
                assert torch.equal(x.grad, x2.grad)
                held.append((x.grad, x2.grad))
                if not keep:
                    pending.pop(k)
            case "drop" if pending:
                pending.pop(chance.randrange(len(pending)))
            case "hold" if pending:
                out, ref, _, _ = chance.choice(pending)
                held.append((out.detach(), ref.detach()))
            case "step":
                for w, w2 in zip(ws, ws2):
                    if w.grad is not None:
                        assert torch.equal(w.grad, w2.grad)
                        w.data, w2.data = w.data + 1, w2.data + 1
                        w.grad = w2.grad = None
            case "write" if pending:
                out, ref, _, _ = chance.choice(pending)
                with torch.no_grad():
                    out.detach().add_(1)
                    ref.detach().add_(1)
    for out, ref in held + [(out, ref) for out, ref, _, _ in pending]:
        assert torch.equal(out, ref)
    assert region.stats["replayed"] > 5
