"""What tests and chapters' tools name in the package is there: also in the
slow tests, which a change is not run against each time."""

import ast
import importlib
import types

import pytest

from chapters._book.pages import ROOT

FILES = sorted([*(ROOT / "tests").rglob("*.py"),
                *(ROOT / "chapters" / "_book").rglob("*.py")])


def modules(tree):
    """The modules of the package that a file binds by `from … import`."""
    for node in ast.walk(tree):
        if (isinstance(node, ast.ImportFrom) and not node.level
                and node.module.startswith("minicompile")):
            module = importlib.import_module(node.module)
            for alias in node.names:
                value = getattr(module, alias.name)
                if isinstance(value, types.ModuleType):
                    yield alias.asname or alias.name, value


def missing(tree):
    """Each `module.name` that the module of the package has not."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
             and isinstance(node.ctx, ast.Store)} | {
        node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    known = {name: module for name, module in modules(tree)
             if name not in bound}
    for node in ast.walk(tree):
        if (isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in known
                and not hasattr(known[node.value.id], node.attr)):
            yield f"line {node.lineno}: {node.value.id}.{node.attr}"


@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_file_names_is_there(path):
    assert not list(missing(ast.parse(path.read_text())))


def test_a_name_that_is_gone_is_seen():
    wrong = ast.parse("from minicompile.core.machines import cost as prices\n"
                      "prices.MACHINES, prices.gone")
    assert list(missing(wrong)) == ["line 2: prices.gone"]
