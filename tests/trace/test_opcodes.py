"""Every instruction of this Python has a method, or ends a trace cleanly."""

import dis
import importlib.util
import inspect
import sys
from pathlib import Path
from types import CodeType

import pytest
import torch

import minicompile
from minicompile.trace import bytecode
from minicompile.trace.bytecode import decode
from minicompile.trace.frame import OPCODES

#: Instructions of coroutines, which no trace enters: compile() runs them.
ASYNC = {"ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR",
         "GET_AITER", "GET_ANEXT", "GET_AWAITABLE"}

#: `except*`, generic classes and functions: a break, or eager.
BREAKING = {"CHECK_EG_MATCH", "PREP_RERAISE_STAR", "CALL_INTRINSIC_1",
            "CALL_INTRINSIC_2"}

#: The body of a class, which Python runs.
BODIES = {"DELETE_NAME", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF",
          "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_LOCALS", "LOAD_NAME",
          "SETUP_ANNOTATIONS", "STORE_NAME"}

#: What no function holds: the interpreter's own, and a module's.
ELSEWHERE = {"PRINT_EXPR", "IMPORT_STAR", "INTERPRETER_EXIT", "RESERVED",
             "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}


def functions(code: CodeType, inside=False):
    """The code of functions, and all that is nested in them."""
    for found in code.co_consts:
        if isinstance(found, CodeType):
            here = inside or bool(found.co_flags & inspect.CO_OPTIMIZED)
            if here:
                yield found
            yield from functions(found, here)


def sources(package: str, *parts: str):
    """The files of a package, or of parts of it."""
    root = Path(importlib.util.find_spec(package).origin).parent
    for part in parts or ("",):
        yield from sorted((root / part).rglob("*.py"))


def unknown(files) -> tuple[int, dict[str, CodeType]]:
    """How many functions there are, and opcodes that have no method."""
    count, missing = 0, {}
    for path in files:
        code = compile(path.read_text(), str(path), "exec")
        for function in functions(code):
            count += 1
            for step in decode(function).instructions:
                if step.name not in OPCODES:
                    missing.setdefault(step.name, function)
    return count, missing


def test_every_opcode_of_torch_nn():
    count, missing = unknown(sources("torch.nn"))
    assert count > 1400 and not missing


#: The folders of transformers that the models of this suite live in.
MODELS = ("llama", "mistral", "qwen2", "gpt2", "bert", "roberta",
          "distilbert", "t5", "bart", "vit", "whisper", "clip", "mixtral")


def test_every_opcode_of_transformers():
    pytest.importorskip("transformers")
    files = [*sources("transformers", *(f"models/{m}" for m in MODELS))]
    root = Path(importlib.util.find_spec("transformers").origin).parent
    count, missing = unknown([*files, *root.glob("*.py")])
    assert count > 2000
    assert set(missing) <= ASYNC | BODIES
    for name in ASYNC.intersection(missing):
        assert missing[name].co_flags & (inspect.CO_COROUTINE
                                         | inspect.CO_ASYNC_GENERATOR)


def test_every_opcode_of_this_python():
    told = {*OPCODES, *bytecode.SAME, *bytecode.SILENT, *bytecode.FUSED,
            "RETURN_CONST", *ASYNC, *BREAKING, *BODIES, *ELSEWHERE}
    for name, number in dis.opmap.items():
        if number < 256 and not name.startswith(("INSTRUMENTED", "<")):
            assert name in told


def test_rows_take_and_push_what_cpython_does():
    """A graph break rebuilds the stack by these numbers."""
    compared = 0
    for name, (takes, pushes, _) in OPCODES.items():
        if pushes is None or name not in dis.opmap or (
                name == "CALL" and "PRECALL" in dis.opmap):
            continue
        for argument in (2, 3):
            try:
                taken, pushed = (n(argument) if callable(n) else n
                                 for n in (takes, pushes))
            except TypeError:  # the argument is no number once decoded
                continue
            number = dis.opmap[name]
            has_argument = number >= dis.HAVE_ARGUMENT
            assert dis.stack_effect(
                number, argument if has_argument else None,
                jump=False) == pushed - taken, name
            compared += 1
    assert compared > 60


def test_a_part_of_an_instruction_is_never_left_to_python():
    for parts in (*bytecode.FUSED.values(), ("LOAD_CONST", "RETURN_VALUE")):
        assert {OPCODES[name][1] for name in parts} == {None}


X = torch.ones(3)


def run(text: str, breaks: int | None = 0, eager=False):
    """A function given as text is compiled as eager; so many breaks."""
    names = {"torch": torch, "X": X}
    exec(text, names)
    function = names["f"]
    want = function(X)
    compiled = minicompile.compile(function, backend="eager")
    for _ in range(2):
        assert repr(compiled(X)) == repr(want)
    stats = compiled.stats()
    assert eager is None or bool(stats.fallbacks) == eager
    assert breaks is None or stats.graph_breaks == breaks


def test_names_in_a_class_body():
    run("""
K = 5
def f(x, k=3):
    class A:
        K = K + 1
        twice = k * K
        del K
        def times(self, y):
            return y * self.twice + k
        parts = [i for i in range(k)]
        table = {n: n * 2 for n in (1, 2)}
    return A().times(x), A.parts, A.table, A.__name__, hasattr(A, "K")
""", 1)


def test_annotations_in_a_class_body():
    run("""
def f(x):
    class A:
        n: int = 2
        t: torch.Tensor
    return x * A.n, sorted(A.__annotations__)
""", 1)


def test_super_in_all_its_forms():
    run("""
def f(x):
    class A:
        scale = 2
        def __init__(self, n):
            self.n = n
        def go(self, y):
            return y * self.n
        @classmethod
        def make(cls):
            return cls(4)
        @property
        def size(self):
            return self.n + 1
    class B(A):
        scale = 7
        def __init__(self, n):
            super().__init__(n + 1)
        def go(self, y):
            return super().go(y) + super(B, self).go(y) * super().scale
        @classmethod
        def make(cls):
            return super().make()
        @property
        def size(self):
            return super().size * 2
    b = B.make()
    return b.go(x) + b.size, B(1).n
""", None)


def test_a_class_in_a_class_in_a_loop():
    run("""
def f(x):
    made = []
    for n in range(3):
        class Outer:
            m = n
            class Inner:
                k = n * 2
                def go(self, y):
                    return y + self.k + n
        made.append(Outer)
    return [o.Inner().go(x) * o.m for o in made]
""", None)


def test_globals_come_and_go():
    run("""
def f(x):
    global Q
    Q = 3
    y = x * Q
    del Q
    try:
        return Q
    except NameError as error:
        return y, str(error)
""")


def test_a_break_in_a_class_body():
    run("""
def f(x):
    class A:
        n = int(x.sum())
        k = n + 1
    return x * A.k
""", None)


@pytest.mark.filterwarnings("ignore")
def test_exception_groups():
    run("""
def f(x):
    try:
        raise ExceptionGroup("two", [ValueError(1), KeyError("k")])
    except* ValueError as group:
        x = x + len(group.exceptions)
    except* KeyError:
        x = x * 2
    return x
""", None, True)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
@pytest.mark.filterwarnings("ignore")
def test_generic_functions_and_classes():
    run("""
def f(x):
    def first[T](values: list[T]) -> T:
        return values[0]
    class Box[T]:
        kind: type[T] | None = None
        def __init__(self, value: T):
            self.value = value
    type Pair = tuple[int, int]
    return first([x * 2, x]) + Box(x + 1).value
""", None, None)
