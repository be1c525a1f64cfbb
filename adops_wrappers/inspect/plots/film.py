"""A film strip: what the agent saw when the bonus fought the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers.inspect.conflicts import Conflict, conflicts
from adops_wrappers.inspect.diagnosis import number
from adops_wrappers.inspect.plots.style import new_figure, styled
from adops_wrappers.inspect.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def apart(ranked: list[Conflict], count: int, spacing: int) -> list[Conflict]:
    """Return the worst conflicts that lie at least `spacing` steps apart from each other."""
    chosen: list[Conflict] = []
    for conflict in ranked:
        if all(
            conflict.row != other.row or abs(conflict.time - other.time) >= spacing
            for other in chosen
        ):
            chosen.append(conflict)
            if len(chosen) == count:
                break
    return chosen


@styled
def plot_film_strip(recording: Recording, *, count: int | None = None, spacing: int = 15) -> Figure:
    """Draw the frames with the largest conflicts, in the order in which they happened.

    Args:
        recording: A recording with critic values and pictures.
        count: The most frames; by default two full lines.
        spacing: The fewest steps between two of them, so that they are different moments.
    """
    rows = int(recording.meta["frame_rows"])
    if not recording.has_frames:
        recording.frame(0)  # says how to record pictures
    ranked = [conflict for conflict in conflicts(recording) if conflict.row < rows]
    height, width = recording.frame(0).shape[:2]
    columns = 3 if width > 1.6 * height else 5
    count = 2 * columns if count is None else count
    chosen = sorted(apart(ranked, count, spacing), key=lambda c: (c.row, c.time))
    columns = min(max(1, len(chosen)), columns)
    lines = -(-max(1, len(chosen)) // columns)
    cell = 7.2 / columns
    figure, axes = new_figure(7.2, lines * (cell * height / width + 0.68) + 0.1, lines, columns)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, conflict in zip(axes.flat, chosen, strict=False):
        axis.set_anchor("N")
        axis.imshow(recording.frame(conflict.time, conflict.row), interpolation="nearest")
        axis.set_title(_caption(recording, conflict), fontsize=7.0, loc="left", linespacing=1.25)
    if not chosen:
        axes[0, 0].text(0.5, 0.5, "no conflicts", ha="center", transform=axes[0, 0].transAxes)
    return figure


def action_name(recording: Recording, action: Any) -> str:
    """Name an action by the env's own word for it, where it has one."""
    meanings = recording.meta["action_meanings"]
    if meanings and np.ndim(action) == 0 and 0 <= int(action) < len(meanings):
        return str(meanings[int(action)])
    return f"action {action}"


def _caption(recording: Recording, conflict: Conflict) -> str:
    total = 0.0 if abs(conflict.total_shaped) < 1e-12 else conflict.total_shaped
    where = f"t = {conflict.step}" + (f", env {conflict.row}" if recording.num_envs > 1 else "")
    return (
        f"{where}: {action_name(recording, conflict.action)}\n"
        f"{conflict.kind}: $A_E$ = {number(conflict.advantage_ext, 2)}\n"
        f"F {number(conflict.intrinsic, 2)} → F′ {number(conflict.shaped, 2)}\n"
        f"total {number(conflict.total_raw, 2)} → {number(total, 2)}"
    )
