"""Draws return against env steps of runs on an Atari game, beside the level of random actions.

python figures/pixels.py runs/none runs/adops --out x.png --csv x.csv
python figures/pixels.py x.csv --out x.png

The first form also plays the random policy, in envs built like those of the first run.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro
from matplotlib.figure import Figure
from run_tables import Row, read_rows, rows_by_method, write_rows

from adops_wrappers.training.args import EnvArgs
from adops_wrappers.training.envs import env_kind, make_vector_env
from adops_wrappers.training.rundir import read_config

COLUMNS = (
    *("global_step", "charts/episodes", "charts/episodic_return", "charts/episodic_return_recent"),
    *("charts/SPS", "shaping/raw_mean", "shaping/conflict_rate", "shaping/intervention_rate"),
)
COLOURS = {"none": "tab:red", "adops": "tab:blue"}
LABELS = {"none": "raw RND bonus (none)", "adops": "ADOPS (adops)"}
RECENT = 20
"""Episodes over which the curves average."""


@dataclass
class Settings:
    """What to draw."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """run directories, or one CSV that this command has written before"""
    out: str = "pixels.png"
    """the picture"""
    csv: str = ""
    """also write the drawn columns of all runs, and the random policy's returns, to this file"""
    title: str = ""
    """title of the picture"""
    random_episodes: int = 64
    """episodes of the random policy"""


def random_returns(args: EnvArgs, episodes: int, seed: int = 0) -> np.ndarray:
    """Return the unscaled return of one episode of uniformly random actions in each of n envs."""
    # The first episode of each env: counting all until some step would favour short ones.
    envs = make_vector_env(args, env_kind(args.env_id), episodes)
    rng, actions = np.random.default_rng(seed), envs.single_action_space
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
    """Return, at each iteration in which episodes ended, the step and the mean return of the last.

    The mean is that of the last `RECENT` episodes; those of one iteration count by their mean.
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
    """Draw a dot per iteration, a curve per run, and the random policy's mean."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for method, own in rows_by_method(rows).items():
        if method == "random":
            level = np.mean([float(row["charts/episodic_return"]) for row in own])
            label = f"random policy, {len(own)} episodes"
            axis.axhline(level, color="0.4", linestyle="--", label=label)
            continue
        colour, label = COLOURS.get(method), LABELS.get(method, method)
        ended = [row for row in own if row["charts/episodic_return"]]
        steps = [int(row["global_step"]) / 1e3 for row in ended]
        scores = [float(row["charts/episodic_return"]) for row in ended]
        axis.scatter(steps, scores, s=9, color=colour, alpha=0.3, linewidths=0)
        steps, scores = curve(own)
        axis.plot(steps / 1e3, scores, color=colour, label=label)
    axis.set_xlabel("env steps (thousands)")
    axis.set_ylabel(f"extrinsic return (last {RECENT} episodes)")
    axis.set_ylim(bottom=0.0)
    axis.set_title(title)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper left")
    return figure


def main(settings: Settings) -> None:
    """Collect, write, draw."""
    rows = read_rows(settings.runs, COLUMNS)
    if settings.csv:
        rows += random_rows(settings.runs[0], settings.random_episodes)
        write_rows(settings.csv, rows)
    Path(settings.out).parent.mkdir(parents=True, exist_ok=True)
    draw(rows, settings.title).savefig(settings.out, dpi=120)
    print(settings.out)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
