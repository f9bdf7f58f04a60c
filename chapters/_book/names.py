"""Which lines of a package's source each dotted name owns.

In: a folder of Python files and names such as `minicompile.core.graph`,
`minicompile.core.graph.render`, `minicompile.core.source.Item.code`.
Out: the file and the line numbers of the definition, comments directly
above it included. A module owns its whole file, a class its whole body:
what is named more closely by somebody else is taken out by `split`.
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
    def spans(self) -> dict[str, set[int]]:
        """Dotted name -> the numbers of the lines it owns."""
        whole = {self.module: set(range(1, len(self.lines) + 1))}
        tree = ast.parse("\n".join(self.lines))
        self._collect(tree.body, self.module, whole)
        return whole

    @cached_property
    def imports(self) -> dict[str, str]:
        """What a name in this file means: local name -> dotted name."""
        package = self.module.split(".")
        if self.path.name != "__init__.py":
            package.pop()
        known = {name.removeprefix(self.module + "."): name
                 for name in self.spans if name != self.module}
        for node in ast.walk(ast.parse("\n".join(self.lines))):
            if isinstance(node, ast.ImportFrom):
                up = package[:len(package) - node.level + 1]
                base = [*(up if node.level else []),
                        *([node.module] if node.module else [])]
                for name in node.names:
                    known.setdefault(name.asname or name.name,
                                     ".".join([*base, name.name]))
        return known

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
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _ if isinstance(node, _DEFINES):
            return [node.name]
    return []


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
                return file if name in file.spans else None
        return None

    def split(self, names: list[str]) -> dict[str, set[int]]:
        """Each name's own lines: those no closer name in `names` takes."""
        owned = {}
        for name in names:
            file = self.file_of(name)
            if file is None:
                continue
            own = set(file.spans[name])
            for other in names:
                if other.startswith(name + ".") and other in file.spans:
                    own -= file.spans[other]
            owned[name] = own
        return owned
