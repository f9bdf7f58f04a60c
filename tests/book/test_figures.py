"""Figures in the prose: a block or a box of the page vouches for each."""

import pytest

from chapters._book import figures


def test_every_figure_is_vouched_for():
    """Else: python -m chapters._book.figures; assert it in a block."""
    assert figures.unvouched() == []
    pages = "\n".join(figures.Book(figures.pages.ROOT).texts.values())
    assert [words for words in figures.EXEMPT if words not in pages] == []


@pytest.mark.parametrize("text, values", [
    ("It moves 96 MiB and four million elements, in 3.3 s.",
     [96, 4e6, 3.3]),
    ("Two thirds of the time, three kernels, five graphs, a quarter.",
     [2 / 3, 3, 5, .25]),
    ("About 50 trillion, twenty-eight, 20,924 or six hundred.",
     [50e12, 28, 20924, 600]),
    ("One kernel. Two functions and three ways, the third call.", []),
    ("In chapter 12, Python 3.12 and torch 2.13 with `x[12]`, [a](b12.md).",
     []),
    ("8. An item, of 64-bit numbers.\n", []),
    ("```python\nx = 12\n```\n# 12 heads\n**3.4 Twelve.** By hand.\n", []),
])
def test_what_counts_as_a_figure(text, values):
    found = [each.value for each in figures.figures("a.md", text)]
    assert found == pytest.approx(values)


@pytest.mark.parametrize("code, value, right", [
    ("assert moved == 96 * 2**20", 96, True), ("x = 97", 96, False),
    ("x = 4  # 96 of them", 96, False), ("pass", 96, False),
    ("assert 0.6 < share < 0.7", 2 / 3, True),
    ("assert rate > 4.2e12", 4.2, True), ("n = 4_000_000", 4e6, False),
    ("assert 45 < frames < 60", 50, True),
    ("assert n == 4_000_000", 4e6, True),
    ("assert 1 < frames < 60", 50, False), ("assert share == 0.4", 40, True),
    ("assert 125 < saved < 145", 134, False)])
def test_what_vouches(code, value, right):
    class Empty:
        package = None

    text = f'```python exec="1"\n{code}\n```\n'
    assert figures.is_vouched(value, figures.vouched(
        "a.md", text, Empty())) is right
