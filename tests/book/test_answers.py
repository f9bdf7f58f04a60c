"""The reader's files: a place for every answer, red until it is solved."""

import ast
import re
import subprocess
import sys

import pytest

from chapters._book import exercises, pages

SUITES = sorted(pages.ROOT.glob("tests/*/test_*exercises.py"))
ALL = [each for made in exercises.exercises().values() for each in made]
NUMBERS = [each.number for each in ALL]


def places(text):
    """The names that a file defines, and the parameters of each function."""
    found = {}
    for line in ast.parse(text).body:
        if isinstance(line, ast.FunctionDef):
            found[line.name] = [each.arg for each in ast.walk(line.args)
                                if isinstance(each, ast.arg)]
        elif isinstance(line, ast.ClassDef):
            found[line.name] = sorted(each.name for each in line.body if
                                      isinstance(each, ast.FunctionDef))
        elif isinstance(line, ast.Assign):
            found |= {ast.unparse(name): None for name in line.targets}
    return found


@pytest.mark.parametrize("each", ALL, ids=NUMBERS)
def test_every_answer_has_its_place(each):
    """Else: python -m chapters._book.exercises"""
    file = exercises.FOLDER / f"chapter_{each.number.split('.')[0]}.py"
    mine, solution = places(file.read_text()), places(each.code)
    assert each.names, "no test asks for it"
    for name in each.names:
        assert mine[name] == solution[name]


@pytest.mark.parametrize("each", ALL, ids=NUMBERS)
def test_the_page_says_how_to_check_it(each):
    text = (pages.DOCS / each.page).read_text()
    opening = rf"^\*\*{re.escape(each.number)} [^*]+\*\*"
    [task] = re.findall(opening + r"(.+?)^\?\?\?", text, re.M | re.S)
    assert f"`make exercise N={each.number}`" in task
    assert sum(f"def test_{each.number.replace('.', '_')}_" in
               path.read_text() for path in SUITES) == 1


def test_what_is_there_stays(tmp_path):
    mine = "def bytes_moved(graph):\n    return 7\n"
    (tmp_path / "chapter_0.py").write_text(mine)
    exercises.write(tmp_path)
    made = (tmp_path / "chapter_0.py").read_text()
    assert made.startswith(mine) and made.count("def bytes_moved") == 1
    assert "def safe_compile(function):\n    raise" in made
    exercises.write(tmp_path)
    assert (tmp_path / "chapter_0.py").read_text() == made


@pytest.mark.slow
def test_no_test_passes_before_it_is_solved(tmp_path):
    exercises.write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-rp",
         f"--mine={tmp_path}", *map(str, SUITES)],
        cwd=pages.ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-4000:]
    closing = done.stdout.strip().splitlines()[-1]
    failed = re.search(r"(\d+) failed", closing)
    assert failed and int(failed[1]) >= len(ALL), closing
    assert "passed" not in closing and "error" not in closing, done.stdout
