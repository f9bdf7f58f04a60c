"""The clock of a compile: seconds by stage, and a line when it is long."""

import io
import sys
import time

import pytest
import torch

import minicompile
from minicompile.core import log
from minicompile.report.debugging import timing


class Terminal(io.StringIO):
    def isatty(self):
        return True


def slowly(seconds):
    """A backend that takes so long."""
    def backend(graph, inputs):
        log.enter("fusion")
        time.sleep(seconds)
        return graph
    return backend


@pytest.mark.parametrize("seconds, is_shown", [(0, False), (0.8, True)])
def test_only_a_long_compile_shows_its_stage(
        monkeypatch, seconds, is_shown):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(timing, "PATIENCE", 0.4)
    compiled = minicompile.compile(lambda x: x + 1,
                                   backend=slowly(seconds))
    assert compiled(torch.zeros(2)).tolist() == [1, 1]
    said = terminal.getvalue()
    assert ("minicompile: fusion" in said) == is_shown
    time.sleep(0.5)  # no line comes after the compile
    assert terminal.getvalue() == said
    assert timing.CLOCK.stage == ""


def test_without_a_terminal_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(timing, "PATIENCE", 0)
    compiled = minicompile.compile(lambda x: x + 1, backend=slowly(0.05))
    compiled(torch.zeros(2))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", [None, object()])
def test_a_process_may_have_no_standard_error(monkeypatch, stream):
    compiled = minicompile.compile(lambda x: x + 1)
    monkeypatch.setattr(sys, "stderr", stream)
    assert compiled(torch.zeros(2)).tolist() == [1, 1]


def test_seconds_are_of_the_stages_of_one_compile():
    def fails(graph, inputs):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        minicompile.compile(lambda x: x + 2, backend=fails)(torch.zeros(2))
    assert timing.CLOCK.stage == "" and "trace" in timing.CLOCK.seconds
    start = time.perf_counter()
    minicompile.compile(lambda x: x.exp() + 1)(
        torch.ones(2, requires_grad=True))
    whole = time.perf_counter() - start
    seconds = timing.CLOCK.seconds
    assert [*seconds] == ["trace", "split", "fusion", "emit", "guards"]
    assert all(each > 0 for each in seconds.values())
    assert sum(seconds.values()) <= whole
    torch.compile(lambda x: x.exp() + 1, backend=minicompile.backend)(
        torch.ones(2))
    assert [*timing.CLOCK.seconds] == ["split", "fusion", "emit"]
    assert timing.CLOCK.stage == ""
