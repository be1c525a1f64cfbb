from __future__ import annotations

from pathlib import Path

from research.figures import gallery

ROOT = Path(__file__).parents[3]


def test_the_page_of_the_gallery_is_up_to_date() -> None:
    assert gallery.page() == (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
