"""Training curves of a run: how often the bonus fought the task, and what was done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    new_figure,
    scale_axis,
    styled,
)
from adops_wrappers.inspect.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "share of steps",
        (
            ("shaping/conflict_rate", "bonus fights the task", VERMILION, "-"),
            ("shaping/intervention_rate", "bonus changed", BLUE, "--"),
            ("shaping/zeta", "ζ", GREY, ":"),
        ),
    ),
    (
        "bonus, mean",
        (
            ("shaping/raw_mean", "F", GREY, "--"),
            ("shaping/shaped_mean", "F′", BLUE, "-"),
            ("shaping/correction_mean", "correction", ORANGE, ":"),
        ),
    ),
    (
        "explained variance",
        (
            ("losses/explained_variance_ext", "$V_E$", BLUE, "-"),
            ("losses/explained_variance_int", "$V_I$", PURPLE, "--"),
        ),
    ),
    ("return", (("charts/episodic_return_recent", "extrinsic, recent mean", GREEN, "-"),)),
)


@styled
def plot_training(run: Run) -> Figure:
    """Draw conflict and intervention rates, the bonus, the critic's quality and the return."""
    panels = [
        (title, [line for line in lines if run.has(line[0])])
        for title, lines in _PANELS
        if any(run.has(line[0]) for line in lines)
    ]
    if not panels:
        raise ValueError(
            f"{run.path} has none of the columns that are drawn, such as shaping/zeta."
        )
    figure, axes = new_figure(7.2, 1.5 * len(panels) + 0.3, len(panels), sharex=True)
    for axis, (title, lines) in zip(axes[:, 0], panels, strict=True):
        drawn = []
        for name, label, color, style in lines:
            x, y = run.x, run[name]
            axis.plot(x, y, color=color, linewidth=0.5, alpha=0.3)
            smooth = _smooth(y)
            axis.plot(x, smooth, color=color, linestyle=style, linewidth=1.4, label=label)
            drawn.append(y[np.isfinite(y)])
        _frame(axis, title, np.concatenate(drawn))
    axes[0, 0].set_title(run.title, loc="left")
    axes[-1, 0].set_xlabel(run.x_label)
    return figure


def _frame(axis: Any, title: str, values: FloatArray) -> None:
    axis.set_ylabel(title)
    if title == "share of steps":
        axis.set_ylim(-0.03, 1.03)
    elif title == "explained variance":
        low = float(np.clip(values.min() if len(values) else 0.0, -1.0, 0.0))
        axis.set_ylim(low - 0.05, 1.05)
        axis.axhline(0, color="black", linewidth=0.6)
    elif len(values):
        scale_axis(axis, "y", values)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)


def _smooth(values: FloatArray) -> FloatArray:
    """Return a running mean over a fiftieth of the run, over what is there."""
    width = max(1, len(values) // 50)
    known = np.isfinite(values)
    kernel = np.ones(width)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(np.float64), kernel, mode="same")
    mean: FloatArray = np.full(len(values), np.nan)
    np.divide(total, count, out=mean, where=count > 0.5)
    return mean
