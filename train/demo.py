"""Trains with the raw bonus and with ADOPS on an env that hacks bonuses, and draws both.

    python train/demo.py

KeyDoorTV has a noisy television behind its door: every look at it is new, so a count bonus
never dries up there. About three minutes on two CPU cores; the picture's path is printed last.
The bonus has the scale 0.3, at which the two arms part ways: at 1 the television tends to
capture both.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro
from tqdm import tqdm

from adops_wrappers.training.log import read_metrics
from adops_wrappers.training.rundir import is_run, read_status

ROOT = Path(__file__).parents[1]
ARMS = {
    "raw bonus": ("--shaping", "none"),
    "ADOPS": ("--shaping", "adops", "--epsilon", "0.01"),
}
COLOURS = {"raw bonus": "tab:red", "ADOPS": "tab:blue"}


@dataclass
class Settings:
    """Settings of the demo."""

    env_id: str = "adops/KeyDoorTV-v0"
    """env to train on"""
    iterations: int = 200
    """iterations of each run, of 64 envs x 64 steps"""
    scale: float = 0.3
    """factor on the bonus, in both arms"""
    seeds: int = 3
    """runs of each arm"""
    jobs: int = 2
    """runs at a time, one core each"""
    out: str = "runs/demo"
    """directory of the runs and the picture"""


def run(settings: Settings, arm: str, seed: int) -> Path:
    """Train one arm with one seed, unless it has been done before."""
    run_dir = Path(settings.out) / f"{arm.replace(' ', '-')}-{seed}-{settings.iterations}"
    with contextlib.suppress(OSError, ValueError):
        if read_status(run_dir)["finished"]:
            return run_dir
    if is_run(run_dir):
        flags = ["--resume", str(run_dir)]
    else:
        flags = [
            *("--env-id", settings.env_id, "--bonus", "count", "--num-envs", "64"),
            *("--num-steps", "64", "--total-iterations", str(settings.iterations)),
            *("--learning-rate", "1e-3", "--ent-coef", "0.01", "--gamma-ext", "0.99"),
            *("--intrinsic-scale", str(settings.scale)),
            *("--seed", str(seed), "--run-dir", str(run_dir), "--torch-threads", "1"),
            *("--checkpoint-every", "50", "--no-tensorboard", *ARMS[arm]),
        ]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, str(ROOT / "train" / "ppo_rnd.py"), *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if result.returncode:
        raise RuntimeError(f"{arm}, seed {seed} failed:\n{result.stdout}{result.stderr}")
    return run_dir


def column(run_dir: Path, name: str) -> np.ndarray:
    """Return one column of a run's metrics, NaN where a cell is empty."""
    return np.array([float(cell or "nan") for cell in read_metrics(run_dir)[name]])


def draw(settings: Settings, runs: dict[str, list[Path]]) -> Path:
    """Draw return and conflict rate of all runs, and return the picture's path."""
    panels = {
        "charts/episodic_return_recent": "extrinsic return (last 100 episodes)",
        "shaping/shaped_mean": "intrinsic reward F' per step",
        "shaping/conflict_rate": "share of steps where raw F\ncontradicts the critic",
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 4), layout="constrained")
    for axis, (name, label) in zip(axes, panels.items(), strict=True):
        for arm, run_dirs in runs.items():
            curves = np.array([column(run_dir, name) for run_dir in run_dirs])
            steps = column(run_dirs[0], "global_step") / 1e3
            axis.plot(steps, curves.T, color=COLOURS[arm], alpha=0.25, linewidth=0.8)
            axis.plot(steps, curves.mean(0), color=COLOURS[arm], label=arm)
        axis.set_xlabel("env steps (thousands)")
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    bonus = f"count bonus times {settings.scale:g}"
    figure.suptitle(f"{settings.env_id}, {bonus}, {settings.seeds} seeds and their mean")
    path = Path(settings.out) / "raw_vs_adops.png"
    figure.savefig(path, dpi=80)
    return path


def main(settings: Settings) -> None:
    """Train all runs side by side, draw, and say where the picture is."""
    cells = [(arm, seed) for seed in range(1, settings.seeds + 1) for arm in ARMS]
    with ThreadPoolExecutor(settings.jobs) as pool:
        jobs = [pool.submit(run, settings, arm, seed) for arm, seed in cells]
        found = [job.result() for job in tqdm(jobs, "training", unit="run")]
    runs: dict[str, list[Path]] = {arm: [] for arm in ARMS}
    for (arm, _), run_dir in zip(cells, found, strict=True):
        runs[arm].append(run_dir)
    for arm, run_dirs in runs.items():
        final = [column(run_dir, "charts/episodic_return_recent")[-1] for run_dir in run_dirs]
        print(f"{arm}: final return {', '.join(f'{value:.2f}' for value in final)}")
    print(draw(settings, runs))


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
