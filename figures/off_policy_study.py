"""Draws the share of solved runs of the off-policy study, with Wilson's 95 % intervals.

    python figures/off_policy_study.py runs/off-policy/results.csv

One panel for each task, one line for each arm and size of the bonus: a disc for scale 1, hollow for
0.3, a diamond for unit size. Arms without runs are left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "train"))
from analysis.labels import COLOURS  # noqa: E402
from analysis.off_policy import (  # noqa: E402
    ABLATION,
    TASKS,
    UNIT,
    Groups,
    grouped,
    label,
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


def panel(axis: Axes, task: str, groups: Groups) -> None:
    """Draw one task."""
    own = {(arm, scale): group for (name, arm, scale), group in groups.items() if name == task}
    labels = []
    for place, ((arm, scale), group) in enumerate(own.items()):
        solved, runs = sum(group.solved), len(group.solved)
        colour = ARM_COLOURS[arm]
        axis.plot(wilson(solved, runs), (place, place), color=colour, linewidth=2.0)
        face = "white" if scale == "0.3" else colour
        marker = "D" if scale == UNIT else "o"
        axis.plot(solved / runs, place, marker, color=colour, markerfacecolor=face)
        axis.annotate(f"{solved}/{runs}", (1.06, place), va="center", fontsize=7)
        labels.append(label(arm, scale))
    axis.set_yticks(range(len(own)), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(-0.03, 1.15)
    axis.set_xticks([0.0, 0.5, 1.0], ["0 %", "50 %", "100 %"])
    axis.set_title(task, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def draw(table: Path, picture: Path) -> None:
    """Draw all tasks that have runs."""
    groups = grouped(read(table))
    tasks = [task for task in TASKS if any(name == task for name, _, _ in groups)]
    if not tasks:
        sys.exit(f"{table} holds no finished run.")
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(4.2 * len(tasks), 3.6), layout="constrained", squeeze=False
    )
    for axis, task in zip(axes[0], tasks, strict=True):
        panel(axis, task, groups)
    figure.supxlabel("runs that solved the task", fontsize=9)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    """Draw."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("table", type=Path, help="results.csv of train/off_policy.py")
    line.add_argument("--out", type=Path, default=PICTURE, help="the picture")
    args = line.parse_args(argv)
    draw(args.table, args.out)


if __name__ == "__main__":
    main()
