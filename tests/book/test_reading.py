"""The time that the main pages take, and the names they leave unexplained.

Both only ever go down: `python -m chapters._book.reading` has them by page.
"""

from chapters._book import pages, reading

HOURS, UNNAMED = 16.0, 0


def test_the_book_gets_no_longer():
    every = reading.read()
    assert sum(page.minutes for page in every) / 60 <= HOURS
    assert sum(len(page.unnamed) for page in every) <= UNNAMED


def test_the_pages_tell_more_than_they_list():
    """Seven words for each line of code, over the main pages."""
    every = reading.read()
    words, lines = (sum(getattr(page, each) for page in every)
                    for each in ("words", "lines"))
    assert words >= 7 * lines and lines <= 6500


def test_what_counts_as_prose():
    text = "One `two`.\n\n@show a.b\n\n    ```python\n    three\n    ```\nFour."
    prose = pages.read("a.md", text).prose
    assert " ".join(prose).split() == ["One", "`two`.", "Four."]
    assert reading.mentioned("calls `two()` first", "a.b.two")
    assert not reading.mentioned("calls `twofold`", "a.b.two")
