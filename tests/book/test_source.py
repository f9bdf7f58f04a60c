"""The shape of the source: who imports whom, how wide, how much."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from chapters._book.pages import ROOT

PACKAGE = ROOT / "minicompile"
FILES = sorted(PACKAGE.rglob("*.py"))
STAGES = ("trace", "guards", "split", "fusion", "emit", "replay", "budget")
DRIVER = ("pipeline", "dispatch", "driver")
FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch")
#: All that is neither blank nor comment; and the road, as `wc -l` counts.
LINES, ROAD = 21_506, 9_580


def name_of(path):
    return path.relative_to(PACKAGE).as_posix()


def imported(path):
    """Dotted names of every module that a file imports."""
    here = ("minicompile", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = here[:len(here) - node.level + 1] if node.level else ()
            base = ".".join([*up, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def layer(part):
    """0 core, 1 a stage, 2 the driver, 3 what stands above it."""
    if part == "core":
        return 0
    if part in STAGES:
        return 1
    return 2 if part in DRIVER else 3


def bad_imports(path):
    """The imports of a file that go up, across, or to what we rewrite."""
    part = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for module in imported(path):
        if module.startswith(FORBIDDEN):
            yield module
        if not module.startswith("minicompile."):
            continue
        other = module.split(".")[1]
        up = layer(other) > layer(part)
        across = layer(part) == layer(other) == 1 and other != part
        if up or across:
            yield module


def touches(path):
    """`torch._dynamo…` written as an expression: loaded or called."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text in FORBIDDEN:
                yield text


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_one_way(path):
    assert list(bad_imports(path)) == []
    assert list(touches(path)) == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_lines_are_76_columns_at_most(path):
    wide = [f"{path}:{number} has {len(line)}" for number, line in
            enumerate(path.read_text().splitlines(), 1) if len(line) > 76]
    assert wide == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_says_what_it_does(path):
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def code_lines(path):
    """How many lines are neither blank nor only a comment."""
    text = path.read_text()
    kept = {line for token in tokenize.generate_tokens(
        io.StringIO(text).readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL,
                              tokenize.NEWLINE, tokenize.INDENT,
                              tokenize.DEDENT, tokenize.ENDMARKER)
        for line in range(token.start[0], token.end[0] + 1)}
    return sum(bool(text.splitlines()[n - 1].strip()) for n in kept)


def test_the_whole_package_stays_small():
    assert sum(map(code_lines, FILES)) <= LINES


def test_the_road_stays_short():
    """The road: files of no stage's subfolder."""
    road = [path for path in FILES
            if len(path.relative_to(PACKAGE).parts) < 3]
    assert sum(path.read_text().count("\n") for path in road) <= ROAD


def test_the_checks_can_fail(tmp_path, monkeypatch):
    """Each of the rules above catches a file that breaks it."""
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    for part in ("core", "trace", "split"):
        (tmp_path / part).mkdir()
    (tmp_path / "driver.py").write_text("")

    def wrong(where, text):
        path = Path(tmp_path / where)
        path.write_text(text)
        return [*bad_imports(path), *touches(path)]

    assert wrong("core/a.py", "from ..trace import x\n")
    assert wrong("core/a.py", "from minicompile.driver import x\n")
    assert wrong("trace/a.py", "from ..split.b import x\n")
    assert wrong("trace/a.py", "from .. import split\n")
    assert wrong("trace/a.py", "from ..driver import x\n")
    assert wrong("trace/a.py", "import torch._dynamo.utils\n")
    assert wrong("trace/a.py", "from torch import _dynamo\n")
    assert wrong("trace/a.py", "import torch\ntorch._inductor.config\n")
    assert not wrong("trace/a.py", "from ..core import x\nfrom . import b\n")
    assert not wrong("driver.py", "from .trace import x\n")


@pytest.mark.parametrize("parts", [
    ("core", "trace", "guards", "dispatch"),
    ("core", "fusion", "emit", "pipeline.py")], ids=" ".join)
def test_no_name_is_defined_in_two_files(parts):
    homes = {}
    for path in FILES:
        if name_of(path).split("/")[0] in parts:
            for name in {*defined(path)} - {"__all__"}:
                homes.setdefault(name, []).append(name_of(path))
    assert not {name: files for name, files in homes.items() if files[1:]}


def defined(path):
    """The names that a file defines, not those that it imports."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in getattr(node, "targets", None) or [node.target]:
                yield from (
                    each.id for each in ast.walk(target)
                    if isinstance(each, ast.Name)
                    and isinstance(each.ctx, ast.Store))
