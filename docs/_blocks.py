"""Which blocks of a page stand alone: they have a copy button, and a test runs them so."""

from __future__ import annotations

import builtins
import re
import symtable

FENCE = re.compile(
    r"(?P<mark><!-- (?:not run:[^>]*|continues) -->\n)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
"""A block of code; the mark says that it is not run, or that it needs a file of the block above."""
PLACEHOLDER = re.compile(r"\b(?:NAME|RUN_DIR|SCRIPT)\b|<[a-z ]+>|\.\.\.")
KNOWN = {*dir(builtins), "__name__", "__file__"}


def stands_alone(block: re.Match[str]) -> bool:
    """Whether a reader can copy a block and run it, without the blocks before it."""
    code = block["code"]
    if block["language"] == "python":
        return not block["mark"] and ">>>" not in code and not missing(code)
    return block["language"] == "bash" and not PLACEHOLDER.search(code)


def missing(code: str) -> set[str]:
    """Return the names that code uses and neither defines nor imports."""
    module = symtable.symtable(code, "block", "exec")
    own = {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()}
    used, tables = set(), [module]
    for table in tables:  # grows while it is read
        symbols = [s for s in table.get_symbols() if s.is_referenced()]
        used |= {s.get_name() for s in symbols if table is module or s.is_global()}
        tables += table.get_children()
    return used - own - KNOWN


def without_copy_button(markdown: str) -> str:
    """Take the button from the blocks that do not stand alone."""
    return FENCE.sub(_marked, markdown)


def _marked(block: re.Match[str]) -> str:
    if stands_alone(block):
        return block[0]
    language = block["language"]
    return block[0].replace(f"```{language}\n", f"``` {{.{language} .no-copy}}\n", 1)
