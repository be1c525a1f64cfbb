from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tyro")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "train_speed.py"


def test_operations_are_counted_as_by_hand():
    spec = importlib.util.spec_from_file_location("train_speed", SCRIPT)
    train_speed = importlib.util.module_from_spec(spec)
    sys.modules["train_speed"] = train_speed
    spec.loader.exec_module(train_speed)
    layer = torch.nn.Linear(6, 5)
    assert train_speed.count_flops(layer, torch.rand(4, 6), backward=False) == 2 * 6 * 5
    # The input needs no gradient: one product for the weights.
    assert train_speed.count_flops(layer, torch.rand(4, 6), backward=True) == 2 * 2 * 6 * 5


def test_table_of_methods():
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    flags = "--env-id CartPole-v1 --num-envs 4 --num-steps 16"
    result = subprocess.run(
        [
            *(sys.executable, str(SCRIPT), "--methods", "none", "adops", "--repetitions", "1"),
            *("--iterations", "2", f"--flags={flags}"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=900,
    )
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"\| (none|adops) \| (\d+) \|", result.stdout)
    assert [name for name, _ in rows] == ["none", "adops"]
    assert all(int(speed) > 0 for _, speed in rows)
    assert re.search(r"\| none .* \+0\.0 % \|", result.stdout)
    assert re.search(r"adops reaches \d+ % of it", result.stdout)
