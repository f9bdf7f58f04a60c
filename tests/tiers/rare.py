"""What the reference adds: `python -m tests.tiers.rare trace`.

Small programs, by stage, that use what its subfolders know. Without one of
those files there may be more graph breaks; the results stay eager's. Runs
in a process of its own, with the package that PYTHONPATH finds first.
"""

import collections
import contextlib
import copy
import functools
import itertools
import logging
import os
import sys
import tempfile
import warnings
from collections import namedtuple
from types import SimpleNamespace
from dataclasses import dataclass
from unittest.mock import patch

import einops
import numpy
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.func import grad, hessian, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm

import minicompile
from tests.same import assert_same

LOGGER = logging.getLogger("tests.tiers")
LOGGER.addHandler(logging.NullHandler())


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        [x] = ctx.saved_tensors
        return grad * 3 * x ** 2


def own_function(x):
    return Cube.apply(x) * 2


def chosen(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def checkpointed(x):
    return checkpoint(lambda y: y.exp().sin(), x * 2, use_reentrant=False)


def lower_precision(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
    return y.float() + x


def foreach(x):
    parts = [x * 1, x * 2]
    same = torch._foreach_add_(parts, 1.0)
    return torch._foreach_mul(parts, [2.0, 3.0]), same is parts, same


def matched(x):
    match {"kind": "scale", "by": [2, 3]}:
        case {"kind": "scale", "by": [first, *rest]}:
            return x * first + len(rest)
    return x


def local_class(x):
    @dataclass
    class Pair:
        a: object
        b: float = 2.0
    pair = Pair(x)
    return pair.a * pair.b


def local_tuple(x):
    Point = namedtuple("Point", "a b")
    return Point(x, 2).a + Point(x, 3).b


def messages(x):
    warnings.warn("of the tiers", stacklevel=1)
    LOGGER.warning("seen %d", x.shape[0])
    return x + 1


def handled(x):
    try:
        raise ValueError("three")
    except ValueError as error:
        y = x + len(str(error))
        return y * (sys.exc_info()[0] is ValueError)


def of_numpy(x):
    by, wide = numpy.float64(0.5), numpy.int64(4)
    return x * by + torch.full((wide,), by) + torch.tensor(by)


def into(x):
    y = x.detach() + 1
    same = torch.mul(y, 2, out=torch.empty(4, 4))
    return torch.add(y, y, out=torch.empty(2)), same


def closures(x):
    factor = x.shape[0]

    def scaled(y, by=2):
        return y * factor * by
    return scaled(x), scaled


def half_run(x):
    def halves():
        for k in range(3):
            yield k / 2
    table, steps = {"a": 1, "b": 2}, halves()
    x = x + next(steps)
    for (name, k), n in zip(table.items(), itertools.count()):
        try:
            raise ValueError(name)
        except ValueError as error:
            minicompile.graph_break()
            x = x * k + len(error.args) + n
    return x + next(steps), collections.deque([x], 3), x.sum


def varying():
    """Floats, marks, and a function that is called with several of them."""
    compiled = minicompile.compile(lambda x, p: x * (p * 0.1 - p) + x.shape[0],
                                   backend="eager")
    for rows, p in ((3, 0.5), (4, 0.7), (5, -0.0), (6, 1e30)):
        x = torch.rand(rows, 2)
        minicompile.mark_dynamic(x, 0)
        assert compiled(x, p).equal(x * (p * 0.1 - p) + rows)

    def cut(x, n):
        half = x.shape[0] * n // 2
        return x.repeat(n, 1)[:half] if half > 4 else x.t(), half, [n + 1]

    for dynamic in (None, True):
        compiled = minicompile.compile(cut, dynamic=dynamic)
        for rows, n in ((2, 2), (3, 2), (5, 3), (7, 4), (4, 3), (1, 9)):
            x = torch.rand(2, rows).t() if n == 3 else torch.rand(rows, 2)
            got, want = compiled(x, n), cut(x, n)
            assert got[0].equal(want[0]) and got[1:] == want[1:]


def partial_method(x):
    return functools.partial(torch.add, x, alpha=3)(x)


def caught(x):
    with torch.no_grad():
        y = x * 2
    try:
        assert x.dim() == 3, "no cube"
    except AssertionError as error:
        return y + len(str(error)) + x
    return y


@minicompile.disable
def refusing(x):
    raise KeyError(x.shape[0])


def caught_after_a_break(x):
    y = x * 2
    try:
        y = refusing(y)
    except KeyError as error:
        return y + error.args[0]
    return y


def drawn(x):
    def halves(count):
        while count > 1:
            yield count
            count //= 2
        return (yield from [5, 6])

    return [x * size for size in halves(9)][-1] + sum(halves(4))


def stated(x):
    import math
    first, *rest = (x * n for n in {1, 2})
    text = f"{len(rest)} of {math.floor(2.5):>3}"
    del first
    return rest[0] + len(text)


def in_the_library(x):
    shown = x.new_zeros(4, 4)
    for row in tqdm(einops.rearrange(x, "a b -> b a"), disable=True):
        shown = shown + row
    return shown


def attending(x):
    with sdpa_kernel(SDPBackend.MATH):
        y = nn.functional.scaled_dot_product_attention(x, x, x)
    return y + 1


def transforms(x):
    return vmap(grad(lambda row: (row ** 3).sum()))(x) + hessian(
        lambda row: (row ** 3).sum())(x[0])


def operators(x):
    _, y = while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y * 2),
                      (torch.tensor(0), x.detach()))
    return scan(lambda c, row: (c + row.sin(), c * row), x[0] * 1, x), y


class Seven:
    def __int__(self):
        return 7


@functools.cache
def recipe(n):
    return SimpleNamespace(n=n, parts=[n, n + 1])


def polyfills(x):
    table = {"a": 1}
    table.setdefault("b", []).append(2)
    table.update(c=3)
    rows = sorted([x, x * 2, x * 3], key=lambda row: -len(table), reverse=True)
    picked = max([3, 1, 2], key=lambda n: -n), min([], default=4)
    kept = [*filter(None, [0, 1, {}])], functools.reduce(max, [1, 3, 2])
    return rows[0] * picked[0], picked, kept, any([[], 0]), all([1, "a"])


def text_and_numbers(x):
    return (int(Seven()), str([1, 2.5]), f"{x.shape[0]:>3}", hash((1, "a")),
            "%d and %s" % (3, None), "{}".format((1,)), sum([x, 1.0])) # noqa


BY_DTYPE = {torch.float32: 2, torch.float64: 3}
COUNTED = collections.Counter(a=4)


def looked_up(x):
    """Keys that are no text, a missing key, what a method forwards."""
    found = x * BY_DTYPE[x.dtype] + COUNTED["a"] - COUNTED["b"]
    return (found, x.sum.__name__, Seven().__int__.__code__.co_name,
            getattr(torch, "no such name", None), [*BY_DTYPE], abs(-x),
            ascii("\u00e9"), int("3"), round(2.5))


def caches(x):
    found = recipe(3)
    return x * found.n + found.parts[1]


def getters(x):
    return x + 1 if torch.is_autocast_enabled("cpu") else x * 2


TRACE = [polyfills, text_and_numbers, looked_up, caches, getters, operators,
         transforms, caught, caught_after_a_break, drawn, stated,
         own_function, chosen,
         checkpointed, attending, in_the_library, lower_precision, foreach,
         matched, local_class, local_tuple, messages, handled, of_numpy,
         into, half_run, partial_method]


def returned_closure():
    """A closure that a compiled function returns, called afterwards."""
    x = torch.rand(4, 4)
    for function in (closures, minicompile.compile(closures)):
        y, scaled = function(x)
        assert torch.equal(y, x * 8) and scaled(1, by=3) == 12


def optimizer_steps(kind):
    """Parameters after some compiled steps of an optimizer, and eager's."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = kind(model.parameters())
        step = optimizer.step
        if compiled:
            step = minicompile.compile(step, backend="eager")
        for _ in range(4):
            model(torch.ones(2, 3)).sum().backward()
            step()
            optimizer.zero_grad()
        found.append([p.detach() for p in model.parameters()])
    return found


class Slotted:
    __slots__ = ("scale",)


def changing_slot():
    """C code keeps the attribute; it changes between calls."""
    kept = Slotted()
    compiled = minicompile.compile(
        lambda x: x * kept.scale, backend="eager")
    for kept.scale in range(3):
        assert compiled(torch.ones(2)).eq(kept.scale).all()


def switched(x):
    """A switch that is turned by a class's call, not by a `with`."""
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y


def trace():
    """The programs of the trace."""
    changing_slot()
    compiled = minicompile.compile(switched, backend="eager")
    assert not compiled(torch.ones(2, requires_grad=True)).requires_grad
    for program in TRACE:
        x = torch.rand(4, 4, requires_grad=True)
        assert_same(program, x, fallback=True, backend="eager")
    returned_closure()
    varying()
    for kind in (torch.optim.AdamW, functools.partial(
            torch.optim.SGD, lr=0.1, momentum=0.9)):
        for eager, ours in zip(*optimizer_steps(kind)):
            assert (eager - ours).abs().max() < 1e-5


def picture(x, w):
    y = nn.functional.conv2d(x, w).relu()
    return nn.functional.max_pool2d(y, 2).flatten(1) + 1


def odd_product(x, w):
    return torch.addmm(w[0], x, w.cos()).sin() @ w.t()


def losses(x, w):
    F = nn.functional
    hidden = F.dropout(x @ w, 0.5)
    return F.binary_cross_entropy(hidden.sigmoid(), x.detach()) + (
        F.cross_entropy(x @ w, torch.arange(len(x))))


def across(x, w):
    return nn.functional.dropout((x @ w).t(), 0.5)


def penalty(run, *args):
    """A penalty on the gradients."""
    first = torch.autograd.grad(run(*args).sum(), args, create_graph=True)
    return sum(gradient.pow(2).sum() for gradient in first)


def writing(x):
    y = x * 2
    y[1:].mul_(3)
    y.t().add_(x)
    return y.relu_()


def sharing(x):
    y = x.sin()
    return y, y[1:], x.t(), y.detach()


def rewriting(x):
    x.mul_(2)
    x.t()[0].add_(1)
    return x.sum()


def split():
    """The programs of the split: a choice, images, products in bf16,
    writes to parts of memory, results that share it,
    losses with eager's random numbers, and with our own; a second
    derivative."""
    x, w = (torch.rand(13, 13, requires_grad=True) for _ in range(2))
    image, kernel = (torch.rand(2, 3, size, size, requires_grad=True)
                     for size in (9, 3))
    half = [each.detach().bfloat16().requires_grad_() for each in (x, w)]
    for program, args in ((chosen, (x,)), (picture, (image, kernel)),
                          (checkpointed, (x,)), (odd_product, (x, w)),
                          (writing, (x,)), (sharing, (x,)),
                          (rewriting, (x.detach(),)), (rewriting, (x * 1,)),
                          (odd_product, half)):
        for backend in ("split", "fused"):
            assert_same(program, *args, fallback=True, backend=backend)
    assert_same(losses, x, w, options={"fallback_random": True})
    assert_same(across, x, w, options={"fallback_random": True},
                fallback=True)
    ours = minicompile.compile(lambda x: nn.functional.dropout(x, 0.5))
    dropped, kept = ours(x), ours(x) != 0
    dropped.sum().backward()
    assert 0 < kept.sum() < x.numel() and x.grad.equal(
        (dropped != 0) * 2.0)
    try:
        wanted, found = (torch.autograd.grad(penalty(run, x, w), (x, w))
                         for run in (
                             odd_product, minicompile.compile(odd_product)))
        torch.testing.assert_close(found, wanted)
    except RuntimeError as refused:
        assert "graph has only a first derivative; for" in str(refused)


def arithmetic(x, n):
    y = torch.where(x > 0.5, x.clamp(0.2, 0.8) ** 2, x // 0.3) % 0.7
    whole = (n & 3 | n << 1) // 3 + torch.arange(12) + torch.ones_like(n)
    return torch.add(y.floor() + x ** -0.5, whole, alpha=0.3).isnan()


def together(x, n):
    y = torch.cat([x, x.exp()], 1)[:, 17:] + x.flip(0)[:, :7].repeat(1, 1)
    y = torch.stack([y, nn.functional.pad(y, (1, -1), value=2)])
    y[0, 1:3] = x[1, :7]
    return y, *(part * 2 for part in torch.unsafe_chunk(x, 3, -1))


def picked(x, n):
    loss = nn.functional.cross_entropy(x, n[:5])
    return loss, torch.zeros_like(x).scatter(1, n[:5, None], 2.5)


def summed(x, n):
    wide = x.flatten()[:, None] * 0.01 + torch.arange(4000) / 4000
    return (wide.sum(), wide.amax(), x.prod(1), (x > 0.9).any(0), x.var(1),
            x.argmax(1), *x.max(0), x.exp() / x.exp().sum(1, True),
            x.sum(0) + x.amax(0), n.sum())


def sized(x, n):
    return x * x.shape[1] ** -0.5 + torch.full_like(x, x.shape[0])


def fusion():
    """Operators, reductions and orders that few models need.

    Without the rules of symbolic sizes, shapes are static.
    """
    from minicompile.fusion.lowerings import SYMBOLS_READ
    n = torch.tensor([3, 0, 5, 2, 1, 4, 3, 0, 5, 2, 1, 4])
    for program in (arithmetic, together, picked, summed, sized):
        for dynamic in (None, True):
            for half in (False, True):
                x = torch.rand(5, 12)
                assert_same(program, x.bfloat16() if half else x, n,
                            dynamic=dynamic,
                            fallback=bool(dynamic and not SYMBOLS_READ))
    x = torch.rand(5, 12)
    drop = minicompile.compile(lambda x: nn.functional.dropout(x, 0.5))
    assert set((drop(x) / x).unique().tolist()) <= {0.0, 2.0}


def whole(x):
    n = (x * 9).long()
    return (n // 3 - n % 4) ** 2 << 1, x // 0.3 + x % 0.7, x.round() >= 1


def folded(x):
    y = torch.cat([x, x.t() + 1, x * x.sum(0)])[:x.shape[0]]
    return y.softmax(0), y.argmax(1), y.amax(0), (x * 2).softmax(-1).exp()


def dropped(x):
    return nn.functional.dropout(x, 0.5) + x.erf().sigmoid()


def layers(x):
    for _ in range(3):
        x = (x @ x).cos() / 3 + x ** 3
    return x


def core():
    """Programs of several kernels, which no evaluator judges; a choice;
    sizes that vary; the names of options; a log that is asked for."""
    try:
        assert "cudagraphs" in minicompile.list_options()
    except minicompile.MinicompileError as absent:
        assert "not there" in str(absent)
    with patch.dict(os.environ, MINICOMPILE_LOGS="output_code,guards"):
        assert_same(layers, torch.rand(4, 4))
    for program in (whole, folded, layers):
        assert_same(program, torch.rand(20, 20))
    for sign in (1, -1):
        x = (sign * torch.rand(4, 4)).requires_grad_()
        for backend in ("eager", "split", "fused"):
            assert_same(chosen, x, fallback=True, backend=backend)
    assert_same(layers, torch.rand(4, 4), options={"cpp_wrapper": True})
    varying()


def emit():
    """What schedules, functions and launchers add; their kernels' texts."""
    from minicompile import fusion
    from minicompile.emit.launch import TRITON_PRINTERS
    from minicompile.emit.triton import print_kernel
    from tests.fusion.graphs import aten
    printer = TRITON_PRINTERS[-1](torch.device("cuda", 1), "eager")
    assert printer.begin.startswith("stream = ")
    for program in (whole, folded, dropped, layers):
        for x in (torch.rand(40, 40), torch.rand(3, 3).bfloat16()):
            assert_same(program, x, fallback=True,
                        options={"fallback_random": True})
            for kernel in fusion.fuse(aten(program, x)).kernels:
                assert program is whole or "tl.store" in print_kernel(kernel)


def weighted(model, x, table):
    return model(x) * (table["a"] + table["b"] + table["c"] + table["d"])


def guards():
    """Calls between which layers, their tensors and a dict change."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    table, x = dict.fromkeys("abcdefghij", 2), torch.rand(3, 4)
    compiled = minicompile.compile(weighted, backend="eager")
    changes = [
        lambda: None, lambda: None, lambda: table.update(b=3.0),
        lambda: model[1].register_forward_hook(lambda m, x, y: y + 1),
        lambda: setattr(model[2], "forward", torch.sin),
        lambda: setattr(model[3], "weight", nn.Parameter(torch.ones(4, 4))),
        lambda: model.__setitem__(4, nn.ReLU()), model.double]
    for change in changes:
        change()
        x = x.to(model[0].weight.dtype)
        for _ in range(3):
            assert compiled(model, x, table).equal(weighted(model, x, table))


def dispatch():
    """Blocks that are alike, each called with more shapes than a limit;
    a graph that was compiled before; a wrapper's attributes and methods
    are its module's, before a copy and after."""
    for program in (sharing, rewriting, losses) * 2:
        x, w = (torch.rand(4, 4) for _ in range(2))
        given = (x, w) if program is losses else (x,)
        assert_same(program, *given, fallback=True, options={
            "fallback_random": True})
    for _ in range(3):
        layer = nn.Linear(4, 4)
        calls = [minicompile.compile(layer, dynamic=False),
                 minicompile.compile(layer.forward, dynamic=False)]
        for rows in range(1, 12):
            x = torch.rand(rows, 4)
            for call in calls:
                torch.testing.assert_close(call(x), layer(x))
    [first, twin] = [calls[0], copy.deepcopy(calls[0])]
    for each in (first, twin):
        each.bias, each.scale = None, 2
        each.eval().scale += 1
        assert each._orig_mod.scale == 3 and not each._orig_mod.training
        del each.scale
        torch.testing.assert_close(each(x), x @ each.weight.t())
    assert layer.weight is first.weight is not twin.weight
    layer = nn.Linear(4, 4)
    try:
        minicompile.compile_module_(layer)
    except minicompile.MinicompileError as absent:
        assert "not there" in str(absent)
    torch.testing.assert_close(layer(x), layer._call_impl(x))


def budget():
    """A bound on the peak."""
    x = torch.rand(8, 8, requires_grad=True)
    assert_same(layers, x, options={"memory": "min"})


def square(inputs):
    """A program: its result, and two values that it saves."""
    n, x, w = inputs
    y = (x @ w).tanh()
    return y * n, y, y.sum(0, keepdim=True)


def slope(inputs):
    """A gradient, and what it is given itself."""
    n, x, y, total, gradient = inputs
    return n * gradient * (1 - y * y) + total, x, n


def overlapping(region, calls):
    """Forwards, and backwards after every third, on inputs with holes, two
    shapes and weights that move; each result stays as it was."""
    w, kept = torch.rand(4, 4), []
    for call in range(calls):
        n = 3 + call % 2
        x, w = torch.rand(n, 8)[:, ::2], w + 1 if call % 7 == 6 else w
        shown, *saved = region.forward([n, x, w])
        wanted, *right = square([n, x, w])
        kept.append((shown, wanted, [n, x, *saved], [n, x, *right]))
        while call % 3 == 2 and kept:
            shown, wanted, saved, right = kept.pop()
            for one, two in zip(region.backward([*saved, wanted]),
                                slope([*right, wanted])):
                assert torch.equal(*map(torch.as_tensor, (one, two)))
            assert shown.equal(wanted)


def replay():
    """Replays of what may be recorded, and steps that may not."""
    with contextlib.suppress(ImportError):  # what records is not there
        recorded()
    assert_same(layers, torch.rand(4, 4), options={
        "cudagraphs": True, "replay_check": True})


def recorded():
    """Graphed functions, on a device that needs no GPU."""
    from minicompile.replay.cuda.graphs import GraphedFunction, graphed
    from tests.replay.fake import FakeDevice
    from tests.replay.test_eligibility import aten, programs, schedule
    region = GraphedFunction(square, slope, FakeDevice(), visible=1,
                             static={2})
    overlapping(region, 30)
    assert region.stats["replayed"]
    x, n, added = torch.zeros(3, 4), 0, lambda x, n: (x.add_(1), x * n, x, n)
    region = GraphedFunction(lambda given: added(*given), None, FakeDevice(),
                             written={0})
    for call in range(9):
        x = x.clone() if call % 2 else x
        same, found, _, n = region.forward([x, call // 3])
        assert same.data_ptr() == x.data_ptr() and n == call // 3
        assert x.eq(call + 1).all() and found.equal(x * n)
    for given in (schedule(target=aten._local_scalar_dense.default),
                  schedule(device=torch.device("cpu"))):
        for check in (False, True):
            assert graphed(programs(forward=given), check=check).blocked


def report():
    """A report, its page, and what `python -m minicompile` prints."""
    from minicompile.__main__ import main

    def explained():
        found = minicompile.explain(layers)(torch.rand(4, 4))
        with tempfile.TemporaryDirectory() as folder:
            page = found.save(f"{folder}/page.html").read_text()
        for text in (str(found), page):
            assert "layers: 1 graph, 0 graph breaks" in text

    def diagnosed():
        assert minicompile.diagnose(layers)(torch.rand(4, 4)).stage == ""

    sys.argv = ["minicompile", "--model", "mlp", "--no-compare"]
    for tool in (explained, diagnosed, main):
        try:
            tool()
        except minicompile.MinicompileError as absent:
            assert "not there" in str(absent)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    globals()[sys.argv[1]]()
