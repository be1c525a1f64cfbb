"""The start page prints what it says: each block of output follows the block that makes it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "index.md"


def blocks() -> Iterator[tuple[str, str, str | None]]:
    """Yield the language and code of each block, and the output that the page shows for it."""
    fences = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)
    for number, (language, code) in enumerate(fences):
        follows = fences[number + 1] if number + 1 < len(fences) else ("", "")
        if language != "text":
            yield language, code, follows[1] if follows[0] == "text" else None


def run_shell(command: str) -> str:
    words = shlex.split(command)
    assert words[:2] == ["python", "-m"], f"only our own modules have their output shown: {command}"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *words[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_output_is_what_the_block_before_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    names: dict[str, Any] = {"__name__": "__docs__"}
    compared = 0
    for language, code, shown in blocks():
        if language == "bash":
            printed = run_shell(code) if shown is not None else None
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, str(PAGE), "exec"), names)
            printed = out.getvalue()
        if shown is not None:
            assert printed == shown
            compared += 1
    assert compared >= 8
    assert (tmp_path / "cliff_streams.png").stat().st_size > 0
    [said] = re.findall(r"fights the task at (\d+ %)", PAGE.read_text(encoding="utf-8"))
    assert said in (tmp_path / "report.html").read_text(encoding="utf-8")
