"""Every finding of the diagnosis has a section on the troubleshooting page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from adops_wrappers.inspect import diagnosis, findings, run_diagnosis

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def titles() -> Iterator[str]:
    """Yield what the modules pass as the title of a `Finding`; a choice counts as two."""
    for module in (findings, diagnosis, run_diagnosis):
        for call in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding"):
                continue
            kind, title, _ = call.args
            if ast.unparse(kind) == "'fine'":
                continue  # it becomes a part of "Checked, and unremarkable"
            choices = (title.body, title.orelse) if isinstance(title, ast.IfExp) else (title,)
            for choice in choices:
                assert isinstance(choice, ast.Constant), ast.unparse(call)
                yield choice.value


def test_every_finding_has_a_section_under_its_title() -> None:
    sections = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert len(sections) == len(set(sections)) > 20
    assert set(sections) == set(titles())


def test_messages_name_the_page() -> None:
    [named] = re.findall(r"docs/\w+\.md", findings.HELP)
    assert (Path(__file__).parents[2] / named).read_text(encoding="utf-8") == PAGE
