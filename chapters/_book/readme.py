"""README.md's table and picture: `python -m chapters._book.readme`.

In: the files in results/, the stages and the colours of the book. Out: the
table between two marks, and assets/pipeline.svg.
"""

from __future__ import annotations

import re

from chapters._book import draw
from chapters._book.draw import results
from chapters._book.pages import DOCS, ROOT

README = ROOT / "README.md"
OPEN, CLOSE = "<!-- from chapters/results -->\n", "<!-- end -->"
WHO = ("eager", "torch.compile", "minicompile")

#: What a row says, its file, which of the file's rows, and the column.
ROWS = (
    ("GPT-2, a training step", "gpu_transformers", "gpt2", "step ms"),
    ("BERT-base, a training step", "gpu_transformers", "bert", "step ms"),
    ("Llama-1B, a training step", "gpu_transformers", "llama", "step ms"),
    ("Llama-1B, a word after 200", "gpu_word", None, "word ms"),
    ("GPT-2, memory at the peak", "gpu_transformers", "gpt2", "peak MiB"),
    ("GPT-2, the first step", "gpu_transformers", "gpt2", "first call s"),
    ("`x + 1`, a call", "gpu_calls", "x + 1, 16 elements", "us"),
    ("a Kalman filter's four steps, a call", "gpu_calls",
     "a Kalman filter, 4 steps", "us"),
    ("GELU of a layer norm", "cpu_kernels",
     "gelu(layer_norm(x))*2, 4096x1024", "ms"),
    ("a word through a small Llama", "cpu_words", "a word, float32", "ms"),
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


#: What each stage hands to the next one.
HANDS_ON = {
    "trace": ("FX graph,", "guards"), "guards": ("one check", "function"),
    "split": ("forward,", "backward"), "fusion": ("loops in", "kernels"),
    "emit": ("C++, Triton,", "a program"), "replay": ("one CUDA", "graph")}
PICTURE = DOCS / "assets" / "pipeline.svg"
WIDE, GAP = 88, 24  # a stage, and the arrow behind it


def picture() -> str:
    """The pipeline as a file of its own, light or dark as the reader is."""
    parts, x = [], 2.0
    for number, stage in enumerate(draw.STAGES):
        colour = draw.COLOURS[0] if stage in HANDS_ON else draw.FAINT
        parts += [draw.box(x, 4, WIDE, 30, colour, fill=.12),
                  draw.text(x + WIDE / 2, 23, stage, anchor="middle",
                            bold=True)]
        parts += [draw.text(x + WIDE / 2, 52 + 15 * line, words,
                            anchor="middle", colour=draw.MUTED)
                  for line, words in enumerate(HANDS_ON.get(stage, ()))]
        x += WIDE
        if number < len(draw.STAGES) - 1:
            parts += [draw.line([(x + 4, 19), (x + GAP - 4, 19)]),
                      draw.line([(x + GAP - 9, 14), (x + GAP - 4, 19),
                                 (x + GAP - 9, 24)])]
            x += GAP
    light, dark = (" ".join(re.findall(
        r"--(?:md-default-fg|book-a)[\w-]*: *#\w+;", block))
        for block in re.findall(r"scheme=[^{]*\{(.*?)\n\}", (
            DOCS / "book.css").read_text(), re.S)[:2])
    style = (f"<style>svg {{ {light} font-family: ui-monospace, monospace }} "
             f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}"
             "</style>")
    title = "What happens to a function, stage by stage"
    svg = draw.figure([style, *parts], x + 2, 76, title).svg
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ',
                       1) + "\n"


if __name__ == "__main__":
    README.write_text(wanted())
    PICTURE.write_text(picture())
