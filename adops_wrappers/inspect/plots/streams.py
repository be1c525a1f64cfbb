"""The reward streams of one episode, with the correction shaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers.inspect.conflicts import conflict_mask
from adops_wrappers.inspect.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    new_figure,
    scale_axis,
    styled,
)
from adops_wrappers.inspect.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HATCH = "\\\\\\"
WINDOW = 150
"""The most steps that a picture of an episode shows unless told otherwise."""


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
    """Draw R, F and F′ over an episode, shade the correction, and show whose sign is kept.

    Args:
        recording: The recording.
        row: The environment.
        episode: Its episode; by default the one with the worst conflict.
        window: The most steps to show, around the worst conflict.
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
    number = int(recording.episode[times[0], row])
    top.set_title(
        f"{recording.meta['env']}, environment {row}, episode {number}, {recording.method}",
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
