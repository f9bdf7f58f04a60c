"""torch.compile's names of options and of logs, and sizes as texts.

In: the name of an option, as a user of torch.compile gives it. Out: ours;
an option that only affects speed may do nothing, and a hint says why. An
unknown name, or a name that would change results, is an OptionError. The
variable MINICOMPILE_LOGS lists artifacts, as TORCH_LOGS does, and they are
printed. Without this file an option that is not ours is a warning, and no
artifact is printed. PyTorch's are in torch/_inductor/config.py and
torch/_logging.
"""

import logging
import os
import re
import sys
from dataclasses import fields

from ..errors import one_of
from ..log import SHOWN
from ..options import HINTS, MEANING, MODES, Options

# Options

#: torch.compile's name for an option that has another name here.
ALIASES = {"triton.cudagraphs": "cudagraphs",
           "trace.enabled": "trace_enabled"}

HINTS |= {name: why for why, names in {
    "matrix products stay calls of PyTorch's library":
        "max_autotune max_autotune_gemm max_autotune_gemm_backends"
        " epilogue_fusion prologue_fusion",
    "fusion decides this by itself":
        "aggressive_fusion permute_fusion split_reductions combo_kernels"
        " loop_ordering_after_fusion triton.persistent_reductions",
    "kernels are not timed against each other":
        "max_autotune_pointwise coordinate_descent_tuning"
        " benchmark_fusion benchmark_kernel triton.multi_kernel",
    "a pass decides which operands it pads": "shape_padding",
    "a pass decides the layout of convolutions": "layout_optimization",
    "kernels compile on all processors": "compile_threads",
    "each recording has memory of its own": "triton.cudagraph_trees",
    "guards check the inputs": "size_asserts",
    "programs are Python": "cpp_wrapper",
    "kernels of one program have names of their own":
        "triton.unique_kernel_names triton.descriptive_names",
    "OMP_NUM_THREADS and torch.set_num_threads say it": "cpp.threads",
    "weights stay inputs": "freezing",
    "what is compiled is always kept on disk": "fx_graph_cache",
    "trace.enabled writes what each stage made": "debug",
    'explain(f)(x).save("page.html") draws it': "trace.graph_diagram",
}.items() for name in names.split()}


def meaning(name: str) -> str:
    """Our name of an option; an OptionError lists the names there are."""
    name = ALIASES.get(name, name)
    if name not in HINTS:
        one_of("option", name, list_options())
    return name


MEANING.append(meaning)


def list_options() -> list[str]:
    """The names that have an effect in compile(options={...})."""
    return [field.name for field in fields(Options)]


def list_mode_options(mode: str | None = None) -> dict:
    """The options that each mode sets, or those that `mode` sets."""
    if mode is None:
        return {name: dict(options) for name, options in MODES.items()}
    one_of("mode", mode, MODES)
    return dict(MODES[mode])


#: A number of bytes, with a unit.
_SIZE = re.compile(r"(\d+\.?\d*) ?(?:([KMGT])(i)?)?B")


def bytes_in(text: str) -> int | None:
    """The bytes in a text such as "12GiB" or "800MB"; else None."""
    if not (found := _SIZE.fullmatch(text)):
        return None
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** (
        " KMGT".index(prefix or " ")))

# Logs

#: The artifacts that can be asked for, and what each shows.
ARTIFACTS = {
    "graph_breaks": "where a graph ends, and why",
    "recompiles": "the guard that failed in each entry, before a new one",
    "guards": "the check of each entry",
    "graph_code": "the traced graph",
    "joint_graph": "forward and backward as one graph",
    "fusion": "the kernels as loops",
    "output_code": "the programs",
    "perf_hints": "why kernels stay apart, and why nothing is replayed",
    "memory": "the plans that a bound on the peak is chosen from",
    "dynamic": "the sizes and numbers that became symbols",
}

logger = logging.getLogger("minicompile")


def asked() -> set[str]:
    """The names in MINICOMPILE_LOGS now; OptionError for a wrong one."""
    names = {name.strip() for name in os.environ.get(
        "MINICOMPILE_LOGS", "").split(",")} - {""}
    for name in names:
        one_of("MINICOMPILE_LOGS artifact", name,
               (*ARTIFACTS, "all", "help"))
    return names


if "help" in asked():  # a wrong name is an error now
    print("MINICOMPILE_LOGS is a list of these, or all:", *(
        f"{name:13} {what}" for name, what in ARTIFACTS.items()),
        sep="\n  ", file=sys.stderr)


def printed(artifact: str, what: object) -> None:
    """Print `what` to standard error if MINICOMPILE_LOGS asks for it."""
    if asked().isdisjoint((artifact, "all")):
        return
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
    logger.info("[%s] %s", artifact, what)


SHOWN.append(printed)
