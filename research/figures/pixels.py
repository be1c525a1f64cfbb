"""Draws return against env steps of runs on an Atari game, and the level of random actions.

python -m research.figures.pixels runs/none runs/adops --out x.png --csv x.csv
python -m research.figures.pixels x.csv --out x.png

The first form also plays the random policy, in envs built like those of the first run.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.figure import Figure

from adops_wrappers.training.args import EnvArgs
from adops_wrappers.training.envs import env_kind, make_vector_env
from adops_wrappers.training.rundir import read_config
from research.figures.run_tables import Drawing, chosen_rows, rows_by_method, save
from research.rows import Row, write_rows

COLUMNS = (
    *("global_step", "charts/episodes", "charts/episodic_return", "charts/episodic_return_recent"),
    *("charts/SPS", "shaping/raw_mean", "shaping/conflict_rate", "shaping/intervention_rate"),
)
COLOURS = {"none": "tab:red", "adops": "tab:blue"}
LABELS = {"none": "raw bonus", "adops": "ADOPS"}
RECENT = 20
"""Episodes over which the curves average."""


@dataclass
class Settings(Drawing):
    """What to draw, and how."""

    title: str = ""
    """title of the picture"""
    random_episodes: int = 64
    """episodes of the random policy, which `csv` holds, too"""


def random_returns(args: EnvArgs, episodes: int, seed: int = 0) -> np.ndarray:
    """Return the unscaled return of one episode of uniformly random actions in each of n envs."""
    # The first episode of each env: counting all until some step would favour short ones.
    envs = make_vector_env(args, env_kind(args.env_id), episodes)
    rng = np.random.default_rng(seed)
    actions: Any = envs.single_action_space
    returns, playing = np.zeros(episodes), np.ones(episodes, dtype=bool)
    envs.reset(seed=seed)
    while playing.any():
        chosen = actions.start + rng.integers(0, actions.n, episodes)
        _, reward, terminated, truncated, _ = envs.step(chosen)
        returns[playing] += np.asarray(reward)[playing]
        playing &= ~np.logical_or(terminated, truncated)
    envs.close()
    return returns


def random_rows(run: str, episodes: int) -> list[Row]:
    """Play the random policy in the envs of a run; one row per episode."""
    settings = read_config(Path(run))["args"]
    args = EnvArgs(**{f.name: settings[f.name] for f in dataclasses.fields(EnvArgs)})
    return [
        {**dict.fromkeys(COLUMNS, ""), "method": "random", "charts/episodes": str(number)}
        | {"charts/episodic_return": f"{score:g}"}
        for number, score in enumerate(random_returns(args, episodes), 1)
    ]


def curve(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return steps at which episodes had ended, and the mean return of the last `RECENT` there.

    Of the episodes that ended in one iteration only the mean is known; each counts with it.
    """
    total = np.array([int(row["charts/episodes"]) for row in rows])
    ended = np.diff(total, prepend=0)
    means = np.array([float(row["charts/episodic_return"] or "nan") for row in rows])
    returns = np.repeat(means, ended)
    some = ended > 0
    recent = [returns[max(0, count - RECENT) : count].mean() for count in total[some]]
    steps = np.array([int(row["global_step"]) for row in rows])
    return steps[some], np.array(recent)


def draw(rows: list[Row], title: str = "") -> Figure:
    """Draw the returns of all runs beside the random policy's mean, and their conflict rates."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    grouped = rows_by_method(rows)
    random = [float(row["charts/episodic_return"]) for row in grouped.pop("random", [])]
    for method, own in grouped.items():
        colour, label = COLOURS.get(method), LABELS.get(method, method)
        thousands = np.array([int(row["global_step"]) for row in own]) / 1e3
        scores = [float(row["charts/episodic_return"] or "nan") for row in own]
        left.scatter(thousands, scores, s=10, color=colour, alpha=0.4, linewidths=0)
        steps, means = curve(own)
        left.plot(steps / 1e3, means, color=colour, label=label)
        rates = [float(row["shaping/conflict_rate"]) for row in own]
        right.plot(thousands, rates, color=colour, label=label)
    if random:
        label = f"random policy ({len(random)} episodes)"
        left.axhline(np.mean(random), color="0.4", linestyle="--", label=label)
    left.set_ylabel(f"extrinsic return (last {RECENT} episodes)")
    right.set_ylabel("share of steps where raw F\ncontradicts the critic")
    for axis in (left, right):
        axis.set_xlabel("env steps (thousands)")
        axis.set_xlim(left=0.0)
        axis.spines[["top", "right"]].set_visible(False)
    right.legend(*left.get_legend_handles_labels(), frameon=False)
    figure.suptitle(title)
    return figure


def main(settings: Settings) -> None:
    """Collect, write, draw."""
    rows = chosen_rows(settings.runs, COLUMNS)
    if settings.csv:
        if "random" not in rows_by_method(rows):
            rows += random_rows(settings.runs[0], settings.random_episodes)
        write_rows(Path(settings.csv), rows)
    save(draw(rows, settings.title), settings.out)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
