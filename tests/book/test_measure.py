"""The scripts behind the book's figures follow the package."""

from importlib import import_module

import pytest

from chapters._book.pages import ROOT

SCRIPTS = sorted(path.stem for path in (
    ROOT / "chapters" / "measure").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_finds_what_it_measures(name):
    """A figure that nobody can take again is a claim."""
    import_module(f"chapters.measure.{name}")
