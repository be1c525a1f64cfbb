"""Draws the picture of the start page with the page's own code: `python docs/_start_page.py`."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PICTURE = "cliff_streams.png"


def main() -> None:
    """Run the page's Python up to the block that saves the picture, and keep the picture."""
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for code in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
            exec(compile(code, "index.md", "exec"), names)
            if PICTURE in code:
                break
        (DOCS / "images" / PICTURE).write_bytes(Path(PICTURE).read_bytes())
        os.chdir(DOCS)


if __name__ == "__main__":
    main()
