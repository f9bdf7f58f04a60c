"""A schedule as one Python file: kernels, buffers, launches, `call`.

In: a Schedule. Out: a Program, whose `run` takes the list of inputs and
returns the tuple of results. The file is meant to be read; run by itself
it makes random inputs and times `call`. Equal kernels are printed once.
Inductor's is torch/_inductor/codegen/wrapper.py.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path

import torch

from ..core.cache import store
from ..core.errors import CompileError
from ..core.graph import SHORT
from ..core.index import Index, index
from ..core.loops import Buffer, Kernel
from ..core.schedule import Extern, Schedule, Step, View
from ..core.options import Options
from .build import CppPrinter
from .printer import Printer, failure
from .same import merge


@dataclass(frozen=True)
class Program:
    """The text of a program, where it lies, and its loaded `call`.

    `run(inputs)` empties the list it is given, so that inputs nobody
    else holds are freed at their last use.
    """

    source: str
    path: Path
    run: Callable[[list], tuple]
    kernels: tuple[Kernel, ...]
    begun: tuple[tuple[Kernel, Future | None], ...] = ()

    def __str__(self) -> str:
        return self.source

    def ready(self) -> Program:
        """The same, each kernel compiled; CompileError if one is not."""
        for kernel, future in self.begun:
            try:
                future and future.result()
            except Exception as error:
                raise failure(kernel, error) from error
        return self


def emit(schedule: Schedule, options: Options = Options()) -> Program:
    """The schedule as a loaded program; CompileError if a compiler is
    missing, or refuses it. `ready()` waits for kernels that are compiled
    meanwhile.
    """
    text = Text(schedule, options)
    source = text.program()
    try:
        path = store(source, ".py")
        names = {"__name__": f"minicompile_{path.stem}",
                 "__file__": str(path)}
        exec(compile(source, str(path), "exec"), names)
        begun = tuple((kernel, text.printers[device_of(kernel)].prepare(
            kernel, names[kernel.name], text.buffers))
            for kernel in text.different)
    except Exception as error:
        raise _blamed(schedule, error) from error
    names.update(text.given)
    names.update({text.names[name]: value
                  for name, value in schedule.constants.items()})
    return Program(source, path, names["call"], schedule.kernels, begun)


def _blamed(schedule: Schedule, error: Exception) -> CompileError:
    """The compiler's error, with the kernel that it is about."""
    said = "\n".join([str(error), *getattr(error, "__notes__", ())])
    for kernel in schedule.kernels:
        if re.search(rf"\b{kernel.name}\b", said):
            return failure(kernel, error)
    return error if isinstance(error, CompileError) else CompileError(
        f"{type(error).__name__}: {error}")


def printer_for(device: torch.device, options: Options) -> Printer:
    """Who prints the kernels of a device."""
    if device.type == "cpu" and options.cpu_backend == "cpp":
        return CppPrinter()
    try:
        from .triton import TritonPrinter
    except ImportError as error:
        raise CompileError(f"no Triton: {error}") from error
    return TritonPrinter(options, device)


#: A space inside of a text, where no line may be broken.
UNBROKEN = "\N{NO-BREAK SPACE}"

#: What a program uses of tensors.py.
HELPERS = ("as_tuple", "in_layout", "random_tensor", "time_alone")
#: Names that a buffer must not have.
OURS = frozenset("""aten torch empty_strided call inputs function load
    library stream stream_of""".split()).union(HELPERS, keyword.kwlist)

#: Operators that `torch` has under the same name: called half as dear.
#: The results of the first line are always laid out row by row.
ROW_MAJOR = ("mm", "addmm", "bmm", "baddbmm")
DIRECT = (*ROW_MAJOR, "convolution", "embedding")


@dataclass(frozen=True)
class Text:
    """A schedule being written as a program.

    `given` collects what no text can name, such as a subgraph that an
    operator takes; the program gets it, by name, when it is loaded.
    """

    schedule: Schedule
    options: Options
    given: dict[str, object] = field(default_factory=dict)

    @cached_property
    def merged(self) -> dict[str, Kernel]:
        """For each kernel's name the kernel that is printed."""
        return merge(self.schedule.kernels)

    @cached_property
    def different(self) -> tuple[Kernel, ...]:
        """The kernels that are printed."""
        return tuple({k.name: k for k in self.merged.values()}.values())

    @cached_property
    def printers(self) -> dict[torch.device, Printer]:
        """The printer of each device."""
        return {device: printer_for(device, self.options) for device in
                dict.fromkeys(map(device_of, self.schedule.kernels))}

    @cached_property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices of all buffers."""
        return tuple(dict.fromkeys(
            buffer.device for buffer in self.buffers.values()))

    @cached_property
    def names(self) -> dict[str, str]:
        """What every buffer and constant is called in the program."""
        taken = OURS.union(self.merged, map(device_name, self.devices),
                           map(str, self.schedule.sizes))
        found: dict[str, str] = {}
        for name in self.buffers:
            free = name
            while free in taken:
                free += "_buffer"
            found[name] = free
            taken |= {free}
        return found

    def program(self) -> str:
        """The whole file."""
        body = [*self.definitions(), self.call(), self.alone()]
        return "\n\n\n".join([self.head("".join(body)), *body]) + "\n"

    def head(self, body: str) -> str:
        """What the program does, and what the body needs."""
        kernels, externs = self.schedule.kernels, self.schedule.externs
        inputs = ", ".join(describe(b) for b in self.schedule.inputs if b)
        used = [name for name in HELPERS if f"{name}(" in body]
        constants = [
            f"# {self.names[name]}: {describe(value)}, given by its loader"
            for name, value in self.schedule.constants.items()]
        return "\n".join([
            f'"""{several(len(kernels), "kernel")} of ours, '
            f'{several(len(externs), "operator")}.',
            "", *fill(f"Inputs: {inputs or 'none'}.", 79), '"""', "",
            "import torch", "from torch import empty_strided", "",
            *(p.prelude() for p in self.printers.values()),
            f"from minicompile.emit.tensors import {', '.join(used)}",
            "", "aten = torch.ops.aten", *(
                f'{device_name(device)} = torch.device("{device}")'
                for device in self.devices), *constants])

    def definitions(self) -> list[str]:
        """The kernels, each that is unlike the others once."""
        return [printer.define(tuple(k for k in self.different
                                     if device_of(k) == device))
                for device, printer in self.printers.items()]

    def call(self) -> str:
        """The function `call`: unpack, run the steps, return."""
        names, sizes = self.schedule.unpacked(self.names.__getitem__)
        unpacked = listed(names)
        lines = [line for printer in self.printers.values()
                 for line in printer.begin().splitlines()]
        lines += [f"{unpacked} = inputs"] if unpacked else []
        lines += ["inputs.clear()", *sizes]
        for step, dead in zip(self.schedule.steps, self.schedule.last_use,
                              strict=True):
            lines += self.step(step)
            if dead:
                lines.append("del " + ", ".join(
                    self.names[name] for name in dead))
        results = listed(map(self.value, self.schedule.outputs))
        lines.append(f"return ({results})")
        return "\n    ".join(["def call(inputs):", *(
            part.replace(UNBROKEN, " ") for line in lines
            for part in folded(line))])

    def step(self, step: Step) -> list[str]:
        """The lines that run one step."""
        if isinstance(step, Extern):
            return self.extern(step)
        lines = []
        for buffer in step.written.values():
            lines.append(f"{self.names[buffer.name]} = {empty(buffer)}")
        if step.rows != 0:
            names = [*step.read, *step.written]
            launched = self.printers[device_of(step)].launch(
                self.merged[step.name],
                tuple(self.names[name] for name in names),
                tuple(map(str, step.symbols)))
            lines += launched.splitlines()
        return comment(step) + lines

    def extern(self, step: Extern) -> list[str]:
        """The call of an operator, its results in the right layout."""
        arguments = [self.value(a) for a in step.args] + [
            f"{key}={self.value(a)}" for key, a in step.kwargs.items()]
        text = f"{self.called(step.target)}({', '.join(arguments)})"
        names = [self.names[b.name] if b else "_" for b in step.outputs]
        if any(step.outputs):
            text = (f"{names[0]} = {text}" if returns_one(step.target)
                    else f"{listed(names)} = as_tuple({text})")
        lines = [text]
        if operator_name(step.target) in ROW_MAJOR:
            return comment(step) + lines
        theirs = isinstance(step.target, torch._ops.OpOverload) and (
            step.target.namespace not in ("aten", "prims"))
        own = f', "{step.target}"' if theirs else ""
        for buffer in filter(None, step.outputs):
            name = self.names[buffer.name]
            lines.append(f"{name} = in_layout({name}, "
                         f"{numbers(buffer.shape)}, "
                         f"{numbers(buffer.stride)}{own})")
        return comment(step) + lines

    def called(self, target: Callable) -> str:
        """How the program names an operator."""
        if not isinstance(target, torch._ops.OpOverload):
            return self.name_of(target)
        name = operator_name(target)
        if name in DIRECT:
            return f"torch.{name}"
        return str(target) if name else f"torch.ops.{target}"

    def value(self, argument: object) -> str:
        """An argument or a result as Python."""
        match argument:
            case View():
                return self.view(argument)
            case list() | tuple():
                return f"[{', '.join(map(self.value, argument))}]"
            case torch.device():
                return f'torch.device("{argument}")'
            case float() if not isfinite(argument):
                return f'float("{argument}")'
            case Index():
                return str(argument)
            case str():  # no line is broken inside of it
                return repr(argument).replace(" ", UNBROKEN)
            case (None | bool() | int() | float() | complex()
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
        name, buffer = self.names[view.buffer], self.buffers[view.buffer]
        text = name
        if (view.shape, view.stride) != (buffer.shape, buffer.stride) or (
                view.offset != 0):
            offset = ""
            if view.offset != 0:
                offset = f", {name}.storage_offset() + {view.offset}"
            text = (f"{name}.as_strided({numbers(view.shape)}, "
                    f"{numbers(view.stride)}{offset})")
        same = view.dtype == buffer.dtype
        return text if same else f"{text}.view({view.dtype})"

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """Every buffer by name, constants too."""
        return self.schedule.buffers | {
            name: constant_buffer(name, value)
            for name, value in self.schedule.constants.items()}

    def alone(self) -> str:
        """What the file does when it is run by itself."""
        made = [f"        {random(b)}," for b in self.schedule.inputs]
        numbers = [f"    {symbol} = {symbol.formula or symbol.hint}"
                   for symbol in self.schedule.sizes]
        for symbol, given in self.schedule.sizes.items():
            if given and not given.of:
                made[given.input] = f"        {symbol},"
        constants = [
            f"    {self.names[name]} = {random(self.buffers[name])}"
            for name in self.schedule.constants]
        return "\n".join([
            'if __name__ == "__main__":', *numbers, *constants,
            "    time_alone(call, (", *made, "    ))"])


def listed(texts: Iterable[str]) -> str:
    """`a, b`, or `a,` for only one."""
    texts = list(texts)
    return ", ".join(texts) + "," * (len(texts) == 1)


def folded(line: str) -> list[str]:
    """A line of `call`, broken after its first bracket if it is long."""
    if len(line) <= 75 or line.startswith("#") or "(" not in line:
        return [line]
    start = line.index("(") + 1
    return [line[:start], *fill(line[start:], 71, "    ")]


def several(count: int, what: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{count} {what}{'s' * (count != 1)}"


def fill(text: str, width: int, indent: str = "") -> list[str]:
    """The text broken at its spaces."""
    return textwrap.wrap(text, width, initial_indent=indent,
                         subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def device_of(kernel: Kernel) -> torch.device:
    """Where the kernel runs."""
    return kernel.loops[0].buffer.device


def device_name(device: torch.device) -> str:
    """What the program calls a device: `cpu`, `cuda_0`."""
    return str(device).replace(":", "_")


def describe(tensor: Buffer | torch.Tensor) -> str:
    """`f32[4, 8]`."""
    sizes = ", ".join(map(str, tensor.shape))
    return f"{SHORT.get(tensor.dtype, tensor.dtype)}[{sizes}]"


def numbers(sizes: Iterable[Index]) -> str:
    """Sizes or strides as a Python tuple."""
    return f"({listed(map(str, sizes))})"


def empty(buffer: Buffer) -> str:
    """The call that allocates a buffer."""
    return (f"empty_strided({numbers(buffer.shape)}, "
            f"{numbers(buffer.stride)}, dtype={buffer.dtype}, "
            f"device={device_name(buffer.device)})")


def random(buffer: Buffer | None) -> str:
    """The call that makes a random tensor for a buffer."""
    if buffer is None:
        return "None"
    return (f"random_tensor({numbers(buffer.shape)}, "
            f"{numbers(buffer.stride)}, {buffer.dtype}, "
            f"{device_name(buffer.device)})")


def constant_buffer(name: str, value: torch.Tensor) -> Buffer:
    """A constant as a buffer."""
    return Buffer(name, tuple(map(index, value.shape)), tuple(
        map(index, value.stride())), value.dtype, value.device)


def operator_name(target: Callable) -> str:
    """`mm` for aten.mm.default; empty if it is no ATen operator."""
    parts = str(target).split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else ""


def returns_one(target: Callable) -> bool:
    """Whether the operator is known to return a tensor, no tuple."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    results = target._schema.returns
    return len(results) == 1 and "List" not in str(results[0].type)


def comment(step: Step) -> list[str]:
    """The user's lines that a step comes from, as comments."""
    places = [step.where] if isinstance(step, Extern) else [
        loop.where for loop in step.loops]
    found = dict.fromkeys(f"# {Path(place.file).name}:{place.line}: "
                          f"{place.text}" for place in places if place)
    return list(found)
