"""What the Triton kernels and the replays of chapters 5 and 6 are worth.

    python -m chapters.measure.gpu_kernels           what the book shows
    python -m chapters.measure.gpu_kernels sweep     one part; no file

`equal` counts results unlike eager's, `bandwidth` reads and writes big
tensors, `sweep` tries other block sizes than ours, `launch` and `replay`
are about tiny ones. The first column of a table says what, and a failure
stands in its place as text.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

import minicompile
from chapters.measure.timing import compare, save
from minicompile import emit, fusion, split
from minicompile.core.options import Options
from minicompile.emit.cuda import launcher as launching
from minicompile.emit import triton as printer
from minicompile.trace import trace

N = 16384


def softmax(x):
    return torch.softmax(x, -1)


def layer_norm(x):
    return F.layer_norm(x, (x.shape[-1],))


def gelu_of_layer_norm(x):
    return F.gelu(layer_norm(x)) * 2


def rms_norm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w)


def gelu(x):
    return F.gelu(x)


def swiglu(x, y):
    return F.silu(x) * y


def chain(x, y):
    """Ten pointwise operations."""
    z = torch.relu(x * y + 1) - y.abs()
    z = torch.maximum(z * 0.5, x) + y * z
    return torch.minimum(z - x, y)


def transposed(x, y):
    return x.t() + y


def column_sum(x):
    return x.sum(0)


def whole_sum(x):
    return x.sum()


def argmax(x):
    return x.argmax(-1)


def cross_entropy(x, target):
    return F.cross_entropy(x, target, reduction="none")


def bias_gelu(x, w):
    return F.gelu(x + w, approximate="tanh")


def big():
    return torch.randn(N, N, device="cuda", dtype=torch.bfloat16)


def row():
    return torch.randn(N, device="cuda", dtype=torch.bfloat16)


def targets():
    return torch.randint(N, (N,), device="cuda")


#: name -> (function, what makes its arguments, tensors that must move)
KERNELS = {
    "softmax": (softmax, (big,), 2), "layer_norm": (layer_norm, (big,), 2),
    "gelu(layer_norm)*2": (gelu_of_layer_norm, (big,), 2),
    "rms_norm": (rms_norm, (big, row), 2), "chain": (chain, (big, big), 3),
    "gelu": (gelu, (big,), 2), "swiglu": (swiglu, (big, big), 3),
    "bias + tanh gelu": (bias_gelu, (big, row), 2),
    "x.t() + y": (transposed, (big, big), 3),
    "sum(0)": (column_sum, (big,), 1), "sum()": (whole_sum, (big,), 1),
    "argmax(-1)": (argmax, (big,), 1),
    "cross_entropy": (cross_entropy, (big, targets), 1),
}


def schedule_of(function, args):
    """The function's fused schedule."""
    traced = trace(function, tuple(args))
    joint = split.record(traced.graph, traced.example_inputs)
    return fusion.fuse(joint.graph)


def program_of(function, args):
    return emit.emit(schedule_of(function, args), Options())


def worst(found, wanted) -> float:
    """The largest difference relative to the largest value."""
    found, wanted = found.double(), wanted.double()
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(
        min=1e-30))


def bandwidth() -> list[dict]:
    """TB/s of the bytes that must move, back to back."""
    source = big()
    target = torch.empty_like(source)
    size = source.numel() * source.element_size()
    copying = compare({"copy": lambda: target.copy_(source)}, cuda=True)
    top = 2 * size / copying["copy"] / 1e12
    rows = [{"what": "copy", "ours": top, "of copy": 1.0}]
    for name, (function, makers, moved) in KERNELS.items():
        args = [make() for make in makers]
        torch._dynamo.reset()
        rows.append({"what": name} | attempt(
            speeds, function, args, moved * size, top))
        show(rows[-1])
    return rows


def speeds(function, args, moved: int, top: float) -> dict:
    program = program_of(function, args)
    error = worst(program.run(list(args))[0], function(*args))
    theirs = torch.compile(function)
    seconds = compare({
        "eager": lambda: function(*args), "torch": lambda: theirs(*args),
        "ours": lambda: program.run(list(args))}, rounds=9, cuda=True)
    rates = {who: moved / t / 1e12 for who, t in seconds.items()}
    return rates | {"of copy": rates["ours"] / top, "error": error,
                    "kernels": len(program.kernels)}


@contextmanager
def tiled(change):
    """Every kernel gets `change(its tiling)`."""
    before = printer.TILINGS[-1]
    printer.TILINGS.append(lambda kernel: change(before(kernel)))
    try:
        yield
    finally:
        printer.TILINGS.pop()


def with_warps(warps):
    return lambda tiling: replace(tiling, warps=warps)


def with_blocks(warps, *blocks):
    def change(tiling):
        if len(tiling.axes) != len(blocks):
            return tiling
        axes = tuple(replace(axis, block=block) for axis, block in
                     zip(tiling.axes, blocks))
        return replace(tiling, axes=axes, warps=warps)
    return change


def walked(warps, length):
    def change(tiling):
        (x, r) = tiling.axes
        return replace(tiling, warps=warps, looped="r", axes=(
            replace(x, block=1), replace(r, block=length)))
    return change


WALKS = {f"walk {n} x {w} warps": walked(w, n) for n, w in (
    (1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16))}
ROW_WARPS = {f"{w} warps": with_warps(w) for w in (4, 8, 16, 32)}
LINES = {f"{b} x {w} warps": with_blocks(w, b) for b, w in (
    (512, 2), (512, 4), (1024, 4), (1024, 8), (2048, 4), (2048, 8),
    (4096, 8))}
PLANES = {f"{y}x{x} x {w} warps": with_blocks(w, y, x) for y, x, w in (
    (32, 32, 4), (64, 64, 4), (64, 64, 8), (128, 64, 8), (64, 128, 8),
    (128, 128, 8))}
COLUMNS = {f"{x}x{r} x {w} warps": with_blocks(w, x, r) for x, r, w in (
    (64, 32, 4), (64, 64, 4), (64, 64, 8), (64, 128, 8), (128, 32, 4),
    (128, 32, 8), (128, 64, 8), (32, 128, 8), (256, 32, 8))}
SWEEP = {"softmax": ROW_WARPS | WALKS, "layer_norm": ROW_WARPS | WALKS,
         "gelu(layer_norm)*2": ROW_WARPS | WALKS, "chain": LINES,
         "gelu": LINES, "x.t() + y": PLANES, "sum(0)": COLUMNS,
         "argmax(-1)": ROW_WARPS, "cross_entropy": ROW_WARPS}

def sweep() -> list[dict]:
    """TB/s with other blocks; `ours` is what the printer chooses."""
    rows = []
    for name, variants in SWEEP.items():
        function, makers, moved = KERNELS[name]
        args = [make() for make in makers]
        found = {"what": name}
        for label, change in {"ours": lambda t: t, **variants}.items():
            with tiled(change):
                found |= attempt(rate, label, function, args, moved)
        rows.append(found)
        show(found)
    return rows


def rate(label, function, args, moved) -> dict:
    program = program_of(function, args)
    seconds = compare({"ours": lambda: program.run(list(args))}, rounds=5,
                      seconds=0.03, cuda=True)
    return {label: moved * N * N * 2 / seconds["ours"] / 1e12}


def equal() -> list[dict]:
    """For each operation and type: how many results are not eager's."""
    from tests.emit.test_triton_ops import CASES
    rows, folder = [], Path(tempfile.mkdtemp())
    for name, dtype in CASES:
        if not dtype.is_floating_point or name == "where":
            continue

        found = attempt(differing, name, dtype, folder)
        if found:
            rows.append({"what": f"{name} {dtype}"} | found)
            show(rows[-1])
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x, y = (torch.randn(1024, 1024, device="cuda").to(dtype)
                for _ in range(2))
        for function, given in ((chain, [x, y]), (swiglu, [x, y]),
                                (gelu, [x])):
            rows.append({"what": f"{function.__name__} {dtype}"} | attempt(
                unlike, function, given))
            show(rows[-1])
    return rows


def differing(name, dtype, folder) -> dict:
    """How many results of one operation are not eager's, and how far."""
    from minicompile.core.loops import OPS, Op
    from tests.emit.test_triton_ops import ARITY, result_type
    from tests.emit.triton_kernels import at, buffer, load, pointwise, variables
    count = 2 ** 16
    ranges = variables("i", (count,))
    a, b = (torch.randn(count, device="cuda").mul(4).to(dtype)
            for _ in range(2))
    operands = tuple(at(buffer(n, (count,), dtype), ranges)
                     for n in "ab")[:1 if name in ARITY[1] else 2]
    kind = result_type(name, dtype)
    kernel = pointwise(Op(name, operands, kind),
                       buffer("out", (count,), kind), ranges)
    out = torch.empty(count, dtype=kind, device="cuda")
    given = [a, b][:len(operands)]
    load(kernel, folder)[kernel.name].run(
        launching.stream_of(0), *given, out)
    wanted = OPS[name](*given).to(kind)
    off = ~((out == wanted) | (out != out) & (wanted != wanted))
    return {"differ": int(off.sum()), "worst": worst(
        out[off], wanted[off])} if off.any() else {}


def unlike(function, given) -> dict:
    """How many results of a function are not eager's."""
    found = program_of(function, given).run(list(given))[0]
    return {"differ": int((found != function(*given)).sum())}


def plus_one(x):
    return x + 1


def launch() -> list[dict]:
    """Microseconds a call: the ways to launch `x + 1` on 16 elements."""
    x = torch.randn(16, device="cuda")
    out = torch.empty_like(x)
    program = program_of(plus_one, [x])
    program.run([x])
    names = program.run.__globals__
    kernel = names[program.kernels[0].name]
    compiled = kernel.kernel[(1,)](
        x, out, num_warps=1, enable_fp_fusion=False)
    stream = launching.stream_of(0)
    run, function = compiled.run, compiled.function
    packed, p, q = compiled.packed_metadata, x.data_ptr(), out.data_ptr()
    ways = {
        "kernel[grid]": lambda: kernel.kernel[(1,)](
            x, out, num_warps=1, enable_fp_fusion=False),
        "compiled.run": lambda: run(1, 1, 1, stream, function, packed,
                                    None, None, None, p, q),
        "ours, bound": lambda: kernel.run(stream, x, out),
        "stream_of": lambda: launching.stream_of(0),
        "empty_strided": lambda: torch.empty_strided(
            (16,), (1,), device="cuda"),
        "program": lambda: program.run([x]),
        "eager": lambda: x + 1,
    }
    try:
        ways["static launcher"] = static(compiled, stream, (p, q))
    except Exception as error:
        print("static launcher:", error)
    compiled_function = minicompile.compile(plus_one)
    theirs = torch.compile(plus_one)
    ways["minicompile.compile"] = lambda: compiled_function(x)
    ways["torch.compile"] = lambda: theirs(x)
    rows = [{"what": name, "us": micros(call)}
            for name, call in ways.items()]
    for found in rows:
        show(found)
    return rows


def static(compiled, stream, pointers):
    """PyTorch's own launcher of Triton kernels."""
    launcher = torch._C._StaticCudaLauncher
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        shared = compiled.metadata.shared
        loaded = launcher._load_kernel(
            file.name, compiled.metadata.name, shared, 0)
    function = loaded[0] if len(loaded) == 3 else loaded[1]
    args = (*pointers, None, None)
    kinds = "OOOO"
    warps = compiled.metadata.num_warps

    def call():
        launcher._launch_kernel(function, 1, 1, 1, warps, shared, kinds,
                                args, stream)
    call()
    return call


def micros(call, repeats: int = 2000) -> float:
    """Median microseconds a call of host time, not waiting for results."""
    for _ in range(50):
        call()
    times = []
    for _ in range(9):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats // 9):
            call()
        times.append((time.perf_counter() - start) / (repeats // 9) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def replay() -> list[dict]:
    """Microseconds a call where the work is nothing, with and without."""
    rows = []
    layers = torch.nn.Sequential(
        *(torch.nn.Linear(16, 16) for _ in range(20))).cuda()
    x = torch.randn(1, 16, device="cuda")
    small = torch.randn(16, device="cuda")
    for name, function, given, train in (
            ("x + 1", plus_one, small, False),
            ("20 x Linear(16, 16)", layers, x, False),
            ("20 x Linear(16, 16), training", layers, x, True)):
        found = {"what": name}
        for label, made in (
                ("eager", lambda f: f),
                ("torch", torch.compile),
                ("torch replay", lambda f: torch.compile(
                    f, mode="reduce-overhead")),
                ("ours", minicompile.compile),
                ("ours replay", lambda f: minicompile.compile(
                    f, mode="reduce-overhead"))):
            torch._dynamo.reset()
            found |= attempt(called, label, made, function, given, train)
        rows.append(found)
        show(found)
    return rows


def called(label, compiler, function, given, train: bool) -> dict:
    compiled = compiler(function)
    if not train:
        with torch.no_grad():
            return {label: micros(lambda: compiled(given), 900)}
    return {label: micros(
        lambda: compiled(given).sum().backward(), 450)}


def attempt(measure, *args) -> dict:
    """What `measure(*args)` finds, or its failure as text."""
    try:
        return measure(*args)
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def show(found: dict) -> None:
    print("  ".join(f"{key}={value:.4g}" if isinstance(value, float)
                    else f"{key}={value}" for key, value in found.items()),
          flush=True)


PARTS = {"launch": launch, "replay": replay, "equal": equal,
         "bandwidth": bandwidth, "sweep": sweep}
SHOWN = ("launch", "bandwidth")


def main() -> None:
    torch.manual_seed(0)
    found = {}
    for part in sys.argv[1:] or SHOWN:
        print(f"== {part}", flush=True)
        start = time.perf_counter()
        found[part] = PARTS[part]()
        print(f"   {time.perf_counter() - start:.0f} s", flush=True)
    if set(found) == set(SHOWN):
        save("gpu_kernels", found.pop("bandwidth"), **found)


if __name__ == "__main__":
    main()
