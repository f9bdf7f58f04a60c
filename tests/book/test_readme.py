"""README.md: its program prints what it says, its commands exist."""

import re
import runpy
from pathlib import Path

from chapters._book import readme

README = Path("README.md").read_text()


def test_the_program_prints_what_stands_below_it(tmp_path, capsys):
    (code, printed), = re.findall(
        r"```python\n(.*?)```\n+```text\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "readme.py"
    path.write_text(code)
    runpy.run_path(str(path))
    assert capsys.readouterr().out == printed


def test_its_commands_are_targets_and_its_files_exist():
    for text in (README, Path("chapters/index.md").read_text()):
        targets = re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)
        assert set(targets) >= {"tour", "test", "test-all", "book"}
        assert set(targets) <= set(re.findall(
            r"^([\w-]+):", Path("Makefile").read_text(), re.MULTILINE))
    for suite in re.findall(r"ARGS=\"?(tests/\w+)", README):
        assert Path(suite).is_dir()


def test_its_picture_has_the_stages_and_follows_light_and_dark():
    """Else: python -m chapters._book.readme"""
    drawn = readme.PICTURE.read_text()
    assert drawn == readme.picture() and "chapters/assets/" in README
    assert set(readme.HANDS_ON) < set(readme.draw.STAGES)
    used = set(re.findall(r"var\((--[\w-]+)\)", drawn))
    for scheme in re.findall(r"svg \{ (.*?) \}", drawn):
        assert used <= set(re.findall(r"(--[\w-]+):", scheme))


def test_its_table_is_what_was_measured():
    """Else: python -m chapters._book.readme"""
    assert readme.wanted() == README
    rows = [row.split(" | ") for row in readme.table().splitlines()[2:]]
    assert len(rows) == len(readme.ROWS)
    assert all(row[3] and row[4] for row in rows)
    assert all(0 < float(row[5].strip(" |")) < 2 for row in rows)
