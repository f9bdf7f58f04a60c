"""A schedule as one Python file: kernels, buffers, launches, `call`.

In: a Schedule. Out: a Program, whose `run` takes the list of inputs and
returns the tuple of results. The file is meant to be read. How a kernel is
written and launched is the matter of its device's Printer, C++ or Triton.
Inductor's is torch/_inductor/codegen/wrapper.py.
"""

from __future__ import annotations

import re
from cmath import isfinite
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.fx.graph import _Namespace

from ..core.cache import store
from ..core.errors import BackendError, CompileError
from ..core.graph import Boxed
from ..core.index import Index, index
from ..core.loops import Buffer, Kernel
from ..core.options import Options
from ..core.schedule import Extern, Schedule, Step, View
from .cpp import CppPrinter
from .launch import printer_in_triton
from .writer import failure


@dataclass(frozen=True)
class Program:
    """The text of a program, where it lies, and its loaded `call`.

    `run(inputs)` empties the list it is given. So an input that only the
    list refers to is freed at its last use.
    """

    source: str
    path: Path
    run: Boxed
    kernels: tuple[Kernel, ...]
    waits: tuple[Callable[[], object], ...] = ()
    text: Text | None = None  # what it was written from

    def __str__(self) -> str:
        return self.source

    def ready(self) -> Program:
        """The same, each kernel compiled; CompileError if one is not."""
        for wait in self.waits:
            wait()
        return self


def emit(schedule: Schedule, options: Options = Options()) -> Program:
    """The schedule as a loaded program; CompileError if a compiler is
    missing, or refuses it. `ready()` waits for kernels that are compiled
    meanwhile.
    """
    try:
        text = Text(schedule, options)
        source = text.program()
        for finish in FINISHES:
            source = finish(source)
        names, run = load_program(source, text.given)
        waits = tuple(start(text, names) for start in STARTS)
    except Exception as error:
        raise _blamed(schedule, error) from error
    return Program(source, Path(names["__file__"]), run, schedule.kernels,
                   waits, text)


def load_program(source: str, given: dict) -> tuple[dict, Boxed]:
    """The names of a program, those given too, and its `call`."""
    path = store(source, ".py")
    names = {"__name__": f"minicompile_{path.stem}",
             "__file__": str(path), **given}
    exec(compile(source, str(path), "exec"), names)
    run = names["call"]
    for wrap in RUNS:
        run = wrap(run)
    return names, run


def _blamed(schedule: Schedule, error: Exception) -> CompileError:
    """The compiler's error, with the kernel that it is about."""
    said = "\n".join([str(error), *getattr(error, "__notes__", ())])
    for kernel in schedule.kernels:
        if re.search(rf"\b{kernel.name}\b", said):
            return failure(kernel, error)
    return error if isinstance(error, CompileError) else CompileError(
        f"{type(error).__name__}: {error}")


def printer_for(device: torch.device, options: Options):
    """The printer for the kernels of a device."""
    if device.type == "cpu" and options.cpu_backend == "cpp":
        return CppPrinter()
    return printer_in_triton(device, options.numerics)


#: A program's steps, and the kernel that stands for each one, by name: the
#: last row decides.
PLANS: list[Callable[[Text], tuple[
    tuple[Step, ...], dict[str, Kernel]]]] = [lambda text: (
        text.schedule.steps, {k.name: k for k in text.schedule.kernels})]
#: Rewrites of a program's text before it is stored.
FINISHES: list[Callable[[str], str]] = []
#: What begins when a program is loaded; each gives what waits for it.
STARTS: list[Callable[[Text, dict], Callable[[], object]]] = []
#: Each wraps the `call` of a loaded program.
RUNS: list[Callable[[Boxed], Boxed]] = []
#: Names that a buffer must not have.
TAKEN = """aten math torch empty_strided call inputs built entry library
    stream stream_of in_layout""".split()

#: Operators that `torch` has under the same name: a call takes half the
#: time. The results of the first line are always laid out row by row.
ROW_MAJOR = ("mm", "addmm", "bmm", "baddbmm")
DIRECT = (*ROW_MAJOR, "convolution", "embedding")


class Text:
    """A schedule being written as a program.

    It has the `buffers` by name, constants too, and their `names` in the
    program; the `devices` and their names, such as `cuda_0`, and the
    `printers` of their kernels. `launched` has the kernel that stands for
    each, by name. Those that are `different` are printed. `given`
    collects objects that no text can name, such as a subgraph of an
    operator or a large constant; the program gets them when it is loaded.
    """

    def __init__(self, schedule: Schedule, options: Options):
        self.schedule = schedule
        self.buffers: dict[str, Buffer] = schedule.buffers | {
            name: Buffer(name, tuple(map(index, value.shape)), tuple(
                map(index, value.stride())), value.dtype, value.device)
            for name, value in schedule.constants.items()}
        self.devices = {buffer.device: str(buffer.device).replace(":", "_")
                        for buffer in self.buffers.values()}
        self.printers = {device: printer_for(device, options) for device in
                         dict.fromkeys(map(device_of, schedule.kernels))}
        steps, self.launched = PLANS[-1](self)
        self.schedule = replace(schedule, steps=steps)
        self.different = {k.name: k for k in self.launched.values()}
        free = _Namespace()
        for name in (*TAKEN, *self.different, *self.devices.values(),
                     *map(str, schedule.sizes)):
            free.create_name(name, None)
        self.names = {name: free.create_name(name, None)
                      for name in self.buffers}
        self.given: dict[str, object] = {}
        self.constants = [self.constant(self.names[name], value)
                          for name, value in schedule.constants.items()]

    def constant(self, name: str, value: torch.Tensor) -> str:
        """The line that makes a constant; a large one is given."""
        if (value.numel() > 256 or value.is_meta
                or not value.is_contiguous()):
            self.given[name] = value
            return f"# {name} is given"
        elements = self.value(value.flatten().tolist())
        return (f"{name} = torch.tensor({elements}, dtype={value.dtype}, "
                f"device={self.devices[value.device]}"
                f").view({tuple(value.shape)})")

    def program(self) -> str:
        """The whole file."""
        call, schedule = self.call(), self.schedule
        head = "\n".join([
            f'"""Kernels: {len(schedule.kernels)}. '
            f'Operators: {len(schedule.externs)}."""',
            "", *["import math"] * ("math." in call),
            "import torch", "from torch import empty_strided", "",
            *(printer.prelude for printer in self.printers.values()),
            "from minicompile.emit.program import in_layout",
            "", "aten = torch.ops.aten", *(
                f'{name} = torch.device("{device}")'
                for device, name in self.devices.items()),
            *self.constants])
        kernels = [printer.define(tuple(
            k for k in self.different.values() if device_of(k) == device))
                   for device, printer in self.printers.items()]
        return "\n\n\n".join([head, *kernels, call]) + "\n"

    def call(self) -> str:
        """The function `call`: unpack, run the steps, return."""
        names, sizes = self.schedule.unpacked(self.names.__getitem__)
        lines = [p.begin for p in self.printers.values() if p.begin]
        lines += [f"{listed(names)} = inputs"] if names else []
        lines += ["inputs.clear()", *sizes]
        for step, dead in zip(self.schedule.steps, self.schedule.last_use):
            lines += comment(step)
            lines += (self.extern(step) if isinstance(step, Extern)
                      else self.launch(step))
            lines += [f"del {', '.join(map(self.names.get, dead))}"
                      ] * bool(dead)
        results = listed(map(self.value, self.schedule.outputs))
        return "\n    ".join(["def call(inputs):", *lines,
                              f"return ({results})"])

    def launch(self, step: Kernel) -> list[str]:
        """The lines that name or allocate a kernel's results, and the one
        that launches it, if it has any work."""
        lines = [f"{self.names[b.name]} = " + (
            self.view(View(b.into, b.shape, b.stride, index(0), b.dtype))
            if b.into else f"empty_strided({layout_text(b)}, "
            f"dtype={b.dtype}, device={self.devices[b.device]})")
            for b in step.written.values()]
        given = map(self.names.get, (*step.read, *step.written))
        return lines if step.rows == 0 else [
            *lines, self.printers[device_of(step)].launch(
                self.launched[step.name], tuple(given),
                tuple(map(str, step.symbols)))]

    def extern(self, step: Extern) -> list[str]:
        """The call of an operator, its results in the right layout."""
        space, name, *_ = f"{step.target}.".split(".")
        schema = step.target._schema if isinstance(
            step.target, torch._ops.OpOverload) else None
        called = f"torch.ops.{step.target}"
        if schema is None:
            called = self.name_of(step.target)
        elif space == "aten":
            called = f"torch.{name}" if name in DIRECT else step.target
        arguments = [self.value(a) for a in step.args] + [
            f"{key}={self.value(a)}" for key, a in step.kwargs.items()]
        text = f"{called}({', '.join(arguments)})"
        names = [self.names[b.name] if b else "_" for b in step.outputs]
        one = schema and len(schema.returns) == 1 and (  # else several
            "List" not in str(schema.returns[0].type))
        if any(step.outputs):
            text = f"{names[0] if one else listed(names)} = {text}"
        if space == "aten" and name in ROW_MAJOR:
            return [text]
        theirs = schema and space not in ("aten", "prims")
        return [text, *(
            f"{name} = in_layout({name}, {layout_text(b)}"
            + f', {b.dtype}, "{step.target}"' * bool(theirs) + ")"
            for name, b in zip(names, step.outputs) if b)]

    def value(self, argument: object) -> str:
        """An argument or a result as Python."""
        match argument:
            case View():
                return self.view(argument)
            case list() | tuple():
                return f"[{', '.join(map(self.value, argument))}]"
            case torch.device():
                return f'torch.device("{argument}")'
            case complex() | float() if not isfinite(argument):
                return f'{type(argument).__name__}("{argument}")'
            case Index():
                return str(argument)
            case (None | bool() | int() | float() | complex() | str()
                  | torch.dtype() | torch.layout() | torch.memory_format()):
                return repr(argument)
        return self.name_of(argument)

    def name_of(self, thing: object) -> str:
        """The name under which the program is given an object."""
        name = f"given_{len(self.given)}"
        self.given[name] = thing
        return name

    def view(self, view: View) -> str:
        """A buffer's tensor, seen through a View unless it is as such."""
        text, buffer = self.names[view.buffer], self.buffers[view.buffer]
        moved = view.offset != 0
        if moved or layout_text(view) != layout_text(buffer):
            offset = f", {text}.storage_offset() + {view.offset}" * moved
            text = f"{text}.as_strided({layout_text(view)}{offset})"
        return text


def listed(texts: Iterable[str]) -> str:
    """`a, b`, or `a,` for only one."""
    texts = list(texts)
    return ", ".join(texts) + "," * (len(texts) == 1)


def device_of(kernel: Kernel) -> torch.device:
    """Where the kernel runs."""
    return kernel.loops[0].buffer.device


def layout_text(of: Buffer | View) -> str:
    """Sizes and strides as two Python tuples."""
    return f"{of.shape}, {of.stride}"


def comment(step: Step) -> list[str]:
    """The user's lines that a step comes from, as comments."""
    places = [step.where] if isinstance(step, Extern) else [
        loop.where for loop in step.loops]
    return list(dict.fromkeys(
        f"# {Path(place.file).name}:{place.line}: {place.text}"
        for place in places if place))


def in_layout(tensor: torch.Tensor, shape: tuple[int, ...],
              stride: tuple[int, ...], dtype: torch.dtype | None = None,
              name: str = "") -> torch.Tensor:
    """The tensor with these strides: itself, or a copy.

    The schedule was made for the strides that a fake tensor showed; an
    operator may choose others when it runs. A user's own operator is
    given by `name`, with what its fake kernel has promised.
    """
    if name and (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
        raise BackendError(
            f"{name} gave a tensor of shape {tuple(tensor.shape)} and "
            f"{tensor.dtype}, and its fake kernel (register_fake) one of "
            f"shape {shape} and {dtype}")
    if tensor.stride() == stride:
        return tensor
    fresh = torch.empty_strided(shape, stride, dtype=tensor.dtype,
                                device=tensor.device)
    once = tuple(slice(None if step else 1) for step in stride)
    fresh[once].copy_(tensor[once])
    return fresh
