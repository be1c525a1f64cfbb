"""Learns Montezuma's Revenge from RAM in under an hour of one core, and draws how it went.

    python train/laptop.py

ADOPS on the advantage with a count bonus over room, position and items. The picture's path is
printed last. If it is interrupted, it draws what there is; the same command continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib

from train import ppo_rnd

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import tyro

from adops_wrappers.training.rundir import is_run
from train.demo import column

RECIPE = (
    *("--env-id", "adops/MontezumaRam-v0", "--bonus", "count"),
    *("--clamp-advantage", "--quiet-iterations", "10"),
    *("--mlp-hidden", "256", "--learning-rate", "2.5e-4", "--checkpoint-every", "25"),
)


@dataclass
class Settings:
    """Settings of the run."""

    iterations: int = 1500
    """iterations of 32 envs × 128 steps; an interrupted run keeps its number"""
    seed: int = 1
    """seed of networks, actions and envs"""
    out: str = "runs/laptop"
    """folder of the run and of the picture"""


def train(settings: Settings) -> Path:
    """Start the run, or continue it, and return its directory."""
    run_dir = Path(settings.out) / f"seed{settings.seed}"
    new = ("--run-dir", str(run_dir), "--total-iterations", str(settings.iterations))
    flags = (*RECIPE, "--seed", str(settings.seed), *new)
    if is_run(run_dir):
        flags = ("--resume", str(run_dir))
    return ppo_rnd.train(ppo_rnd.parse_args(list(flags)))


def draw(run_dir: Path, path: Path) -> None:
    """Draw returns, rooms and lengths of episodes over the steps so far."""
    panels = {
        "mean score of the last 100 episodes": {"": "charts/episodic_return_recent"},
        "rooms": {
            "visited so far": "charts/rooms",
            "in an episode, mean": "charts/episodic_rooms",
        },
        "agent steps in an episode, mean": {"": "charts/episodic_length"},
    }
    steps = column(run_dir, "global_step") / 1e6
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 4), layout="constrained")
    for axis, (label, curves) in zip(axes, panels.items(), strict=True):
        for name, metric in curves.items():
            axis.plot(steps, column(run_dir, metric), label=name or None)
        axis.set_xlabel("agent steps (millions)")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False)
    figure.suptitle("Montezuma's Revenge from RAM: ADOPS on the advantage, count bonus, one run")
    figure.savefig(path, dpi=80)


def main(settings: Settings) -> None:
    """Train, draw, and say where the picture is."""
    run_dir = train(settings)
    if not (run_dir / "metrics.csv").exists():
        return  # stopped before its first iteration
    path = run_dir.with_suffix(".png")
    draw(run_dir, path)
    print(path)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
