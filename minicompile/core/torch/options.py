"""torch.compile's names of options, and sizes as texts.

In: the name of an option, as a user of torch.compile gives it. Out: ours;
an option that only affects speed does nothing, for a reason. An unknown
name, or a name that would change results, is an OptionError. Without this
file an option that is not ours is a warning. PyTorch's are in
torch/_inductor/config.py.
"""

from __future__ import annotations

import re

from ..errors import one_of
from ..options import HINTS, MEANING, list_options

#: torch.compile's name for an option that has another name here.
ALIASES = {"triton.cudagraphs": "cudagraphs",
           "trace.enabled": "trace_enabled"}

HINTS |= {name: why for why, names in {
    "matrix products stay calls of PyTorch's library":
        "max_autotune max_autotune_gemm max_autotune_gemm_backends"
        " epilogue_fusion prologue_fusion",
    "fusion decides this by itself":
        "aggressive_fusion permute_fusion split_reductions combo_kernels",
    "kernels are not timed against each other":
        "max_autotune_pointwise coordinate_descent_tuning",
    "a pass decides which operands it pads": "shape_padding",
    "a pass decides the layout of convolutions": "layout_optimization",
    "kernels compile on all processors": "compile_threads",
    "recordings share one pool of memory": "triton.cudagraph_trees",
    "guards check the inputs": "size_asserts",
    "programs are Python": "cpp_wrapper",
    "weights stay inputs": "freezing",
    "what g++ makes is always kept on disk": "fx_graph_cache",
    "trace.enabled writes what each stage made": "debug",
    'explain(f)(x).save("page.html") draws it': "trace.graph_diagram",
}.items() for name in names.split()}


def meaning(name: str) -> str:
    """Our name of an option; an OptionError lists the names there are."""
    name = name.replace("-", "_")
    name = ALIASES.get(name, name)
    if name not in HINTS:
        one_of("option", name, list_options())
    return name


MEANING.append(meaning)

#: A number of bytes, with a unit.
_SIZE = re.compile(r"(\d+\.?\d*) ?(?:([KMGT])(i)?)?B")


def bytes_in(text: str) -> int | None:
    """The bytes in a text such as "12GiB" or "800MB"; else None."""
    if not (found := _SIZE.fullmatch(text)):
        return None
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** (
        " KMGT".index(prefix or " ")))
