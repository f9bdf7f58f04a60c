"""The built book: nothing from the network, and no link to nowhere."""

import os
import shutil
import subprocess
import sys

import pytest

from chapters._book import draw, pages, site


@pytest.mark.parametrize("text", [
    '<script src="https://unpkg.com/iframe-worker/shim"></script>',
    '<link rel="stylesheet" href="//fonts.example.com/a.css">',
    '<link rel="preconnect" href="https://fonts.example.com">',
    '<img src="https://example.com/a.png">',
    '<style>@import url("https://example.com/a.css");</style>',
    '<p style="background:url(https://example.com/a.png)"></p>',
    '<script>import("https://example.com/a.js")</script>',
])
def test_a_request_to_another_host_is_found(tmp_path, text):
    (tmp_path / "a.html").write_text(text)
    assert len(list(site.requests(tmp_path))) == 1


@pytest.mark.parametrize("name, text", [
    ("a.html", '<a href="https://example.com">a link is no request</a>'),
    ("a.html", '<svg xmlns="http://www.w3.org/2000/svg"></svg>'),
    ("a.html", '<link rel="canonical" href="https://example.com/a">'),
    ("a.css", "/* see https://example.com */ a { color: red }"),
])
def test_what_is_only_text_is_not_a_request(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert list(site.requests(tmp_path)) == []


def test_links_to_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="x">A</h1><a href="#x"></a><a href="b.html#y"></a>'
        '<a href="#z"></a><a href="b.html#n"></a><a href="c.html"></a>')
    (tmp_path / "b.html").write_text('<h1 id="y">B</h1>')
    assert [line.split()[3] for line in site.broken(tmp_path)] == [
        "#z:", "b.html#n:", "c.html:"]


def test_what_changes_from_build_to_build_is_found(tmp_path):
    (tmp_path / "a.html").write_text("<pre>&lt;f at 0x7f12ab34cd&gt;</pre>")
    (tmp_path / "b.html").write_text(f"<pre>{tmp_path}/x.py</pre>")
    (tmp_path / "c.html").write_text("<pre>at 0x10: 2 + 2</pre>")
    assert [line.split()[0] for line in site.changing(
        tmp_path, tmp_path)] == ["a.html", "b.html"]


def test_a_large_page_is_found(tmp_path):
    (tmp_path / "a.html").write_text("a" * site.LARGEST)
    (tmp_path / "b.html").write_text("b" * (site.LARGEST + 1))
    assert [line.split()[0] for line in site.heavy(tmp_path)] == ["b.html"]


@pytest.mark.slow
def test_the_book_builds_strictly_and_asks_nothing(tmp_path):
    """CI has just built it and says where: BUILT_SITE."""
    folder = os.environ.get("BUILT_SITE")
    if folder is None:
        pytest.importorskip("mkdocs")
        pytest.importorskip("material")
        folder = tmp_path / "site"
        built = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict",
             "--site-dir", str(folder)],
            cwd=pages.ROOT, capture_output=True, text=True, env={
                **os.environ, "PYTHONPATH": ".", "NO_MKDOCS_2_WARNING": "1"})
        assert built.returncode == 0, built.stderr
    folder = pages.ROOT / folder
    assert (folder / "index.html").exists()
    assert site.wrong(folder) == []


def test_what_cannot_be_seen_is_found(tmp_path):
    """Too wide for a phone, a label cut off, one too faint."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("there is no Chromium")
    picture = draw.figure(
        [draw.text(4, 20, "in", colour="black"),
         draw.text(90, 20, "out", colour="black"),
         draw.text(4, 40, "pale", colour="#eeeeee")], 100, 60, "labels")
    (tmp_path / "a.html").write_text(
        f'<body style="background:white"><div style="width:500px">{picture}')
    found = [line.partition("a.html at ")[2]
             for line in site.unsightly(tmp_path)]
    faint = '"pale" is hard to see'
    assert found[0] == '1280: "out" leaves its picture'
    assert found[1:3] == [f"1280: {faint}, default", f"1280: {faint}, slate"]
    assert found[3].startswith("390: the page is 5") and len(found) == 7


def test_code_that_is_cut_off_is_found(tmp_path):
    """Wider than its column on a desk; cut off without a shadow."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("there is no Chromium")
    wide = "display:block;overflow:auto;width:{}px"
    shadow = "background:linear-gradient(red,blue) local"
    (tmp_path / "a.html").write_text("".join(
        f'<pre><code style="{wide.format(width)};{hint}">{"m" * count}'
        f"</code></pre>" for width, count, hint in (
            (300, 90, ""), (301, 90, shadow), (302, 9, ""))))
    said = [line.partition("a.html at ")[2]
            for line in site.unsightly(tmp_path)]
    text = f'"{"m" * 40}"'
    assert said == [f"1280: {text} is cut off without a hint",
                    f"1280: {text} is wider than its column",
                    f"390: {text} is cut off without a hint"]
