"""What a type checker tells a user: kinds of env, settings of every method, the shaper."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

USERS_FILE = """\
from typing import Any

import gymnasium as gym

from adops_wrappers import ADOPSWrapper, CountBonus, GRMWrapper, IntrinsicRewardWrapper

def critic(obs: Any) -> tuple[float, float]:
    return 0.0, 0.0

env = IntrinsicRewardWrapper(gym.make("CartPole-v1"), CountBonus())
vector = gym.make_vec("CartPole-v1", num_envs=2)
reveal_type(ADOPSWrapper(env, critic, gamma=0.99, epsilon=0.1, add_to_reward=False))
reveal_type(ADOPSWrapper(vector, critic, bonus=CountBonus()))
reveal_type(GRMWrapper(vector, delay=3, gamma=0.9).shaper)
ADOPSWrapper(env, critic, epsilom=0.1)
ADOPSWrapper(env, critic, gamma="0.9")
ADOPSWrapper(env)
GRMWrapper(vector, dealy=3)
IntrinsicRewardWrapper(env, CountBonus(), quiet_step=3)
"""


def test_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    path.write_text(USERS_FILE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(path)]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    revealed = re.findall(r'Revealed type is "adops_wrappers\.([\w.]+)"', said)
    assert revealed == [
        "wrappers.shaping.ShapingWrapper",
        "wrappers.shaping.VectorShapingWrapper",
        "shaper.Shaper",
    ]
    lines = USERS_FILE.splitlines()
    wrong = {lines[int(line) - 1] for line in re.findall(r"user\.py:(\d+): error", said)}
    assert wrong == set(lines[-5:])
    for typed, meant in (("epsilom", "epsilon"), ("dealy", "delay"), ("quiet_step", "quiet_steps")):
        assert re.search(rf'"{typed}".*did you mean "{meant}"', said)


@pytest.mark.skipif(shutil.which("pyright") is None, reason="npm install --global pyright")
def test_a_users_file_in_an_editor(tmp_path: Path) -> None:
    """Pyright is what Pylance runs in VS Code."""
    (tmp_path / "user.py").write_text(USERS_FILE)
    paths = {"extraPaths": [str(Path(__file__).parents[2])], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(paths))
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    said = json.loads(done.stdout)["generalDiagnostics"]
    revealed = re.findall(r' is "(\w+)"$', "\n".join(d["message"] for d in said), re.MULTILINE)
    assert revealed == ["ShapingWrapper", "VectorShapingWrapper", "Shaper"]
    lines = USERS_FILE.splitlines()
    wrong = {d["range"]["start"]["line"] for d in said if d["severity"] == "error"}
    assert {lines[line] for line in wrong} == set(lines[-5:])
