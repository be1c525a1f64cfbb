"""Draws what `research.pbim_debt` measured: PBIM's last reward against the episode's length.

python -m research.figures.montezuma_debt docs/data/montezuma_debt.csv --out montezuma_debt.png
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro

from research.figures.run_tables import Drawing, chosen_rows, save

MARKERS = {"pbim": "o", "pbim-norm": "x"}
COLOURS = {"still": "tab:red", "random": "tab:blue"}
GAMMA = 0.99
"""The intrinsic discount of the runs."""


def main(settings: Drawing) -> None:
    """Draw the size of the last reward against the episode's length."""
    rows = chosen_rows(settings.runs, ())
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for method, marker in MARKERS.items():
        for policy, colour in COLOURS.items():
            own = [r for r in rows if (r["method"], r["policy"]) == (method, policy)]
            axis.scatter(
                [int(r["episode_length"]) for r in own],
                [abs(float(r["last_reward"])) for r in own],
                marker=marker,
                c=colour,
                alpha=0.7,
                label=f"{method}, {policy} policy ({len(own)} episodes)",
            )
    lengths = np.arange(max(int(r["episode_length"]) for r in rows))
    axis.plot(lengths, GAMMA**-lengths, color="0.5", zorder=0, label=f"{GAMMA:g}$^{{-N}}$")
    axis.set_yscale("log")
    axis.set_xlabel("length N of the episode")
    axis.set_ylabel("|F'| of its last step")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    save(figure, settings.out, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Drawing, description=__doc__))
