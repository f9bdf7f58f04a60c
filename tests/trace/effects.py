"""Random programs that change the world, break and raise in the middle.

A program is a module's text: globals, a class, and `make()`, which gives
a function with a cell of its own. Its world (globals, cell, lists, dicts,
objects, tensors) is written down before and after each call, objects by
the order in which they are met: so values count, and who is who.
"""

from __future__ import annotations

import collections
import contextlib
import io
import random
import types

import torch

import minicompile

HEAD = '''
import collections, contextlib, torch, minicompile

COUNT, FLAG = 1, True
LIST, TABLE, TENSOR = [1, 2], {"a": 1, "b": [3]}, torch.ones(2)

class Box:
    kind = 7
    def __init__(self):
        self.n, self.items, self.table = 1, [1, 2, 3], {"k": 1}
        self.t = torch.arange(2.0)
    @property
    def twice(self):
        return self.n * 2
    @twice.setter
    def twice(self, value):
        self.n = value
    def bump(self, by):
        self.n += by
        self.items.append(self.n)
        return self.n
    def __getitem__(self, key):
        self.n += 1
        return self.table[key]

class Guarded:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, *error):
        self.log.append(error[0] is not None)
        return error[0] is KeyError

class Noisy(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setitem__("count", len(self))

class Watched:
    __slots__ = ("a", "log")
    def __init__(self):
        object.__setattr__(self, "log", [])
        self.a = 1
    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)

def helper(box, items, n):
    global COUNT
    COUNT += n
    items.append(COUNT)
    box.n = COUNT + box.n
    return box.n

def steps(items, n):
    for i in range(n):
        items.append(i)
        yield i + len(items)

def world():
    box = Box()
    return dict(x=torch.tensor([1.0, -2.0]), box=box, other=Box(),
                items=[5, 6, 7], table={"k": 1, "u": [1]}, same=box.items,
                bag={1, 2}, queue=collections.deque([1, 2]),
                order=collections.OrderedDict(a=1, k=2), noisy=Noisy(k=1),
                slim=Watched())

def make():
    cell, shared = 3, [1]
    def f(x, box, other, items, table, same, bag, queue, order,
          noisy, slim):
        global COUNT, FLAG, LIST, TABLE, TENSOR
        nonlocal cell, shared
        n, t, out, gen = 0, x + 1, [], iter([])
        def inner(by):
            nonlocal n, cell
            n += by
            cell += 1
            shared.append(by)
            return n
'''

#: Single lines; {i} a small number, {t} a tensor, {l} a list, {d} a
#: dict, {b} an object, {n} a number, {v} any value.
LINES = """
n = n + {i}
n = {n}
t = t * {i} + 1
t = {t} + x
t = torch.relu({t})
y = {v}; out.append(y)
out = [out, {v}]
COUNT += {i}
COUNT = {n}
FLAG = not FLAG
LIST = {l}
LIST = [{v}, n]
TABLE = dict(TABLE, z={n})
TENSOR = {t}
TENSOR.add_(1)
del TABLE["a"]
cell = cell * 2 + {i}
cell = {n}
shared = [cell]
{l}.append({v})
{l}.append({l}[0])
{l}[0] = {v}
{l}[-1] = {n}
{l}.pop()
{l}.pop(0)
{l}.insert(1, {n})
{l}.extend([{n}, {v}])
{l}.reverse()
{l}.clear()
{l} += [{n}]
{l}[1:2] = [{n}, {n}]
del {l}[0]
{l}.remove({l}[0])
{l}.sort(key=str)
{d}["k"] = {v}
{d}["new"] = {n}
{d}["k"] += 1
{d}.update(k={n}, m={v})
{d}.setdefault("s", []).append({n})
{d}.pop("k", None)
{d}.pop("u")
del {d}["k"]
{d}.clear()
{d}.popitem()
out.append(list({d}.items()))
out.append(list({d}))
out.append({d}.get("s"))
{b}.n += {i}
{b}.n = {n}
{b}.t = {t}
{b}.t = {b}.t + 1
{b}.t.mul_(2)
{b}.t[0] = {i}
{b}.extra = {v}
{b}.items = {l}
{b}.items, {b}.n = [{b}.n], len({b}.items)
{b}.twice = {n}
{b}.twice += 1
{b}.kind = {n}
{b}.friend = {b}
del {b}.n
del {b}.extra
out.append({b}["k"])
out.append({b}.bump({i}))
out.append(helper({b}, {l}, {i}))
out.append(inner({i}))
out.append(hasattr({b}, "extra"))
out.append(getattr({b}, "extra", {n}))
setattr({b}, "extra", {v})
out.append({b}.__dict__.get("n"))
out += list(steps({l}, 2))
out.append(sum(steps({l}, 2)))
out.append(sorted({l}, key=lambda e: inner(1)))
out.append([inner(e) for e in (1, 2)])
bag.add({n})
bag.discard(1)
bag.remove(2)
queue.append({n})
queue.popleft()
queue.rotate(1)
x.add_(1)
x[0] = {i}
t[0] = {i}
x.t().sub_(1)
out.append({t})
out.append({l} is {l})
out.append({b}.items is {l})
new = Box(); new.t = {t}; out.append(new); {b}.made = new
made = {{"x": {t}, "l": {l}}}; out += [made, made]
out.append(lambda: (n, {l}))
again = inner; out.append(again({i}))
gen = steps({l}, 3); out.append(next(gen))
out.append(next(gen, None))
out.append(list(gen))
{l}, n = [n], 2
n, cell = cell, n
{b}.n, {b}.t = 3, {t}
for k in list({d}): {d}[k] = {n}
{d} |= {{"w": {n}}}
out.append({{**{d}, "q": {n}}})
out.append([*{l}, *{l}])
Box.kind += 1
out.append({b}.kind)
del TABLE
{b}.__dict__["raw"] = {n}
{b}.__dict__.update(raw=1)
{b}.__dict__.pop("n")
out.append(sorted({b}.__dict__))
view = {d}.keys(); {d}["fresh"] = {n}; out.append(list(view))
{d}["k"] = {d}.pop("k")
order.move_to_end("a")
out.append(list(order))
out.append(order.copy())
slim.a = {v}
slim.a += {i}
out.append(slim.log)
del slim.a
x = x * 2
x, t = t, x
assert n < 9, "large"
""".strip().splitlines()

BREAKS = """
print("here", n, COUNT, len(LIST))
print({l} is items, {b}.__dict__.keys())
minicompile.graph_break()
n += int({t}.sum().item() > 0)
print(float({t}.sum()))
out.append({t}.tolist())
print(inner({i}), cell)
print(sorted(map(str, table)))
""".strip().splitlines()

RAISES = """
raise ValueError(n)
1 // 0
items[99]
table["missing"]
box.nothing
x @ torch.ones(3)
if COUNT % 2: raise KeyError("odd")
if FLAG: raise RuntimeError("flag")
if {t}.sum() > 3: raise IndexError(COUNT)
""".strip().splitlines()

BLOCKS = (
    "if FLAG:", "if COUNT % 2:", "if {t}.sum() > 0:", "for i in range(2):",
    "for v in list(items):", "for _, v in zip(range(3), {l}):",
    "for k in {d}:", "for k, v in {d}.items():", "for b in [box, other]:",
    "for v in steps(same, 2):", "with torch.no_grad():",
    "with Guarded({l}):", "with contextlib.suppress(KeyError, IndexError):",
    "while len(out) < 2:\n{pad}    out.append(n)", "try:")

NAMES = {
    "i": ["1", "2", "3"],
    "n": ["n", "COUNT", "cell", "box.n", "len(items)", "box.twice", "4",
          "other.n", "len(TABLE)", "slim.a"],
    "t": ["x", "t", "box.t", "TENSOR", "other.t", "x[:1]"],
    "l": ["items", "same", "box.items", "LIST", "shared", "other.items"],
    "d": ["table", "box.table", "TABLE", "other.table", "order", "noisy"],
    "b": ["box", "other"],
}
NAMES["v"] = [*NAMES["n"], *NAMES["t"], *NAMES["l"], *NAMES["b"], "None"]


class Writer:
    """The text of one random program."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        body = self.block(2, self.random.randint(4, 12))
        end = "        return out, t, n, box, items\n    return f\n"
        self.source = f"{HEAD}{body}{end}"

    def line(self, template: str) -> str:
        """A template with random names in its places."""
        for name, choices in NAMES.items():
            while "{" + name + "}" in template:
                template = template.replace(
                    "{" + name + "}", self.random.choice(choices), 1)
        return template.replace("{{", "{").replace("}}", "}")

    def block(self, depth: int, count: int) -> str:
        """Some statements, indented; a few with blocks of their own."""
        pad, text = "    " * depth, ""
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.15 and depth < 5:
                heading = self.random.choice(BLOCKS)
                text += pad + self.line(heading.replace("{pad}", pad)) + "\n"
                text += self.block(depth + 1, self.random.randint(1, 3))
                if heading == "try:":
                    text += self.handlers(pad, depth)
                continue
            lines = (BREAKS if kind < 0.25 else RAISES if kind < 0.29
                     else LINES)
            text += pad + self.line(self.random.choice(lines)) + "\n"
        return text

    def handlers(self, pad: str, depth: int) -> str:
        """What follows a `try`."""
        text = ""
        if self.random.random() < 0.7:
            text += f"{pad}except (KeyError, ValueError) as error:\n"
            text += f"{pad}    out.append(str(error))\n"
            text += self.block(depth + 1, 1)
        if not text or self.random.random() < 0.5:
            text += f"{pad}finally:\n" + self.block(depth + 1, 1)
        return text


def snapshot(*roots) -> list:
    """What is there and who is who, as lines; objects numbered as met."""
    seen: dict[int, int] = {}
    kept: list = []  # ids stay valid while objects live
    lines: list[str] = []

    def note(value) -> str:
        if value is None or isinstance(value, (int, float, str, type,
                                               types.ModuleType)):
            return repr(value)
        if type(value) is tuple:  # CPython joins equal ones
            return str(tuple(map(note, value)))
        if id(value) in seen:
            return f"#{seen[id(value)]}"
        name = seen[id(value)] = len(seen)
        kept.append(value)
        lines.append(f"#{name} = {describe(value)}")
        return f"#{name}"

    def describe(value) -> str:
        match value:
            case torch.Tensor():
                return (f"{value.tolist()} {value.dtype} {value.shape} "
                        f"{value.requires_grad}")
            case set() | frozenset():
                return str(sorted(map(str, value)))
            case list() | collections.deque():
                return f"{type(value).__name__} {list(map(note, value))}"
            case BaseException():
                return f"{type(value).__name__} {value} {note(value.args)}"
            case types.FunctionType():
                cells = value.__closure__ or ()
                return f"function {[note(contents(c)) for c in cells]}"
        if isinstance(value, dict):
            return f"{type(value).__name__} " + str(
                [(note(k), note(v)) for k, v in value.items()])
        names = getattr(value, "__dict__", None) or {
            k: getattr(value, k, "empty") for k in type(value).__slots__}
        return f"{type(value).__name__} {note(names)}"

    return [*map(note, roots), *lines]


def contents(cell: types.CellType):
    """What a cell holds, or a word for nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def outcome(source: str, compiled: bool, calls: int = 2, **options):
    """(what each call left, stats): the program run in a world of its own."""
    names: dict = {"__name__": "program"}
    exec(compile(source, "<program>", "exec"), names)
    function = made = names["make"]()
    if compiled:
        function = minicompile.compile(made, backend="eager", **options)
    states = []
    arguments = names["world"]()
    for _ in range(calls):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            try:
                result = function(**arguments)
            except Exception as error:
                result = error
        world = {k: v for k, v in names.items() if k.isupper()}
        cells = [contents(cell) for cell in made.__closure__]
        states.append(snapshot(result, arguments, world, cells,
                               text.getvalue(), torch.is_grad_enabled()))
        torch.set_grad_enabled(True)
    return states, function.stats() if compiled else None
