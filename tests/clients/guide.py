"""The blocks of the guide to envs on a GPU that need a client, by what is said above them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gpu_envs.md"


def defined_in_guide(name: str) -> Any:
    """Run the block that defines a class, and return the class."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    code = next(block for block in blocks if f"class {name}(" in block)
    found: dict[str, Any] = {"__name__": "guide"}
    exec(compile(code, str(GUIDE), "exec"), found)
    return found[name]
