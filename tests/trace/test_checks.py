"""Checks in the graph, and what the end of a trace decides.

An assert that pytest rewrites is none any more: PYTEST_DONT_REWRITE.
"""

import contextlib

from typing import NamedTuple

import pytest
import torch

import minicompile
from tests.same import close


def check_all(x):
    torch._check_tensor_all(x > 0)
    return x.sin()


def asserts(x):
    assert x.sum() > 0
    assert not x.isnan().any() and (x < 9).all(), "too large"
    return x.sin()


def caught(x):
    try:
        return check_all(x)
    except RuntimeError:
        return x.cos()


def asserts_in_a_try(x):
    try:
        return asserts(x)
    except AssertionError as error:
        return x.cos() + len(str(error))


def asserts_after_a_write(x):
    x.mul_(2)
    return asserts(x)


def raises(x):
    if not (x > 0).all():
        raise ValueError(f"{x} is not positive")
    return torch.distributions.Normal(0, x).log_prob(x)


def raises_in_a_with(x):
    if x.sum() < 0:
        with contextlib.suppress(ValueError):
            raise ValueError("too small")
    return x.sin()


def raises_for_each(x):
    if x.sum() < 0:
        for each in x.shape:
            raise ValueError(each)
    return x.sin()


def asserts_elsewhere(x):
    return x.sin() if x.sum() > 0 else x.cos()


def told(condition, message):
    """As a library checks: a graph has no use for the message."""
    def tell():
        return message
    if torch.compiler.is_compiling():
        return torch._check_tensor_all(condition)
    if not condition:
        raise ValueError(tell())


def told_more(*given):
    told(*given[:2])


def required(condition, message):
    if not condition:
        raise ValueError(message)


def messages(x):
    n = (x > 0).sum()
    told(n == 3, message=f"{n} of {len(x)} are positive")
    required(len(x) == 3, f"not {n} but {len(x)}")
    required(n == 3, f"{n}" if x.dim() == 1 else "")
    return x.sin()


def reads_of_a_message(x):
    n = (x > 0).sum()
    told_more(n > 2, f"{n}", "again")
    told(n > 1, f"{n:d}")
    parts = [f"{x.sum()}"]
    if f"{n}" == "3":
        x = x + 1
    return f"{n}", parts[0] + f"{parts}", x.sin()


def holds_a_message(x):
    message = f"{x.sum()}"
    x = breaks_inside(x.cos(), message)
    return x.sin(), message


def breaks_inside(x, message):
    minicompile.graph_break()
    required(len(x) == 3, message)
    return x + 1


def checks_in_torch(x):
    return torch.nn.functional.gaussian_nll_loss(x, x.sin(), x)


def outcome(function, fill: float):
    """The result or the exception, and the argument afterwards."""
    x = torch.full((3,), fill)
    try:
        return function(x), x
    except Exception as error:
        return type(error), str(error), x


@pytest.mark.parametrize(("function", "breaks"), [
    (check_all, 0), (asserts, 0), (caught, 1), (asserts_in_a_try, 3),
    (asserts_after_a_write, 1), (asserts_elsewhere, 1), (raises, 0),
    (raises_in_a_with, 1), (raises_for_each, 1), (messages, 0),
    (checks_in_torch, 0), (reads_of_a_message, 3), (holds_a_message, 1)],
    ids=lambda value: getattr(value, "__name__", None))
def test_a_check_fails_as_in_eager(function, breaks):
    """It is in the graph where Python can make a failed call again."""
    compiled = minicompile.compile(function)
    for fill in (1.0, -1.0, 10.0, float("nan")):
        close(outcome(compiled, fill), outcome(function, fill))
        if fill == 1:
            assert compiled.stats().graph_breaks == breaks


def test_a_text_that_cannot_be_made_is_an_error_though_unread():
    def drops_a_text(x):
        required(True, f"{x}")
        return x.sin()

    for function in (torch.vmap(drops_a_text),
                     lambda x: f"{x:d}" and x.sin()):
        compiled = minicompile.compile(lambda x, f=function: f(x))
        want, got = (outcome(each, 1.0) for each in (function, compiled))
        assert want[0] in (RuntimeError, TypeError) and got[:2] == want[:2]


LABELS = {}


def sizes_in_messages(x):
    required(x.dim() == 2, f"not {x.shape}, of {x.shape[0]} rows")
    return x.sin()


def sizes_in_labels(x):
    LABELS[f"{x.shape[0]}"] = x.shape[1]
    return x.sin(), [f"{x.shape[0]}", f"{x.shape} or so"]


def sizes_alone(x):
    LABELS["last"] = x.sin()
    return f"{x.shape}"


def sizes_in_a_question(x):
    name = f"{x.shape[0]} rows"
    LABELS["is five"] = name == "5 rows"
    return x.sin() if name.startswith("4") else x.cos()


def sizes_in_an_error(x):
    try:
        required(False, f"{x.shape[0]} rows")
    except ValueError as error:
        return x.sin(), str(error)


def sizes_printed(x):
    print(f"{x.shape}")
    return x.sin()


class Sized(NamedTuple):
    rows: int

    def __repr__(self):
        return f"{self.rows} {UNIT[0]}"


class Told:
    def __repr__(self):
        return UNIT[0]


UNIT = ["rows"]


def sizes_that_tell_themselves(x):
    UNIT[0] += "!" * (x.shape[0] == 5)
    texts = f"{Sized(x.shape[0])}", f"{(x.shape[0], Told())}"
    return x.sin(), texts


@pytest.mark.parametrize(("function", "graphs"), [
    (sizes_in_messages, 2), (sizes_in_labels, 4), (sizes_alone, 2),
    (sizes_in_a_question, 4), (sizes_in_an_error, 4), (sizes_printed, 2)],
    ids=lambda value: getattr(value, "__name__", None))
def test_a_text_settles_sizes_where_it_is_read(function, graphs):
    compiled = minicompile.compile(function)
    for rows in (4, 5, 6, 7):
        found, kept = compiled(torch.ones(rows, 3)), dict(LABELS)
        close(found, function(torch.ones(rows, 3)))
        assert str(kept) == str(LABELS)
        LABELS.clear()
    assert compiled.stats().graphs == graphs


def test_a_text_of_an_object_with_a_size_is_its_own():
    compiled = minicompile.compile(sizes_that_tell_themselves)
    for rows in (4, 5, 6, 5):
        before = UNIT[0]
        found, UNIT[0] = compiled(torch.ones(rows)), before
        close(found, sizes_that_tell_themselves(torch.ones(rows)))


W = torch.linspace(-1, 1, 4, requires_grad=True)


def leaf(x):
    h = x[:, None].squeeze(1)
    h.requires_grad = True
    return (h * W).sin()


def leaf_of_a_fresh_tensor(x):
    return (torch.zeros_like(x).requires_grad_() + x * W).exp()


def leaf_in_a_write(x):
    h = (x * 2).requires_grad_()
    with torch.no_grad():
        x.copy_(h.sin())
    return h * W


def returned(x):
    h = (x * 2).requires_grad_()
    return (h * W).sin(), h


def alone(x):
    return (x * 2).requires_grad_().sin(), x * W


def differentiated(x):
    h = (x * 2).requires_grad_()
    return torch.autograd.grad((h * W).sum(), h)[0] * W


def detached(x):
    y = x * W
    h = y.detach().requires_grad_()
    return y + h.sin(), h


def kept_over_a_break(x):
    h = (x * 2).requires_grad_()
    y = h * W
    return y.exp() if y.sum() > 100 else y + h


@pytest.mark.parametrize(("function", "breaks"), [
    (leaf, 0), (leaf_of_a_fresh_tensor, 0), (leaf_in_a_write, 0),
    (returned, 1), (alone, 1), (differentiated, 2), (detached, 1),
    (kept_over_a_break, 2)], ids=lambda value: getattr(
        value, "__name__", None))
def test_a_leaf_made_inside_stays_inside(function, breaks):
    """If it gets out, the graph breaks where it becomes a leaf."""
    compiled, sides = minicompile.compile(function), []
    for call in (compiled, function):
        x = torch.linspace(0, 1, 8).reshape(2, 4)
        W.grad, results = None, call(x)
        results = results if type(results) is tuple else (results,)
        torch.stack([each.sum() for each in results]).sum().backward()
        sides.append((results, W.grad, x, [
            (each.requires_grad, each.is_leaf, each.is_leaf and each.grad)
            for each in results]))
    close(*sides)
    assert compiled.stats().graph_breaks == breaks


# Questions to autograd


def of_a_step(x):
    h = x * 2
    return torch.autograd.grad((h.sin() * W).sum(), h, create_graph=True)[0]


def of_two_steps(x):
    h = x * 2
    k = h + 1
    back = torch.autograd.grad((h.sin() * k).sum(), [h, k],
                               create_graph=True)
    return back[0] * back[1]


def into_a_step(x):
    h = x * 2
    h.retain_grad()
    (h * W).sin().sum().backward(inputs=[h], retain_graph=True)
    return h * h.grad


def hooked_after_use(x):
    h = x * 2
    y = h * W
    h.register_hook(lambda gradient: gradient * 3)
    return y * h


def hooked_after_a_write(x):
    h = x * 2
    h.add_(1)
    y = h * W
    h.register_hook(lambda gradient: gradient * 3)
    return y


def hooked_in_a_module(x, model=torch.nn.Sequential(torch.nn.ReLU())):
    h = model(x * 2)
    y = h * W
    h.register_hook(lambda gradient: gradient * 3)
    return y


@pytest.mark.parametrize("function", [
    of_a_step, of_two_steps, into_a_step, hooked_after_use,
    hooked_after_a_write, hooked_in_a_module])
def test_autograd_is_asked_about_a_step_in_the_middle(function):
    """The graph ends behind that step: what follows is another."""
    compiled, sides = minicompile.compile(function), []
    for call in (compiled, function):
        x = torch.linspace(0, 1, 8).reshape(2, 4).requires_grad_()
        W.grad, result = None, call(x)
        result.sum().backward()
        sides.append((result, W.grad, x.grad))
    close(*sides)
    stats = compiled.stats()
    assert stats.graphs and not stats.fallbacks
