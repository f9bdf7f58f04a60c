"""The tour: short, whole, and no wider than a terminal."""

import io
import subprocess
import sys
from collections import Counter

import pytest
import torch
from rich.console import Console

import minicompile
from minicompile.__main__ import main
from minicompile.guards.fast import c_functions
from minicompile.report.views import tour as module
from minicompile.report.views.tour import show


def shown(*arguments, width=96):
    console = Console(file=io.StringIO(), width=width)
    show(*arguments, console=console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_the_tour_of_the_mlp(width):
    text = shown("mlp", "cpu", False, width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    assert len(lines) < 110
    heads = [line.split()[1] for line in lines
             if line[:2] in [f"{n} " for n in range(1, 8)]]
    assert heads == ["trace", "guards", "split", "fusion", "emit", "replay",
                     "budget"]
    losses = {line.split()[0]: line.split()[-4:] for line in lines
              if line.startswith((" eager", " minicompile"))}
    assert losses["eager"] == losses["minicompile"]
    assert float(losses["eager"][-1]) < float(losses["eager"][0])


def test_an_unknown_flag_is_an_error(capsys):
    with pytest.raises(SystemExit):
        main(["--stage", "fusion"])
    assert "--stage" in capsys.readouterr().err


def test_where_torch_compile_fails_the_others_are_timed(monkeypatch):
    def no_compiler(model):
        def call(*batch):
            raise RuntimeError("no C++ compiler\n" + "trace back " * 99)
        model.forward = call
        return model
    monkeypatch.setattr(torch, "compile", no_compiler)
    text = shown("mlp")
    assert "torch.compile fails here: RuntimeError: no C++" in text
    rows = [line.split()[0] for line in text.splitlines() if " ms " in line]
    assert rows == ["eager", "minicompile"]


def test_each_makes_the_same_steps_and_says_if_its_cache_was_warm(
        tmp_path, monkeypatch):
    steps, whole = Counter(), module.stepper

    def counted(model, *given):
        step = whole(model, *given)

        def count():
            steps[model] += 1
            return step()
        return count
    monkeypatch.setattr(module, "stepper", counted)
    monkeypatch.setattr(torch, "compile", lambda model: model)
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path))
    for wanted in ("cold", "warm"):
        steps.clear()
        c_functions.compiled()
        row, = (line.split() for line in shown("mlp").splitlines()
                if line.startswith(" minicompile"))
        assert row[1] == wanted
        assert [*steps.values()] == [module.STEPS] * 3
    assert [module.warmth(*each) for each in (
        (0, 0), (0, 2), (2, 0), (1, 2))] == ["", "cold", "warm", "1 of 3"]


def test_what_the_command_says_about_itself(capsys):
    for flag, word in (("--version", minicompile.__version__),
                       ("--help", "examples:")):
        with pytest.raises(SystemExit) as stop:
            main([flag])
        assert stop.value.code == 0
        assert word in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "tpu", "meta"])
def test_a_device_that_is_not_there(device, capsys):
    with pytest.raises(SystemExit):
        main(["--device", device])
    assert "no CUDA GPU" in capsys.readouterr().err.splitlines()[-1]


def test_a_wrong_name_lists_what_is_allowed(capsys):
    with pytest.raises(SystemExit):
        main(["--model", "bert"])
    assert "resnet" in capsys.readouterr().err


def test_an_import_does_not_wait_for_what_only_the_tour_needs():
    """They took as long as all the rest of minicompile's import."""
    subprocess.run([sys.executable, "-c", (
        "import sys, minicompile; assert not sys.modules.keys() & "
        "{'rich.console', 'torch.utils.benchmark'}")], check=True)
