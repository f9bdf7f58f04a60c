"""Compilers that are missing, broken, old, or called through another."""

import os
import shutil
import stat
import warnings

import pytest
import torch

import minicompile
from minicompile.core import cache as compiler
from minicompile.core import log
from minicompile.core.errors import CompileError
from minicompile.emit import cpp
from minicompile.guards.fast import c_functions


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes CXX a shell script; nothing has been compiled before."""
    c_functions.compiled()  # what other tests use
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    log.warn_once.cache_clear()

    def make(text: str, *flags: str) -> str:
        path = tmp_path / "bin" / "c++"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", " ".join([str(path), *flags]))
        compiler.compiler.cache_clear()
        c_functions.begun.cache_clear()
        return str(path)
    yield make
    compiler.compiler.cache_clear()
    c_functions.begun.cache_clear()


VERSION = 'test "$1" = --version && echo c++ 4.8 && exit 0\n'
#: What a compiler does, and what is said about it.
BROKEN = {
    "always fails": ("exit 1", "status 1"),
    "cannot start": ("echo 'libisl.so.23: cannot open' >&2; exit 127",
                     "libisl.so.23: cannot open"),
    "has no cc1plus": (VERSION + "echo 'note' >&2\necho 'fatal error: no "
                       "cc1plus' >&2\nexit 1", "fatal error: no cc1plus"),
    "is too old": (VERSION + "echo \"error: unrecognized option '-std=c++17'"
                   "\" >&2; exit 1", "unrecognized option"),
    "is killed": (VERSION + "kill -9 $$", "status -9"),
    "makes nothing": (VERSION + "exit 0", "writes no library"),
    "makes rubbish": (VERSION + 'while test "$1" != -o; do shift; done\n'
                      'echo rubbish > "$2"', "invalid ELF header"),
}


def layer(x, w):
    return (x @ w).relu().sum(1) * 3


def results(function):
    """The result and the gradients."""
    torch.manual_seed(0)
    args = [torch.randn(4, 5, requires_grad=True),
            torch.randn(5, 6, requires_grad=True)]
    found = function(*args)
    found.sum().backward()
    return found.detach(), *(arg.grad for arg in args)


def assert_unfused(says: str) -> None:
    """A call is eager's, forward and backward, with one warning."""
    compiled = minicompile.compile(layer)
    with pytest.warns(UserWarning) as warned:
        for _ in range(2):
            for got, want in zip(results(compiled), results(layer)):
                assert torch.equal(got, want)
    text, = (str(each.message) for each in warned)
    assert text.startswith("minicompile does not fuse: ")
    assert says in text and len(text) < 500
    assert "CXX" in text or says == "invalid ELF header"
    (fallback, count), = compiled.stats().fallbacks.items()
    assert says in fallback and count == 1
    assert compiled.stats().kernels == 0


@pytest.mark.parametrize("kind", BROKEN)
def test_a_compiler_that_does_not_work_costs_speed_only(fake, kind):
    fake(BROKEN[kind][0])
    assert_unfused(BROKEN[kind][1])
    assert c_functions.compiled.__wrapped__() is None


@pytest.mark.parametrize("named", ["no-such-compiler", "no-such-ccache g++",
                                   "'"])
def test_a_compiler_that_is_not_there_costs_speed_only(
        fake, monkeypatch, named):
    monkeypatch.setenv("CXX", named)
    says = "No closing quotation" if named == "'" else "apt install g++"
    assert_unfused(says)
    assert c_functions.compiled.__wrapped__() is None


def test_a_file_that_is_no_program_costs_speed_only(
        fake, monkeypatch, tmp_path):
    path = fake("")
    with open(path, "w") as file:
        file.write("no program")
    assert_unfused("Exec format error")


def test_two_graphs_without_a_compiler_warn_once(fake):
    fake("exit 1")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for function in (layer, lambda x, w: (x @ w).sin()):
            results(minicompile.compile(function))
    assert len(warned) == 1


def test_cxx_may_hold_flags_and_a_launcher(fake):
    """As a shell splits it: a launcher, the compiler, a flag with a space."""
    ran = shutil.which("g++")
    log_file = fake('echo "$@" >> "$0.log"\nexec "$@"', ran,
                    "'-DA_FLAG=\"two words\"'") + ".log"
    library = cpp.built('extern "C" int length() {'
                         " return sizeof(A_FLAG); }")
    assert library.length() == len("two words") + 1
    assert c_functions.compiled.__wrapped__() is not None
    assert len(open(log_file).read().splitlines()) == 3


def test_a_cache_too_full_for_the_compiler_is_left(fake, tmp_path):
    fake(f"""case "$*" in *"-o {tmp_path}/cache"*) exit 1; esac
             exec {shutil.which("g++")} "$@" """)
    assert cpp.built('extern "C" int one() { return 1; }').one() == 1


def test_another_compiler_makes_another_library(fake):
    ran = shutil.which("g++")
    text = 'extern "C" int number() { return NUMBER; }'
    for number in (1, 2):
        os.environ["CXX"] = f"{ran} -DNUMBER={number}"
        assert cpp.built(text).number() == number


def test_an_error_in_a_text_names_its_file(fake):
    with pytest.raises(CompileError, match=r"g\+\+ fails: .*\.cpp:.*error"):
        cpp.built("nonsense;")
