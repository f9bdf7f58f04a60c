"""A small program with much to rely on, and ways to change it."""

import collections
import copy
import functools
import random
import sys
import types

import torch
import torch.nn.functional as F
from torch import nn

SCALE = 2
TABLE = {"bias": True, "shift": 1.5, "unused": 0}


def helper(h, by=1):
    return h * by + 1


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.drop = nn.Dropout(0.0)
        self.register_buffer("shift", torch.ones(width))
        self.power, self.calls, self.sizes = 2, 0, [1, 2]

    def forward(self, x):
        h = self.linear(self.norm(x)) * self.power + self.shift
        if self.training:
            h = self.drop(h) + 1
        return torch.relu(h) * self.sizes[1]


class Net(nn.Module):
    def __init__(self, width=4, depth=5):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 2, bias=False)
        self.act = F.gelu
        self.config = types.SimpleNamespace(cap=3.0, name="net")

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.act(self.head(x)).clamp(max=self.config.cap)


class Left:
    by = 2


class Right:
    by = 3


class Kind(Left):
    pass


#: What is read in order, and what tells how a switch stands.
STORE = types.SimpleNamespace(
    names={"b": 1, "a": 2}, chosen=set([8, 0, 16]), fixed=frozenset({1, 9}),
    recent=collections.deque([1, 2], maxlen=3), many=[*range(40, 140)],
    pair=(1, 2.0), kind=Kind())


def contained(h):
    """What depends on order, on types of elements, and on switches."""
    import world_helper
    for each in (*STORE.names, *STORE.chosen, *STORE.fixed, *STORE.recent,
                 *STORE.pair, max(STORE.many), STORE.recent.maxlen):
        h = h * 1.125 + len(str(each))
    dtypes = torch.get_autocast_dtype("cpu"), torch.get_default_dtype()
    switches = (torch.is_warn_always_enabled(), dtypes[0] is torch.float16,
                torch.is_autocast_cache_enabled(),
                torch.backends.cudnn.benchmark)
    return h * STORE.kind.by + world_helper.by + [*switches].index(
        True) + len(str(switches))


def make_program(offset):
    """A function with a closure, globals, defaults and two arguments."""
    def program(net, x, flag=True):
        h = net(x) + offset
        if flag:
            h = helper(h) * SCALE
        if TABLE["bias"]:
            h = h + TABLE["shift"]
        return contained(h)
    return program


def make_other(offset):
    """Another function of the same closure and signature."""
    def program(net, x, flag=True):
        return net(x) - offset
    return program


class World:
    """The program, its arguments, and what undoes each change."""

    def __init__(self):
        torch.manual_seed(0)
        self.net, self.x, self.flag = Net(), torch.randn(3, 4), True
        self.program = make_program(0.5)

    def call(self):
        """L and F of the call."""
        return (self.net, self.x, self.flag), self.program


def put(owner, name, value):
    """Set an attribute; returns what undoes it."""
    missing = object()
    space = owner if isinstance(owner, dict) else owner.__dict__
    old = space.get(name, missing)
    space[name] = value

    def undo():
        if old is missing:
            del space[name]
        else:
            space[name] = old
    return undo


def put_data(tensor, data):
    old, tensor.data = tensor.data, data
    return lambda: setattr(tensor, "data", old)


def put_part(module, name, part):
    old = getattr(module, name)
    setattr(module, name, part)
    return lambda: setattr(module, name, old)


def put_new(kind, name, value):
    setattr(kind, name, value)
    return lambda: delattr(kind, name)


def transpose(tensor):
    """Other strides over the same memory."""
    return put_data(tensor, tensor.data.t())


def put_class(thing, kind):
    old, thing.__class__ = type(thing), kind
    return lambda: setattr(thing, "__class__", old)


def put_dict(thing):
    old, thing.__dict__ = thing.__dict__, dict(thing.__dict__)
    return lambda: setattr(thing, "__dict__", old)


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Swapped(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


def flip_grad(parameter):
    parameter.requires_grad_(not parameter.requires_grad)
    return lambda: parameter.requires_grad_(not parameter.requires_grad)


def with_handle(handle):
    return handle.remove


def put_global(switch, value, old):
    switch(value)
    return lambda: switch(old)


def retrain(module, mode):
    modes = [(part, part.training) for part in module.modules()]
    module.train(mode)
    return lambda: [setattr(part, "training", mode) for part, mode in modes]


def half(module, dtype=torch.float16):
    tensors = [(t, t.data) for t in (*module.parameters(),
                                     *module.buffers())]
    buffers = [(part, dict(part._buffers)) for part in module.modules()]
    module.to(dtype)

    def undo():
        for part, saved in buffers:
            part._buffers.update(saved)
        for tensor, data in tensors:
            tensor.data = data
    return undo


def swap_blocks(net, a, b):
    blocks = net.blocks._modules
    blocks[a], blocks[b] = blocks[b], blocks[a]
    return lambda: swap_blocks(net, a, b)


def put_code(function, like):
    old, function.__code__ = function.__code__, like.__code__
    return lambda: setattr(function, "__code__", old)


def put_item(items, at, value):
    old, items[at] = items[at], value
    return lambda: items.__setitem__(at, old)


def put_cell(function, value):
    [cell] = function.__closure__
    old, cell.cell_contents = cell.cell_contents, value
    return lambda: setattr(cell, "cell_contents", old)


def put_default(function, value):
    old, function.__defaults__ = function.__defaults__, value
    return lambda: setattr(function, "__defaults__", old)


def other_helper(h, by=1):
    return h * by + 2


def tripled(x):
    return x * 3


def block(w):
    return random.choice(w.net.blocks)


def under(context):
    """Enter a context; what undoes it leaves it."""
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def put_module(name, by):
    module = types.ModuleType(name)
    module.by = by
    return put(sys.modules, name, module)


def put_bases(kind, *bases):
    old, kind.__bases__ = kind.__bases__, bases
    return lambda: setattr(kind, "__bases__", old)


def store(name, *values):
    return lambda w: put(STORE, name, random.choice(values))


put_module("world_helper", 1)
GLOBALS = globals()

#: Changes after which eager may compute something else.
ALTERING = {
    "scale": lambda w: put(GLOBALS, "SCALE", random.choice([3, 2.0, 0])),
    "table": lambda w: put(TABLE, "bias", random.choice([False, 0])),
    "table item": lambda w: put(TABLE, "shift", random.choice([2, -1.5])),
    "table itself": lambda w: put(GLOBALS, "TABLE", {"bias": False}),
    "helper": lambda w: put(GLOBALS, "helper", other_helper),
    "helper's code": lambda w: put_code(helper, other_helper),
    "the function's code": lambda w: put_code(w.program, make_other(0)),
    "helper's default": lambda w: put_default(helper, (7,)),
    "closure": lambda w: put_cell(w.program, random.choice([1, -0.5])),
    "flag": lambda w: put(w, "flag", False),
    "x shape": lambda w: put(w, "x", torch.randn(random.randint(4, 9), 4)),
    "x dtype": lambda w: put(w, "x", w.x.double()),
    "x grad": lambda w: put(w, "x", w.x.clone().requires_grad_()),
    "power": lambda w: put(block(w), "power", random.choice([3, 2.0])),
    "sizes": lambda w: put_item(block(w).sizes, 1, random.choice([3, 2.5])),
    "cap": lambda w: put(w.net.config, "cap", random.choice([1.0, 3])),
    "config": lambda w: put(w.net, "config", types.SimpleNamespace(cap=1.)),
    "act": lambda w: put(w.net, "act", random.choice([F.relu, torch.sin])),
    "eval": lambda w: retrain(w.net, False),
    "eval one": lambda w: retrain(block(w), False),
    "weight dtype": lambda w: put_data(
        block(w).linear.weight, torch.randn(4, 4).double()),
    "weight shape": lambda w: put_data(
        w.net.head.weight, torch.randn(random.choice([1, 3, 5]), 4)),
    "weight strides": lambda w: put_data(
        block(w).linear.weight, torch.randn(4, 4).t()),
    "weight transposed where it is": lambda w: transpose(
        block(w).linear.weight),
    "weight as integers": lambda w: put(
        block(w).linear._parameters, "weight", nn.Parameter(
            block(w).linear.weight.data.view(torch.int32), False)),
    "a tensor for a weight": lambda w: put(
        block(w).linear._parameters, "weight",
        torch.randn(4, 4, requires_grad=True)),
    "another class": lambda w: put_class(block(w).linear, Doubled),
    "parameters in a subclass of dict": lambda w: put(
        block(w).linear, "_parameters", Swapped(
            block(w).linear._parameters)),
    "bias to none": lambda w: put(block(w).linear._parameters, "bias", None),
    "new bias": lambda w: put(w.net.head._parameters, "bias",
                              nn.Parameter(torch.ones(2))),
    "frozen": lambda w: flip_grad(random.choice(list(w.net.parameters()))),
    "buffer shape": lambda w: put(block(w)._buffers, "shift",
                                  torch.tensor(3.0)),
    "half": lambda w: half(w.net),
    "identity": lambda w: put_part(block(w), "linear", nn.Identity()),
    "norm's eps": lambda w: put(block(w).norm, "eps", 0.5),
    "drop": lambda w: put(block(w).drop, "p", 1.0),
    "forward": lambda w: put(block(w), "forward", tripled),
    "forward of a class": lambda w: put_part(
        Block, "forward", lambda self, x: x * 2),
    "hook": lambda w: with_handle(block(w).register_forward_hook(
        lambda module, args, out: out + 1)),
    "pre-hook": lambda w: with_handle(
        random.choice([block(w).linear, w.net, w.net.head])
        .register_forward_pre_hook(lambda module, args: (args[0] + 1,))),
    "global hook": lambda w: with_handle(
        nn.modules.module.register_module_forward_hook(
            lambda module, args, out: out * 2)),
    "one block less": lambda w: put(w.net.blocks, "_modules", dict(
        list(w.net.blocks._modules.items())[:-1])),
    "default dtype": lambda w: put_global(
        torch.set_default_dtype, torch.float64, torch.float32),
    "no grad": lambda w: put_global(torch.set_grad_enabled, False, True),
    "inference mode": lambda w: under(torch.inference_mode()),
    "autocast": lambda w: under(torch.autocast("cpu", torch.bfloat16)),
    "autocast of another dtype": lambda w: under(
        torch.autocast("cpu", torch.float16)),
    "deterministic": lambda w: put_global(
        torch.use_deterministic_algorithms, True, False),
    "default device": lambda w: under(torch.device("meta")),
    "double": lambda w: half(w.net, torch.float64),
    "half of one part": lambda w: half(block(w).norm),
    "weight's data in double": lambda w: put_data(
        w.net.head.weight, w.net.head.weight.data.double()),
    "weight on another device": lambda w: put(
        block(w).linear._parameters, "weight",
        nn.Parameter(torch.empty(4, 4, device="meta"))),
    "fewer rows in the weight": lambda w: put_data(
        block(w).norm.weight, torch.ones(1)),
    "no buffer": lambda w: put(block(w)._buffers, "shift", None),
    "buffer with a gradient": lambda w: put(
        block(w)._buffers, "shift", torch.ones(4, requires_grad=True)),
    "backward hook": lambda w: with_handle(
        block(w).linear.register_full_backward_hook(
            lambda module, grads, outs: None)),
    "pre-hook of all": lambda w: with_handle(
        nn.modules.module.register_module_forward_pre_hook(
            lambda module, args: (args[0] * 2,))),
    "another norm": lambda w: put_part(block(w), "norm", nn.LayerNorm(
        4, elementwise_affine=False)),
    "a part twice": lambda w: put_part(
        block(w), "linear", random.choice([w.net.head, nn.Sequential()])),
    "one block more": lambda w: put(w.net.blocks, "_modules", {
        **w.net.blocks._modules, "5": Block(4)}),
    "another name for a block": lambda w: put(w.net.blocks, "_modules", {
        "a": Block(4), **w.net.blocks._modules}),
    "x of another class": lambda w: put(w, "x", nn.Parameter(w.x.clone())),
    "x expanded": lambda w: put(w, "x", torch.randn(1, 4).expand(3, 4)),
    "x conjugate": lambda w: put(w, "x", torch.randn(
        3, 4, dtype=torch.complex64).conj().imag),
    "a property": lambda w: put_new(
        Block, "power", property(lambda self: 4, lambda self, v: None)),
}

ALTERING |= {
    "order of a dict": store("names", {"a": 2, "bb": 1}, {"ccc": 1}),
    "order of a set": store("chosen", set([16, 8, 0]), set([0, 8, 16])),
    "elements of a set": store("chosen", {8, 0, 17}, {8, False, 16}),
    "a set that is frozen": store("chosen", frozenset({8, 0, 16})),
    "order of a frozen set": store("fixed", frozenset([9, 1])),
    "types in a frozen set": store("fixed", frozenset([True, 9]),
                                   frozenset([1.0, 9])),
    "length of a deque": store("recent", collections.deque([1, 2]),
                               collections.deque([1, 2], maxlen=2)),
    "elements of a deque": store(
        "recent", collections.deque([1, True], maxlen=3)),
    "a type in a tuple": store("pair", (True, 2.0), (1, 2), (1.0, 2.0)),
    "one of many": lambda w: put_item(STORE.many, 7, random.choice(
        [47.0, 5, "47"])),
    "one more of many": store("many", [*range(40, 141)]),
    "an imported module": lambda w: put_module("world_helper", 2),
    "bases": lambda w: put_bases(Kind, Right),
    "more bases": lambda w: put_bases(Kind, Right, Left),
    "warn always": lambda w: put_global(torch.set_warn_always, True, False),
    "dtype of autocast": lambda w: put_global(functools.partial(
        torch.set_autocast_dtype, "cpu"), torch.float16, torch.bfloat16),
    "cache of autocast": lambda w: put_global(
        torch.set_autocast_cache_enabled, False, True),
    "benchmark": lambda w: put_global(
        torch._C._set_cudnn_benchmark, True, False),
}

#: Changes that no answer depends on.
UNRELATED = {
    "counter": lambda w: put(block(w), "calls", random.random()),
    "new attribute": lambda w: put(block(w), "note", object()),
    "unused key": lambda w: put(TABLE, "unused", random.random()),
    "unused global": lambda w: put(GLOBALS, "UNUSED", random.random()),
    "name": lambda w: put(w.net.config, "name", "other"),
    "x values": lambda w: put(w, "x", torch.randn(3, 4)),
    "weight values": lambda w: put_data(
        block(w).linear.weight, torch.randn(4, 4)),
    "another weight": lambda w: put(
        block(w).linear._parameters, "weight",
        nn.Parameter(torch.randn(4, 4))),
    "fresh dict of parameters": lambda w: put(
        block(w).linear, "_parameters", dict(block(w).linear._parameters)),
    "fresh dict of hooks": lambda w: put(
        block(w), "_forward_hooks", collections.OrderedDict()),
    "fresh __dict__": lambda w: put_dict(block(w)),
    "gradients": lambda w: (w.net(w.x).sum().backward(),
                            lambda: w.net.zero_grad())[1],
    "a copy of the model": lambda w: put(w, "net", copy.deepcopy(w.net)),
    "equal config": lambda w: put(w.net, "config", types.SimpleNamespace(
        cap=3.0, name="twin")),
    "equal closure": lambda w: put(w, "program", make_program(0.5)),
    "threads": lambda w: put_global(
        torch.set_num_threads, torch.get_num_threads() % 2 + 1,
        torch.get_num_threads()),
    "seed": lambda w: (torch.manual_seed(random.random()), list)[1],
    "anomaly mode": lambda w: put_global(
        torch.autograd.set_detect_anomaly, True, False),
    "precision of products": lambda w: put_global(
        torch.set_float32_matmul_precision, "high", "highest"),
    "hook on a parameter": lambda w: with_handle(
        w.net.head.weight.register_hook(lambda grad: grad)),
    "weight's data copied": lambda w: put_data(
        w.net.head.weight, w.net.head.weight.data.clone()),
    "a frozen weight and back": lambda w: (
        w.net.head.weight.requires_grad_(False),
        w.net.head.weight.requires_grad_(), list)[2],
    "eval and back": lambda w: (w.net.eval(), w.net.train(), list)[2],
    "buffer never used": lambda w: (
        w.net.register_buffer("unused", torch.ones(1)),
        lambda: w.net._buffers.pop("unused"))[1],
    "swapped blocks": lambda w: swap_blocks(w.net, "1", "2"),
    "state dict": lambda w: (w.net.load_state_dict(w.net.state_dict()),
                             lambda: None)[1],
}

UNRELATED |= {
    "equal dict": lambda w: put(STORE, "names", {"b": 1, "a": 2}),
    "equal set": lambda w: put(STORE, "chosen", set([8, 0, 16])),
    "equal frozen set": lambda w: put(STORE, "fixed", frozenset([1, 9])),
    "equal deque": lambda w: put(STORE, "recent", STORE.recent.copy()),
    "equal list": lambda w: put(STORE, "many", [*STORE.many]),
    "equal tuple": lambda w: put(STORE, "pair", (1, float("2"))),
    "equal bases": lambda w: put_bases(Kind, Left),
    "a module that is not imported": lambda w: put_module("unused_", 2),
    "dtype of autocast elsewhere": lambda w: put_global(functools.partial(
        torch.set_autocast_dtype, "cuda"), torch.bfloat16, torch.float16),
}
