"""The tour: short, whole, and no wider than a terminal."""

import io

import pytest
from rich.console import Console

from minicompile.__main__ import STAGES, main
from minicompile.report.tour import tour


def shown(*arguments, width=96):
    console = Console(file=io.StringIO(), width=width)
    tour(*arguments, console=console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_the_tour_of_the_mlp(width):
    text = shown("mlp", "cpu", None, False, width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    assert len(lines) < 110
    heads = [line.split()[1] for line in lines
             if line[:2] in [f"{n} " for n in range(1, 8)]]
    assert heads == ["trace", "guards", "split", "fusion", "emit", "replay",
                     "budget"]
    losses = {line.split()[0]: line.split()[1:] for line in lines
              if line.startswith((" eager", " minicompile"))}
    assert losses["eager"] == losses["minicompile"]
    assert float(losses["eager"][-1]) < float(losses["eager"][0])


@pytest.mark.parametrize("stage", STAGES)
def test_one_stage_in_full(stage):
    text = shown("mlp", "cpu", stage)
    assert stage in text
    if stage not in ("replay", "budget"):
        assert len(text.splitlines()) > 25


def test_a_wrong_name_lists_what_is_allowed(capsys):
    with pytest.raises(SystemExit):
        main(["--model", "bert"])
    assert "resnet" in capsys.readouterr().err
