"""The pages cite the paper's equations by number, with a link to the one table that has them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ERRATA = (DOCS / "errata.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r'^\| <a id="eq-(\d+)"></a>\1 \| (`\w+`|none) \|', ERRATA, re.MULTILINE))


def test_every_cited_equation_is_in_the_table() -> None:
    cited = {
        (page.name, number)
        for page in DOCS.rglob("*.md")
        for number in re.findall(r"#eq-(\d+)\)", page.read_text(encoding="utf-8"))
    }
    assert len(cited) > 10
    assert {number for _, number in cited} <= ROWS.keys(), cited


def test_links_say_the_number_they_lead_to() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for said, target in re.findall(r"\[eq\. (\d+)\]\([^)]*#eq-(\d+)\)", text):
            assert said == target, page.name


def test_labels_stand_in_the_table_alone() -> None:
    labels = {label.strip("`") for label in ROWS.values()} - {"none", "drawer"}
    assert len(labels) > 8
    for page in DOCS.rglob("*.md"):
        if page.name not in ("errata.md", "replay.md"):
            text = page.read_text(encoding="utf-8")
            assert not [label for label in labels if label in text], page.name
