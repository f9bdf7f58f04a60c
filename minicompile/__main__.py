"""`python -m minicompile`, or `minicompile`: the tour of a small model."""

from __future__ import annotations

from . import tour as main

if __name__ == "__main__":
    main()
