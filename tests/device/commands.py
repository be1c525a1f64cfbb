"""Runs the training scripts by their command lines, and compares what they wrote."""

from __future__ import annotations

import csv
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "train"
RUN = ROOT / "tests" / "device" / "run.py"
MINIBATCHES = 4
"""Gradient steps per iteration of the small run."""
SMALL = (
    *("--env-id", "MiniGrid-DoorKey-5x5-v0", "--max-episode-steps", "11", "--mlp-hidden", "16"),
    *("--num-envs", "4", "--num-steps", "16", "--obs-norm-init-iterations", "1"),
    *("--update-epochs", "2", "--num-minibatches", str(MINIBATCHES // 2)),
    *("--learning-rate", "1e-3", "--torch-threads", "1", "--no-tensorboard"),
)
"""A run whose iterations take some tenths of a second."""


def call(script: str, *flags: Any) -> None:
    """Run a script of train/ in this process, where torch is imported already."""
    path = TRAIN / script
    code: Any = 0
    try:
        with patch.object(sys, "argv", [str(path), *map(str, flags)]):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        code = end.code
    assert not code, code


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment, with the package importable and one thread."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


def start(*command: Any, **changes: str) -> subprocess.Popen[str]:
    """Start `python COMMAND` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process, which must be a good one, and return its output."""
    try:
        output = process.communicate(timeout=900)[0]
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


def metrics(run_dir: Path) -> list[dict[str, str]]:
    """Return the rows of metrics.csv without the columns that depend on the clock."""
    with (run_dir / "metrics.csv").open(newline="") as file:
        return [
            {k: v for k, v in row.items() if not k.startswith("time/") and k != "charts/SPS"}
            for row in csv.DictReader(file)
        ]
