"""The time that the main pages take, and how hard they are to read.

Bounds only ever go down: `python -m chapters._book.reading` has each page.
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


def test_every_page_is_easy_to_read():
    """Short sentences, and never a long run of code without a word."""
    hard = [page for page in reading.read()
            if page.run > 60 or page.mean > 17 or page.ease < 60]
    assert hard == []


def test_how_hard_a_page_is_and_how_long_its_code_runs():
    easy = ["The cat `sat` on a mat.", "It is [so](a.md) fat!", "", "| No |"]
    hard = ["Notwithstanding considerable computational opportunities "
            "interoperability necessitates architecture."]
    assert reading.paragraphs(easy) == [
        "The cat Code on a mat. It is so fat!"]
    mean, ease = reading.ease(easy)
    assert mean == 5 and ease > 100
    assert reading.ease(hard)[1] < 0
    text = "One.\n@show a\n\n@show b c\n\nTwo.\n\n@show d\n"
    assert reading.longest_run(text, [30, 5, 34]) == 35


def test_what_counts_as_prose():
    text = "One `two`.\n\n@show a.b\n\n    ```python\n    three\n    ```\nFour."
    prose = pages.read("a.md", text).prose
    assert " ".join(prose).split() == ["One", "`two`.", "Four."]
    assert reading.mentioned("calls `two()` first", "a.b.two")
    assert not reading.mentioned("calls `twofold`", "a.b.two")
