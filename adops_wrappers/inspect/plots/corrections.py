"""How much a method changes the bonus, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect.diagnosis import number, share
from adops_wrappers.inspect.plots.style import (
    GREEN,
    VERMILION,
    new_figure,
    scale_axis,
    spread,
    styled,
)
from adops_wrappers.inspect.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 40


@styled
def plot_corrections(recording: Recording) -> Figure:
    """Draw the histogram of F′ − F over the steps at which the method changed the bonus."""
    correction = recording.correction[recording.valid]
    correction = correction[np.isfinite(correction)]
    changed = correction[correction != 0.0]
    figure, axes = new_figure(7.2, 2.5)
    axis = axes[0, 0]
    scaled = "" if recording.scale == 1.0 else f"{recording.scale:g}·"
    axis.set_xlabel(f"correction F′ − {scaled}F")
    axis.set_ylabel("steps (log scale)")
    part = len(changed) / max(1, len(correction))
    axis.set_title(
        f"{recording.description} changed {share(part)} of {len(correction):,} steps", loc="left"
    )
    if len(changed) == 0:
        axis.text(0.5, 0.5, "the bonus was never changed", transform=axis.transAxes, ha="center")
        axis.set_yticks([])
        return figure
    linear = spread(changed)
    edges = _edges(changed, linear)
    for values, color, hatch, label in (
        (changed[changed < 0.0], VERMILION, "\\\\\\", "taken away"),
        (changed[changed > 0.0], GREEN, "", "added"),
    ):
        if len(values):
            label = f"{label}: {share(len(values) / len(correction))}, mean {number(values.mean())}"
            axis.hist(
                values, edges, color=color, alpha=0.6, hatch=hatch, edgecolor="white", label=label
            )
    axis.set_yscale("log")
    axis.set_ylim(0.7, 8.0 * axis.get_ylim()[1])
    scale_axis(axis, "x", changed, linear)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    return figure


def _edges(values: FloatArray, linear: float | None) -> list[float]:
    """Return bin edges that are even on the axis, with an edge at 0."""
    reach = float(np.abs(values).max())
    half = np.linspace(0.0, 1.0, BINS // 2 + 1)
    if linear is None:
        positive = reach * half
    else:
        positive = linear * np.sinh(half * np.arcsinh(reach / linear))
    positive[-1] = reach
    low = (-positive[:0:-1]).tolist() if (values < 0.0).any() else []
    high = positive[1:].tolist() if (values > 0.0).any() else []
    return [*low, 0.0, *high]
