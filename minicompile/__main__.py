"""`python -m minicompile`, or `minicompile`: the tour of a small model."""

from . import tour as main

if __name__ == "__main__":
    main()
