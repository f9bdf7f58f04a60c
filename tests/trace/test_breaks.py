"""Graph breaks: what runs, in which order, how many graphs it takes."""

# ruff: noqa: T201

import contextlib
import copy
import dataclasses
import functools
import gc
import io
import itertools
import math
import os
import random
import sys
import tempfile
import threading
import time
import weakref

import numpy
import pytest
import torch
from torch import nn

import minicompile
from chapters._book import breaking
from minicompile.core.state import global_state, kept
from minicompile.trace.reasons import REASONS
from tests.same import close

CASES = []


def case(graphs=None, breaks=None):
    """Register a function of one tensor and what it should cost."""
    def register(function):
        CASES.append((function, graphs, breaks))
        return function
    return register


def run(function, *args):
    """The result or exception, the arguments after, what it printed, and
    how it left torch's switches.
    """
    args, text = copy.deepcopy(args), io.StringIO()
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.redirect_stdout(text), kept():
        try:
            result = function(*args)
        except Exception as error:
            result = error
        switches = global_state(), torch.autocast_increment_nesting()
    return result, args, text.getvalue(), switches


def same(function, *args, calls=2, **options):
    """Compiled is eager, printing included, each time: the stats."""
    compiled = minicompile.compile(function, backend="eager", **options)
    for _ in range(calls):
        want, got = run(function, *args), run(compiled, *args)
        close(got[0], want[0])
        close(got[1], want[1])
        assert got[2:] == want[2:]
    assert torch.is_grad_enabled()
    return compiled.stats()




@case(2, 1)
def a_print_between(x):
    y = x * 2
    print("hello", y.shape)
    return y + 1


@case(2, 1)
def a_number_that_c_code_asks_of_a_tensor(x):
    try:
        x = x * math.sqrt(x.sum())
    except TypeError:
        x = x - 1
    return x * 2


@case(2, 1)
def a_range_of_a_tensor(x):
    try:
        steps = range(x.int().sum())
    except TypeError:
        return x
    return x * len(steps)


class Raises:
    def __get__(self, owner, kind):
        print("asked", owner is None)
        raise AttributeError


class Holder:
    value = Raises()


@case()
def a_class_attribute_that_raises(x):
    try:
        return x + Holder.value
    except AttributeError:
        return x - hasattr(Holder(), "value")


@case()
def an_object_lives_as_long_as_its_name(x):
    folder = tempfile.TemporaryDirectory()
    path = folder.name
    print(end="")
    y = x * 2
    print(end="")
    return y + 1, os.path.isdir(path)


@case()
def an_object_dies_with_its_name(x):
    class Node:
        pass

    node, other, weak = Node(), Node(), weakref.WeakSet()
    weak.add(node)
    weak.add(other)
    print(len(weak))
    del node
    gc.collect()  # also what a trace held
    return x + len(weak)


@case(2, 1)
def with_values_on_the_stack(x):
    return x + 1, [x * 2, print("here"), {"k": x * 3}], x + 4


@case(2, 1)
def three_levels_down(x):
    def third(x):
        y = x + 1
        print("deep")
        return y * 2

    def second(x):
        return third(x + 1) - 1

    def first(x):
        return second(x * 3) * 4

    return first(x - 1) + 5


@case(3, 2)
def the_same_callee_twice(x):
    return printing(x) + printing(x * 2)


def printing(x):
    y = x + 1
    print("callee")
    return y * 2


@case(4, 3)
def in_a_loop(x):
    for _ in range(50):
        x = x + 1
        print("step")
        x = x / 2
    return x * 3


@case(3, 2)
def under_no_grad(x):
    with torch.no_grad():
        y = x * 2
        print(torch.is_grad_enabled())
        z = y + 1
    print(torch.is_grad_enabled())
    return z * 2


@case(3, 2)
def under_autocast(x):
    y = x[None] * 2
    with torch.autocast("cpu", torch.bfloat16):
        z = y @ y.T
        print(z.dtype)
        z = z @ z
    print(torch.is_autocast_enabled("cpu"))
    return z + 1


class Settings:
    def __init__(self):
        self.width, self.depth = 2, 3


SETTINGS = Settings()


@case(3, 2)
def before_vars_of_an_object(x):
    """Only a `vars()` of nothing looks at the frame."""
    y = x * SETTINGS.width
    print("between")
    return y + sum(vars(SETTINGS).values()) + ("width" in dir(SETTINGS))


def caller():
    return sys._getframe(1).f_code.co_name


@case(2, 2)
def asked_for_its_name(x):
    y = x.sin()
    print(caller())
    return y.cos()


class Around(contextlib.ContextDecorator):
    def __enter__(self):
        print("in")

    def __exit__(self, *given):
        print("out", given[0])


@case(2, 3)
@Around()
def called_by_the_standard_library(x):
    """A frame of the library's waits, as it calls the program."""
    y = x.sin()
    print("between")
    return y.cos()


@case(2, 2)
def under_two_autocasts(x):
    y, half = x[None] * 2, torch.autocast("cpu", torch.bfloat16)
    with half, torch.no_grad(), torch.autocast("cpu", enabled=False):
        z = y @ y.T
        with half:
            print(z.dtype, [z @ z, print("deep")][0].dtype)
        z = z @ z
    return z + (y @ y.T), half.prev


@case(2, 1)
def raises_under_autocast(x):
    y = x[None]
    try:
        with torch.autocast("cpu", torch.bfloat16):
            y = y @ y.T
            open("/no/such/file")
    except OSError:
        y = y * 2
    return y, y.float() @ y.float()


@case(2, 1)
def stays_under_autocast(x):
    torch.autocast("cpu", torch.float16).__enter__()
    print(x @ x)
    return x @ x


@case(2, 1)
def stays_without_gradients(x):
    torch.set_grad_enabled(False)
    print(torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    return x * 2


@case(2, 1)
def in_an_exit_stack(x):
    seen = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(seen.append, 1)
        y = x + 1
        print(torch.is_grad_enabled())
        y = y * 2
    return y, seen, torch.is_grad_enabled()


def stops_by_hand():
    yield 1
    raise StopIteration("by hand")


@case()
def what_was_handled_is_remembered(x):
    found = []
    try:
        try:
            {}[3]
        except KeyError:
            x = x + 1
            raise ValueError("second")  # noqa: B904
        finally:
            print("in between")
    except ValueError as error:
        found.append(error)
    try:
        try:
            open("/no/such/file")
        except OSError as error:
            print("again")
            raise IndexError("third") from error
    except IndexError as error:
        found.append(error)
    try:
        try:
            sorted([3], key=lambda key: {}[key])
        except KeyError:
            raise ValueError("alone") from None
    except ValueError as error:
        found.append(error)
    try:
        [*stops_by_hand()]
    except RuntimeError as error:
        found.append(error)
    return x * 2, [(repr(e.__context__), repr(e.__cause__),
                    e.__suppress_context__) for e in found]


@case(1, 1)
def a_generator_that_handles_and_waits(x):
    def gen():
        try:
            {}[1]
        except KeyError:
            yield 1
            yield 2
    for k in gen():
        try:
            raise ValueError(k)
        except ValueError as error:
            x = x + (error.__context__ is None)
    print(x)
    return x


@case(1, 3)
def a_generator_asked_by_its_methods(x):
    def gen():
        got = yield x
        while got is not None:
            print("got", got)
            got = yield x * got

    g = gen()
    next(g)
    first, second = g.send(2), g.send(3)
    g.close()
    return first + second


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    tensor: object
    count: int = 2


class Both(Slotted):
    pass


@case(2, 1)
def objects_with_slots(x):
    one, two = Slotted(x * 2), Both(x, 7)
    print(one.count)
    return one, two, one.tensor + two.tensor + two.count


@case(2, 1)
def a_decorated_closure_waits(x):
    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, times=3):
            return function(*args) * times * wrapped.more
        wrapped.more = 2
        return wrapped

    @decorate
    def inner(y: int):
        """Told."""
        return y + x

    y = x * 2
    print(inner.__name__, inner.__doc__, inner.__annotations__)
    return inner(y), inner.__wrapped__(y)


@case(None, None)
def in_a_try(x):
    y = x + 1
    try:
        y = y * 2
        print("in")
        if y.sum() > 0:
            raise ValueError("positive")
    except ValueError as error:
        print("caught", error)
        y = y - 1
    finally:
        print("at last")
        y = y * 3
    return y


@case(None, None)
def the_operation_raises_into_a_try(x):
    y = x + 1
    try:
        y.numpy().resize(7, 7, 7, 1.5)
    except TypeError:
        return y * 2
    return y


@case(None, None)
def a_callee_raises_into_a_try(x):
    def inner(x):
        y = x + 1
        print("inner", y.dim())
        raise ValueError("from inside")

    try:
        inner(x)
    except ValueError as error:
        return str(error), x * 2


@case(None, None)
def a_disabled_callee_raises(x):
    y = x * 2
    try:
        fails(y)
    except KeyError as error:
        y = y + 1
        print(error, sys.exc_info()[0])
    print(sys.exc_info()[0])
    return y


@minicompile.disable
def fails(x):
    raise KeyError("gone")


@case(None, None)
def bare_raise_in_except(x):
    try:
        {}["q"]
    except KeyError:
        y = x + 1
        print(sys.exc_info()[0])
        try:
            raise
        except KeyError as error:
            print("again", repr(error))
    return y * 2


@case(2, None)
def inside_a_users_with(x):
    with Talking() as talking:
        x = x + 1
        print("body", talking.name)
        x = x * 2
        raise ValueError("left")
    return x


LOCK = threading.Lock()


def set_up(names):
    with LOCK:
        for name in names:
            print(name)


@case(graphs=2, breaks=1)
def a_callee_without_tensors_holds_a_lock(x):
    y = x.relu()
    set_up(["a", "b", "c"])
    return y + 1


def guarded(x):
    with LOCK:
        return (x.exp() * 2).tanh()


@case(graphs=3, breaks=2)
def a_callee_computes_under_a_lock(x):
    return guarded(x.sin()) + 1


class Talking:
    name = "it"

    def __enter__(self):
        print("enter")
        return self

    def __exit__(self, kind, error, trace):
        print("exit", kind, error)
        return True


@case(None, None)
def an_if_on_a_tensor(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(None, None)
def and_or_on_tensors(x):
    a = x + 1 if x.sum() > 0 else x - 1
    return a * (x.max() > 0 and x.min() > 0) + (x[0] or x[1])


@case(None, None)
def a_while_on_a_tensor(x):
    steps = 0
    while x.sum() < 50:
        x = x * 2 + 1
        steps += 1
    return x, steps


@case(None, None)
def a_branch_in_a_callee(x):
    def branch(v):
        if v.sum() > 10:
            return v
        return v * 2

    return branch(x) + branch(x + 5)


@case(None, None)
def numbers_out_of_tensors(x):
    return x * x.sum().item() + x.tolist()[1] + int(x[0]) + bool(x[2])


@case(None, None)
def numpy_in_the_middle(x):
    return torch.from_numpy(numpy.exp((x * 2).numpy())) + x


@case(2, 1)
def deep_copies(x):
    y = x + 1
    z = copy.deepcopy(y)
    z += 1
    return y, z


@case(None, None)
def random_numbers(x):
    return x * random.random() + random.randint(1, 3)


@case(None, None)
def the_clock(x):
    started = time.time()
    y = x * 2
    return y + 1, time.time() >= started


@case(None, None)
def text_of_tensors(x):
    return f"{x} and {x.sum():.2f}".split(), x + 1


@case(2, 2)
def asked_for(x):
    y = x + 1
    minicompile.graph_break()
    torch._dynamo.graph_break()
    return y * 2


@case(2, 2)
def disabled_functions(x):
    return ours(x + 1) + theirs(x) + 1


@minicompile.disable(reason="a test")
def ours(x):
    return x * 5


@torch.compiler.disable
def theirs(x):
    return x * 7


@case(1, 1)
def identity_holds(x):
    one = [x]
    two = {"l": one}
    print(len(one))
    one.append(x + 1)
    return one, two, two["l"] is one


@case(None, None)
def cells_are_shared(x):
    count = 0

    def add(v):
        nonlocal count
        count += 1
        print("add", count)
        return v + count

    y = add(add(x))
    print(count)
    return y, count


@case(None, None)
def a_function_that_calls_itself(x):
    def again(n, v):
        return v if not n else again(n - 1, v + n)

    y = again(2, x)
    print("between")
    return again(3, y)


@case(None, None)
def generators_left_half_run(x):
    def parts(count):
        for index in range(count):
            print("part", index)
            yield x * index

    half = parts(3)
    y = next(half)
    print("half")
    for part in parts(2):
        y = y + part
    return y + sum(half, x)


@case(None, None)
def zips_and_dicts(x):
    d, y = {"a": x, "b": x + 1}, 0
    for key, value in d.items():
        print(key)
        y = y + value
    for a, b in zip([1, 2], reversed([x, x * 2])):
        print("zip")
        y = y + a * b
    return y


@case(None, None)
def a_key_function_that_prints(x):
    def key(value):
        print("key", value)
        return -value

    return [x * value for value in sorted([1, 3, 2], key=key)]


@case(None, None)
def an_exception_after_a_print(x):
    y = x + 1
    print("before", y.shape)
    raise KeyError("boom")


@case(1, 1)
def a_failing_check(x):
    y = x + 1
    if y.dim() != 3:
        raise ValueError(y)
    return y


@case(0, 0)
def one_that_looks_at_its_frame(x):
    y = 3
    print(sorted(locals()))
    return x + y


def filled_in(text):
    return text.format(**sys._getframe(1).f_locals)


def one_whose_callee_looks_at_its_frame(x):
    rate = x.dim() * 5  # noqa: F841
    return x * 2, filled_in("rate {rate}")


@case(None, None)
def an_iterator_over_a_tensor(x):
    out = []
    for value in x:
        out.append(value * 2 if value > 1 else value)
    return torch.stack(out)


@case(None, None)
def comprehensions_and_unbound_names(x):
    if x.dim() == 7:
        never = 1
    del_me = [printing(x * i) for i in range(2)]
    try:
        return never, del_me
    except UnboundLocalError:
        print("unbound")
    return del_me


@case(None, None)
def star_arguments(x):
    def inner(a, *rest, scale=2, **more):
        print(len(rest), sorted(more))
        return a * scale + sum(rest) + more["z"]

    return inner(x, x + 1, 3, z=x * 4)


@contextlib.contextmanager
def managed(tag):
    print("enter", tag)
    try:
        yield tag * 2
    except ValueError as error:
        print("swallowed", error)
    finally:
        print("leave", tag)


@case(2, None)
def a_manager_made_of_a_generator(x):
    with managed(3) as scale:
        x = x * scale
        print("body")
        x = x + 1
        raise ValueError("big")
    return x


@case(1, None)
def generators_that_are_sent_to(x):
    def running():
        total = x
        while True:
            value = yield total
            if value is None:
                return total
            total = total + value

    one = running()
    next(one)
    one.send(2)
    print("half")
    y = one.send(3)
    try:
        one.send(None)
    except StopIteration as stop:
        return y, stop.value


class Loud:
    def __init__(self, value):
        print("init")
        self.value = value

    def __add__(self, other):
        print("add")
        return Loud(self.value + other)

    def __len__(self):
        print("len")
        return 2

    def __iter__(self):
        print("iter")
        yield self.value
        print("more")
        yield self.value

    def __eq__(self, other):
        print("eq")
        return True

    def __call__(self, y):
        print("call")
        return self.value + y


@case(None, None)
def an_object_whose_methods_print(x):
    loud, total = Loud(x) + 1, 0
    for value in loud:
        total = total + value
    if loud == 3:
        total = total * 2
    return loud(total) + len(loud)


@case(None, None)
def finally_with_continue_and_break(x):
    for i in range(3):
        try:
            print("try", i)
            if i == 1:
                continue
            if i == 2:
                break
            x = x * 2
        finally:
            print("finally", i)
            x = x + 1
    else:
        x = x * 100
    return x


@case(4, 4)
def recursion_that_prints(x, n=3):
    print("level", n)
    return x if n == 0 else recursion_that_prints(x + n, n - 1) * 2


@case(None, None)
def comprehensions_that_print(x):
    def show(value):
        print("show", value)
        return value

    return ([x * show(i) for i in range(3)], {k: show(k) for k in "ab"},
            sum(show(v) for v in (1, 2)),
            [[show(j) for j in range(i)] for i in range(3)])


class Base(nn.Module):
    def forward(self, x):
        y = x * 2
        print("base")
        return y + 1


class Derived(Base):
    def forward(self, x):
        z = super().forward(x + 1)
        print("derived", __class__.__name__)
        return super().forward(z) - 1


@case(4, 3)
def super_twice(x):
    return DERIVED(x) * 2


DERIVED = Derived()


@case(None, None)
def views_written_after_a_break(x):
    y = x.view(-1)
    print("view")
    y.add_(1)
    z = x * 2
    y.mul_(3)
    return x, y, z


@pytest.mark.parametrize("function, graphs, breaks", CASES,
                         ids=[f.__name__ for f, *_ in CASES])
def test_as_eager(function, graphs, breaks):
    stats = same(function, torch.tensor([1.0, 2.0, 3.0]))
    if graphs is not None:
        assert stats.graphs == graphs
    if breaks is not None:
        assert stats.graph_breaks == breaks
    if function is not one_that_looks_at_its_frame:
        assert stats.graph_breaks
        assert set(stats.fallbacks) <= {"aliasing"}


def generators_that_are_thrown_into(x):
    def parts():
        try:
            yield x
            print("middle")
            yield x * 2
        except KeyError:
            print("cleaned up")
            raise

    one, two = parts(), parts()
    y = next(one)
    print("got one")
    y = y + next(one)
    try:
        one.throw(KeyError("k"))
    except KeyError:
        print("came back")
    next(two)
    print("half")
    two.close()
    return y


def test_a_generator_that_waits_in_a_try_is_eagers():
    stats = same(generators_that_are_thrown_into, torch.ones(3))
    assert stats.fallbacks and not stats.graphs


def closing(x):
    try:
        yield x
        yield x * 2
    finally:
        print("closed")


def left_by_break(x, wrapped=iter):
    for step in wrapped(closing(x)):
        print("turn", step[-1].shape)
        break
    print("after")
    return x + step[-1]


def left_by_an_exception(x):
    for _ in closing(x):
        print("turn")
        raise KeyError("left")


def begun_once(x):
    waiting = closing(x)
    print("before")
    y = next(waiting)
    print("begun")
    del waiting
    print("after")
    return x + y


def held_by_another(x):
    for y in (each for part in [closing(x)] for each in part):
        print("turn", y.shape)
        break
    print("after")
    return x + y


def left_in_a_callee(x):
    try:
        return left_by_break(x + 1) * 2
    finally:
        print("left")


@pytest.mark.filterwarnings("ignore:minicompile runs")
@pytest.mark.parametrize("function, more", [
    (left_by_break, ()), (left_by_break, (enumerate,)),
    *((function, ()) for function in (
        left_by_an_exception, begun_once, held_by_another,
        left_in_a_callee))])
def test_a_generator_is_closed_when_eager_closes_it(function, more):
    stats = same(function, torch.ones(3), *more)
    if function is left_in_a_callee:  # which Python runs as a whole
        assert (stats.graphs, stats.graph_breaks) == (2, 2)
    else:
        assert (stats.graphs, *stats.fallbacks) == (0, "builtin")


def test_both_branches_are_compiled():
    compiled = minicompile.compile(an_if_on_a_tensor, backend="eager")
    x = torch.ones(3)
    for value in (x, -x, x, -x):
        close(compiled(value), an_if_on_a_tensor(value))
    stats = compiled.stats()
    assert (stats.graphs, stats.graph_breaks, stats.recompiles) == (3, 1, 0)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            print("layer")
        return x


def test_layers_of_one_kind_share_a_graph():
    ours, theirs = Layers(), None
    theirs = copy.deepcopy(ours)
    compiled = minicompile.compile(ours, backend="eager")
    x = torch.ones(3)
    for _ in range(2):
        want, got = run(theirs, x), run(compiled, x)
        close(got[0], want[0])
        assert got[2] == want[2]
    assert compiled.stats().graphs == 2
    got[0].sum().backward()
    want[0].sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(p.grad, q.grad)


class Log:
    def __init__(self):
        self.lines, self.count = [], 0

    def write(self, text):
        self.count += 1
        self.lines.append(text)


def test_effects_happen_once_and_in_order():
    def function(x, log):
        log.write("one")
        y = x * 2
        print(log.count, log.lines)
        log.write("two")
        y += 1
        x.add_(1)
        print(log.count, log.lines, float(x[0]))
        log.write("three")
        return y, log.count

    logs = Log(), Log()
    x = torch.ones(2), torch.ones(2)
    compiled = minicompile.compile(function, backend="eager")
    out = io.StringIO(), io.StringIO()
    for run_, log, value, text in zip((function, compiled), logs, x, out,
                                      strict=True):
        with contextlib.redirect_stdout(text):
            results = [run_(value, log) for _ in range(3)]
        log.results = results
    close(logs[1].results, logs[0].results)
    assert logs[0].lines == logs[1].lines and logs[1].count == 9
    assert out[0].getvalue() == out[1].getvalue()
    close(x[1], x[0])


def test_an_exception_that_is_caught_has_a_traceback():
    def function(x):
        try:
            raise KeyError(1)
        except KeyError as error:
            return x + 1, error.__traceback__ is None

    compiled = minicompile.compile(function, backend="eager")
    assert compiled(torch.ones(1)) == function(torch.ones(1))


def test_an_exception_leaves_what_eager_leaves():
    def function(log):
        log.write("one")
        print("between")
        log.write("two")
        raise RuntimeError(len(log.lines))

    for run_ in (function, minicompile.compile(function, backend="eager")):
        log = Log()
        with pytest.raises(RuntimeError, match="2"):
            run_(log)
        assert log.lines == ["one", "two"]


@pytest.mark.filterwarnings("ignore")
def test_the_page_of_breaks_has_every_kind():
    kinds = set()
    for example in breaking.EXAMPLES:
        compiled = minicompile.compile(example, backend="eager")
        run(compiled, torch.arange(1.0, 4.0))
        kinds |= {found.kind for found in compiled.cache.breaks}
        kinds |= set(compiled.stats().fallbacks)
    assert kinds == set(REASONS) - {"internal"}


def how_many_elements_a_sparse_tensor_has(x):
    places = torch.tensor([[0, 1, 0], [1, 0, 1]])
    made = torch.sparse_coo_tensor(places, x[:3], (2, 2)).coalesce()
    total = sum(value * 2 for value in made.values())
    return made._nnz(), total, x / len((made + made).values())


@pytest.mark.filterwarnings("ignore")
def test_no_frame_is_cut_that_a_callee_looks_into():
    stats = same(one_whose_callee_looks_at_its_frame, torch.ones(3))
    assert stats.fallbacks and not stats.graph_breaks


@pytest.mark.filterwarnings("ignore")
def test_a_sparse_tensor_is_asked_at_a_break():
    """Its fake has no elements to count."""
    stats = same(how_many_elements_a_sparse_tensor_has, torch.ones(4) * 3)
    assert stats.graph_breaks


def test_a_break_is_told():
    made = minicompile.trace.trace(a_print_between, (torch.ones(2),),
                                   breaks=True)
    found, = made.breaks
    assert found.kind == "builtin" and "print" in found.reason
    assert found.file == __file__ and "print(" in found.source
    assert found.hint and str(found.line) in str(found)
    with pytest.raises(minicompile.Unsupported) as error:
        minicompile.compile(a_print_between, fullgraph=True)(torch.ones(2))
    assert error.value.reason == found.reason


def test_a_traceback_shows_the_users_lines():
    def function(x):
        print("first")
        y = x + 1
        fails(y)
        return y

    compiled = minicompile.compile(function, backend="eager")
    with pytest.raises(KeyError) as error:
        compiled(torch.ones(2))
    lines = [entry.lineno + 1 for entry in error.traceback
             if entry.name == "function"]
    first = function.__code__.co_firstlineno
    assert first + 3 in lines


def refuses(names):
    import warnings
    warnings.warn("of the caller", DeprecationWarning, stacklevel=2)
    return names["absent"] + open("/no/such/file")  # noqa: SIM115


def hands_on(x, names):
    return refuses(names), x + 1


def in_callees(x, names):
    return hands_on(x + 1, names)


@pytest.mark.parametrize("names", [{}, {"absent": 1}])
def test_a_break_in_a_callee_shows_the_lines_of_its_callers(names):
    compiled = minicompile.compile(in_callees, backend="eager")
    shown = []
    for call in (in_callees, compiled, compiled):
        with pytest.raises((KeyError, OSError)) as error, (
                pytest.warns(DeprecationWarning)) as warned:
            call(torch.ones(2), names)
        shown.append(([(entry.name, entry.lineno) for entry
                       in error.traceback if entry.path == error.traceback[
                           0].path], [each.lineno for each in warned]))
    assert shown[0] == shown[1] == shown[2]


def noisy(x):
    minicompile.graph_break()
    return x + 1


def keywords(**found):
    return found


@pytest.mark.parametrize("display", [
    lambda d, x: {**d, "a": noisy(x), "b": x * 2},
    lambda d, x: {**d, **{"a": noisy(x)}, **d},
    lambda d, x: keywords(**d, **{"a": noisy(x)}),
    lambda d, x: sorted({*d, str(noisy(x).shape[0]), *("q", "r")}),
    lambda d, x: [*d, noisy(x), *d, x],
    lambda d, x: {noisy(x).shape[0] + len(d) + k for k in range(3)},
    lambda d, x: {k: noisy(x) for k in d},
], ids=range(7))
def test_a_break_inside_a_display(display):
    """What was collected before the break is Python's own afterwards."""
    compiled = minicompile.compile(display, backend="eager")
    for rows in (2, 3, 4, 5):
        given = {"k": rows, "l": torch.randn(rows)}, torch.randn(rows)
        close(compiled(*given), display(*given))


TOLD = []


def formatted(x, n):
    print(f"{n}: {x.sum():.3f} {x.mean()} {len(TOLD)}")
    return x + 1


PAIR = torch.ones(2)


def with_a_global(x, n):
    print(f"{x.sum():.3f}", PAIR, end="")
    return x + 1


def several(x, n):
    print("a", x.sum().item(), 100 * x.mean().item() / n, end="")
    return x + 1


def by_percent(x, n):
    print("%d %.2f" % (n, x.sum().item()))  # noqa: UP031
    return x + 1


def by_format(x, n):
    text = "{:.2f} {}".format
    print(text(x.sum().item(), n), x.mean().item())
    return x + 1


def listed(x, n):
    TOLD.append((f"{x.sum():.2f}", n, x))
    return x + 1


def made_before(x, n):
    loss, text = x.sum().item(), f"{n}: {x.mean()}"
    text += "%4.1f" % loss  # noqa: UP031
    print(text, round(loss / 3, 2))
    return x + 1


def in_a_closure(x, n):
    def tell():
        print(f"{x.sum():.1f} {n}")
        return x * 2
    return tell() + 1


def caught(x, n):
    try:
        print(f"{x.sum():.2d}")
    except ValueError as error:
        x = x + len(str(error))
    return x + 1


@pytest.mark.parametrize("function, breaks", [
    (formatted, 1), (with_a_global, 1), (several, 1), (by_percent, 1),
    (by_format, 1), (listed, 1), (made_before, 1), (in_a_closure, 1),
    (caught, 2)])
def test_a_text_of_a_tensor_is_one_break(function, breaks):
    """It is made between the graphs; none is compiled again."""
    compiled, left = minicompile.compile(function, backend="eager"), []
    for each in function, compiled:
        TOLD.clear()
        with contextlib.redirect_stdout(io.StringIO()) as text:
            results = [repr(each(torch.ones(3) * n, 3)) for n in range(9)]
        left.append((results, text.getvalue(), repr(TOLD)))
    assert left[0] == left[1]
    stats = compiled.stats()
    assert (stats.graphs, stats.graph_breaks) == (2, breaks)
    assert not stats.recompiles


def counted(x, n):
    print(f"step {n}")
    return x * 2 + n


def counted_and_summed(x, n):
    y = x * 2
    print(f"step {n + 1}, {n}: {y.sum().item():.2f}")
    return y + n


@pytest.mark.parametrize("function", [counted, counted_and_summed])
def test_a_number_that_is_printed_stays_a_symbol(function):
    """The text of a constant would be another one at each step."""
    compiled, left = minicompile.compile(function, backend="eager"), []
    for each in function, compiled:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            results = [repr(each(torch.ones(3), n)) for n in range(9)]
        left.append((results, text.getvalue()))
    assert left[0] == left[1]
    stats = compiled.stats()
    assert stats.recompiles == 2 and not stats.fallbacks


def test_what_follows_a_number_is_compiled():
    """A number that an operator takes is asked for before it."""
    def step(x):
        y = torch.mul(x, x.sum().item())
        print(torch.relu(y).sum().item(), torch.sin(y).mean().item())
        return y + 1

    compiled = minicompile.compile(step, backend="eager")
    with contextlib.redirect_stdout(io.StringIO()):
        close(compiled(torch.ones(3)), step(torch.ones(3)))
    assert compiled.stats().graph_breaks == 2


def before_a_write(x):
    y, total = x * 2, x.sum()
    told = f"{y}", f"{x}", total.item(), f"{total:.1f}"
    y.add_(1)
    x.data.mul_(3)
    total += 1
    return told, f"{y}", total.item(), x


def of_a_leaf(x):
    y = x * 2
    text = f"{y}"
    return text, y.requires_grad_().sum().item()


def of_a_number_that_has_none(x):
    try:
        return "%d" % x.sum().item()  # noqa: UP031
    except (ValueError, OverflowError) as error:
        return str(error), x + 1


def of_digits(x):
    try:
        return float(f"{x.sum()}"), int(f"{x.sum():.0f}"), x + 1
    except (ValueError, OverflowError) as error:
        return str(error), x + 1


def divided(x):
    total = x.sum().item()
    try:
        return x, total / 2, 1 / total
    except ZeroDivisionError as error:
        return str(error), x + 1


def handed_out(x):
    total = x.sum().item()
    mean = total / 3 - 1
    return (total, f"{mean:.2f} {total}", x.shape), f"{x.shape}", mean


@pytest.mark.parametrize("function, breaks", [
    (before_a_write, None), (of_a_leaf, None), (divided, None),
    (of_a_number_that_has_none, None), (of_digits, None), (handed_out, 0)])
def test_a_number_or_text_that_is_read_later_is_that_of_then(
        function, breaks):
    compiled = minicompile.compile(function, backend="eager")
    for fill in (1.0, 0.0, float("nan"), float("inf")):
        given = torch.full((3,), fill), torch.full((3,), fill)
        close(compiled(given[0]), function(given[1]))
        assert breaks in (None, compiled.stats().graph_breaks)


def test_a_text_that_a_break_hands_over_is_no_constant(capsys):
    stamps = iter(map(str, range(40)))
    stamp = minicompile.disable(lambda: next(stamps))

    def told(x):
        y = x.sin()
        print(f"at {stamp()}")
        return y.cos()

    def asked(x):
        return x * 2 if (said := stamp()) == "14" else x, said

    compiled = minicompile.compile(told, backend="eager")
    x = torch.randn(3)
    for _ in range(12):
        close(compiled(x), x.sin().cos())
    assert compiled.stats().recompiles == 0
    assert capsys.readouterr().out.split() == [
        each for k in range(12) for each in ("at", str(k))]
    compiled = minicompile.compile(asked, backend="eager")
    for k in range(12, 16):
        close(compiled(x), (x * 2 if k == 14 else x, str(k)))


def test_the_number_of_continuations_does_not_grow():
    compiled = minicompile.compile(in_a_loop, backend="eager")
    for _ in range(3):
        run(compiled, torch.ones(2))
    assert len(compiled.cache.continuations) == 3
    assert compiled.stats().recompiles == 0


def test_gradients_flow_through_breaks():
    x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    minicompile.compile(three_levels_down)(x[0]).sum().backward()
    three_levels_down(x[1]).sum().backward()
    close(x[0].grad, x[1].grad)


def test_a_break_inside_autocast_leaves_no_region_open():
    """Else casts of weights are kept, and eager trains with old ones."""
    def depth():
        entered = torch.autocast_increment_nesting()
        torch.autocast_decrement_nesting()
        return entered - 1
    before, weight = depth(), torch.randn(3, 3, requires_grad=True)
    compiled = minicompile.compile(under_autocast)
    with contextlib.redirect_stdout(io.StringIO()):
        compiled(torch.randn(3))
    assert depth() == before
    with torch.autocast("cpu", torch.bfloat16):
        first = weight @ weight
    with torch.no_grad():
        weight.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        assert not (weight @ weight).any() and first.any()


def printing_before_vars(x):
    print("in a callee")
    return x + len(vars())


def test_a_warning_says_why_no_break_was_possible():
    """It names the call that failed, and what forbids to resume there."""
    compiled = minicompile.compile(printing_before_vars, backend="eager")
    with pytest.warns(UserWarning, match=(
            r"print cannot be followed; no break can be there: "
            r"a caller of vars (.|\n)*in printing_before_vars\n *print")):
        compiled(torch.ones(2))


class Quiet:
    def __enter__(self):
        return self

    def __exit__(self, *given):
        print(end="")


def test_an_empty_cell_of_ones_own_is_an_unbound_variable():
    def program(x):
        with Quiet():
            try:
                cell += 1  # noqa: F821
            except UnboundLocalError as error:
                text = str(error)
        print(end="")
        try:
            cell += 1
        except UnboundLocalError as error:
            return x + 1, text, str(error), lambda: cell

    x = torch.ones(2)
    got = minicompile.compile(program, backend="eager")(x)
    assert got[1:3] == program(x)[1:3]


def test_what_fails_only_while_compiling_breaks_as_in_eager():
    """The way of eager has a break of its own, and is gone up to there."""
    def function(x):
        y, compiling = x, torch.compiler.is_compiling()
        if compiling:
            y = x.repeat(2, 1)
        if not compiling and y.sum() > 0:
            y = y + 1
        return (y + x) * 2

    compiled = minicompile.compile(function, backend="eager")
    for x in (torch.ones(3, 4), -torch.ones(3, 4)):
        assert compiled(x).equal(function(x))
    assert compiled.stats().graph_breaks == 1


def test_a_loop_may_break_more_often_than_calls_nest():
    """Each rest is called when what came before it has returned."""
    turns = sys.getrecursionlimit() // 2

    def function(x):
        for turn in range(turns):
            x = x + 1
            print(turn, end="")
        return x

    x = torch.zeros(2)
    compiled = minicompile.compile(function, backend="eager")
    with contextlib.redirect_stdout(io.StringIO()):
        assert compiled(x).equal(x + turns)
    assert compiled.stats().graph_breaks < 10


ITERATORS = {
    "iter": iter, "reversed": reversed, "enumerate": enumerate,
    "zip": lambda values: zip(values, range(9)),
    "islice": lambda values: itertools.islice(values, 1, None),
    "chain": lambda values: itertools.chain([7], values),
    "two": lambda values: zip(iter(values), reversed(values)),
    "generator": lambda values: (each for each in values)}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_of_a_list_that_grew_goes_on_where_it_stood(name):
    """The list has its elements when the iterator is put to its place."""
    def stepped(x):
        found, kept = [], []
        print(len(found))
        found.append(x + 1)
        found.extend([x + 2, x + 3])
        for each in ITERATORS[name](found):
            kept.append(each)
            print(len(kept))
        return kept

    same(stepped, torch.ones(2))


def chosen(x, reduction, names=()):
    """A loss with a message in it, as libraries write one."""
    names = (*names, reduction)
    print("loss of", len(names))
    if reduction == "mean":
        return x.mean(), names
    return x.sum(), names


def test_a_text_may_wait_in_the_frames_around_a_break():
    def losses(x):
        first, names = chosen(x.sin(), "mean")
        second, names = chosen(x * first, "sum", names)
        return first + second, names

    stats = same(losses, torch.ones(3), fullgraph=False)
    assert (stats.graphs, stats.graph_breaks) == (3, 2)
    assert not stats.fallbacks


class Collecting(nn.Module):
    """Each step of its loop is printed, and kept in a list."""

    def forward(self, x):
        seen = []
        for k in range(12):
            x = x.sin()
            seen.append(x * k)
            print(k)
        return seen


def test_a_list_in_a_frame_that_waits_may_grow():
    """One graph serves all lengths, in a callee and in a module, too."""
    model = Collecting()
    stats = same(lambda x: model(x.cos()), torch.ones(2))
    assert stats.graphs <= 4 and stats.recompiles <= 1  # the counter
