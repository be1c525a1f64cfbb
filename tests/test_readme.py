"""The README's Python runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium as gym
import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.skipif("CliffWalking-v1" not in gym.registry, reason="needs Gymnasium >= 1.2")
def test_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 12
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    # All four go up to the same cell: 1/√1 ... 1/√4. The first would tie with R = −1 and is cut.
    printed = capsys.readouterr().out
    assert printed.split() == [
        "[-1.",
        "-1.",
        "-1.",
        "-1.]",
        "[1.",
        "0.70710678",
        "0.57735027",
        "0.5",
        "]",
        "[0.9999999",
        "0.70710678",
        "0.57735027",
        "0.5",
        "]",
    ]
