"""`python -m minicompile`, or `minicompile`: the tour of a small model."""

from __future__ import annotations

from .report import COMMANDS


def main(arguments: list[str] | None = None) -> None:
    """Run the commands that the reference has."""
    for command in COMMANDS:
        command(arguments)


if __name__ == "__main__":
    main()
