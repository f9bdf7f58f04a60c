"""Weaving by name, on a small book made for the purpose."""

import os
import re
import sys
import textwrap

import markdown
import pytest

from chapters._book import pages, reference, weave
from chapters._book.names import Package
from chapters._book.shown import problems

SOURCE = '''\
"""A module."""

import os

#: What it holds.
TABLE = {"a": 1,
         "b": 2}


def first(x):
    """The first."""
    return x[0]


# A comment that belongs to what follows.
@staticmethod
def second(x):
    return first(x) + TABLE["a"]


class Box:
    """A box."""

    size = 3

    def open(self):
        if self.size:
            return (
                self.size)

        return 0

    def close(self):
        return "<&>"
'''


@pytest.fixture
def book(tmp_path):
    """A function that writes a book of given pages and returns its root."""
    package = tmp_path / "minicompile"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "part" / "__init__.py").write_text("")
    (package / "part" / "things.py").write_text(SOURCE)
    (tmp_path / "chapters").mkdir()

    def write(**given):
        for name, text in given.items():
            text = textwrap.dedent(text)
            (tmp_path / "chapters" / f"{name}.md").write_text(text)
        nav = "\n".join(f"  - {name}: {name}.md" for name in given)
        (tmp_path / "mkdocs.yml").write_text(f"nav:\n{nav}\n")
        return tmp_path

    return write


def convert(root, page):
    """The HTML of one page."""

    class Extension(weave.BookExtension):
        book = weave.Book(root)

    return markdown.markdown(
        (root / "chapters" / page).read_text(),
        extensions=["pymdownx.superfences", "def_list", "tables",
                    Extension()])


def own(root, *names):
    return {name: sorted(lines) for name, lines in
            Package(root).split(list(names)).items()}


def test_a_name_owns_its_lines_with_decorators_and_comments(book):
    root = book(one="")
    part = "minicompile.part.things"
    assert own(root, f"{part}.first") == {f"{part}.first": [10, 11, 12]}
    assert own(root, f"{part}.second") == {
        f"{part}.second": [15, 16, 17, 18]}
    assert own(root, f"{part}.TABLE") == {f"{part}.TABLE": [5, 6, 7]}


def test_closer_names_take_lines_from_wider_ones(book):
    part = "minicompile.part.things"
    owned = own(book(one=""), part, f"{part}.Box", f"{part}.Box.open",
                f"{part}.first")
    assert owned[f"{part}.Box.open"] == [*range(26, 32)]
    assert not {26, 27, 31} & set(owned[f"{part}.Box"])
    assert {21, 22, 24, 33, 34} <= set(owned[f"{part}.Box"])
    assert 1 in owned[part] and 16 in owned[part]
    assert not set(owned[part]) & {10, 11, 12, 21, 34}


def test_a_shown_name_becomes_its_code_with_real_line_numbers(book):
    root = book(one="@show minicompile.part.things.first\n")
    html = convert(root, "one.md")
    assert '<span class="filename">minicompile/part/things.py' in html
    assert 'id="minicompile.part.things.first"' in html
    assert 'data-linenos="10 "' in html and "The first." in html
    assert 'data-linenos="13 "' not in html and "second" not in html


def test_several_names_share_one_box(book):
    part = "minicompile.part.things"
    html = convert(book(one=f"@show {part}.first {part}.TABLE\n"), "one.md")
    assert html.count('class="highlight show"') == 1
    assert html.count("<pre id=") == 2
    assert html.count('class="filename"') == 1


def test_what_is_shown_elsewhere_is_left_out_with_a_mark(book):
    part = "minicompile.part.things"
    root = book(one=f"@show {part}.Box\n\n@show {part}.Box.open\n")
    head = convert(root, "one.md").split("<pre id=")[1]
    assert "⋯" in head and "close" in head and ">open<" not in head


def test_code_is_escaped(book):
    html = convert(book(one="@show minicompile.part.things.Box.close\n"),
                   "one.md")
    assert "&lt;&amp;&gt;" in html


def test_mentions_link_to_the_one_place_that_shows_them(book):
    part = "minicompile.part.things"
    root = book(one=f"@show {part}.first\n",
                two=f"Call `first()` here.\n\n@show {part}.second\n")
    html = convert(root, "two.md")
    assert f'<a href="one.md#{part}.first"><code>first()</code></a>' in html
    assert f'<a href="one.html#{part}.first">first</a>' in html


def test_a_plain_word_is_a_link_on_its_own_page_only(book):
    part = "minicompile.part.things"
    root = book(one=f"The `first` one.\n\n@show {part}.first\n",
                two="The `first` one, and a method `open()`.\n",
                three=f"`Box.open` it.\n\n@show {part}.Box\n")
    assert f'#{part}.first"><code>' in convert(root, "one.md")
    assert "<a href" not in convert(root, "two.md")
    assert "<code>Box.open</code>" in convert(root, "three.md")


def test_names_in_cells_break_behind_dots_and_bars(book):
    root = book(one="""
        | here | there |
        |---|---|
        | `a_b.c` | `torch/d.py:E` |
        """)
    html = convert(root, "one.md")
    html = html.replace("<wbr />", "|")
    assert "<code>a_|b.|c</code>" in html
    assert "<code>torch/|d.|py:|E</code>" in html


def test_links_in_code_follow_imports_and_leave_locals_alone(book):
    root = book(one="@show minicompile.part.things.first\n",
                two="@show minicompile.use\n")
    (root / "minicompile" / "part" / "__init__.py").write_text(
        "from .things import first\n")
    (root / "minicompile" / "use.py").write_text(
        "from . import part\nfrom .part import things\n"
        "def use(things):\n    return part.first(things)\n"
        "value = things.first\n")
    html = convert(root, "two.md")
    link = '<a href="one.html#minicompile.part.things.first">first</a>'
    assert html.count(link) == 2
    assert html.count("<a href") == 2


def test_show_inside_a_fence_stays_text(book):
    root = book(one="```text\n@show minicompile.part.things.first\n```\n")
    assert "@show" in convert(root, "one.md")
    assert weave.Book(root).shows == []


def test_an_unknown_name_is_an_error_with_page_line_and_a_guess(book):
    root = book(one="# One\n\n@show minicompile.part.things.frist\n")
    with pytest.raises(LookupError, match=r"one\.md:3: .*things\.first"):
        convert(root, "one.md")


def test_the_first_use_of_a_term_links_to_the_glossary(book):
    root = book(one="# A guard\n\nA guard, `guard`, and *two guards*.\n",
                glossary="Guard\n:   A fact.\n\nGraph break\n:   A stop.\n")
    html = convert(root, "one.md")
    link = '<a class="term" href="glossary.md#term-guard">guard</a>'
    assert html.count("class=\"term\"") == 1 and f"A {link}," in html
    assert '<dt id="term-graph-break">' in convert(root, "glossary.md")


def test_a_reference_page_is_made_from_its_file(book):
    """Docstrings are its prose, and are not in its boxes."""
    root = book(one="@reference minicompile.part.topic.rows\n")
    (root / "minicompile" / "part" / "topic").mkdir()
    (root / "minicompile" / "part" / "topic" / "rows.py").write_text(
        '"""Rows of a table.\n\nPyTorch\'s is torch/x/y.py:Z.\n"""\n\n'
        'import os\n\n\ndef row(x):\n    """A row of x."""\n'
        "    return os.path.join(x)\n")
    html = convert(root, "one.md")
    assert "<h1>Rows of a table</h1>" in html
    assert "<code>torch/x/y.py:Z</code>" in html
    assert html.count("row of x") == 1 and ": a row of x." in html
    assert "⋯" not in html.split('rows.row">')[1].split("</pre>")[0]
    assert 'data-linenos="11 "' in html and 'data-linenos="10 "' not in html
    assert problems(root, "minicompile.part.topic") == []


@pytest.mark.parametrize("asked, left", [
    ("{0}.Box -close", "close"), ("{0}.Box -* {0}.Box.open", "close"),
    ('{0}.Box {0}.Box.open -"if self.size"', 'open."if self.size"'),
    ('{0}.Box {0}.Box.open -"return 0"', 'open."return 0"')])
def test_what_the_road_leaves_out_is_on_the_page_of_its_file(
        book, asked, left):
    """A method, all methods but one, a branch in the middle, a last line.

    Where a branch was, the road has a link to it. What no page shows at
    all is on the page of its file, too.
    """
    part = "minicompile.part.things"
    root = book(one=f"# One\n\n@show {asked.format(part)}\n",
                two=f"@reference {part}\n")
    road, rest = convert(root, "one.md"), convert(root, "two.md")
    place = weave.place(f"{part}.Box.{left}")
    assert f'<pre id="{place}">' in rest and place not in re.sub(
        "<a href.*?>", "", road)
    assert ">open<" in road and ">open<" not in rest
    branch = '"' in left
    assert (f'<a href="two.html#{place}" aria-label="left out:' in road
            ) == branch
    assert ("Box.open</code></a> is in <a" in rest) == branch
    assert (">if<" in road) == ("self.size" not in left)
    assert '<a href="one.md">One</a>' in rest and "Here is the rest" in rest
    assert "<code>first</code></a>: the first." in rest
    assert rest.count("he first.") == 1 and "TABLE" in rest
    assert problems(root, part) == []
    page = root / "chapters" / "reference" / "part" / "things.md"
    assert reference.wanted(root)[page] == f"@reference {part}\n"


def test_the_reference_stands_stage_by_stage():
    (shelf,) = [part["Reference"] for part in pages.contents()
                if "Reference" in part]
    stages = [name for part in shelf for name in part]
    assert stages[:3] == ["the driver", "core", "trace"]
    assert len({*stages}) == len(stages) and not any(
        isinstance(page, str) for part in shelf for page in part.values())


@pytest.mark.parametrize("wrong", ["if no such", "return"])
def test_a_branch_that_is_not_there_or_not_the_only_one(book, wrong):
    part = "minicompile.part.things"
    root = book(one=f'@show {part} {part}.Box.open -"{wrong}"\n',
                two=f"@reference {part}\n")
    found, = problems(root, part)
    asked = f'{part}.Box.open."{wrong}"'
    assert found.startswith(f"chapters/one.md:1: @show {asked}: nothing")


def test_every_line_shown_once_is_no_problem(book):
    part = "minicompile.part.things"
    root = book(one=f"@show {part}.Box\n\n@show {part}.Box.open\n",
                two=f"@show {part}\n\n@show {part}.first\n")
    assert problems(root) == []


@pytest.mark.parametrize("page, expected", [
    ("", "minicompile/part/things.py:1-34: shown 0 times"),
    ("@show {0}\n\n@show {0}.first\n\n@show {0}.first\n",
     "minicompile/part/things.py:10-12: shown 2 times"),
    ("@show {0}.Box\n", "minicompile/part/things.py:1-18: shown 0 times"),
    ("@show {0}\n\n@show {0}.nothing\n",
     "chapters/one.md:3: @show {0}.nothing: nothing has that name"),
])
def test_a_line_shown_never_or_twice_is_a_problem(book, page, expected):
    part = "minicompile.part.things"
    root = book(one=page.format(part))
    assert problems(root) == [expected.format(part)]


def test_blocks_and_options_are_read():
    text = ("Words.\n\n```python exec=\"1\" session=\"a b\"\nx = 1\n```\n\n"
            "??? note\n\n    ```python\n    y = 2\n    ```\n")
    first, second = pages.read("p.md", text).blocks
    assert first.executed and first.options["session"] == "a b"
    assert (first.line, first.code) == (3, "x = 1\n")
    assert not second.executed and second.code == "y = 2\n"


def test_an_edited_module_is_shown_new_and_runs_new(book, monkeypatch):
    """As under `mkdocs serve`, where the process goes on."""
    root = book(one="@show minicompile.part.things.first\n")
    monkeypatch.setattr(weave.pages, "ROOT", root)
    monkeypatch.setattr(weave, "_current", [])
    monkeypatch.setitem(sys.modules, "minicompile.stale", sys)
    kept = {name: module for name, module in sys.modules.items()
            if name.split(".")[0] == "minicompile"}
    shown = weave.current()
    assert weave.current() is shown and "minicompile.stale" in sys.modules
    source = root / "minicompile" / "part" / "things.py"
    source.write_text("# Moved down.\n" + SOURCE)
    os.utime(source, (1e10, 1e10))
    try:
        assert weave.current() is not shown
        assert not [n for n in sys.modules if n.startswith("minicompile.")]
        assert 'data-linenos="11 "' in convert(root, "one.md")
    finally:
        sys.modules.update(kept)


@pytest.mark.parametrize("term", """dispatcher descriptor shapeenv hint
    symint stream warp libdevice source storage schema spill tile register
    dynamo inductor aotautograd polyfill stamp lane""".split())
def test_the_glossary_has_the_terms_of_the_field(term):
    text = (pages.DOCS / "glossary.md").read_text()
    assert any(each.split(" (")[0] == term for each in weave.glossary(text))
