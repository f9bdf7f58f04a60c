"""Every line of minicompile/ is shown exactly once in the book."""

from chapters._book.shown import problems


def test_every_line_is_shown_once():
    assert problems() == []
