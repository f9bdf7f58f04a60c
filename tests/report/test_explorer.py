"""The explorer: every item is linked, and a browser can walk the links."""

import html
import json
import re
import shutil
import subprocess
from inspect import unwrap

import pytest
import torch
from torch import nn

import minicompile
from minicompile.report.views import explain, explorer
from tests.report.test_report import bend, inputs, talk


def data(report):
    """The graphs of a page, each with its columns."""
    return json.loads(re.search(
        r'type="application/json">(.*?)</script>', report.page,
        re.S)[1])


def reached(columns, start):
    """The ids that an item was made of, and theirs."""
    rows = {row["id"]: row for rows in columns.values() for row in rows}
    found, waiting = set(), [start]
    while waiting:
        name = waiting.pop()
        if name in rows and name not in found:
            found.add(name)
            waiting += rows[name]["of"]
    return found


def test_each_kernel_leads_to_the_line_it_was_made_of():
    [columns] = data(minicompile.explain(bend)(*inputs()))
    assert [*columns] == ["Source", "Graph", "Joint graph", "Loops",
                          "Kernels"]
    rows = {row["id"]: row for rows in columns.values() for row in rows}
    for row in columns["Graph"] + columns["Kernels"]:
        assert any(name.startswith("s:") for name in reached(
            columns, row["id"])), row
    assert all(name in rows for row in rows.values() for name in row["of"])
    texts = [row["text"] for row in columns["Source"]]
    assert len(texts) == 5 and "layer_norm(x @ w" in texts[2]


def test_operators_of_one_line_are_told_apart():
    """Forward and backward: what is linked grows with the graph alone."""
    def loop(x):
        for _ in range(3):
            x = x.sin() * 2
        return x
    [columns] = data(minicompile.explain(loop)(
        torch.ones(3, requires_grad=True)))
    found = {row["text"].split(":")[0]: row["of"]
             for row in columns["Joint graph"]}
    assert found["sin_1"] == found["cos_1"] == ["g:sin_1"]
    assert {len(each) for each in found.values()} == {1}


def test_the_columns_say_what_is_saved_and_how_long_kernels_take():
    [columns] = data(minicompile.explain(bend)(*inputs()))
    notes = {row["text"].split(":")[0]: row["note"]
             for row in columns["Joint graph"]}
    assert notes["mm"] == "forward, saved, 0.2 KiB"
    assert notes["mm_1"] == "backward"
    kernels = [row["note"] for row in columns["Kernels"]
               if "void" in row["text"]]
    assert [note.split(",")[0] for note in kernels] == ["forward", "backward"]
    #: h, its mean, its deviation and the result, as floats.
    assert f"{(2 * 64 + 2 * 4) * 4 / 1024:.1f} KiB, " in kernels[0]
    assert all(re.search(r", [\d.]+ us, \d+% of a copy$", note)
               for note in kernels)


def test_a_kernel_moves_no_more_than_it_touches():
    [columns] = data(minicompile.explain(
        lambda x: x[:2] + 1)(torch.randn(1000, 1000)))
    [kernel] = columns["Kernels"]
    assert kernel["note"].startswith(f"forward, {4000 * 4 / 1024:.1f} KiB, ")


def seconds_of(report):
    [entry] = report.entries
    return explorer.seconds_of(entry.lowered, report.inputs[id(entry)])


def test_measuring_changes_nothing():
    """State, gradients, random numbers and what the program prints."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout())
    alike = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout())
    alike.load_state_dict(model.state_dict())
    x = torch.randn(4, 8)
    torch.manual_seed(3)
    report = minicompile.explain(model)(x)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    minicompile.compile(alike)(x)
    assert drawn.equal(torch.rand(3))
    before = torch.get_rng_state()
    assert seconds_of(report)
    assert before.equal(torch.get_rng_state())
    for ours, theirs in zip(model.state_dict().values(),
                            alike.state_dict().values()):
        assert ours.equal(theirs)
    assert all(each.grad is None for each in model.parameters())


def test_no_operator_of_the_users_runs_twice():
    calls = []

    @torch.library.custom_op("explored::seen", mutates_args=())
    def seen(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.clone()

    seen.register_fake(torch.empty_like)
    report = minicompile.explain(lambda x: seen(x).cos() + 1)(torch.ones(3))
    assert report.page and calls == [1]
    assert not seconds_of(report)


def test_only_a_page_that_is_asked_for_measures_and_only_what_is_there():
    report = minicompile.explain(lambda x: x.cos() + 1)(x := torch.ones(9))
    x.resize_(2)
    assert seconds_of(report)
    x.untyped_storage().resize_(0)
    assert not seconds_of(report)


def test_a_profiler_has_a_row_for_each_kernel():
    compiled = minicompile.compile(bend)
    x, w = inputs()
    compiled(x, w).sum().backward()
    with torch.profiler.profile() as seen:
        compiled(x, w).sum().backward()
    rows = [event.key for event in seen.key_averages()]
    wanted = [kernel.name for kernel in minicompile.explain(
        compiled)(x, w).kernels]
    assert len(wanted) == 2 and {*wanted} <= {*rows}
    [entry] = compiled.cache.entries
    names = unwrap(entry.lowered.programs["forward"].run).__globals__
    assert not hasattr(names[wanted[0]], "watched")


def test_a_graph_of_each_piece_and_what_no_stage_ran():
    report = minicompile.explain(talk)(torch.zeros(2))
    assert len(data(report)) == 1
    shallow = minicompile.explain(bend, backend="eager")(*inputs())
    assert [*data(shallow)[0]] == ["Source", "Graph", "Loops", "Kernels"]


def test_a_text_cannot_end_the_script():
    def sly(x):
        return x.sin()  # </script><script>alert(1)</script> @@DATA@@
    page = minicompile.explain(sly)(torch.ones(2)).page
    assert page.count("</script>") == 2
    assert "alert(1)" in page and page.count("<script") == 2


def test_a_notebook_shows_the_page_in_a_frame():
    report = minicompile.explain(bend)(*inputs())
    frame = report._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    inner = html.unescape(re.search('srcdoc="([^"]*)"', frame)[1])
    assert inner == report.page and "board" in inner


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def shown(path, page, script, width=1280, *flags):
    """What a script finds in the page, run in Chromium."""
    path.write_text(page.replace("</html>", f"""<script>
        const found = (() => {{{script}}})()
        document.body.textContent = "found " + JSON.stringify(found)
        </script></html>"""))
    seen = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
         "--disable-dev-shm-usage", f"--window-size={width},900", *flags,
         "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120).stdout
    return json.loads(html.unescape(re.search(
        r"<body>found (.*?)</body>", seen, re.S)[1]))


WALK = """
    const items = name => [...board.children].find(section => section
        .textContent.startsWith(name)).querySelectorAll(".item")
    const press = key => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", {key, bubbles: true}))
    const names = () => lit.map(row => row.element.textContent)
    const column = element => element.closest("section").children[0].textContent
    const [kernel] = [...items("Kernels")].filter(
        each => each.textContent.includes("void"))
    kernel.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}))
    const hovered = names()
    kernel.focus()
    press("ArrowLeft")
    const loop = column(document.activeElement)
    press("ArrowLeft"); press("ArrowLeft"); press("Enter")
    const node = document.activeElement.textContent
    kernel.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}))
    const pinned = names()
    press("Escape")
    const none = lit.length
    press("/")
    const typing = document.activeElement.id
    search.value = "LAYER_NORM"
    search.dispatchEvent(new Event("input"))
    const left = [...document.querySelectorAll(".item:not([hidden])")].length
    return {hovered, loop, node, pinned, none, typing, left,
            count: count.textContent}"""


@browser
def test_a_browser_lights_what_is_linked(tmp_path):
    page = minicompile.explain(bend)(*inputs()).page
    found = shown(tmp_path / "page.html", page, WALK)
    assert any("layer_norm(x @ w" in text for text in found["hovered"])
    assert any("aten.var_mean" in text for text in found["hovered"])
    assert not any("aten.mm_1" in text for text in found["hovered"])
    assert found["loop"].startswith("Loops")
    assert found["node"] and found["node"] in found["pinned"]
    assert found["none"] == 0 and found["typing"] == "search"
    assert found["left"] == int(found["count"].split()[0]) == 3


LOOK = """
    const wide = document.documentElement.scrollWidth - innerWidth
    const colour = getComputedStyle(document.body)
    return [wide, board.children[1].offsetLeft > board.children[0].offsetLeft,
            colour.backgroundColor, colour.color]"""


@browser
@pytest.mark.parametrize("width, beside", [(1280, True), (500, False)])
def test_columns_stand_side_by_side_where_there_is_room(
        tmp_path, width, beside):
    page = minicompile.explain(bend)(*inputs()).page
    light = shown(tmp_path / "page.html", page, LOOK, width)
    dark = shown(tmp_path / "page.html", page, LOOK, width,
                 "--blink-settings=preferredColorScheme=0")
    assert light[0] <= 0 and light[1] == beside
    assert light[2:] != dark[2:]


@browser
def test_five_thousand_nodes_open_in_two_seconds(tmp_path, monkeypatch):
    def many(*given):
        return {name: [explorer.item(
            f"{name}{k}", f"node_{k}: f32[4, 16] = aten.add.Tensor(a, b)",
            [f"{before}{k % sizes[before]}"], "forward")
            for k in range(sizes[name])]
            for before, name in zip([*sizes], [*sizes][1:])}
    sizes = {"": 1, "Source": 300, "Graph": 1500, "Joint graph": 5000,
             "Loops": 1500, "Kernels": 500}
    monkeypatch.setattr(explain, "columns", many)
    page = minicompile.explain(bend)(*inputs()).page
    found = min(shown(tmp_path / "page.html", page, """
        document.body.offsetHeight
        const opened = performance.now()
        search.value = "node_77:"; find()
        document.body.offsetHeight
        return [opened, performance.now() - opened, count.textContent]
        """) for _ in range(3))
    assert found[0] < 2000 and found[1] < 1000 and found[2] == "5 found"
