"""Trains with the raw bonus and with ADOPS where a television distracts, and draws both.

    python train/demo.py

KeyDoorTV has a noisy television behind its door: every look at it is new, so a count bonus
never dries up there. About three minutes on two CPU cores; the picture's path is printed last.
At the scale 0.3 of the bonus the two part ways; at 1 the television tends to capture both. If it is
interrupted, run the same command again: it continues where it stopped.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib

from research import sweep

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro

from adops_wrappers.training.exit import INCOMPLETE
from adops_wrappers.training.log import read_metrics

ARMS = {"raw bonus": ("none", {}), "ADOPS": ("adops", {"epsilon": "0.01"})}
"""Value of --shaping and settings of its own."""
COLOURS = {"raw bonus": "tab:red", "ADOPS": "tab:blue"}
LEARNER = {
    "bonus": "count",
    "normalize_intrinsic": "no",
    "num_envs": "64",
    "num_steps": "64",
    "learning_rate": "0.001",
    "ent_coef": "0.01",
    "gamma_ext": "0.99",
    "scale_adv": "False",
    "checkpoint_every": "50",
    "tensorboard": "False",
}


@dataclass
class Settings:
    """Settings of the demo."""

    env_id: str = "adops/KeyDoorTV-v0"
    """env to train on"""
    iterations: int = 200
    """iterations of each run; each has 64 envs × 64 steps"""
    scale: float = 0.3
    """factor on the bonus, in both arms"""
    seeds: int = 3
    """runs of each arm"""
    jobs: int = 2
    """runs at a time, one core each"""
    out: str = "runs/demo"
    """folder of the runs and of the picture"""


def cells_of(settings: Settings) -> dict[str, list[sweep.Cell]]:
    """Return the runs of each arm."""
    chosen = {
        "env_id": settings.env_id,
        "intrinsic_scale": str(settings.scale),
        "total_iterations": str(settings.iterations),
    }
    seeds = range(1, settings.seeds + 1)
    return {
        arm: sweep.expand([method], seeds, LEARNER | own, {k: [v] for k, v in chosen.items()})
        for arm, (method, own) in ARMS.items()
    }


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


def main(settings: Settings) -> int:
    """Train all runs, draw, and say where the picture is; return the exit code."""
    cells = cells_of(settings)
    by_seed = [cell for seed in zip(*cells.values(), strict=True) for cell in seed]
    code = sweep.run(sweep.RunArgs(settings.out, jobs=settings.jobs), by_seed)
    if code not in (0, INCOMPLETE):
        return code
    runs = {arm: [Path(settings.out) / cell.name for cell in own] for arm, own in cells.items()}
    for arm, run_dirs in runs.items():
        final = [column(run_dir, "charts/episodic_return_recent")[-1] for run_dir in run_dirs]
        print(f"{arm}: final return {', '.join(f'{value:.2f}' for value in final)}")
    print(draw(settings, runs))
    return code


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings, description=__doc__)))
