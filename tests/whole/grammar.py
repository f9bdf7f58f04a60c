"""Random programs in most of Python, grown from a grammar.

A rule is a list of templates; `{int}` in one is grown from the rule of
that name. The first templates of a rule are its leaves: what is too deep
takes one of them. A `{block}` is up to three statements. Programs work on
variables that all exist from the start, on an object `s` with a bit of
everything in it, and on a list of the module's; many of them raise. All
end: loops are short, or burn fuel, and a list grows by three at most.
"""

from __future__ import annotations

import random
import re
import textwrap

DEEP = 3  # levels of an expression, and of blocks in blocks

#: The module that a program stands in.
MODULE = '''
import math
from collections import OrderedDict, defaultdict, deque, namedtuple
import torch
import minicompile

Pair = namedtuple("Pair", "a b")
G, KEPT = 3, [1, 2]

class Base:
    kind = 1
    def __init__(self):
        self.n, self.f, self.o = 1, 0.5, None
        self.l, self.d = [1, 2, 3], {"a": 1, "b": 2}
    def bump(self, k=1):
        self.n += k
        return self.n
    twice = property(lambda self: self.n * 2)
    make = classmethod(lambda cls: cls())
    add = staticmethod(lambda a, b=1: a + b)
    def __eq__(self, other):
        return isinstance(other, Base) and self.n == other.n
    __hash__ = None

class State(Base):
    kind = 2
    def __init__(self):
        super().__init__()
        self.t, self.s, self.q = torch.ones(3), {1, 2}, deque([1, 2])
        self.dd, self.od = defaultdict(list), OrderedDict(a=1)
    def bump(self, k=1):
        bumped = super().bump(k)
        self.f += 0.25
        return bumped + self.kind
    def __len__(self): return len(self.l)
    def __getitem__(self, i): return self.l[i]
    def __contains__(self, v): return v in self.d
    def __iter__(self): return iter(self.l)
    def __call__(self, x): return x * self.n

class Counts:
    def __init__(self, s, eats): self.s, self.eats = s, eats
    def __enter__(self):
        self.s.n += 1
        return self.s
    def __exit__(self, kind, error, trace):
        self.s.l.append(len(self.s.l))
        return self.eats and kind is not None

def outer(k):
    def inner(v=k):
        nonlocal k
        k += v
        return k
    return inner

def some(s, count):
    for i in range(count):
        s.n += 1
        yield i
'''

LEAVES = {
    "int": ["{digit}", "i", "j", "k", "n", "s.n", "G", "s.kind"],
    "float": ["0.5", "1.5", "-2.0", "s.f"],
    "list": ["l", "s.l", "KEPT"],
    "dict": ["d", "s.d", "s.od"],
    "key": ["'a'", "'b'", "'c'", "'z'", "n", "1", "G"],
    "bool": ["s.o is None", "i < n", "torch.is_grad_enabled()"],
    "tensor": ["x", "t", "s.t"],
    "digit": [*map(str, range(-3, 6))],
    "variable": ["i", "j", "k"],
    "error": ["KeyError", "IndexError", "ValueError", "Exception",
              "(KeyError, IndexError)", "Exception as e"],
}

GROWN = {
    "int": """
        ({int} + {int})|({int} - {int})|({int} * {int})|({int} // {int})
        ({int} % {int})|({int} & {int})|({int} ^ {int})|len({list})
        {list}[{int}]|{dict}[{key}]|{dict}.get({key}, {int})|x.shape[0]
        x.size(-1)|s.bump()|s.bump({int})|s.twice|min({int}, {int})
        max({int}, {int})|sum({list})|abs({int})|State.add({int})|len(s)
        ({int} if {bool} else {int})|s[{int}]|getattr(s, 'zz', {int})
        getattr(s, 'new')|outer({int})()|sum(some(s, 2))|s.q[0]
        divmod({int}, 3)[1]|(lambda a, *b, c=2: a + len(b) + c)({int}, {int})
        int({float})|{list}.index({int})|{list}.count({int})|len(s.s)
        next(iter({list}), 5)|{dict}.setdefault({key}, {int})|{list}.pop()
        len('%4s' % {int})|Pair({int}, 2).a|round({float})|len(s.dd[{key}])
        [*map(lambda v: v + 1, {list})][0]|sorted({list}, reverse=True)[0]
        (n := {int})|len(f'{i}-{s.n!r}')|s.o.n""",
    "float": """
        ({float} + {float})|({float} * {float})|float({int})|({int} / 2)
        math.floor({float})|max({float}, 0.25)""",
    "list": """
        list({dict}.values())|[*range(3)]|[v for v in {list} if v != {int}]
        list(s)|s.l[1:]|s.l[::-1]|sorted({list})|({list} + {list}[:3])|([n] * 3)
        s.l.copy()|[{int}, {int}]""",
    "dict": """
        dict(s.d)|dict(a=1, c=n)|dict(zip({list}, {list}))
        {{k: v for k, v in {dict}.items() if k != {key}}}""",
    "key": "{int}",
    "bool": """
        {int} < {int}|{int} == {int}|{int} != {int}|{key} in {dict}
        {int} in {list}|hasattr(s, 'new')|isinstance(s.o, (float, Base))
        not {list}|x.shape[0] > {int}|{key} in s|{list} == {list}
        any(v > 1 for v in {list})|all({list})|{list} is {list}|s == s.o
        {float} > {float}|callable(s.o)|(x.requires_grad or {int})
        type(s.o) is State|x.sum() > 0""",
    "tensor": """
        ({tensor} + {int})|({tensor} * {float})|({tensor} - {tensor})
        torch.sin({tensor})|torch.relu({tensor})|{tensor}.sum()|s({tensor})
        {tensor}[..., :1]|torch.stack([{tensor}, {tensor}]).sum(0)
        torch.full((2,), {int}) * 1.0|{tensor}.clone()|{tensor}.reshape(-1)
        torch.tensor({list}) * 1.0|x.new_zeros(len(s.l))
        torch.where({tensor} > 0, {tensor}, {float})
        torch.arange(x.shape[0]) * 1.0""",
}

SIMPLE = """
    {variable} = {int}|{variable} += {int}|t = {tensor}|x = {tensor}
    l = {list}|d = {dict}|s.n = {int}|s.new = {int}|s.n += {int}
    s.f *= {float}|{list}.append({int})|{list}[{int}] = {int}
    s.l[1:] = {list}[:3]|{dict}[{key}] = {int}|{dict}[{key}] += {int}
    {dict}.pop({key})|{dict}.pop({key}, None)|del {dict}[{key}]
    {dict}.update({dict})|{list}.sort()|{list}.reverse()|{list}.clear()
    {list}.extend({list}[:3])|{list}.insert(0, G)|{list}.remove(2)
    s.t = {tensor}
    s.o = None|s.o = s|s.o = {list}|s.o = State()|s.o = Base.make()
    s.o = Pair(n, s.l)|s.o = x|s.o = lambda: n|s.o = deque(s.l)
    s.o = set(s.d)|s.t.add_(1)|s.t.mul_(0.5)|s.t[..., 0] = s.f
    minicompile.graph_break()|print('p', {int})|s.s.add({int})
    s.s.remove({int})|s.q.append(n)|s.q.popleft()|s.q.rotate(1)
    s.dd[{key}].append({int})|del s.new|setattr(s, 'kind', {int})
    State.kind = {int}|s.n, *l = {list}|assert {bool}, 'no'
    raise ValueError(n)|s.d, s.od = s.od, s.d|G = {int}
    s.od.move_to_end({key})|s.text = f'{n}-{s.n!r}' + str({list})
    s.l = s.l + [n]|s.l = [*s.l, *KEPT[:3]]|s.__dict__['n'] = {int}
    s.d = {{**s.d, {key}: {int}}}|s.same = s.l is {list}"""

BLOCKS = """
if {bool}:
    {block}

if {bool}:
    {block}
else:
    {block}

for {variable} in range(3):
    {block}

for {variable} in list({list})[:4]:
    if {bool}: break
    {block}
else:
    {block}

for j, {variable} in enumerate(list({dict}.values())):
    if {bool}: continue
    {block}

for {variable} in some(s, 2):
    {block}

while fuel > 0 and ({bool}):
    fuel -= 1
    {block}

try:
    {block}
except {error}:
    {block}

try:
    {block}
except {error}:
    {block}
finally:
    {block}

try:
    {block}
finally:
    {block}

with Counts(s, True):
    {block}

with Counts(s, False) as o:
    {block}

with torch.no_grad():
    {block}

def g(n, x=x, *rest, m=s.n, **more):
    i, j, k, l, d, t, fuel = 5, 4, 3, [n], {}, x, 3
    {block}
    return n + m + len(rest)
i = g({int}, x, 1, m=2, q=3)

return {tensor}, {list}
"""

RULES = {name: LEAVES[name] + re.split(r"[|\n]\s*", GROWN.get(
    name, "").strip()) for name in LEAVES}
STATEMENTS = re.split(r"[|\n]\s*", SIMPLE.strip())
COMPOUND = BLOCKS.strip().split("\n\n")


class Growing:
    """One program as it grows, with the choices of a seed."""

    def __init__(self, seed: int):
        self.pick = random.Random(seed)

    def expression(self, rule: str, depth: int) -> str:
        """One from a rule; too deep, a leaf."""
        leaf = depth >= DEEP or self.pick.random() < 0.35
        return self.filled(self.pick.choice(
            LEAVES[rule] if leaf else [*filter(None, RULES[rule])]), depth)

    def filled(self, template: str, depth: int) -> str:
        """A template, with its rules grown."""
        text = re.sub(r"\{(\w+)\}", lambda found: self.expression(
            found[1], depth + 1) if found[1] in LEAVES else found[0],
            template)
        return text.replace("{{", "{").replace("}}", "}")

    def statement(self, depth: int) -> str:
        """A statement of one or more lines."""
        if depth >= DEEP or self.pick.random() < 0.7:
            return self.filled(self.pick.choice(STATEMENTS), 0)
        lines = []
        for line in self.pick.choice(COMPOUND).splitlines():
            if line.strip() == "{block}":
                indent = line[:len(line) - len(line.lstrip())]
                lines.append(textwrap.indent(self.block(depth + 1), indent))
            else:
                lines.append(self.filled(line, 0))
        return "\n".join(lines)

    def block(self, depth: int) -> str:
        """One to three statements."""
        return "\n".join(self.statement(depth) for _ in range(
            self.pick.randint(1, 3)))


def program(seed: int) -> str:
    """The source of a module with a function `f(x, n, s)`."""
    growing = Growing(seed)
    lines = ["def f(x, n, s):"] + ["    global G"] * growing.pick.choice([0, 1])
    body = ["i, j, k, l, d, t, fuel = 0, 1, 2, [3], {'c': 4}, x, 9"]
    body += [growing.statement(0) for _ in range(growing.pick.randint(4, 9))]
    body += [growing.filled("return {tensor}, {int}, {list}, s.o", 0)]
    lines += [textwrap.indent(each, "    ") for each in body]
    return MODULE + "\n".join(lines)
