"""Writes, views and shared memory: what eager does, bug reports first.

Several of these were, or are, silently wrong in torch.compile; the number
is that of the report to pytorch/pytorch.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import minicompile
from minicompile import split
from minicompile.core.graph import tensors_of
from minicompile.pipeline import Settings, compile_graph
from tests.same import close
from tests.split.judge import pattern

CASES = {}


def case(*shapes, make=None, refused=""):
    """Registers a function, what makes its inputs, why it runs eager."""
    def numbers():
        return [torch.arange(1., 1 + math.prod(shape)).view(shape)
                for shape in shapes]

    def register(function):
        CASES[function.__name__] = function, make or numbers, refused
        return function
    return register


def halves_of_one(start, end):
    base = torch.arange(8.)
    return lambda: [base.clone()[:4]] if end is None else (
        lambda b: [b[:4], b[start:end]])(base.clone())


@case((4,), (4,))
def written_and_read_195422(x, y):
    z = F.dropout(x, 0.5, False)
    z += z
    return z, x + y


@case((4,))
def written_through_a_dropout_of_nothing(x):
    y = F.dropout(x, 0.0, True)
    y += y
    return y


@case((3, 4))
def turned_itself(x):
    y, mask = x * 2, x > 3
    row = y[1]
    y.unsqueeze_(1)
    row += 4
    y[0, 0, 2] = 5
    mask.t_()
    y.squeeze_().transpose_(0, 1)
    return y + row.sum(), mask.contiguous(), x + 1


@case((3, 4), refused="shape or memory")
def a_view_turned_itself(x):
    y = x * 2
    y[1].unsqueeze_(0)
    return y + 1


@case(make=lambda: [torch.ones(3, 3, requires_grad=True)],
      refused="shape has changed")
def turned_itself_and_given_a_gradient(x):
    y = torch.zeros(3, 3)
    row = y[0]
    y.t_()
    y.add_(x)
    return y * row


@case((3, 4), refused="shape or strides")
def an_input_turned_itself(x):
    return x.unsqueeze_(0) + 1


@case(make=lambda: [torch.arange(-12, 12).reshape(4, 6)])
def another_dtypes_view_198101(x):
    y = x.view(torch.int32) * 2
    y.sub_(-4)
    x[:, 2:5] = 2
    return y.view(torch.int64)


@case((3, 4), (3, 4))
def copied_before_it_changes_198131(into, source):
    into[0:, :] = source[0:, :]
    source.add_(1)
    return source


@case((8, 8))
def a_list_written_from_itself_198033(x):
    torch._foreach_add_([x], [x.flip(0)])
    return x


@case((4, 8))
def written_by_index_then_from_itself_198270(x):
    x.index_put_((torch.arange(4),), x * 2)
    x.add_(x.flip(0))
    return x


@case((1,))
def a_logarithm_before_and_after_94777(x):
    y = torch.log(x)
    x.log_()
    return y


@case(make=halves_of_one(2, 6), refused="aliasing")
def overlapping_inputs_139789(x, y):
    x.mul_(2)
    return x + y


@case(make=halves_of_one(4, 8), refused="aliasing")
def neighbouring_inputs(x, y):
    x.add_(1)
    y.mul_(2)
    return x, y


@case(make=lambda: [torch.ones(4)[0::2]])
def every_other_element_93363(x):
    x.add_(1.0)
    return x * 1


@case(make=lambda: [torch.arange(2)], refused="several elements")
def one_place_for_three_elements_152425(x):
    y = x[0].expand((3,))
    y[-1] = 3
    return y


@case((1, 5), refused="several elements")
def windows_that_overlap_165409(x):
    return (x + x).unfold(1, 3, 2).abs_()


@case()
def made_inside_97083():
    a = torch.tensor([1])[0:1]
    b = a.squeeze()
    a[0] = 0
    a[0] = 2
    return b


@case((4, 4), (4, 4))
def a_view_of_the_same_dtype_136064(x, y):
    x.view(torch.float32).copy_(y)


@case((3, 3))
def views_as_results(x):
    return x.t(), x[0], x.view(9), x[0], x


@case((3, 3))
def a_view_then_a_write(x):
    row = x[0]
    x.add_(1)
    row.mul_(3)
    return row, x.view(9), x.sum()


@case((3, 3), (3, 3))
def exchanged(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


@case((3, 3), (3, 3))
def written_by_name(x, y):
    torch.add(x, y, out=x)
    return x


@case((4,))
def parts_of_a_result(x):
    a, b = (x * 2).chunk(2)
    a.add_(1)
    return a, b


@case((4,))
def parts_of_an_input(x):
    a, b, c, d = x.unbind()
    a.add_(1)
    d.mul_(2)
    return torch.stack([a, b, c, d]), x[1:3]


@case((4,))
def the_same_under_other_names(x):
    a, b, c = x.contiguous(), x.to(torch.float32), x.reshape(2, 2)
    a.add_(1)
    b.mul_(2)
    c[0] = 5
    return a, b, c, x.expand(4), x.view_as(x), x.detach()


@case((4, 4))
def a_reshape_that_copies(x):
    y = x.t().reshape(16)
    y.add_(1)
    return y, x


@case((4,))
def written_without_autograd(x):
    x.detach().add_(1)
    x.data.mul_(2)
    return x * 2


@case(make=lambda: [torch.ones(3, dtype=torch.complex64)])
def parts_of_complex_numbers(x):
    torch.view_as_real(x)[..., 0] = 5
    x.imag.add_(2)
    return x * 2


@case((4, 4))
def by_mask_diagonal_and_index(x):
    x[x > 14] = 0
    x.diagonal().zero_()
    x[torch.tensor([0, 1])] = 7
    x.scatter_(0, torch.tensor([[0, 1]]), x[1:2, :2] * 2)
    x.index_add_(0, torch.tensor([1, 1]), x[2:] * 3)
    x.masked_fill_(x > 9, 9).clamp_(min=2)
    return x


@case((3,))
def one_after_the_other(x):
    for k in range(3):
        x[k] = x[k - 1] + 1
    return x


@case((2, 3))
def one_result_many_times(x):
    y = x * 2
    return y, y, y.view(-1), y[0]


@case((2, 3))
def made_of_numbers_alone(x):
    y = torch.mul(3, 4)
    y += 1
    return y, y.view(1), x.mT, torch.div(x.size(1), 2)


@minicompile.compile
def detached_rows(x):
    y = x * 2
    return y, y.transpose(0, 1).detach()


def test_a_detached_result_can_be_detached_in_place():
    x = torch.ones(2, 3, requires_grad=True)
    for _ in range(2):
        y, rows = detached_rows(x)
        assert rows.detach_().equal(y.T)


def observe(function, make):
    """Values after the call, and who is whom and shares with whom."""
    args = make()
    result = function(*args)
    many = result if isinstance(result, tuple) else (result,)
    seen = [t for t in (*args, *many) if isinstance(t, torch.Tensor)]
    return ([t.tolist() for t in seen], pattern(map(id, seen)),
            pattern(torch._C._storage_id(t) for t in seen),
            [(t.dtype, t.stride(), t.requires_grad) for t in seen])


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, backend):
    function, make, refused = CASES[name]
    run = minicompile.compile(function, backend=backend)
    want = observe(function, make)
    for _ in range(2):
        assert observe(run, make) == want
    assert bool(run.stats().fallbacks) == bool(refused)
    assert refused in str(run.stats().fallbacks)


@pytest.mark.parametrize("function", [
    each for each, make, refused in CASES.values()
    if not refused and each.__code__.co_argcount == 1
    and each is not another_dtypes_view_198101
    and each is not parts_of_complex_numbers])
def test_gradients_as_eager(function):
    """Of inputs that are no leaves, so that they may be written to.

    A graph that writes to one runs as traced. Where eager refuses (a part
    of several that share a base is written to), nothing is asked.
    """
    _, make, _ = CASES[function.__name__]
    run = minicompile.compile(function)

    def gradients(called):
        source = make()[0].double().div(7).requires_grad_()
        x = source * 1
        result = called(x)
        many = result if isinstance(result, tuple) else (result,)
        ends = [t for t in (x, *many) if t is not None and t.requires_grad]
        return torch.autograd.grad(
            sum((end * (k + 1)).sum() for k, end in enumerate(ends)), source)

    try:
        want = gradients(function)
    except RuntimeError:
        return
    for _ in range(2):
        torch.testing.assert_close(gradients(run), want)


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_autograd_does_not_see_a_write_through_data(backend):
    """A codebook that is a moving average is written so. The backward
    reads what was written."""
    def f(x, codes):
        near = x * codes.detach()
        codes.data.mul_(2)
        return near

    run = minicompile.compile(f, backend=backend)
    for _ in range(2):
        x, codes = torch.ones(4, requires_grad=True), torch.full((4,), 3.0)
        near = run(x, codes)
        near.sum().backward()
        assert near.tolist() == [3] * 4
        assert x.grad.tolist() == codes.tolist() == [6] * 4
    assert not run.stats().fallbacks


@pytest.mark.parametrize("backend", ["split", "fused"])
def test_a_pending_backward_does_not_see_a_write_through_data(backend):
    """A moving average changes what an earlier graph has saved."""
    def average(mean, weight, seen):
        mean.data.mul_(0.5).add_(weight.data)
        seen.data.mul_(2)
        seen.mul_(3)

    def versions(update):
        mean = torch.ones(3, requires_grad=True)
        weight, seen = torch.full((3,), 2.0), torch.ones(3)
        pending = (mean * weight).sin().sum()
        update(mean, weight, seen)
        pending.backward()
        with torch.inference_mode():  # new tensors have no versions
            update(torch.ones(3), torch.ones(3), torch.ones(3))
            update(mean, weight, seen)
        return mean, mean.grad, seen, mean._version, seen._version > 0

    run = minicompile.compile(average, backend=backend)
    for _ in range(2):
        close([*versions(run)], [*versions(average)])
    assert not run.stats().fallbacks


def test_memory_is_shared_in_one_call_and_not_in_the_next():
    """139789: the same function, first without and then with aliasing."""
    function = overlapping_inputs_139789
    run = minicompile.compile(function)
    apart = [torch.ones(4), torch.ones(4)]
    for make in (lambda: [t.clone() for t in apart], halves_of_one(2, 6),
                 lambda: [t.clone() for t in apart], halves_of_one(2, 6)):
        assert observe(run, make) == observe(function, make)
    assert run.stats().graphs == 1 and run.stats().fallbacks["aliasing"]


def test_a_backend_of_another_tracer_counts_calls_that_run_as_traced():
    graph = fx.symbolic_trace(lambda x, y: (x.mul_(2) + y,))
    lowered = compile_graph(graph, [torch.ones(4), torch.ones(4)],
                            Settings(backend="split"))
    base = torch.ones(8)
    want = overlapping_inputs_139789(*(lambda b: (b[:4], b[2:6]))(
        base.clone()))
    got, = lowered.call([base[:4], base[2:6]])
    assert torch.equal(got, want)
    assert list(lowered.notes.values()) == [1]
    lowered.call([torch.ones(4), torch.ones(4)])
    assert list(lowered.notes.values()) == [1]


@pytest.mark.parametrize("function", [
    lambda x: x.split(1)[-1], lambda x: (x * 2).split(1)[-1],
    lambda x: x.unbind()[1].view(-1), lambda x: (x * 2).chunk(2)],
    ids=["input", "fresh", "view of it", "both"])
@pytest.mark.parametrize("grad", [True, False])
def test_one_of_several_views_is_written_to_as_in_eager(function, grad):
    """Autograd forbids it for what it tracks."""
    def written(call):
        x = torch.arange(4., requires_grad=grad) * 1
        found, *_ = tensors_of([call(x)])
        try:
            return found.mul_(3).tolist(), x.tolist()
        except RuntimeError as error:
            assert "function that returns multiple views" in str(error)
    assert written(minicompile.compile(function)) == written(function)
    assert (written(function) is None) is grad


def test_a_result_is_never_an_inputs_memory_unless_eagers_is():
    """What the split returns is apart where eager's is apart."""
    graph = fx.symbolic_trace(lambda x: (x.clone(), x + 0, x * 1))
    joint = split.record(graph, [torch.ones(3)])
    pair = split.partition(joint, set())
    run = split.make_runtime(joint, pair, lambda given: pair.forward(*given))
    x = torch.ones(3)
    owners = {torch._C._storage_id(t) for t in (x, *run([x]))}
    assert len(owners) == 4


@pytest.mark.parametrize("function", [
    lambda a, b: b * 2 + (a.view(2, 2) * 2),
    lambda a, b: a.view(2, 2)[:] * 2 + b[:] * 2,
    lambda a, b: a[:] + b.flatten()[:]])
def test_gradients_that_eager_keeps_apart_are_apart(function):
    """As clip_grad_norm_() writes to each."""
    def written(call):
        a, b = (torch.ones(shape, requires_grad=True)
                for shape in (4, (2, 2)))
        first, second = torch.autograd.grad(call(a, b).sum(), [a, b])
        first.mul_(3)
        call(a, b).sum().backward()
        b.grad.mul_(3)
        return [each.tolist() for each in (first, second, a.grad, b.grad)]

    assert written(minicompile.compile(function)) == written(function)


@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("function, shape", [
    (lambda a, b: (a.view(2) + b).relu(), (2, 1)),
    (lambda a, b: (a.t() + b.t()).relu(), (2, 1)),
    (lambda a, b: (a + b).relu(), 2)])
def test_gradients_that_are_one_have_memory_of_their_own(
        function, shape, backend):
    a, b = (torch.ones(each, requires_grad=True) for each in (
        shape, 2 if "view" in function.__code__.co_names else shape))
    run = minicompile.compile(function, backend=backend)
    run(a, b).sum().backward()
    a.grad.zero_()
    assert b.grad.flatten().tolist() == [1, 1]


def parts_of_a_product(x, w):
    with torch.no_grad():
        a, b = (x @ w).split([2, 3], -1)
    return a.transpose(1, 2), b, a.sum()


def test_views_of_a_product_of_three_dimensions():
    """PyTorch reads freed memory if asked how such a product was viewed."""
    for _ in range(20):
        compiled = minicompile.compile(parts_of_a_product, backend="split")
        x, w = torch.randn(2, 3, 4), torch.randn(4, 5)
        a, b, _ = compiled(x, w)
        assert not compiled.stats().fallbacks
        b.zero_()
        assert (a.untyped_storage().data_ptr()
                == b.untyped_storage().data_ptr())
        torch.testing.assert_close(a, (x @ w)[..., :2].transpose(1, 2))


def test_a_reshape_that_eager_calls_unsafe_shares_its_memory():
    def function(x):
        y = torch.ops.aten._unsafe_view(x.sin(), (24,))
        return y, torch.ops.aten._unsafe_view(y, (2, 12))

    compiled = minicompile.compile(function)
    y, z = compiled(torch.ones(2, 3, 4))
    assert not compiled.stats().fallbacks
    y.zero_()
    assert not z.any()
