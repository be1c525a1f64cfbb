"""Draws the share of solved runs of the off-policy study, with Wilson's 95 % intervals.

    python -m research.figures.off_policy runs/off-policy/results.csv

One panel for each task, one row for each arm, one line for each size of its bonus. Arms without
runs are left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from research import ROOT
from research.analysis.labels import COLOURS
from research.off_policy_design import (
    ABLATION,
    NO_BONUS,
    TASKS,
    UNIT,
    Groups,
    grouped,
    read,
    wilson,
)

PICTURE = ROOT / "docs" / "images" / "off_policy.png"
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


def panel(axis: Axes, task: str, groups: Groups) -> None:
    """Draw one task: a row for each arm, a line for each size of the bonus."""
    own = {(arm, scale): group for (name, arm, scale), group in groups.items() if name == task}
    arms = list(dict.fromkeys(arm for arm, _ in own))
    for (arm, scale), group in own.items():
        solved, runs = sum(group.solved), len(group.solved)
        marker, hollow, offset = LOOKS[scale]
        place, colour = arms.index(arm) + offset, ARM_COLOURS[arm]
        axis.plot(wilson(solved, runs), (place, place), color=colour, linewidth=1.5)
        face = "white" if hollow else colour
        axis.plot(solved / runs, place, marker, color=colour, markerfacecolor=face, markersize=5)
        axis.annotate(f"{solved}/{runs}", (1.06, place), va="center", fontsize=6.5)
    axis.set_yticks(range(len(arms)), [arm.replace(", ", ",\n") for arm in arms], fontsize=8)
    axis.set_ylim(len(arms) - 0.45, -0.55)
    axis.set_xlim(-0.03, 1.2)
    axis.set_xticks([0.0, 0.5, 1.0], ["0 %", "50 %", "100 %"], fontsize=8)
    axis.set_title(task, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def draw(table: Path, picture: Path) -> None:
    """Draw all tasks that have runs."""
    groups = grouped(read(table))
    tasks = [task for task in TASKS if any(name == task for name, _, _ in groups)]
    if not tasks:
        sys.exit(f"{table} holds no finished run.")
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(3.7 * len(tasks), 4.0), layout="constrained", squeeze=False
    )
    for axis, task in zip(axes[0], tasks, strict=True):
        panel(axis, task, groups)
    figure.supxlabel("runs that solved the task", fontsize=9)
    sizes = {scale for _, _, scale in groups}
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
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    """Draw."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("table", type=Path, help="results.csv of research/off_policy.py")
    line.add_argument("--out", type=Path, default=PICTURE, help="the picture")
    args = line.parse_args(argv)
    draw(args.table, args.out)


if __name__ == "__main__":
    main()
