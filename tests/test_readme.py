"""The README is short, its example prints what it shows, and its links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import gymnasium as gym
import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.skipif("CliffWalking-v1" not in gym.registry, reason="needs Gymnasium >= 1.2")
def test_the_example_prints_what_the_readme_shows() -> None:
    [(code, shown)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert len(re.findall(r"^```python", TEXT, re.MULTILINE)) == 1
    assert len([line for line in code.splitlines() if line]) == 10
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, str(README), "exec"), {})
    assert printed.getvalue() == shown


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= 160


def test_links_lead_to_files_and_headings() -> None:
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", TEXT)
    assert len(links) > 20
    for target, anchor in links:
        page = README.parent / target if target else README
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"
