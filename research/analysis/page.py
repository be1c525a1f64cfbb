"""Markdown of a report, and the page that needs nothing but itself."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

import markdown

from adops_wrappers.inspect.report import html_page

STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --page: #fff; --line: #bbb; --faint: #555; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --page: #16181b; --line: #555; --faint: #aaa; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { font-size: 1.3rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
li { margin: .4rem 0; }
figure { margin: 1.4rem 0; }
img { max-width: 100%; height: auto; background: #fff; }
figcaption { color: var(--faint); font-size: .92rem; }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: .88rem; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top;
         white-space: nowrap; }
td.long { white-space: normal; min-width: 22rem; }
th { border-bottom: 1px solid var(--line); }
"""
"""Not that of `inspect.report`: here are wide tables of words, there tiles, boxes and numbers."""


def markdown_text(text: str) -> str:
    """Escape what Markdown or HTML would read as markup, and nothing else."""
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text)
    return re.sub(r"[\\`*|]|\](?=[(\[])", r"\\\g<0>", text)


def heading(level: int, text: str) -> str:
    """Return a heading."""
    return f"{'#' * level} {markdown_text(text)}"


def bullets(items: Sequence[tuple[str, str]]) -> str:
    """Return a list of items, each with words in bold before its text."""
    return "\n".join(f"- **{markdown_text(b)}** {markdown_text(text)}" for b, text in items)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [list(map(markdown_text, line)) for line in (header, *rows)]
    lines.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def image(name: str, caption: str) -> str:
    """Return a picture beside the report, with what it shows."""
    return f"![{markdown_text(caption)}]({name})"


def render_html(text: str, folder: Path) -> str:
    """Return a report's Markdown as one page that carries its pictures."""

    def figure(match: re.Match[str]) -> str:
        caption, name = match.groups()
        data = base64.b64encode((folder / name).read_bytes()).decode()
        return (
            f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )

    body = markdown.markdown(text, extensions=["tables"])
    body = re.sub(r'<p><img alt="(.*?)" src="(.*?)" /></p>', figure, body)
    # Long cells may wrap, short ones may not.
    body = re.sub(r"<td>(?=[^<]{61})", '<td class="long">', body)
    title = "".join(re.findall(r"<h1>(.*)</h1>", body)[:1])
    return html_page(title, STYLE, body)
