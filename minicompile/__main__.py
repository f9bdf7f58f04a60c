"""`python -m minicompile`: the tour of one small model."""

from __future__ import annotations

import argparse

from .models import MODELS
from .report.tour import tour

#: The stages that --stage can name, in order.
STAGES = ("trace", "guards", "split", "budget", "fusion", "emit", "replay")


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and give the tour."""
    parser = argparse.ArgumentParser(
        prog="python -m minicompile",
        description="Compile a small model, show each stage, compare.")
    parser.add_argument("--model", choices=MODELS, default="gpt")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--stage", choices=STAGES,
                        help="show one stage in full, and nothing else")
    parser.add_argument("--no-compare", action="store_true",
                        help="do not time eager and torch.compile")
    given = parser.parse_args(arguments)
    tour(given.model, given.device, given.stage, not given.no_compare)


if __name__ == "__main__":
    main()
