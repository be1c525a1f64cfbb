"""Draws the share of solved runs of the off-policy study, with Wilson's 95 % intervals.

    python -m research.figures.off_policy runs/off-policy/results.csv

One panel for each task, one row for each arm, one line for each size of its bonus. Arms without
runs are left out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import tyro
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from research import ROOT
from research.analysis.labels import COLOURS
from research.analysis.statistics import Arms, share_interval
from research.figures.run_tables import save
from research.off_policy import (
    ABLATION,
    NO_BONUS,
    TASKS,
    UNIT,
    all_arms,
    read,
    results,
)

ARM_COLOURS = {
    **COLOURS,
    "ADOPS at sampling": COLOURS["ADOPS"],
    "ADOPS stored": "#7fcdb5",
    ABLATION: "#00604a",
}
LOOKS = {
    NO_BONUS: ("o", False, 0.0),
    "1": ("o", False, -0.25),
    "0.3": ("o", True, 0.0),
    UNIT: ("D", False, 0.25),
}
"""Marker, whether it is hollow, and the distance from the arm's row."""
SIZES = {"1": "×1", "0.3": "×0.3", UNIT: "of unit size"}


def panel(axis: Axes, task: str, runs: Arms) -> None:
    """Draw one task: a row for each method, a line for each size of the bonus."""
    arms = [arm for arm in all_arms() if arm.task == task and arm.label in runs[task]]
    names = list(dict.fromkeys(arm.name for arm in arms))
    for arm in arms:
        own = runs[task][arm.label]
        marker, hollow, offset = LOOKS[arm.scale]
        place, colour = names.index(arm.name) + offset, ARM_COLOURS[arm.name]
        interval = share_interval(int(own.solved.sum()), own.count)
        axis.plot(interval, (place, place), color=colour, linewidth=1.5)
        face, share = "white" if hollow else colour, own.solved.mean()
        axis.plot(share, place, marker, color=colour, markerfacecolor=face, markersize=5)
        axis.annotate(own.solved_text, (1.06, place), va="center", fontsize=6.5)
    axis.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axis.set_ylim(len(names) - 0.45, -0.55)
    axis.set_xlim(-0.03, 1.2)
    axis.set_xticks([0.0, 0.5, 1.0], ["0 %", "50 %", "100 %"], fontsize=8)
    axis.set_title(task, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def draw(table: Path, picture: Path) -> None:
    """Draw all tasks that have runs."""
    rows = read(table)
    runs = results(rows)
    tasks = [task for task in TASKS if task in runs]
    if not tasks:
        sys.exit(f"{table} holds no finished run.")
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(3.7 * len(tasks), 4.0), layout="constrained", squeeze=False
    )
    for axis, task in zip(axes[0], tasks, strict=True):
        panel(axis, task, runs)
    figure.supxlabel("runs that solved the task", fontsize=9)
    sizes = {row["scale"] for row in rows}
    figure.legend(
        handles=[
            Line2D(
                [],
                [],
                color="0.3",
                marker=marker,
                markerfacecolor=("0.3", "white")[hollow],
                markersize=5,
                label=f"bonus {SIZES[scale]}",
            )
            for scale, (marker, hollow, _) in LOOKS.items()
            if scale in sizes and scale in SIZES
        ],
        loc="outside upper center",
        ncols=3,
        fontsize=8,
        frameon=False,
    )
    save(figure, picture, dpi=110)
    plt.close(figure)


@dataclass
class Settings:
    """What to draw, and where to."""

    table: Annotated[Path, tyro.conf.Positional]
    """results.csv of `research.off_policy`"""
    out: Path = ROOT / "docs" / "images" / "off_policy.png"
    """the picture"""


def main(argv: list[str] | None = None) -> None:
    """Draw."""
    settings = tyro.cli(Settings, args=argv, description=__doc__)
    draw(settings.table, settings.out)


if __name__ == "__main__":
    main()
