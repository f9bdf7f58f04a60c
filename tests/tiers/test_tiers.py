"""The road is a compiler by itself; the reference only adds to it."""

import ast
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from chapters._book.names import Package
from chapters._book.pages import ROOT
from chapters._book.reference import is_reference, stale
from tests.book.test_source import PACKAGE, imported

REFERENCE = [Path(file.shown_path) for file in Package(ROOT).files.values()
             if is_reference(file)]


def run(tmp_path, module, argument, without, **more):
    """Run a module of these tests on the package without some files."""
    copy = tmp_path / "minicompile"
    shutil.copytree(PACKAGE, copy,
                    ignore=shutil.ignore_patterns("__pycache__"))
    for path in without:
        (tmp_path / path).unlink()
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", f"tests.tiers.{module}", argument],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, **more})
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_the_road_alone_is_right(tmp_path):
    run(tmp_path, "road", "cpu", REFERENCE)


def test_the_road_alone_is_right_in_tritons_interpreter(tmp_path):
    run(tmp_path, "road", "interpreter", REFERENCE, TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("path", REFERENCE, ids=str)
def test_no_file_of_the_reference_is_needed(tmp_path, path):
    """Without it its stage's programs still give what eager gives."""
    run(tmp_path, "rare", path.parts[1], [path])


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("stage", sorted({p.parts[1] for p in REFERENCE}))
def test_a_stage_needs_no_file_of_its_reference(tmp_path, stage):
    """Without any of them its programs still give what eager gives."""
    run(tmp_path, "rare", stage, [path for path in REFERENCE
                                  if path.parts[1] == stage])


def test_the_road_never_imports_the_reference():
    parts = {".".join(path.with_suffix("").parts) for path in REFERENCE}
    parts |= {".".join(path.parent.parts) for path in REFERENCE}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(ROOT) not in REFERENCE:
            typed = {*only_typed(path)}
            assert not parts & {*imported(path)} - typed, path


def only_typed(path):
    """The modules that a file imports for type checkers, not to run."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and ast.unparse(
                node.test) == "TYPE_CHECKING":
            yield from (f"minicompile.{each.module}" for each in node.body)


def test_each_file_of_the_reference_is_loaded():
    """One whose own imports fail would be left out without a word."""
    import_module("minicompile")
    loaded = {name.replace(".", "/") + ".py" for name in sys.modules}
    assert [*filter(lambda path: str(path) not in loaded, REFERENCE)] == []


def test_no_subfolder_hides_a_name_of_its_package():
    """Loading `trace/torch/` puts it under the name `torch` there."""
    for folder in {path.parent for path in REFERENCE}:
        package = ROOT / folder.parent / "__init__.py"
        text = package.read_text() if package.exists() else ""
        used = {node.id for node in ast.walk(without_notes(text))
                if isinstance(node, ast.Name)}
        assert folder.name not in used, folder


def without_notes(text):
    """The module without annotations, which never run."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in {"annotation", "returns"} & {*node._fields}:
            note = getattr(node, name)
            setattr(node, name, note and ast.Constant(ast.unparse(note)))
    return tree


def test_each_file_of_the_reference_has_its_page():
    """Else: python -m chapters._book.reference"""
    assert stale() == []
