"""F′ of all methods side by side, on one recorded episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect.diagnosis import number
from adops_wrappers.inspect.plots.streams import episode_steps
from adops_wrappers.inspect.plots.style import BLUE, GREY, new_figure, scale_axis, styled
from adops_wrappers.inspect.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def plot_methods(
    recording: Recording,
    shaped: Mapping[str, FloatArray],
    *,
    row: int = 0,
    episode: int | None = None,
    window: int | None = None,
) -> Figure:
    """Draw F′ of every method over one episode, symmetric-log where one explodes.

    Args:
        recording: The recording.
        shaped: What `reshape` returned.
        row: The environment.
        episode: Its episode; by default the one with the worst conflict.
        window: The most steps to show; by default the whole episode, so that debts are seen.
    """
    times = episode_steps(recording, row, episode, window or recording.steps)
    t = recording.episode_step[times, row]
    raw = recording.base_scale * recording.intrinsic[times, row]
    columns = 2 if len(shaped) > 3 else 1
    rows = -(-len(shaped) // columns)
    figure, axes = new_figure(7.2, 1.25 * rows + 0.4, rows, columns, sharex=True)
    for axis, (name, stream) in zip(axes.flat, shaped.items(), strict=False):
        values = stream[times, row]
        finite = np.where(np.isfinite(values), values, np.nan)
        axis.step(t, raw, where="mid", color=GREY, linewidth=0.9, linestyle=(0, (3, 1.5)))
        axis.step(t, finite, where="mid", color=BLUE, linewidth=1.1)
        axis.axhline(0, color="black", linewidth=0.6)
        logarithmic = scale_axis(axis, "y", np.concatenate([raw, finite]))
        largest = int(np.argmax(np.abs(np.where(np.isnan(finite), 0.0, finite))))
        text = f"{name}: largest {number(values[largest])} at t = {t[largest]}"
        if np.isinf(values).any():
            text = f"{name}: leaves float64 at t = {t[np.isinf(values)][0]}"
        axis.set_title(text + (", log" if logarithmic else ""), loc="left", fontsize=8.5)
    for axis in axes.flat[len(shaped) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("step of the episode")
    for axis in axes[:, 0]:
        axis.set_ylabel("F′")
    figure.text(0.995, 0.002, "dashed: raw F", color=GREY, fontsize=8, ha="right", va="bottom")
    return figure
