"""The lines of a package's source that each dotted name owns.

In: a folder of Python files and names such as `minicompile.core.graph`,
`minicompile.core.graph.render`, `minicompile.core.guard.Item.code`.
Out: the file and the line numbers of the definition, comments directly
above it included. A module owns its whole file, a class its whole body,
and `minicompile.core.graph.render."if x"` one branch of a function: the
line that begins so, and those below it that stand further in.
`split` takes out the lines that a closer name owns.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class File:
    """One source file: its text, and the lines of every definition."""

    module: str
    path: Path
    root: Path
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def shown_path(self) -> str:
        """The path as the book prints it."""
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def tree(self) -> ast.Module:
        """The file parsed."""
        return ast.parse("\n".join(self.lines))

    @cached_property
    def spans(self) -> dict[str, set[int]]:
        """Dotted name -> the numbers of the lines it owns."""
        whole = {self.module: set(range(1, len(self.lines) + 1))}
        self._collect(self.tree.body, self.module, whole)
        return whole

    def lines_of(self, name: str) -> set[int] | None:
        """The lines of a definition, or of a branch; None if not here."""
        whole, quote, first = name.partition('."')
        if not quote or whole not in self.spans:
            return self.spans.get(name)
        found = [n for n in self.spans[whole] if self.lines[
            n - 1].lstrip().startswith(first.removesuffix('"'))]
        return self._block(found[0]) if len(found) == 1 else None

    def _block(self, number: int) -> set[int]:
        """A line, and those right below it that stand further in."""
        def inset(line: str) -> int:
            return len(line) - len(line.lstrip())

        last = number
        for at in range(number + 1, len(self.lines) + 1):
            line = self.lines[at - 1]
            if line.strip():
                if inset(line) <= inset(self.lines[number - 1]):
                    break
                last = at
        return set(range(number, last + 1))

    @cached_property
    def imports(self) -> dict[str, str]:
        """The meaning of each global name here: name -> dotted name."""
        package = self.module.split(".")
        if self.path.name != "__init__.py":
            package.pop()
        known = {name.removeprefix(self.module + "."): name
                 for name in self.spans if name != self.module}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                up = package[:len(package) - node.level + 1]
                base = [*(up if node.level else []),
                        *([node.module] if node.module else [])]
                for name in node.names:
                    known.setdefault(name.asname or name.name,
                                     ".".join([*base, name.name]))
        return known

    @cached_property
    def mentions(self) -> dict[tuple[int, int], str]:
        """(line, column) of each global name used -> dotted name."""
        found: dict[tuple[int, int], str] = {}

        def visit(node: ast.AST, hidden: frozenset[str]) -> str | None:
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                hidden |= _locals(node)
            inner = [visit(part, hidden)
                     for part in ast.iter_child_nodes(node)]
            match node:
                case ast.Name(id=name) if name not in hidden:
                    meant = self.imports.get(name)
                    at = (node.lineno, node.col_offset)
                case ast.Attribute(attr=name) if inner[0]:
                    meant = f"{inner[0]}.{name}"
                    at = (node.end_lineno, node.end_col_offset - len(name))
                case _:
                    return None
            if meant:
                found[at] = meant
            return meant

        visit(self.tree, frozenset())
        return found

    def _collect(self, body: list, prefix: str, found: dict) -> None:
        """Enter the definitions of a module's or class's body."""
        for node in body:
            for name in _names(node):
                dotted = f"{prefix}.{name}"
                found.setdefault(dotted, set()).update(self._extent(node))
            if isinstance(node, ast.ClassDef):
                self._collect(node.body, f"{prefix}.{node.name}", found)
            if isinstance(node, (ast.If, ast.Try)):
                self._collect(node.body, prefix, found)
                self._collect(node.orelse, prefix, found)

    def _extent(self, node: ast.stmt) -> range:
        """Its lines: decorators and the comments right above included."""
        first = min([node.lineno, *(d.lineno for d in getattr(
            node, "decorator_list", []))])
        indent = " " * node.col_offset
        while first > 1 and self.lines[first - 2].startswith(indent + "#"):
            first -= 1
        return range(first, node.end_lineno + 1)


def _names(node: ast.stmt) -> list[str]:
    """The names a statement defines."""
    match node:
        case ast.Assign(targets=targets):
            flat = [part for target in targets
                    for part in getattr(target, "elts", [target])]
            return [t.id for t in flat if isinstance(t, ast.Name)]
        case (ast.AnnAssign(target=ast.Name(id=name))
              | ast.AugAssign(target=ast.Name(id=name))):
            return [name]
        case _ if isinstance(node, _DEFINES):
            return [node.name]
    return []


def _locals(function: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """The names that are local to a function: parameters, assigned."""
    given = function.args
    names = {a.arg for a in (*given.posonlyargs, *given.args,
                             *given.kwonlyargs, given.vararg, given.kwarg)
             if a is not None}
    names |= {node.id for node in ast.walk(function) if isinstance(
        node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(names)


class Package:
    """All files of a package, and where each dotted name is defined."""

    def __init__(self, root: Path, name: str = "minicompile"):
        self.files: dict[str, File] = {}
        for path in sorted((root / name).rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            module = ".".join(parts)
            lines = tuple(path.read_text().splitlines())
            self.files[module] = File(module, path, root, lines)

    def file_of(self, name: str) -> File | None:
        """The file whose definitions include `name`."""
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            file = self.files.get(".".join(parts[:cut]))
            if file is not None:
                return file if file.lines_of(name) else None
        return None

    def resolve(self, name: str, hops: int = 4) -> str:
        """The name under which `name` is defined, imports followed."""
        module, _, last = name.rpartition(".")
        file = self.files.get(module)
        if file is None or name in file.spans or not hops:
            return name
        return self.resolve(file.imports.get(last, name), hops - 1)

    def split(self, names: list[str]) -> dict[str, set[int]]:
        """Each name's own lines: those no closer name in `names` takes."""
        owned = {}
        for name in names:
            file = self.file_of(name)
            if file is None:
                continue
            own = set(file.lines_of(name))
            for other in names:
                if other.startswith(name + "."):
                    own -= file.lines_of(other) or set()
            owned[name] = own
        return owned
