"""The cache: damaged, foreign or unsafe entries are never used."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile

import pytest

from minicompile.core import cache
from minicompile.core.log import forget_warnings


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache directory that does not exist yet."""
    path = tmp_path / "one" / "cache"
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(path))
    forget_warnings()
    return path


def maker():
    """A `make` that writes b"binary" and counts how often it did."""
    def make(path):
        make.calls += 1
        path.write_bytes(b"binary")
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
    paths = {cache.made("key", ".so", make) for _ in range(3)}
    assert make.calls == 1 and len(paths) == 1
    assert not list(folder.glob(".*")), "temporary files are left"


@pytest.mark.parametrize("damage", [
    b"", b"bin", b"binarz", b"binary and more"])
def test_a_damaged_binary_is_made_again(folder, damage):
    make = maker()
    path = cache.made("key", ".so", make)
    path.write_bytes(damage)
    assert cache.made("key", ".so", make).read_bytes() == b"binary"
    assert make.calls == 2


def test_a_binary_without_its_hash_is_made_again(folder):
    make = maker()
    cache.made("key", ".so", make).with_suffix(".sha256").unlink()
    cache.made("key", ".so", make)
    assert make.calls == 2


def test_a_link_to_another_file_is_not_followed(folder, tmp_path):
    make = maker()
    path = cache.made("key", ".so", make)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"binary")
    path.unlink()
    path.symlink_to(foreign)
    assert not cache.made("key", ".so", make).is_symlink()
    assert make.calls == 2


def test_a_file_that_others_can_write_is_made_again(folder):
    make = maker()
    os.chmod(cache.made("key", ".so", make), 0o666)
    cache.made("key", ".so", make)
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
    found, make, mkdtemp = cache.store("old", ".py"), maker(), (
        tempfile.mkdtemp)

    def refuse(suffix=None, prefix=None, dir=None):
        if dir == folder:
            raise OSError(number, os.strerror(number), "a name")
        return mkdtemp(suffix, prefix, dir)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    assert cache.store("old", ".py") == found
    paths = {cache.made(f"key {number}", ".so", make) for _ in range(2)}
    paths |= {cache.store(f"new {number}", ".py")}
    assert {path.parent for path in paths} == {cache._private()}
    assert make.calls == 1
    warned, = recwarn
    assert os.strerror(number) in str(warned.message)


def test_a_failed_make_leaves_nothing(folder):
    def fail(path):
        path.write_bytes(b"half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        cache.made("key", ".so", fail)
    assert not list(folder.glob("*.so")) + list(folder.glob(".*"))


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
