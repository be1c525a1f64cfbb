"""Reward streams: along one episode, under every method, and how far they were corrected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect.conflicts import conflict_mask
from adops_wrappers.inspect.findings import counted, number, share
from adops_wrappers.inspect.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    new_figure,
    scale_axis,
    spread,
    styled,
)
from adops_wrappers.inspect.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HATCH = "\\\\\\"
BINS = 40
WINDOW = 150
"""How many steps of an episode a picture shows by default."""


def episode_steps(
    recording: Recording, row: int = 0, episode: int | None = None, window: int = WINDOW
) -> Any:
    """Return the times to draw of one episode of one row.

    By default the episode with the worst conflict, else the first one that is whole; and where
    it is longer than `window`, the stretch around that conflict, or the end.
    """
    valid = recording.valid[:, row]
    numbers = recording.episode[:, row]
    worst = None
    if recording.has_critic:
        severity = np.where(conflict_mask(recording), np.abs(recording.f2), 0.0)[:, row]
        if episode is not None:
            severity = np.where(numbers == episode, severity, 0.0)
        worst = int(np.argmax(severity)) if severity.any() else None
    if episode is None:
        ended = np.flatnonzero(recording.ended[:, row])
        chosen = worst if worst is not None else ended[0] if len(ended) else valid.argmax()
        episode = int(numbers[chosen])
    times = np.flatnonzero((numbers == episode) & valid)
    if len(times) == 0:
        raise ValueError(f"Environment {row} has no recorded episode {episode}.")
    if len(times) > window:
        centre = int(np.searchsorted(times, worst)) if worst is not None else len(times)
        start = min(max(0, centre - window // 2), len(times) - window)
        times = times[start : start + window]
    return times


@styled
def plot_streams(
    recording: Recording, *, row: int = 0, episode: int | None = None, window: int = WINDOW
) -> Figure:
    """Draw R, F and F′ over an episode, shade the correction, and show which signs are kept.

    Args:
        recording: The recording.
        row: The environment.
        episode: Its episode; by default the one with the worst conflict.
        window: The maximum number of steps to show, around the worst conflict.
    """
    times = episode_steps(recording, row, episode, window)
    t = recording.episode_step[times, row]
    panels = 3 if recording.has_critic else 2
    heights = [0.5, 1.3, 1.1][:panels]
    figure, axes = new_figure(
        7.2, 2.0 * sum(heights), panels, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    _rewards(axes[0, 0], recording, times, t, row)
    _bonuses(axes[1, 0], recording, times, t, row)
    if recording.has_critic:
        _advantages(axes[2, 0], recording, times, t, row)
    axes[-1, 0].set_xlabel("step of the episode")
    return figure


def _rewards(top: Any, recording: Recording, times: Any, t: Any, row: int) -> None:
    reward = recording.reward[times, row]
    top.vlines(t, 0, reward, color="black", linewidth=1.2)
    top.axhline(0, color="black", linewidth=0.6)
    top.set_ylabel("R")
    if not reward.any():
        top.set_ylim(-1.0, 1.0)
    scale_axis(top, "y", reward)
    episode = int(recording.episode[times[0], row])
    top.set_title(
        f"{recording.meta['env']}, environment {row}, episode {episode}, {recording.method}",
        loc="left",
    )


def _bonuses(middle: Any, recording: Recording, times: Any, t: Any, row: int) -> None:
    bonus = recording.scale * recording.intrinsic[times, row]
    shaped = recording.shaped[times, row]
    for where, color, hatch in ((shaped < bonus, VERMILION, HATCH), (shaped > bonus, GREEN, "")):
        middle.bar(
            t[where],
            (shaped - bonus)[where],
            1.0,
            bonus[where],
            facecolor=(color, 0.35),
            edgecolor=(color, 0.7),
            hatch=hatch,
            linewidth=0.0,
        )
    middle.step(t, bonus, where="mid", color=GREY, linewidth=1.0, linestyle=(0, (3, 1.5)))
    middle.step(t, shaped, where="mid", color=BLUE, linewidth=1.0)
    middle.use_sticky_edges = False
    middle.set_ylabel("bonus")
    scale_axis(middle, "y", np.concatenate([bonus, shaped]))
    scaled = "" if recording.scale == 1.0 else f"{recording.scale:g}·"
    _legend(
        middle,
        [
            ("line", GREY, "--", f"{scaled}F, the raw bonus"),
            ("line", BLUE, "-", "F′, what the agent gets"),
            ("patch", VERMILION, HATCH, "taken away"),
            ("patch", GREEN, "", "added"),
        ],
    )


def _advantages(axis: Any, recording: Recording, times: Any, t: Any, row: int) -> None:
    advantage = recording.advantage_ext[times, row]
    before, after = recording.total_raw[times, row], recording.total()[times, row]
    axis.axhline(0, color="black", linewidth=0.8)
    axis.step(t, advantage, where="mid", color="black", linewidth=1.0, linestyle=":")
    axis.step(t, before, where="mid", color=ORANGE, linewidth=1.0, linestyle=(0, (3, 1.5)))
    axis.step(t, after, where="mid", color=BLUE, linewidth=1.2)
    wrong = conflict_mask(recording)[times, row]
    axis.plot(t[wrong], before[wrong], "x", color=VERMILION, markersize=4, markeredgewidth=1.2)
    axis.set_ylabel("advantage")
    scale_axis(axis, "y", np.concatenate([advantage, before, after]))
    _legend(
        axis,
        [
            ("line", "black", ":", "$A_E$, the task alone"),
            ("line", ORANGE, "--", "total with raw F"),
            ("line", BLUE, "-", "total with F′"),
            ("mark", VERMILION, "x", "raw F turns the sign"),
        ],
    )


def _legend(axis: Any, entries: list[tuple[str, str, Any, str]]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for kind, color, form, label in entries:
        if kind == "line":
            handles.append(Line2D([], [], color=color, linestyle=form, label=label))
        elif kind == "mark":
            handles.append(Line2D([], [], color=color, linestyle="", marker=form, label=label))
        else:
            patch = Patch(facecolor=(color, 0.35), edgecolor=(color, 0.7), hatch=form, label=label)
            patch.set_linewidth(0.0)
            handles.append(patch)
    axis.legend(
        handles=handles,
        ncols=len(entries),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        frameon=False,
        fontsize=8.0,
        handlelength=1.8,
        columnspacing=1.4,
    )


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
        window: The maximum number of steps to show; by default the whole episode, debts included.
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
    axis.set_title(f"Changed at {share(part)} of {counted(len(correction), 'step')}", loc="left")
    if len(changed) == 0:
        text = "the raw bonus was never changed"
        axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center")
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
