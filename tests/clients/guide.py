"""The blocks of the guide to envs on a GPU that need a client, by what is said above them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gpu_envs.md"


def defined_in_guide(name: str) -> Any:
    """Run the block that defines a class, and return the class."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    block = next(match for match in blocks if f"class {name}(" in match[1])
    found: dict[str, Any] = {"__name__": "guide"}
    # As many empty lines as stand before it: a traceback names the guide's own line.
    above = "\n" * text[: block.start(1)].count("\n")
    exec(compile(above + block[1], str(GUIDE), "exec"), found)
    return found[name]
