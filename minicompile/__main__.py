"""`python -m minicompile`, or `minicompile`: the tour of a small model."""

from __future__ import annotations

from .models import build
from .report import COMMANDS, explain


def main(arguments: list[str] | None = None) -> None:
    """Run the commands there are; without any, print a report."""
    if not COMMANDS:
        model, batch = build("gpt")
        print(explain(model)(*batch))
    for command in COMMANDS:
        command(arguments)


if __name__ == "__main__":
    main()
