"""The Stable-Baselines3 examples with and without ADOPS + TDCritic: curves into docs/.

    python -m research.figures.sb3_curves           # runs what is missing in the CSV, then draws
    python -m research.figures.sb3_curves --draw    # draws what is there

About 15 minutes on one core. Every run is one call of an example's `train`.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro

from research import ROOT
from research.rows import read_rows, write_rows

TABLE = ROOT / "docs" / "data" / "sb3_curves.csv"
PICTURE = ROOT / "docs" / "images" / "sb3_curves.png"

STUDIES: dict[str, tuple[str, str, int]] = {
    "PPO, LoopFarm, bell bonus 0.2": ("sb3_ppo", "", 5),
    "DQN, LoopFarm, bell bonus 0.2": ("sb3_dqn", "", 3),
    "PPO, KeyDoorTV, count bonus 1": (
        "sb3_ppo",
        "--env adops/KeyDoorTV-v0 --bonus count --bonus-scale 1 --steps 150000",
        3,
    ),
}
"""Of each panel the example, its flags and the number of seeds."""
VARIANTS = {
    "no bonus": "--bonus none --shaping none",
    "raw bonus": "--shaping none",
    "ADOPS + TDCritic": "--shaping adops",
}
MEASURED = ("extrinsic_return", "corrected_share")


def load(name: str) -> Any:
    """Import an example by its path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_missing() -> None:
    """Run every (study, variant, seed) that the CSV does not hold, and add its rows."""
    rows = read_rows(TABLE)
    done = {(row["study"], row["variant"], row["seed"]) for row in rows}
    for study, (script, options, seeds) in STUDIES.items():
        for seed, (variant, more) in itertools.product(map(str, range(seeds)), VARIANTS.items()):
            if (study, variant, seed) in done:
                continue
            start, example = time.perf_counter(), load(script)
            flags = f"{options} {more} --seed {seed}".split()
            history = example.train(example.parser().parse_args(flags))
            key = {"study": study, "variant": variant, "seed": seed}
            rows += [
                {
                    **key,
                    "timesteps": str(int(entry["timesteps"])),
                    **{name: str(round(entry[name], 4)) for name in MEASURED},
                }
                for entry in history
                if "extrinsic_return" in entry
            ]
            write_rows(TABLE, rows)
            print(f"{study}: {variant}, seed {seed}: {time.perf_counter() - start:.0f} s")


def draw() -> None:
    """Draw every run as a line; print the mean of each run's last fifth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in read_rows(TABLE):
        key = row["study"], row["variant"], row["seed"]
        runs[key].append((float(row["timesteps"]), float(row["extrinsic_return"])))
    figure, axes = plt.subplots(1, len(STUDIES), figsize=(11, 3.2), layout="constrained")
    colours = dict(zip(VARIANTS, ("#555555", "#d1495b", "#00798c"), strict=True))
    for axis, study in zip(axes, STUDIES, strict=True):
        for variant, colour in colours.items():
            ends = []
            for (name, kind, _), points in runs.items():
                if (name, kind) != (study, variant):
                    continue
                steps, returns = np.array(points).T
                width = max(1, len(returns) // 40)
                smooth = np.convolve(returns, np.ones(width) / width, mode="valid")
                axis.plot(steps[width - 1 :], smooth, color=colour, alpha=0.8, linewidth=1.1)
                ends.append(float(returns[-max(1, len(returns) // 5) :].mean()))
            axis.plot([], [], color=colour, label=variant)
            print(f"| {study} | {variant} | {', '.join(f'{end:.2f}' for end in ends)} |")
        axis.set_title(study, fontsize=9)
        axis.set_xlabel("steps")
        axis.set_ylim(-0.03, 1.0)
        axis.ticklabel_format(axis="x", style="sci", scilimits=(3, 3))
    axes[0].set_ylabel("extrinsic return")
    axes[0].legend(fontsize=8, loc="center right")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


@dataclass
class Args:
    """What to do."""

    draw: bool = False
    """only draw"""


if __name__ == "__main__":
    if not tyro.cli(Args, description=__doc__).draw:
        run_missing()
    draw()
