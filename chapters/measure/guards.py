"""What checking guards costs: each question, whole checks, whole calls.

Calls are pure dispatch: the backend, ours and torch.compile's, returns a
result made before, so that what is left is finding the entry. Then the
same small function as kernels, beside eager. Writes
chapters/results/guards.json. Run: python -m chapters.measure.guards
"""

from __future__ import annotations

import timeit
from unittest import mock

import torch
from torch import nn

import minicompile
from chapters.measure.timing import compare, save
from minicompile.core.guard import Guard, Item, Local, TensorFacts
from minicompile.guards import KINDS, Names, build_check
from minicompile.guards.fast import c_functions
from minicompile.guards.fast.c_functions import IN_PYTHON
from minicompile.trace import trace

#: One question each, on a tensor `x` and lists of 100 objects.
QUESTIONS = {
    "type(x) is Tensor": 1, "x.dtype is float32": 1,
    "x.shape == (4, 8)": 1, "x.stride() == (8, 1)": 1,
    "x.is_contiguous()": 1, "x.device == cpu": 1, "x.is_cpu": 1,
    "x.requires_grad": 1, "is_grad_enabled()": 1,
    "d['a'] is value": 1, "id(x) == address": 1}


def facts(x: torch.Tensor) -> TensorFacts:
    return TensorFacts(type(x), x.dtype, x.device, tuple(x.shape),
                       x.stride(), x.requires_grad)


def add_one(x):
    return x + 1


def call(target, *args, **kwargs):
    return target(*args, **kwargs)


def questions() -> list[dict]:
    """Nanoseconds of each question, the best of many tries."""
    x, value = torch.zeros(4, 8), object()
    names = {"x": x, "Tensor": torch.Tensor, "float32": torch.float32,
             "cpu": torch.device("cpu"), "address": id(x),
             "is_grad_enabled": torch.is_grad_enabled,
             "value": value, "d": {"a": value}}
    empty = _best("pass", names)
    return [{"question": text, "ns": (_best(text, names) - empty) / items}
            for text, items in QUESTIONS.items()]


def in_bulk() -> list[dict]:
    """Nanoseconds of a condition in C++, and in Python."""
    x = nn.Linear(4, 4).weight
    guard, row = Guard(Local("x", 0), "tensor", facts(x)), {}
    for name, ask in ("compiled", KINDS["tensor"]), ("python", IN_PYTHON):
        names = Names({"x": x})
        row[name] = _best(ask(names, guard).format("x"), names.values)
    return [{"question": "a tensor", **row}]


def _best(text: str, names: dict) -> float:
    """Nanoseconds of running `text` once."""
    runs = 20_000 if len(text) < 40 else 1000
    return min(timeit.repeat(text, globals=names, number=runs,
                             repeat=25)) / runs * 1e9


def checks() -> list[dict]:
    """Microseconds of checks and of calls, beside torch.compile's."""
    x, rows = torch.zeros(4, 4), []
    cases = [("x + 1", add_one, (x,), add_one)]
    for count in (1, 10, 50, 100):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))
        cases.append((f"{count} x Linear", call, (model, (x,), {}), model))
    for name, function, locals, target in cases:
        traced = trace(function, locals)
        check = build_check(traced.guards, traced.constants, traced.sources)
        with mock.patch.object(c_functions, "compiled", lambda: None):
            slower = build_check(traced.guards, traced.constants,
                                 traced.sources)
        assert check(locals, function) and slower(locals, function)
        torch._dynamo.reset()
        ours = minicompile.compile(target, backend=_ready)
        theirs = torch.compile(target, backend=_ready)
        median = compare({
            "check": lambda f=check.function, L=locals, F=function: f(L, F),
            "in Python": lambda f=slower.function, L=locals, F=function:
                f(L, F),
            "call": lambda ours=ours: ours(x),
            "torch.compile": lambda theirs=theirs: theirs(x)})
        rows.append({"case": name, "guards": len(check.guards),
                     "lines": check.source.count("\n"),
                     **{key: each * 1e6 for key, each in median.items()}})
    return rows


def varying() -> list[dict]:
    """Microseconds of checks: the batch is one number, or any."""
    rows = []
    for count in (1, 10, 100):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))
        timed = {}
        for name in ("one batch", "any batch"):
            x = torch.zeros(8, 4)
            if name == "any batch":
                minicompile.mark_dynamic(x, 0)
            compiled = minicompile.compile(model, backend=_ready)
            compiled(x)
            entry, = compiled.cache.entries
            locals, function = (model, (x,), {}), compiled.cache.function
            assert entry.check(locals, function)
            timed[name] = (lambda f=entry.check.function, L=locals,
                           F=function: f(L, F))
        rows.append({"case": f"{count} x Linear", **{
            key: each * 1e6 for key, each in compare(timed).items()}})
    return rows


def kernels() -> list[dict]:
    """Microseconds of `x + 1` as one kernel: eager, torch.compile, ours."""
    rows = []
    for device in ("cpu", "cuda")[:1 + torch.cuda.is_available()]:
        for case in ("inference", "training"):
            x = torch.zeros(4, 4, device=device,
                            requires_grad=case == "training")
            torch._dynamo.reset()
            ours = minicompile.compile(add_one)
            theirs = torch.compile(add_one)
            median = compare({
                "eager": lambda x=x: add_one(x),
                "torch.compile": lambda f=theirs, x=x: f(x),
                "minicompile": lambda f=ours, x=x: f(x)})
            rows.append({"case": f"{case}, {device}", **{
                key: each * 1e6 for key, each in median.items()}})
    return rows


def tensor_checks() -> dict[str, float]:
    """Nanoseconds for all facts of one tensor, of a hundred in a row."""
    from torch._C._dynamo.guards import TensorGuards
    tensors = [torch.zeros(4, 4) for _ in range(100)]
    guards = [Guard(Item(Local("x", 0), at), "tensor", facts(tensor))
              for at, tensor in enumerate(tensors)]
    check = build_check(guards, {})
    theirs = TensorGuards(*tensors, dynamic_dims_sizes=None,
                          dynamic_dims_strides=None)
    assert check((tensors,), None) and theirs.check(*tensors)
    median = compare({"ours": lambda: check.function((tensors,), None),
                      "theirs": lambda: theirs.check(*tensors)})
    return {who: seconds * 1e7 for who, seconds in median.items()}


def _ready(gm, example_inputs):
    """A backend whose graph costs nothing: its result is kept."""
    kept = []

    def run(*inputs):
        if not kept:
            kept.append(tuple(gm(*inputs)))
        return kept[0]
    return run


def main() -> None:
    save("guards", checks(), questions=questions(), bulk=in_bulk(),
         tensor_ns=tensor_checks(), kernels=kernels(), varying=varying())


if __name__ == "__main__":
    main()
