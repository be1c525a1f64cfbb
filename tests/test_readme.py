"""The README's Python runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.skipif("CliffWalking-v1" not in gym.registry, reason="needs Gymnasium >= 1.2")
def test_python_blocks_run_in_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 12
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    # All four go up to the same cell: 1/√1 ... 1/√4. The first would tie with R = −1 and is cut.
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == (
        "[-1. -1. -1. -1.] [1. 0.70710678 0.57735027 0.5 ] [0.9999999 0.70710678 0.57735027 0.5 ]"
    )
    assert not names["report"].preserved
    assert len(names["report"].changed_states) == 21
