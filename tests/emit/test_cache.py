"""The cache: damaged, foreign or unsafe entries are never used."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from base64 import b64encode
from pathlib import Path

import pytest
import torch

import minicompile
from minicompile.__main__ import main
from minicompile.core import cache
from minicompile.core.disk import entries
from minicompile.core.log import warn_once
from minicompile.core.torch.extension import extension

KEY = cache.key_of("key")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache directory that does not exist yet."""
    path = tmp_path / "one" / "cache"
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(path))
    warn_once.cache_clear()
    return path


def signed(key):
    """A library as it lies on the disk: its content, and a hash."""
    return b"binary" + entries.digest(key.encode() + b"binary")


BINARY = signed(KEY)


def maker():
    """A `make` that gives b"binary" and counts how often it did."""
    def make():
        make.calls += 1
        return b"binary"
    make.calls = 0
    return make


def test_the_directory_is_made_for_the_user_alone(folder):
    assert cache.store("text", ".py").parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_text_is_stored_once_under_its_hash(folder):
    path = cache.store("text", ".py")
    before = path.stat().st_ino
    assert cache.store("text", ".py") == path
    assert path.stat().st_ino == before and path.read_text() == "text"
    assert cache.store("other", ".py") != path


def test_a_changed_text_is_written_again(folder):
    path = cache.store("text", ".py")
    path.write_text("import os; os.abort()")
    assert cache.store("text", ".py").read_text() == "text"


def test_a_binary_is_made_once(folder):
    make = maker()
    paths = {cache.made(KEY, make, Path) for _ in range(3)}
    assert make.calls == 1 and len(paths) == 1
    assert not list(folder.glob(".*")), "temporary files are left"


@pytest.mark.parametrize("damage", [
    b"", b"bin", b"binary", BINARY[:-1], b"c" + BINARY[1:], BINARY + b"a"])
def test_a_damaged_binary_is_made_again(folder, damage):
    make = maker()
    path = cache.made(KEY, make, Path)
    path.write_bytes(damage)
    assert cache.made(KEY, make, Path).read_bytes() == BINARY
    assert make.calls == 2


def test_a_link_to_another_file_is_not_followed(folder, tmp_path):
    make = maker()
    path = cache.made(KEY, make, Path)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(BINARY)
    path.unlink()
    path.symlink_to(foreign)
    assert not cache.made(KEY, make, Path).is_symlink()
    assert make.calls == 2


def test_a_file_that_others_can_write_is_made_again(folder):
    make = maker()
    os.chmod(cache.made(KEY, make, Path), 0o666)
    cache.made(KEY, make, Path)
    assert make.calls == 2


def test_a_directory_that_others_can_write_is_not_used(folder):
    folder.mkdir(parents=True)
    os.chmod(folder, 0o777)
    with pytest.warns(UserWarning, match="others can write"):
        private = cache.store("text", ".py").parent
    assert private != folder
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_directory_that_cannot_be_made_is_no_failure(folder):
    folder.parent.mkdir()
    folder.write_text("a file")
    with pytest.warns(UserWarning, match="does not use the cache"):
        assert cache.store("text", ".py").read_text() == "text"


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC,
                                    errno.EACCES], ids=errno.errorcode.get)
def test_a_directory_that_cannot_be_written_is_left_with_one_warning(
        folder, number, monkeypatch, recwarn):
    """What lies there is used; the rest goes to a temporary directory."""
    found, make, mkstemp = cache.store("old", ".py"), maker(), (
        tempfile.mkstemp)

    def refuse(suffix=None, prefix=None, dir=None):
        if dir == folder:
            raise OSError(number, os.strerror(number), "a name")
        return mkstemp(suffix, prefix, dir)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert cache.store("old", ".py") == found
    key = cache.key_of(f"key {number}")
    paths = {cache.made(key, make, Path) for _ in range(2)}
    paths |= {cache.store(f"new {number}", ".py")}
    assert {path.parent for path in paths} == {cache.private()}
    assert make.calls == 1
    warned, = recwarn
    assert os.strerror(number) in str(warned.message)


def test_without_the_reference_a_file_lasts_as_long_as_its_process(
        folder, monkeypatch):
    monkeypatch.setattr(cache, "ENTRIES", cache.ENTRIES[:1])
    make, key = maker(), cache.key_of("only the road")
    paths = {cache.made(key, make, Path) for _ in range(2)}
    paths |= {cache.store("only the road", ".py")}
    assert {path.parent for path in paths} == {cache.private()}
    assert make.calls == 1 and not folder.exists()

    def load(path):
        if make.calls == 1:
            raise OSError("of another system")
        return Path(path).read_bytes()
    assert cache.made(key, make, load) == b"binary" and make.calls == 2


def test_a_failed_make_leaves_nothing(folder):
    def fail():
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        cache.made(KEY, fail, Path)
    assert not list(folder.iterdir())


def test_one_that_does_not_load_is_made_again(folder):
    """It has the right hash, but is another system's."""
    make, loads = maker(), []

    def load(path):
        loads.append(path)
        if len(loads) == 2:
            raise OSError("version `GLIBC_2.99' not found")
        return path
    for _ in range(2):
        cache.made(KEY, make, load)
    assert (make.calls, len(loads)) == (2, 3)


def test_a_folder_that_vanishes_is_made_again(folder):
    """Here it goes between a library and its loading."""
    make = maker()

    def load(path):
        if make.calls == 1:
            Path(path).unlink()
            folder.rmdir()
        return Path(path).read_bytes()
    assert cache.made(KEY, make, load) == BINARY
    assert make.calls == 2


KERNEL = """
import ctypes
from minicompile.emit import cpp
library = cpp.built('extern "C" int answer() { return 42; }')
print(library.answer())
"""


def test_a_damaged_library_is_compiled_again(folder):
    def run():
        ran = subprocess.run([sys.executable, "-c", KERNEL], check=True,
                             capture_output=True, text=True)
        return ran.stdout.strip()

    assert run() == "42"
    (library,) = folder.glob("*.so")
    library.write_bytes(library.read_bytes()[:5000])
    assert run() == "42"
    assert library.stat().st_size > 5000


TWO = """
import sys, torch, minicompile
torch.__version__ = sys.argv[1]
from minicompile.guards.fast import c_functions
assert c_functions.compiled() is not None
compiled = minicompile.compile(lambda x: x.sin().exp() * 3)
x = torch.randn(64)
torch.testing.assert_close(compiled(x), x.sin().exp() * 3)
assert compiled.stats().kernels == 1 and not compiled.stats().fallbacks
"""


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("size", ["1GiB", "1B"])
def test_processes_of_two_versions_of_torch_share_a_folder(
        folder, monkeypatch, size):
    """At once: each has its own guards, and they have one kernel."""
    monkeypatch.setenv("MINICOMPILE_CACHE_SIZE", size)
    started = [subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning", "-c", TWO, version],
        stderr=subprocess.PIPE, text=True) for version in "112"]
    for each in started:
        _, said = each.communicate()
        assert each.returncode == 0, said
    assert len([*folder.glob("*.so")]) == 3


def aged(folder, sizes):
    """Libraries of these sizes; the first was used an hour ago, and so on
    in steps of a minute."""
    paths = []
    for number, size in enumerate(sizes):
        paths.append(cache.made(
            cache.key_of(f"{number}"),
            lambda size=size: b"x" * (size - 64), Path))
        os.utime(paths[-1], (0, time.time() - 3600 + 60 * number))
    return paths


def test_the_least_recently_used_entries_go(folder, monkeypatch):
    first, second, third = aged(folder, (1000, 1000, 1000))
    monkeypatch.setenv("MINICOMPILE_CACHE_SIZE", "2500B")
    cache.made(cache.key_of("0"), None, Path)
    new = cache.made(KEY, maker(), Path)
    assert {*folder.glob("*.so")} == {first, third, new}


def test_the_folder_is_read_again_after_a_share_of_the_limit(
        folder, monkeypatch):
    monkeypatch.setenv("MINICOMPILE_CACHE_SIZE", "6400B")
    sizes, listed = [], entries.entries
    monkeypatch.setattr(entries, "entries", lambda path: sizes.append(
        len(listed(path))) or listed(path))
    for number in range(6):
        cache.store(f"{number}" * 40, ".py")
    assert sizes == [1, 4]


def test_what_may_be_in_use_and_what_is_no_entry_stays(
        folder, monkeypatch):
    monkeypatch.setenv("MINICOMPILE_CACHE_SIZE", "1B")
    kept = [cache.store("one", ".py"), cache.store("two", ".cpp"),
            folder / "letter.py", folder / "a folder.so"]
    kept[2].write_text("not ours")
    kept[3].mkdir()
    for path in kept[2:]:
        os.utime(path, (0, 0))
    half = folder / f"{KEY}.left_by_a_killed_process"
    half.write_bytes(b"half")
    os.utime(half, (0, 0))
    cache.store("three", ".py")
    assert all(path.exists() for path in kept) and not half.exists()


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("size", ["much", "-1B", "", "1e9", "12"])
def test_a_size_that_is_none_is_an_error_at_import(size):
    ran = subprocess.run(
        [sys.executable, "-c", "import minicompile"], text=True,
        env={**os.environ, "MINICOMPILE_CACHE_SIZE": size},
        capture_output=True)
    assert ran.returncode and "OptionError: MINICOMPILE_CACHE_SIZE=" in (
        ran.stderr.splitlines()[-1])


def test_the_command_shows_and_clears(folder, capsys):
    def says(*arguments):
        main(["--cache", *arguments])
        return " ".join(capsys.readouterr().out.split())

    assert "0 entries" in says() and not folder.exists()
    make = maker()
    for _ in range(3):
        cache.made(KEY, make, Path)
    assert f"{folder}: 1 entries, 0.0 of 1024 MiB" in says()
    assert "0 entries" in says("clear")
    assert [*folder.iterdir()] == []
    with pytest.raises(SystemExit):
        says("burn")


def test_a_cache_moves_as_one_file(folder, tmp_path, monkeypatch):
    make, saved = maker(), tmp_path / "saved"
    names = {cache.made(cache.key_of(f"{n}"), make, Path).name
             for n in range(3)}
    cache.store("a text, which its program makes again", ".py")
    assert minicompile.save_cache(saved) == 3
    other = tmp_path / "other"
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(other))
    assert minicompile.load_cache(saved) == 3
    assert {path.name for path in other.iterdir()} == names
    for key in map(cache.key_of, "012"):
        assert cache.made(key, make, Path).read_bytes() == signed(key)
    assert make.calls == 3


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def line(name, content):
    """A line of a saved cache."""
    text = b64encode(content).decode() if isinstance(
        content, bytes) else content
    return json.dumps([name, text]).encode() + b"\n"


GOOD = line(f"{KEY}.so", BINARY)
HOSTILE = [
    *(line(name, BINARY) for name in (
        f"../{KEY}.so", f"/tmp/{KEY}.so", f"a/{KEY}.so", f"{KEY}.so/..",
        f"{KEY}\0.so", f"{KEY}.so\n", f"{KEY.upper()}!.so", "..", "",
        f"{KEY[:-1]}.so", f"{KEY[1:]}0.so", f"{KEY}.py", f"{KEY}.cpp",
        f"{KEY}.sh", "hits", ".so", None, 3, [f"{KEY}.so"],
        {"name": f"{KEY}.so"})),
    *(line(f"{KEY}.so", content) for content in (
        b"", b"binary", BINARY[:-1], BINARY + b"x", b"x" + BINARY,
        b"x" * 64, None, 3, "no base 64 !", {}, [1], "A")),
    pickle.dumps(Bomb()) + b"\n", b"[" * 100_000 + b"\n",
    b"1" * 10_000 + b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\xfe\n",
    b"[1, 2, 3]\n", b"NaN\n", b"\n", b'"ab"\n', b"\0" * 99 + b"\n"]


@pytest.mark.parametrize("bad", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_line_is_left_out(folder, tmp_path, bad):
    saved = tmp_path / "saved"
    saved.write_bytes(bad + GOOD + bad)
    before = {*tmp_path.rglob("*")}
    with pytest.warns(UserWarning, match="2 damaged lines"):
        assert minicompile.load_cache(saved) == 1
    assert {*tmp_path.rglob("*")} - before == {
        folder.parent, folder, folder / f"{KEY}.so"}


def damaged(chance, content):
    """The content with a few of its bytes changed, cut or doubled."""
    found = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(5):
            case 0 if found:
                found[at - 1] ^= 1 << chance.randrange(8)
            case 1:
                del found[at:]
            case 2:
                found[at:at] = chance.randbytes(chance.randint(1, 80))
            case 3:
                del found[at:at + chance.randint(1, 80)]
            case 4:
                found[at:at] = found[:at]
    return bytes(found)


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("seed", range(6))
def test_thousands_of_damaged_entries_are_made_again(folder, seed):
    """Nothing but what was made is ever used, and nothing raises."""
    chance, make = random.Random(seed), maker()
    path = cache.made(KEY, make, Path)
    for _ in range(500):
        content = damaged(chance, BINARY)
        path.write_bytes(content)
        before = make.calls
        assert cache.made(KEY, make, Path).read_bytes() == BINARY
        assert make.calls - before == (content != BINARY)
    text = "a program, of some length"
    path = cache.store(text, ".py")
    for _ in range(500):
        path.write_bytes(damaged(chance, text.encode()))
        assert cache.store(text, ".py").read_text() == text


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("seed", range(6))
def test_thousands_of_damaged_files_load_what_is_whole(
        folder, tmp_path, seed):
    chance, saved = random.Random(seed), tmp_path / "saved"
    for n in range(4):
        cache.made(cache.key_of(f"{n}"), maker(), Path)
    assert minicompile.save_cache(saved) == 4
    whole, names = saved.read_bytes(), {*folder.iterdir()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(700):
            entries.clear_entries()
            saved.write_bytes(damaged(chance, whole))
            minicompile.load_cache(saved)
            for path in folder.iterdir():
                assert path in names
                assert path.read_bytes() == signed(path.stem)
    assert {*tmp_path.iterdir()} == {saved, folder.parent}
    assert [*folder.parent.iterdir()] == [folder]


def test_an_extension_of_another_torch_is_another_library(
        folder, monkeypatch):
    texts = []
    monkeypatch.setattr(cache, "run", lambda *words: "c++ 1")
    monkeypatch.setattr(cache, "made", lambda key, *_: texts.append(key))
    cache.compiler.cache_clear()
    for version in ("2.1", "2.2", "2.1"):
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(AttributeError):
            extension("questions", "")
    cache.compiler.cache_clear()
    assert texts[0] == texts[2] != texts[1]
