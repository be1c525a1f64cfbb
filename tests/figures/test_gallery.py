from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_gallery_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "figures" / "gallery.py"))["page"]
    assert page() == (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
