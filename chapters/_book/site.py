"""Checks on the built site: `python -m chapters._book.site [folder]`.

No page may load anything from another host, every link inside the book
must lead somewhere, no page may show what changes from build to build, and
none may be large.
Where Chromium is installed it opens the main pages, on a desk and a phone,
by day and night. No page may be too wide, and no label of a picture cut
off or hard to see. Prints what does not hold and exits 1.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .pages import ROOT

LARGEST = 400_000  # bytes of a page

#: Elements that make the browser fetch something, and by which attribute.
_LOADS = {"script": ("src",), "img": ("src", "srcset"),
          "iframe": ("src",), "source": ("src", "srcset"),
          "audio": ("src",), "video": ("src", "poster"),
          "embed": ("src",), "object": ("data",), "input": ("src",),
          "track": ("src",), "use": ("href", "xlink:href"),
          "image": ("href", "xlink:href")}
#: The kinds of <link> that are only information.
_PASSIVE = {"canonical", "alternate", "next", "prev", "author", "license"}

_HOST = r"""(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s"'`)<>]*"""
_CSS = re.compile(rf"""(?:url\(|@import)\s*["']?({_HOST})""", re.I)
_JS = re.compile(r"""(?:importScripts|fetch|import|Worker|src\s*=|href\s*=)"""
                 rf"""\s*\(?\s*["'`]({_HOST})""", re.I)


class Page(HTMLParser):
    """The requests, the links and the anchors of one page."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {"", "__skip"}
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        given = {key: value or "" for key, value in attrs}
        self.inside = tag
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        self.loads += [given[key] for key in _LOADS.get(tag, ())
                       if key in given]
        if tag == "link" and given.get("rel", "") not in _PASSIVE:
            self.loads.append(given.get("href", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += _CSS.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.inside == "style":
            self.loads += _CSS.findall(data)
        if self.inside == "script":
            self.loads += _JS.findall(data)


def outside(address: str) -> bool:
    """Whether the address is on another host."""
    return bool(urlsplit(address.strip()).netloc)


def requests(site: Path) -> Iterator[str]:
    """Everything the site would load from another host."""
    for path in sorted(site.rglob("*")):
        found: list[str] = []
        if path.suffix == ".html":
            found = Page(path.read_text()).loads
        elif path.suffix == ".css":
            found = _CSS.findall(path.read_text())
        elif path.suffix == ".js":
            found = _JS.findall(path.read_text())
        yield from (f"{path.relative_to(site)} loads {address}"
                    for address in found if outside(address))


def broken(site: Path) -> Iterator[str]:
    """Every link inside the site whose page or anchor does not exist."""
    pages = {path.resolve(): Page(path.read_text())
             for path in sorted(site.rglob("*.html"))
             if path.name != "404.html"}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve()
            target = path if not parts.path else target
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            if not target.exists() or (
                    known and unquote(parts.fragment) not in known.anchors):
                yield f"{path.name} links to {link}: nothing there"


def changing(site: Path, root: Path = ROOT) -> Iterator[str]:
    """Every page that shows an object's address or the builder's folder."""
    pattern = re.compile(r"\bat 0x[0-9a-f]{6,}|" + re.escape(str(root)))
    for path in sorted(site.rglob("*.html")):
        found = pattern.search(path.read_text())
        if found:
            yield f"{path.relative_to(site)} shows {found[0]}"


#: Opens each page in frames of two widths, and writes down what is seen.
LOOK = """<body><script>
const pages = %s, found = [];
const light = text => {
  const [r, g, b] = text.match(/[\\d.]+/g).map(value => {
    value /= 255;
    return value <= .04 ? value / 12.9 : ((value + .055) / 1.055) ** 2.4});
  return .2126 * r + .7152 * g + .0722 * b + .05};
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-same-origin";  // the pages' own scripts stay out
  frame.style.cssText = `border:0;height:900px;width:${width}px`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const inside = frame.contentDocument, seen = frame.contentWindow;
  const say = words => found.push(`${page} at ${width}: ${words}`);
  const wide = inside.documentElement.scrollWidth;
  const labels = inside.querySelectorAll("svg.picture text");
  if (wide > width) say(`the page is ${wide} wide`);
  for (const label of labels) {
    const {x, y, width, height} = label.getBBox();
    const area = label.closest("svg").viewBox.baseVal;
    if (area.width && (x < -1 || y < -1 || x + width > area.width + 1
                       || y + height > area.height + 1))
      say(`"${label.textContent}" leaves its picture`)}
  for (const scheme of ["default", "slate"]) {
    inside.body.dataset.mdColorScheme = scheme;
    const paper = light(seen.getComputedStyle(inside.body).backgroundColor);
    for (const label of labels) {
      const ink = light(seen.getComputedStyle(label).fill);
      if (Math.max(ink / paper, paper / ink) < 3)
        say(`"${label.textContent}" is hard to see, ${scheme}`)}}
  for (const box of inside.querySelectorAll("pre > code, .walk pre")) {
    const {backgroundAttachment, display} = seen.getComputedStyle(box);
    if (box.scrollWidth > box.clientWidth + 1 && display != "inline"
        && !backgroundAttachment.includes("local"))
      say(`"${box.textContent.slice(0, 40)}" is cut off without a hint`);
    if (width > 1000 && box.scrollWidth > box.clientWidth + 1)
      say(`"${box.textContent.slice(0, 40)}" is wider than its column`)}
  for (const panel of inside.querySelectorAll(".walk .frame")) {
    const edge = panel.getBoundingClientRect();
    for (const chip of panel.querySelectorAll(".chips > *"))
      if (chip.getBoundingClientRect().right > edge.right + 1)
        say(`"${chip.textContent}" leaves its frame`)}
  frame.remove()}
(async () => {
  for (const page of pages)
    for (const width of [1280, 390]) await look(page, width);
  document.body.textContent = JSON.stringify(found)})()
</script></body>"""


def browser() -> str | None:
    """Where Chromium is, if it is installed."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def unsightly(site: Path) -> Iterator[str]:
    """Chromium's findings on the main pages; none where it is not."""
    chromium = browser()
    if chromium is None:
        return
    pages = sorted(path.resolve().as_uri() for path in site.glob("*.html"))
    with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
        file.write(LOOK % json.dumps(pages))
        file.flush()
        seen = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--allow-file-access-from-files",
             "--virtual-time-budget=900000", "--dump-dom",
             f"file://{file.name}"],
            capture_output=True, text=True, timeout=500).stdout
    found = re.search(r"<body>(\[.*\])</body>", seen, re.S)
    yield from dict.fromkeys(json.loads(unescape(found[1]))) if found else [
        "Chromium could not open the pages"]


def heavy(site: Path) -> Iterator[str]:
    """The pages that are larger than a phone should have to load."""
    for path in sorted(site.rglob("*.html")):
        if (size := path.stat().st_size) > LARGEST:
            yield f"{path.relative_to(site)} has {size:,} bytes"


def wrong(site: Path) -> list[str]:
    """The rules that the site breaks."""
    return [*requests(site), *broken(site), *changing(site), *heavy(site),
            *unsightly(site)]


def main(arguments: list[str]) -> int:
    """Print what is wrong with the site; 1 if anything is."""
    found = wrong(Path(arguments[0] if arguments else "site"))
    print("\n".join(found) or
          "no request to another host, no broken link, no large page, "
          + ("no label cut off" if browser() else
             "and NOT LOOKED AT: there is no Chromium"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
