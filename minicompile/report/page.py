"""A report as one HTML page that needs nothing but a browser."""

from __future__ import annotations

import html
from collections.abc import Iterable

from .stages import View

STYLE = """
:root { color-scheme: light dark; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       font: 16px/1.5 system-ui, sans-serif; }
pre { overflow-x: auto; padding: .8rem; border-radius: .3rem;
      background: color-mix(in srgb, currentColor 7%, transparent);
      font: 13px/1.45 ui-monospace, monospace; }
summary { cursor: pointer; } summary b { display: inline-block;
          min-width: 5rem; }
details { margin: .4rem 0; }
"""


def page(name: str, text: str, graphs: Iterable[Iterable[View]]) -> str:
    """The page: the report's text, then every stage, folded."""
    title = html.escape(f"minicompile: {name}")
    body = [f"<h1>{title}</h1>", f"<pre>{html.escape(text)}</pre>"]
    for number, stages in enumerate(graphs):
        body.append(f"<h2>Graph {number}</h2>")
        body += map(section, stages)
    return "\n".join([
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        *body, "</body></html>\n"])


def section(view: View) -> str:
    """One stage: its summary, unfolding to all of its text."""
    return (f"<details><summary><b>{view.name}</b> "
            f"{html.escape(view.summary)}</summary>"
            f"<pre>{html.escape(view.full)}</pre></details>")
