"""What makes a printed C++ kernel fast: one thing added at a time.

    python -m chapters.measure.emit

The kernel is what `block` does after its matmul, over 4096 x 1024 floats.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

import minicompile
from chapters._book.ptx import kernels_of
from chapters._book.running import tail
from chapters.measure.timing import compare, save
from minicompile.core import cache as compiler
from minicompile.core.loops import Kernel
from minicompile.emit import cpp


def without(text: str, *pragmas: str) -> str:
    """The text without the pragmas that begin like this."""
    return "\n".join(line for line in text.splitlines()
                     if not line.startswith(pragmas))


def compiled(folder: Path, name: str, text: str):
    """The text's kernel, compiled with our flags."""
    words, _ = compiler.compiler("g++")
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run([*words, source, "-o", library,
                    *cpp.FLAGS], check=True)
    return ctypes.CDLL(str(library))


def rungs(kernel: Kernel) -> dict[str, str]:
    """The kernel's text, from plain loops to what emit prints."""
    full = cpp.in_cpp(kernel)
    simd = "#pragma omp simd"
    threads = "#pragma omp parallel"
    scalar = cpp.headed("").replace(', simd("notinbranch")', "")
    library = full.replace("vector_erf(", "erff(")
    return {
        "loops": scalar + without(library, simd, threads),
        "+ vectors": scalar + without(library, threads),
        "+ the C library's vector erf":
            cpp.headed("") + without(library, threads),
        "+ our erf": cpp.headed("") + without(full, threads),
        "+ threads": cpp.headed("") + full}


def main() -> None:
    x = torch.randn(4096, 1024)
    (kernel,) = kernels_of(tail, x)
    candidates = {"eager": lambda: tail(x)}
    theirs = torch.compile(tail)
    candidates["torch.compile"] = lambda: theirs(x)
    ours = minicompile.compile(tail)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text) in enumerate(rungs(kernel).items()):
            library = compiled(Path(folder), f"rung{number}", text)
            call = cpp.entry(library, kernel.name, 2)

            def run(call=call):
                out = torch.empty_like(x)
                call(x.data_ptr(), out.data_ptr())
                return out

            torch.testing.assert_close(run(), tail(x))
            candidates[name] = run
        candidates["minicompile"] = lambda: ours(x)
        seconds = compare(candidates)
    save("emit", [{"what": name, "ms": t * 1e3}
                  for name, t in seconds.items()])


if __name__ == "__main__":
    main()
