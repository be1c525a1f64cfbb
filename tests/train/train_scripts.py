"""Loads the scripts in train/ as modules, and runs them as a user would."""

from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "train"
TIMING = ("charts/SPS", "time/env", "time/forward", "time/bonus", "time/update")


def load_script(name: str) -> ModuleType:
    """Import train/NAME.py, whose folder is on the path here as it is for a script beside it."""
    return importlib.import_module(name)


def command(script: str, *flags: str) -> list[str]:
    return [sys.executable, str(TRAIN / script), *flags]


def environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def run_script(script: str, *flags: str, code: int = 0, **variables: str) -> str:
    """Run a script to its end and return what it printed."""
    env = environment(**variables)
    result = subprocess.run(
        command(script, *flags), capture_output=True, text=True, env=env, timeout=240
    )
    output = result.stdout + result.stderr
    assert result.returncode == code, output
    return output


def read_metrics(run_dir: Path) -> list[dict[str, str]]:
    with (Path(run_dir) / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def learned(run_dir: Path) -> list[dict[str, str]]:
    """Return the metrics without what depends on the clock."""
    return [{k: v for k, v in row.items() if k not in TIMING} for row in read_metrics(run_dir)]
