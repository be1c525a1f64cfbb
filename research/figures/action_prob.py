"""Draws charts/action_prob_max of several runs, the paper's figure act_prob_plot.

python -m research.figures.action_prob runs/none runs/adops runs/pbim --out x.png --csv x.csv
python -m research.figures.action_prob x.csv --out x.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import tyro

from research.figures.run_tables import Drawing, chosen_rows, rows_by_method, save
from research.rows import write_rows

COLUMNS = (
    *("charts/action_prob_max", "charts/action_prob", "charts/episodic_length"),
    *("charts/episodes", "losses/entropy", "shaping/raw_mean", "shaping/shaped_min"),
    *("shaping/conflict_rate", "shaping/intervention_rate"),
)


def main(settings: Drawing) -> None:
    """Collect, write, draw."""
    rows = chosen_rows(settings.runs, COLUMNS)
    if settings.csv:
        write_rows(Path(settings.csv), rows)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for method, own in rows_by_method(rows).items():
        iterations = [int(row["iteration"]) for row in own]
        left.plot(iterations, [float(row["charts/action_prob_max"]) for row in own], label=method)
        lowest = [-float(row["shaping/shaped_min"]) for row in own]
        right.plot(iterations, [max(value, 1e-4) for value in lowest], label=method)
    left.set_ylabel("mean probability of the most probable action")
    left.set_ylim(0.0, 1.0)
    right.set_ylabel("largest punishment within the iteration, -min F'")
    right.set_yscale("log")
    for axis in (left, right):
        axis.set_xlabel("iteration")
        axis.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    save(figure, settings.out)


if __name__ == "__main__":
    main(tyro.cli(Drawing, description=__doc__))
