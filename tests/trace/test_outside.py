"""What existed before the call: identity, writes and their order."""

import copy
import operator
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque

import pytest
import torch
from torch import nn

import minicompile
from minicompile.core.errors import Unsupported
from minicompile.trace import trace
from tests.same import close

from .conftest import entry, traced

COUNT = 0
LOG = []
STATE = {"n": 1, "list": [1]}


class Thing:
    def __init__(self):
        self.n, self.items, self.table = 0, [1, 2], {"a": 1}
        self.tensor = torch.ones(3)


def test_attributes_are_written_after_the_graph():
    def f(x, thing):
        thing.n += 1
        thing.new = x * 2
        thing.items = [thing.n]
        return thing.n + x

    thing, x = Thing(), torch.ones(3)
    made = trace(entry, (f, (x, thing), {}))
    assert thing.n == 0 and "new" not in vars(thing)
    assert "object.__setattr__" in made.finish
    assert torch.equal(traced(f, x, thing), x + 1)
    assert thing.n == 1 and thing.items == [1]
    assert torch.equal(thing.new, x * 2)


def test_swapped_attributes():
    def f(x, thing):
        thing.items, thing.table = thing.table, thing.items
        return x + 1

    thing = Thing()
    items, table = thing.items, thing.table
    traced(f, torch.ones(3), thing)
    assert thing.items is table and thing.table is items


def test_lists_dicts_sets_and_deques():
    def f(x, a, d, s, q, o):
        a.append(x + 1)
        a[0] = 5
        d["new"] = x
        d["old"] = d["old"] + 1
        del d["gone"]
        s.add(3)
        q.append(2)
        o.update(z=1)
        o.pop("a")
        return len(a), list(d), sorted(s), q[-1], list(o)

    def things():
        return ([1], {"old": 1, "gone": 2}, {1}, deque([1], maxlen=1),
                OrderedDict(a=1, b=2))

    x = torch.ones(2)
    ours, theirs = things(), things()
    assert traced(f, x, *ours) == f(x, *theirs)
    assert ours[1:] == theirs[1:]
    assert ours[0][0] == 5 and torch.equal(ours[0][1], x + 1)
    assert ours[1]["new"] is x


def test_globals_and_cells():
    count = 10

    def f(x):
        global COUNT
        nonlocal count
        COUNT += 1
        count = COUNT + count
        LOG.append(count)
        STATE["n"] += 1
        STATE["list"].append(x.shape[0])
        return x * count

    x = torch.ones(2)
    got = traced(f, x)
    assert COUNT == 1 and count == 11 and LOG == [11]
    assert STATE == {"n": 2, "list": [1, 2]}
    assert torch.equal(got, x * 11)


def test_identity_of_what_is_returned():
    def f(x, thing):
        y = x + 1
        pair = [y, y]
        return x, thing, thing.items, pair, pair, thing.table, y

    x, thing = torch.ones(2), Thing()
    a, b, c, pair, again, d, y = traced(f, x, thing)
    assert a is x and b is thing and c is thing.items and d is thing.table
    assert pair is again and pair[0] is pair[1] is y


def test_the_same_tensor_twice_is_one_input():
    def f(x, y):
        return (x is y), x + y

    x = torch.ones(2)
    made = trace(entry, (f, (x, x), {}))
    assert len(made.sources) == 1
    assert [g.kind for g in made.guards].count("relation") == 1
    assert traced(f, x, x)[0] is True
    assert traced(f, x, x.clone())[0] is False


def test_writing_to_shared_memory_is_refused():
    def f(x, y):
        x.add_(1)
        return y * 2

    x = torch.ones(4)
    with pytest.raises(Unsupported) as refused:
        trace(entry, (f, (x, x[:2]), {}))
    assert refused.value.kind == "aliasing"
    assert torch.equal(x, torch.ones(4))
    made = trace(entry, (f, (x, x.clone()), {}))
    assert [g for g in made.guards if "disjoint_memory" in str(g.expected)]


def test_reading_shared_memory_is_not():
    def f(x, y):
        return x + y

    x = torch.ones(4)
    assert torch.equal(traced(f, x[1:], x[:3]), torch.full((3,), 2.0))


def test_module_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.register_buffer("seen", torch.zeros(1))
            self.register_buffer("last", torch.zeros(2))

        def forward(self, x):
            self.calls += 1
            self.seen += x.sum()
            self.last = x * 2
            return x + self.calls

    ours = Counter()
    theirs = copy.deepcopy(ours)
    x = torch.ones(2)
    seen = ours.seen
    assert torch.equal(traced(ours, x), theirs(x))
    assert ours.calls == theirs.calls == 1 and ours.seen is seen
    assert torch.equal(ours.last, theirs.last)
    assert torch.equal(ours.seen, theirs.seen)


def test_nothing_happens_when_a_trace_is_refused():
    def f(x, thing):
        thing.n += 1
        thing.items.append(3)
        x.add_(1)
        print("never")
        return x

    x, thing = torch.ones(2), Thing()
    with pytest.raises(Unsupported):
        trace(entry, (f, (x, thing), {}))
    assert thing.n == 0 and thing.items == [1, 2]
    assert torch.equal(x, torch.ones(2))


def test_grad_mode_is_put_back_and_kept():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    x = torch.ones(2, requires_grad=True)
    trace(entry, (f, (x,), {}))
    assert torch.is_grad_enabled()
    try:
        assert not traced(f, x).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_a_tensor_of_a_cell_and_of_a_default():
    weight = torch.full((2,), 3.0)

    def f(x, bias=torch.ones(2),  # noqa: B006
          table={"k": torch.ones(2)}):  # noqa: B006
        return x * weight + bias + table["k"]

    x = torch.ones(2)
    made = trace(entry, (f, (x,), {}))
    assert len(made.sources) == 4
    assert torch.equal(traced(f, x), torch.full((2,), 5.0))


def test_gradients_reach_parameters():
    layer = nn.Linear(3, 2)
    traced(layer, torch.ones(4, 3)).sum().backward()
    ours = layer.weight.grad.clone()
    layer.zero_grad()
    layer(torch.ones(4, 3)).sum().backward()
    assert torch.equal(ours, layer.weight.grad)


def test_an_object_under_two_names():
    def f(x, a, b):
        a.n = 5
        return x + b.n

    x, one, two = torch.ones(2), Thing(), Thing()
    made = trace(entry, (f, (x, one, two), {}))
    assert [g for g in made.guards if " is not " in str(g.expected)]
    assert torch.equal(traced(f, x, one, two), x)
    assert torch.equal(traced(f, x, two, two), x + 5)


def test_identity_is_guarded():
    def f(x, y):
        return x + (1 if x is y else 2)

    x = torch.ones(2)
    made = trace(entry, (f, (x, x.clone()), {}))
    assert [g for g in made.guards if " is not " in str(g.expected)]


class Loud(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2

    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)


def test_a_dict_whose_class_has_its_own_items():
    def f(x, d):
        d["n"] = d["n"] + 1
        return x * d["n"]

    x, ours, theirs = torch.ones(2), Loud(n=1), Loud(n=1)
    run = minicompile.compile(f, fullgraph=True, backend="eager")
    for _ in range(3):
        assert torch.equal(run(x, ours), f(x, theirs))
        assert dict.items(ours) == dict.items(theirs)


def test_a_dict_that_makes_what_it_is_asked_for():
    class Makers(dict):
        def __getitem__(self, key):
            kind, given = super().__getitem__(key)
            return kind(**given)

    makers = Makers(leaky=(nn.LeakyReLU, {"negative_slope": 0.5}))
    x = torch.tensor([-2.0, 2.0])
    assert traced(lambda x: makers["leaky"](x), x).tolist() == [-1, 2]


class Twice:
    by = 2

    def scaled(self, x):
        return x * self.by


class Thrice:
    by = 3

    def scaled(self, x):
        return x * self.by + 1


@pytest.mark.parametrize("read", [
    lambda x, thing: thing.scaled(x), lambda x, thing: x * thing.by,
    lambda x, thing: x * (2 if isinstance(thing, Twice) else 5),
    lambda x, thing: x * (2 if issubclass(type(thing), Twice) else 5),
    lambda x, thing: x * super(type(thing), thing).by])
def test_bases_that_are_changed(read):
    middle = type("Middle", (Twice,), {})
    kind = type("Kind", (middle,), {})
    compiled = minicompile.compile(read, backend="eager", fullgraph=True)
    x, thing = torch.ones(2), kind()
    for owner, base in ((middle, Twice), (middle, Thrice), (kind, Twice),
                        (kind, Thrice), (kind, middle)):
        owner.__bases__ = base,
        close(compiled(x, thing), read(x, thing))
        close(compiled(x, thing), read(x, thing))
    assert compiled.stats().graphs <= 5


def test_what_is_written_and_deleted_was_there_or_was_not():
    def drop(x, thing, table):
        thing.n = table["a"] = 5
        del thing.n, table["a"]
        return x + 1

    compiled = minicompile.compile(drop, backend="eager")
    for made in (Thing(), Thing(), types.SimpleNamespace()):
        table = {"a": 1} if hasattr(made, "n") else {}
        compiled(torch.ones(2), made, table)
        assert not hasattr(made, "n") and table == {}
    assert compiled.stats().graphs == 2


def whole(x):
    import the_helper
    return x * the_helper.by


def part(x):
    from the_helper import by
    return x * by


def below(x):
    import the_package.inner
    return x * the_package.inner.by


def renamed(x):
    import the_package.inner as inner
    return x * inner.by


def relative(x):
    from .inner import by
    return x * by


@pytest.mark.parametrize("program", [whole, part, below, renamed, relative])
def test_a_module_that_is_swapped_is_imported_again(program, monkeypatch):
    def install(by):
        modules = {name: types.ModuleType(name) for name in (
            "the_helper", "the_package", "the_package.inner")}
        for name, module in modules.items():
            module.by, module.__path__ = by, []
            monkeypatch.setitem(sys.modules, name, module)
        modules["the_package"].inner = modules["the_package.inner"]

    monkeypatch.setitem(globals(), "__package__", "the_package")
    install(2)
    compiled = minicompile.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for by in (2, 3, 3, 4):
        install(by)
        close(compiled(x), program(x))
        close(compiled(x), program(x))
    assert compiled.stats().graphs == 4


@pytest.mark.parametrize("program", [whole, part])
def test_an_object_that_stands_for_a_module_may_change(program, monkeypatch):
    helper, x = types.SimpleNamespace(by=2), torch.ones(2)
    monkeypatch.setitem(sys.modules, "the_helper", helper)
    compiled = minicompile.compile(program, backend="eager", fullgraph=True)
    for helper.by in 2, 3, 3:
        close(compiled(x), program(x))


def test_the_globals_of_a_function_are_not_those_that_are_given():
    def f(names, x):
        return names["y"] + names["g"](x)

    own, x = {}, torch.ones(3)
    exec("y = 1.0\ndef g(x): return x * y", own)
    compiled = minicompile.compile(f)
    close(compiled(own, x), x + 1)
    other, own["y"] = dict(own), 3.0
    close(compiled(other, x), 3 * x + 1)
    close(compiled(own, x), 3 * x + 3)


def test_a_module_may_begin_to_answer_for_what_it_lacks():
    home = types.ModuleType("home")

    def f(x):
        return x + getattr(home, "shift", 0)

    compiled, x = minicompile.compile(f), torch.ones(3)
    close(compiled(x), x)
    home.__getattr__ = lambda name: 2
    close(compiled(x), x + 2)


def test_a_class_of_modules_answers_for_what_they_lack():
    """As transformers' _LazyModule does."""
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            return {"shift": 2}[name]

    home = Lazy("home")
    compiled = minicompile.compile(lambda x: x + home.shift)
    x = torch.ones(3)
    close(compiled(x), x + 2)
    home.shift = 3
    close(compiled(x), x + 3)
    assert not compiled.stats().graph_breaks
    del home.shift
    home.__getattr__ = lambda name: 4  # the module's own is asked first
    close(compiled(x), x + 4)


def test_what_a_thread_keeps_for_itself_is_looked_up_in_it():
    local = threading.local()

    def f(x):
        return x * (local.scale if hasattr(local, "scale") else 2)

    compiled, x = minicompile.compile(f), torch.ones(3)
    close(compiled(x), x * 2)
    for local.scale in (3, 4):
        close(compiled(x), x * local.scale)


def test_what_a_thread_has_is_set_and_deleted():
    def f(x, local):
        local.scale = 3
        del local.scale
        return x * hasattr(local, "scale")

    compiled = minicompile.compile(f, backend="eager")
    for local in (threading.local(), threading.local()):
        close(compiled(torch.ones(2), local), f(torch.ones(2), local))


def test_c_code_writes_to_what_looks_further_than_its_own_dict():
    local, thing = threading.local(), Thing()
    proxy = weakref.proxy(thing)
    local.count = thing.n = 1

    def f(x):
        local.count += 1
        proxy.n = 5
        return x * local.count

    compiled, x = minicompile.compile(f), torch.ones(3)
    close(compiled(x), x * 2)
    close(compiled(x), x * 3)
    assert (local.count, thing.n) == (3, 5)


def test_a_proxy_has_the_attributes_of_what_it_stands_for():
    thing = Thing()
    proxy = weakref.proxy(thing)

    def f(x):
        return x * (proxy.n if hasattr(proxy, "n") else 9)

    compiled, x = minicompile.compile(f), torch.ones(3)
    for thing.n in (3, 4):
        close(compiled(x), x * thing.n)


def test_an_empty_cell_cannot_be_emptied():
    count = 1

    def f(x):
        nonlocal count
        del count
        count = x
        return count + 1

    compiled, x = minicompile.compile(f), torch.ones(3)
    close(compiled(x), x + 1)
    assert count is x
    del count
    with pytest.raises(NameError):
        compiled(x)


# Lists that are only appended to

HISTORY, WINDOW = [], deque(maxlen=3)
TABLE = {"seen": []}


class Logger:
    def __init__(self):
        self.losses, self.last = [], deque(maxlen=2)


def to_a_global(x, log):
    HISTORY.append(x.sum())


def to_an_attribute(x, log):
    log.losses.append((x * 2).detach())
    log.losses.append(len(x))


def to_a_window(x, log):
    for n in range(4):
        log.last.append(x + n)
    WINDOW.append(x)


def to_an_item(x, log):
    TABLE["seen"].append({"x": x, "again": [x]})


def of_several(x, log):
    log.losses.extend([x, 1])
    WINDOW.extend(x[:2] * n for n in (1, 2))


def by_a_method_kept(x, log):
    write = log.losses.append
    write(x + 1)
    log.losses.append(write(x + 2))


def by_a_callback(x, log):
    deque(map(log.losses.append, [x, x + 1]), 0)


def by_a_default(x, log):
    TABLE.setdefault("seen", []).append(x)
    TABLE.get("seen").extend([x, 2])


def note(losses, *, loss):
    losses.append(loss)


def by_a_function(x, log):
    note(log.losses, loss=x)


GROWERS = (to_a_global, to_an_attribute, to_a_window, to_an_item, of_several,
           by_a_method_kept, by_a_callback, by_a_default, by_a_function)


def left_by(grower, run):
    """What twelve calls leave, all that they were given apart."""
    lists = HISTORY, WINDOW, TABLE["seen"]
    for each in lists:
        each.clear()
    log = Logger()
    for n in range(12):
        run(torch.full((3,), float(n)), log)
    return [[*map(repr, each)] for each in (*lists, log.losses, log.last)]


@pytest.mark.parametrize("grower", GROWERS)
def test_a_list_that_only_grows_is_one_graph(grower):
    def step(x, log):
        grower(x, log)
        return x + 1

    compiled = minicompile.compile(step, backend="eager")
    assert left_by(grower, compiled) == left_by(grower, step)
    stats = compiled.stats()
    assert (stats.graphs, stats.recompiles) == (1, 0), stats.reasons


def test_a_list_grows_over_a_break():
    def step(x):
        HISTORY.append(x.sum().item())
        return x + 1

    HISTORY.clear()
    compiled = minicompile.compile(step, backend="eager")
    for n in range(12):
        compiled(torch.full((3,), float(n)))
    assert HISTORY == [3.0 * n for n in range(12)]
    assert compiled.stats().recompiles <= 2  # the number varies


def passes_on(x, items, window):
    window.append(x)
    return x + 1


def appends(x, items, window):
    items.append(x.sum())
    window.append(x)
    items.append(len(x))
    return x + 1


def reads_at_times(x, items, window):
    if len(x) > 2:
        return torch.stack(items).sum() + x
    items.append(x.sum())
    return x + 1


def makes_a_cell(x, items, window):
    items.append(x)
    return x + sum(len(items) for _ in range(2))


def gives_it_another_name(x, items, window):
    again = items
    items.append(x)
    again.extend([1, x])
    items = window
    items.append(x + 1)
    return x + 1, again


@pytest.mark.parametrize("function, graphs", [
    (passes_on, 2), (appends, 2), (reads_at_times, 3), (makes_a_cell, 9),
    (gives_it_another_name, 9)])
def test_an_argument_that_only_grows(function, graphs):
    """A number of an item, or of a list that is read, is a fact."""
    compiled, left = minicompile.compile(function, backend="eager"), []
    for run in function, compiled:
        items, window = [], deque(maxlen=3)
        results = [repr(run(torch.full((2,), float(n)), items, window))
                   for n in range(4)]
        results += [repr(run(torch.ones(3), [torch.ones(2)], window))]
        left.append((results, [*map(repr, (items, window))]))
    assert left[0] == left[1]
    assert compiled.stats().graphs <= graphs


def read_after(x, log):
    log.losses.append(x)
    return torch.stack(log.losses).sum(0) + len(log.losses)


def read_before(x, log):
    old = [*log.losses]
    log.losses.append(x)
    return x + len(old)


def read_between(x, log):
    log.losses.append(len(log.losses))
    return x + len(log.losses)


def read_by_a_method_kept(x, log):
    write = log.losses.append
    write(x)
    log.losses.insert(0, 7)
    write(len(log.losses))
    return x + len(log.losses) + log.losses[0]


def read_by_another_name(x, log):
    log.again = log.losses
    log.losses.append(x)
    log.again.append(x + 1)
    return x + len(vars(log)["losses"])


def read_with_another(x, log):
    log.losses.append(len(log.losses))
    both = operator.attrgetter("losses", "last")(log)
    return x + 1, str(both)


def gone_meanwhile(x, log):
    write = log.losses.append
    log.losses = [1]
    write(x)
    log.losses.append(2)
    return x + len(log.losses)


def in_a_copy_of_all(x, log):
    log.losses.append(x)
    return x + sum(len(each) for each in vars(log).values())


@pytest.mark.parametrize("reader", (
    read_after, read_before, read_between, read_by_a_method_kept,
    read_by_another_name, read_with_another, gone_meanwhile,
    in_a_copy_of_all))
def test_a_list_that_grows_is_read_too(reader):
    left = []
    for run in reader, minicompile.compile(reader, backend="eager"):
        log = Logger()
        results = [repr(run(torch.full((3,), float(n)), log))
                   for n in range(5)]
        left.append((results, repr(vars(log))))
    assert left[0] == left[1]
    assert run.stats().graphs and not run.stats().fallbacks


def test_lists_that_grow_are_kept_apart():
    """That two names are one list, or are not, is a fact."""
    def step(x, one, other):
        one.losses.append(x)
        other.losses.append(x + 1)
        return len(one.last) + x

    compiled = minicompile.compile(step, backend="eager")
    for same in False, True, False:
        left = []
        for run in step, compiled:
            one, other = Logger(), Logger()
            if same:
                other.losses = one.losses
            run(torch.ones(2), one, other)
            left.append([*map(repr, (one.losses, other.losses))])
        assert left[0] == left[1]
    assert compiled.stats().graphs == 2


def test_a_list_that_grows_may_be_of_another_class():
    def step(x, log):
        log.losses.append(x)
        return x + 1

    compiled, log = minicompile.compile(step, backend="eager"), Logger()
    compiled(torch.ones(2), log)
    log.losses = deque(maxlen=1)
    for _ in range(2):
        compiled(torch.ones(2), log)
    assert len(log.losses) == 1 and compiled.stats().graphs == 2


def test_a_list_that_grows_under_one_name_is_read_under_another():
    """That both are one list is a fact, too."""
    def step(x, grown, log):
        grown.append(x + 1)
        return len(log.losses)

    compiled = minicompile.compile(step, backend="eager")
    for same in True, False, True:
        log, grown = Logger(), []
        if same:
            grown = log.losses
        assert compiled(torch.ones(2), grown, log) == same
        assert len(grown) == 1 and len(log.losses) == same


def test_a_class_is_not_changed_while_it_is_traced():
    class Counted:
        number = 0

    def count(x):
        type.__setattr__(Counted, "number", Counted.number + 1)
        return x + Counted.number

    compiled = minicompile.compile(count, backend="eager")
    for calls in 1, 2, 3:
        assert compiled(torch.zeros(1)) == Counted.number == calls


class Run:
    """What a training loop keeps from call to call."""

    def __init__(self):
        Run.all = []
        self.step, self.losses, self.late = 0, [], None
        self.values, self.parts = {}, defaultdict(list)


def adds(x, run):
    run.losses += [x, len(x)]


def adds_by_a_cell(x, run):
    log = run.losses

    def write(value):
        nonlocal log
        log += value, 1
    write(x)


def adds_to_an_item(x, run):
    run.parts["x"] += [x]


def appends_to_a_class(x, run):
    run.all.append(x)
    Run.all.append(1)


def appends_to_what_may_be_absent(x, run):
    if run.late is None:
        run.late = []
    run.late.append(x)


def asks_how_long(x, run):
    run.losses.append(x)
    if run.losses and len(run.losses) < 20:
        return x * len(run.losses)


def reads_the_last(x, run):
    run.losses.append(run.losses[-1] + x if run.losses else x)
    return run.losses[-1]


def logs_by_number(x, run):
    run.values[run.step] = x
    run.step += 1


def logs_by_number_in_lists(x, run):
    run.step += 1
    run.parts[run.step].append(x)


def looks_for_a_number(x, run):
    run.step += 1
    return x * run.values.get(run.step, 3) if (
        run.step not in run.parts) else x


def gives_the_log(x, run):
    run.losses.append(x)
    return run.losses


@pytest.mark.parametrize("function", (
    adds, adds_by_a_cell, adds_to_an_item, appends_to_a_class,
    appends_to_what_may_be_absent, asks_how_long, reads_the_last,
    logs_by_number, logs_by_number_in_lists, looks_for_a_number,
    gives_the_log))
def test_a_loop_whose_state_grows_is_compiled_three_times_at_most(function):
    compiled, left = minicompile.compile(function, backend="eager"), []
    for each in function, compiled:
        run = Run()
        left.append([repr((each(torch.full((2,), float(n)), run), vars(run),
                           Run.all)) for n in range(14)])
    assert left[0] == left[1]
    assert len(compiled.stats().reasons) <= 2
    assert not compiled.stats().fallbacks


def writes_twice(x, n, table):
    table[n] = x
    table[n + 1] = x + 1


def writes_another(x, n, table):
    table[n] = x
    table[3] = x + 1


def writes_another_before(x, n, table):
    table[3.0] = x
    table[n] = x + 1


def sees_it_in_a_view(x, n, table):
    keys = table.keys()
    table[n] = x
    return [*keys]


def sees_it_by_another_name(x, n, table):
    table[n] = x
    return len(table["again"]["again"])


def sees_it_absent(x, n, table):
    return n in table, table.pop(n, None)


@pytest.mark.parametrize("function", (
    writes_twice, writes_another, writes_another_before, sees_it_in_a_view,
    sees_it_by_another_name, sees_it_absent))
def test_a_number_that_varies_may_be_a_key_that_is_there(function):
    compiled, left = minicompile.compile(function, backend="eager"), []
    for run in function, compiled:
        left.append([])
        for n in 5, 4, 3, 2, 1:
            table = {1: 5, "again": {}}
            table["again"]["again"] = table
            result = run(torch.ones(2), n, table)
            left[-1].append(repr((result, {**table, "again": 0})))
    assert left[0] == left[1]


@pytest.mark.parametrize("key", [len, sum, lambda log: log[0]])
def test_a_list_is_read_if_c_code_looks_at_it_before_it_grows(key):
    def function(x, one, other):
        max(map(getattr, [one, other], ["losses"] * 2), key=key).append(5)
        return x + 1

    for run in function, minicompile.compile(function, backend="eager"):
        one, other = Run(), Run()
        one.losses, other.losses = [1], [2, 3]
        run(torch.ones(2), one, other)
        assert (one.losses, other.losses) == ([1], [2, 3, 5])


@pytest.mark.parametrize("kind", (list, lambda given: deque(given, 3)))
@pytest.mark.parametrize("place", (0, 1, -1, -3))
def test_an_element_is_what_it_is_behind_what_was_appended(kind, place):
    def function(x, run):
        run.losses.append(len(x))
        return run.losses[place] * x

    compiled = minicompile.compile(function, backend="eager")
    for n in 2, 3, 4:
        runs = Run(), Run()
        for run in runs:
            run.losses = kind([7, 8, 9])
        left = [repr((each(torch.ones(n), run), run.losses))
                for each, run in zip((function, compiled), runs)]
        assert left[0] == left[1]


def test_a_list_that_was_stored_unread_is_read_from_there():
    class Slots:
        __slots__ = "log",

    def function(x, one, other):
        one.log += [x]
        other.log += [len(x)]
        return [*map(len, map(getattr, [one, other], ["log", "log"]))]

    compiled = minicompile.compile(function, backend="eager")
    for n in 1, 2, 3:
        one, other = Logger(), Slots()
        one.log, other.log = [*range(n)], [0]
        assert compiled(torch.ones(2), one, other) == [n + 1, 2]


def check(shape):
    return len(shape) == 2


def test_a_function_may_be_called_what_generated_text_calls_another():
    """Each name means one thing, or the guards never hold."""
    compiled = minicompile.compile(
        lambda x: x.sin() if check(x.shape) else x.cos())
    for x in (torch.ones(2), torch.ones(2), torch.ones(2, 2)):
        close(compiled(x), x.sin() if x.dim() == 2 else x.cos())
    assert compiled.stats().graphs == 2, compiled.stats()
    assert not compiled.stats().fallbacks
