"""`python -m minicompile`, or `minicompile`: the tour of a small model."""

from __future__ import annotations

import argparse

import torch

from . import __version__
from .models import MODELS
from .report.tour import tour

#: The stages that --stage can name, in order.
STAGES = ("trace", "guards", "split", "budget", "fusion", "emit", "replay")


EXAMPLES = """examples:
  minicompile                              the GPT, each stage, then timed
  minicompile --model mlp --no-compare     the shortest tour
  minicompile --model resnet --stage emit  every kernel of the ResNet
  minicompile --device cuda                Triton kernels on the GPU

MINICOMPILE_LOGS=guards,output_code prints what a stage made while it runs.
"""


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and give the tour."""
    parser = argparse.ArgumentParser(
        prog="minicompile", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compile a small model, show each stage, compare it "
                    "with eager and torch.compile.")
    parser.add_argument("--version", action="version", version=(
        f"minicompile {__version__}, torch {torch.__version__}"))
    parser.add_argument("--model", choices=MODELS, default="gpt",
                        help="which of the book's models (default: gpt)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--stage", choices=STAGES,
                        help="show one stage in full, and nothing else")
    parser.add_argument("--no-compare", action="store_true",
                        help="do not time eager and torch.compile")
    given = parser.parse_args(arguments)
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {given.device}: torch sees no CUDA GPU")
    tour(given.model, given.device, given.stage, not given.no_compare)


if __name__ == "__main__":
    main()
