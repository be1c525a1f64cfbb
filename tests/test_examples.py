"""The examples run as their docstrings print them, shortened."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

ROOT = Path(__file__).parent.parent
COMMANDS = [
    command.split("#")[0].strip()
    for example in sorted((ROOT / "examples").glob("*.py"))
    for command in re.findall(r"^    python (examples/.*)$", example.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_printed_command_runs(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *options = shlex.split(command)
    steps = "1200" if "dqn" in script else "4096"
    monkeypatch.setattr(sys, "argv", [script, *options, "--steps", steps])
    runpy.run_path(str(ROOT / script), run_name="__main__")
    lines = capsys.readouterr().out.strip().split("\n")
    found = [re.match(r"\s*(\d+) steps  extrinsic return (\S+)  ", line) for line in lines]
    assert all(found)
    assert found[-1] is not None
    assert int(found[-1].group(1)) >= 1000


def test_curves_script_runs_what_is_missing_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    from research.figures import sb3_curves as curves

    study = {"PPO": ("sb3_ppo", "--steps 6000", 1), "more": ("sb3_dqn", "", 0)}
    for name, value in {
        "STUDIES": study,
        "VARIANTS": {"raw bonus": "--shaping none"},
        "TABLE": tmp_path / "data" / "curves.csv",
        "PICTURE": tmp_path / "curves.png",
    }.items():
        monkeypatch.setattr(curves, name, value)
    variants = {"raw bonus": "--shaping none", "b": "", "c": ""}
    curves.run_missing()
    curves.run_missing()  # nothing is left to run
    rows = curves.read_rows(curves.TABLE)
    assert len(rows) >= 1
    assert {row["variant"] for row in rows} == {"raw bonus"}
    assert len({row["timesteps"] for row in rows}) == len(rows)
    monkeypatch.setattr(curves, "VARIANTS", variants)
    curves.draw()
    assert (tmp_path / "curves.png").stat().st_size > 5000
    assert "| PPO | raw bonus | " in capsys.readouterr().out
