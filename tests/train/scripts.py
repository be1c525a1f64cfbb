"""Imports the scripts of train/, and runs them and the modules of research/ as a user would."""

from __future__ import annotations

import atexit
import csv
import functools
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.zygote import Child, Zygote

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "train"
TIMING = ("charts/SPS", "time/env", "time/forward", "time/bonus", "time/update")


def load_script(name: str) -> ModuleType:
    """Import train/NAME.py."""
    return importlib.import_module(f"train.{name}")


def words(script: str, *flags: str) -> list[str]:
    """Return what follows `python` in a shell: a script of train/, or -m and a module."""
    return [str(TRAIN / script), *flags] if script.endswith(".py") else ["-m", script, *flags]


def command(script: str, *flags: str) -> list[str]:
    return [sys.executable, *words(script, *flags)]


def environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


@functools.cache
def zygote() -> Zygote:
    """Return the process that forks all scripts of these tests."""
    started = Zygote(environment(MPLBACKEND="agg", OMP_NUM_THREADS="1"))
    atexit.register(started.close)
    return started


def start_script(script: str, *flags: str, forking: bool = False, **variables: str) -> Child:
    """Start a command without the seconds that its imports would take.

    Args:
        script: Name of a file in train/, or of a module.
        flags: Its command line.
        forking: Let the processes that it starts itself be as quick.
        variables: Changes of the environment.
    """
    return zygote().start(
        words(script, *flags), environment=environment(**variables), forking=forking
    )


def run_script(script: str, *flags: str, code: int = 0, **options: Any) -> str:
    """Run a script to its end and return what it printed."""
    process = start_script(script, *flags, **options)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == code, output
    return output


def read_metrics(run_dir: Path) -> list[dict[str, str]]:
    with (Path(run_dir) / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def learned(run_dir: Path) -> list[dict[str, str]]:
    """Return the metrics without what depends on the clock."""
    return [{k: v for k, v in row.items() if k not in TIMING} for row in read_metrics(run_dir)]
