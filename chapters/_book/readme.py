"""README.md's table, from results/: `python -m chapters._book.readme`."""

from __future__ import annotations

import re

from chapters._book.draw import results
from chapters._book.pages import ROOT

README = ROOT / "README.md"
OPEN, CLOSE = "<!-- from chapters/results -->\n", "<!-- end -->"
WHO = ("eager", "torch.compile", "minicompile")

#: What a row says, its file, which of the file's rows, and the column.
ROWS = (
    ("GPT-2, a training step", "gpu_transformers", "gpt2", "step ms"),
    ("BERT-base, a training step", "gpu_transformers", "bert", "step ms"),
    ("Llama-1B, a training step", "gpu_transformers", "llama", "step ms"),
    ("GPT-2, memory at the peak", "gpu_transformers", "gpt2", "peak MiB"),
    ("GPT-2, the first step", "gpu_transformers", "gpt2", "first call s"),
    ("`x + 1`, a call", "gpu_calls", "x + 1, 16 elements", "us"),
    ("GELU of a layer norm", "cpu_kernels",
     "gelu(layer_norm(x))*2, 4096x1024", "ms"),
    ("the tour's ResNet, a training step", "cpu_models", "resnet", "ms"),
    ("the tour's GPT, the first step", "cpu_first_call", None, "median s"),
)


def measured(name: str, what: str | None, column: str) -> list[str]:
    """Times of eager, torch.compile and ours; ours as a share of theirs.

    A file has a row for each who, or a column for each.
    """
    found, values = dict.fromkeys(WHO, ""), {}
    for row in results(f"{name}.json")["rows"]:
        if what not in (None, row.get("model", row.get("what"))):
            continue
        who = row.get("who", row["what"] if "model" in row else None)
        for each in WHO if who is None else [who]:
            value = row[column if who else f"{each} {column}"]
            values[each] = value
            found[each] = (f"{value:,.0f}" if value >= 1000 else
                           f"{value:.3g}") + f" {column.split()[-1]}"
    _, theirs, ours = map(values.get, WHO)
    return [*found.values(), f"{ours / theirs:.2f}"]


def table() -> str:
    """The rows, each with the machine that it was measured on."""
    lines = ["| | machine | eager | torch.compile | minicompile | "
             "ours / torch.compile |", "|---|---|---|---|---|---|"]
    for title, name, what, column in ROWS:
        machine = results(f"{name}.json")["machine"]
        where = (machine["gpu"] or "").removeprefix("NVIDIA ") or (
            f"{machine['cpu_threads']} CPU cores")
        lines.append("| " + " | ".join([title, where, *measured(
            name, what, column)]) + " |")
    return "\n".join(lines) + "\n"


def wanted() -> str:
    """README.md as it should be."""
    text = README.read_text()
    pattern = re.escape(OPEN) + r".*?" + re.escape(CLOSE)
    return re.sub(pattern, lambda _: OPEN + table() + CLOSE, text,
                  flags=re.S)


if __name__ == "__main__":
    README.write_text(wanted())
