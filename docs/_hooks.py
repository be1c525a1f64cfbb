"""Build hooks: formulas get real indices, links into the repository become names."""

from __future__ import annotations

import re
from typing import Any

UNTOUCHED = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<[^>]+>)", re.DOTALL)
FORMULA = re.compile(r'(<div class="formula">)(.*?)(</div>)', re.DOTALL)
SYMBOL = re.compile(r"(?<![\w/])([A-ZWΩδγcfζ]′?)_([EIItn]|IE)(?!\w)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files of the repository that are no part of the site instead of linking to them."""
    return re.sub(r"\[([^\]]+)\]\(\.\./(notebooks/[^)]+)\)", r"\1 (`\2`)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Set V_E as V with an index, in running text and in formulas, but never in code."""
    html = FORMULA.sub(lambda match: match[1] + _scripts(match[2]) + match[3], html)
    parts = UNTOUCHED.split(html)
    parts[::2] = [SYMBOL.sub(r"\1<sub>\2</sub>", text) for text in parts[::2]]
    return "".join(parts)


def _scripts(formula: str) -> str:
    for mark, tag in (("_", "sub"), (r"\^", "sup")):
        formula = re.sub(mark + r"\{([^{}]*)\}", rf"<{tag}>\1</{tag}>", formula)
    return re.sub(r"(?<=[\w′Σ])_([A-Za-z0-9]+)", r"<sub>\1</sub>", formula)
