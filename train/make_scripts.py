"""Copies ppo_rnd.py to the per-method scripts, which differ from it only in their marked blocks.

Run `python train/make_scripts.py` after every change to ppo_rnd.py outside its blocks; `--check`
only reports whether the scripts are up to date. Each script keeps its own blocks. For a new method,
copy a script to ppo_rnd_METHOD.py and edit its blocks.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "ppo_rnd.py"
BLOCKS = (": imports", ": flags", "")
"""What follows the words `wrapper stack` in the marks around each block."""


def find_block(text: str, block: str, name: str) -> tuple[int, int]:
    """Return where a block's content starts and ends."""
    start, end = f"# --- wrapper stack{block}\n", f"# --- end of wrapper stack{block}\n"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{name} must hold {start!r} and {end!r} exactly once each.")
    return text.index(start) + len(start), text.index(end)


def update(script: Path) -> str:
    """Return the text of ppo_rnd.py with the blocks of a script."""
    text, own = SOURCE.read_text(), script.read_text()
    for block in BLOCKS:
        start, end = find_block(text, block, SOURCE.name)
        own_start, own_end = find_block(own, block, script.name)
        text = text[:start] + own[own_start:own_end] + text[end:]
    return text


def main() -> None:
    """Write the scripts, or with --check compare them."""
    texts = {script: update(script) for script in sorted(FOLDER.glob("ppo_rnd_*.py"))}
    stale = [script for script, text in texts.items() if script.read_text() != text]
    if "--check" not in sys.argv:
        for script in stale:
            script.write_text(texts[script])
    elif stale:
        names = ", ".join(script.name for script in stale)
        sys.exit(f"{names} out of date: run python train/make_scripts.py")


if __name__ == "__main__":
    main()
