"""Conflicts: the sign plane of all steps, and a film strip of the worst moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect.conflicts import Conflict, conflict_mask, conflicts
from adops_wrappers.inspect.findings import number, share
from adops_wrappers.inspect.plots.style import (
    BLUE,
    VERMILION,
    new_figure,
    scale_axis,
    spread,
    styled,
)
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.shaping.conflict import ROUNDING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 4000


@styled
def plot_sign_plane(recording: Recording, shaped: FloatArray | None = None) -> Figure:
    """Draw the extrinsic advantage against the total one, with raw F and with F′.

    In the hatched quadrants the bonus contradicts the task. ADOPS leaves them empty: it moves
    what it finds there to their border.

    Args:
        recording: A recording with critic values.
        shaped: F′ of another method, from `reshape`; the recorded one by default.
    """
    valid = recording.valid
    advantage = recording.advantage_ext[valid]
    before, after = recording.total_raw, recording.total(shaped)
    keep = np.linspace(0, len(advantage) - 1, min(len(advantage), MOST_POINTS)).astype(np.int64)
    figure, axes = new_figure(7.2, 3.5, 1, 2, sharex=True, sharey=True)
    name = recording.method if shaped is None else "re-shaped"
    both = np.concatenate([before[valid], after[valid]])
    linear_x, linear_y = spread(advantage), spread(both)
    for axis, total, wrong, label in (
        (axes[0, 0], before, conflict_mask(recording), "raw F"),
        (axes[0, 1], after, recording.contradicts(after, rounding=ROUNDING), f"F′ ({name})"),
    ):
        total, wrong = total[valid], wrong[valid]
        right, flipped = keep[~wrong[keep]], keep[wrong[keep]]
        dots = {"color": BLUE, "markersize": 3, "alpha": 0.35, "markeredgewidth": 0}
        axis.plot(advantage[right], total[right], "o", **dots)
        crosses = {"color": VERMILION, "markersize": 4, "alpha": 0.8, "markeredgewidth": 0.9}
        axis.plot(advantage[flipped], total[flipped], "x", **crosses)
        if not scale_axis(axis, "x", advantage, linear_x):
            axis.locator_params(axis="x", nbins=5)
        scale_axis(axis, "y", both, linear_y)
        _limits(axis, "x", advantage)
        _limits(axis, "y", both)
        _shade(axis)
        axis.set_title(
            f"with {label}: {share(float(wrong.mean()))} of steps contradict", loc="left"
        )
        axis.set_xlabel("$A_E$: is the action good for the task?")
    axes[0, 0].set_ylabel("total: is it good for the agent?")
    return figure


def _limits(axis: Any, which: str, values: FloatArray) -> None:
    finite = values[np.isfinite(values)]
    reach = 1.3 * float(np.abs(finite).max()) if len(finite) and finite.any() else 1.0
    if getattr(axis, f"get_{which}scale")() == "symlog":
        reach *= 3.0
    getattr(axis, f"set_{which}lim")(-reach, reach)


def _shade(axis: Any) -> None:
    left, right = axis.get_xlim()
    low, high = axis.get_ylim()
    quadrant = {"facecolor": VERMILION, "alpha": 0.08, "edgecolor": VERMILION, "linewidth": 0.0}
    axis.fill_between([left, 0], 0, high, hatch="///", zorder=0, **quadrant)
    axis.fill_between([0, right], low, 0, hatch="///", zorder=0, **quadrant)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlim(left, right)
    axis.set_ylim(low, high)
    for x, y, text in ((0.03, 0.96, "tempts"), (0.97, 0.04, "deters")):
        axis.text(
            x,
            y,
            text,
            transform=axis.transAxes,
            ha="left" if x < 0.5 else "right",
            va="top" if y > 0.5 else "bottom",
            color=VERMILION,
            fontsize=8,
            fontstyle="italic",
            zorder=1,  # below the points, of which it must hide none
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0.0, "pad": 1.5},
        )


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
        count: The maximum number of frames; by default two full lines.
        spacing: The minimum number of steps between two of them, so that the moments differ.
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
