"""The grid of an MDP with the optimal actions before and after shaping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers._extras import analysis_package
from adops_wrappers._files import replacing
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.inspect.plots.style import BLUE, VERMILION
from adops_wrappers.tabular.mdp import FiniteMDP, GridView
from adops_wrappers.tabular.report import AuditReport

# Pale grounds, on which the arrows stand out.
_CHANGED, _TV, _GOAL = "#F6D99A", "#BFE3F5", "#B3E0D2"
_WALL, _FLOOR, _UNREACHED = "#555555", "#FFFFFF", "#DDDDDD"
_ARROWS = {
    **dict.fromkeys(("up", "north"), (0.0, -1.0)),
    **dict.fromkeys(("down", "south"), (0.0, 1.0)),
    **dict.fromkeys(("right", "east"), (1.0, 0.0)),
    **dict.fromkeys(("left", "west"), (-1.0, 0.0)),
}
_MAX_PANELS = 6


def plot_audit(report: AuditReport, path: str | Path, bonus: Any = None, title: str = "") -> None:
    """Draw optimal actions before and after shaping, with the changed cells marked.

    Args:
        report: What `audit` returned.
        path: The file to write; its ending names the format. Its directory is made.
        bonus: The table F; states that it pays for are shaded.
        title: A line above the picture.

    Raises:
        ValueError: If the MDP is not a grid world.
        ImportError: If matplotlib is missing.
    """
    mdp, grid = report.mdp, report.mdp.grid
    if grid is None:
        raise ValueError(
            "Only grid worlds can be drawn (CliffWalking, FrozenLake, the gallery). For others "
            "read the report, or build FiniteMDP(..., grid=GridView(row, column, panel))."
        )
    panels = _panels(report, grid)
    top, left = int(grid.row.min()), int(grid.column.min())
    bottom, right = int(grid.row.max()) + 1, int(grid.column.max()) + 1
    # Before is drawn above after, so that the arrows of wide grids can be read.
    width = 0.62 * (right - left) * len(panels)
    height = 2 * (0.62 * (bottom - top) + 0.3) + 0.6
    figure = analysis_package("matplotlib.figure", "a plot").Figure(
        figsize=(max(6.0, width), height * max(1.0, 6.0 / width)), layout="constrained"
    )
    axes = figure.subplots(2, len(panels), squeeze=False)
    paid = _paid_states(mdp, bonus)
    changed = np.zeros(mdp.num_states, dtype=np.bool_)
    changed[report.changed_states] = True
    nothing = np.zeros_like(report.gained)
    verdict = "preserved" if report.preserved else f"changed in {int(changed.sum())} states"
    after = f"optimal for R + F′, {report.label}: {verdict}"
    stages = (
        ("optimal for R", report.optimal_before, nothing, np.zeros_like(changed)),
        (after, report.optimal_after, report.gained, changed),
    )
    for line, (name, optimal, gained, marked) in zip(axes, stages, strict=True):
        for ax, panel in zip(line, panels, strict=True):
            members = np.flatnonzero(grid.panel == panel)
            _draw_cells(ax, mdp, grid, members, paid, marked)
            _draw_actions(ax, mdp, grid, members, optimal, gained)
            ax.set(xlim=(left - 0.5, right - 0.5), ylim=(bottom - 0.5, top - 0.5))
            ax.set(xticks=[], yticks=[], aspect="equal", facecolor=_WALL)
            panel_name = grid.panel_names[panel]
            ax.set_title(f"{name} ({panel_name})" if panel_name else name, fontsize=10)
    _legend(figure, not report.preserved)
    if title:
        figure.suptitle(title, fontsize=11)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def _panels(report: AuditReport, grid: GridView) -> list[int]:
    changed = set(grid.panel[report.changed_states].tolist())
    every = range(len(grid.panel_names))
    # The panels in which something happened come first where not all fit.
    return sorted(sorted(every, key=lambda panel: panel not in changed)[:_MAX_PANELS])


def _paid_states(mdp: FiniteMDP, bonus: Any) -> BoolArray:
    paid = np.zeros(mdp.num_states, dtype=np.bool_)
    if isinstance(bonus, np.ndarray) and bonus.ndim == 3:
        edges = mdp.graph
        pays: FloatArray = bonus[edges.source, edges.action, edges.target]
        paid[edges.target[pays > 0]] = True
    # A bonus that pays everywhere says nothing when it is shaded.
    return paid if np.count_nonzero(paid) < mdp.num_states / 2 else np.zeros_like(paid)


def _draw_cells(
    ax: Any, mdp: FiniteMDP, grid: GridView, members: Any, paid: BoolArray, marked: BoolArray
) -> None:
    from matplotlib.patches import Rectangle

    start = mdp.graph.start > 0
    unreached = ~(mdp.graph.reachable() | mdp.terminal)
    for state in members.tolist():
        x, y = int(grid.column[state]), int(grid.row[state])
        colour = _GOAL if mdp.terminal[state] else _TV if paid[state] else _FLOOR
        if unreached[state]:
            colour = _UNREACHED
        if marked[state]:
            colour = _CHANGED
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=colour, ec="#999999", lw=0.6))
        if marked[state]:
            ax.add_patch(
                Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fc="none", ec=VERMILION, lw=1.2)
            )
        label = "end" if mdp.terminal[state] else "TV" if paid[state] else ""
        if start[state] and mdp.start is not None:
            label = "start"
        ax.text(x - 0.46, y - 0.3, label, fontsize=6.5, ha="left", va="center", color="#333333")


def _draw_actions(
    ax: Any, mdp: FiniteMDP, grid: GridView, members: Any, optimal: BoolArray, gained: BoolArray
) -> None:
    decides = mdp.graph.reachable() & ~mdp.terminal
    for state in members[decides[members]].tolist():
        x, y = int(grid.column[state]), int(grid.row[state])
        for action in np.flatnonzero(optimal[state]).tolist():
            new = bool(gained[state, action])
            colour = VERMILION if new else BLUE
            name = mdp.action_names[action]
            if name in _ARROWS:
                dx, dy = _ARROWS[name]
                tip, tail = (x + 0.38 * dx, y + 0.38 * dy), (x + 0.04 * dx, y + 0.04 * dy)
                style = {"arrowstyle": "->", "color": colour, "lw": 1.5}
                style["linestyle"] = (0, (2, 1)) if new else "-"
                ax.annotate("", xy=tip, xytext=tail, arrowprops=style)
            else:
                ax.text(x, y, name[:3], fontsize=7, ha="center", va="center", color=colour)


def _legend(figure: Any, changed: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=BLUE, lw=1.5, label="optimal before"),
        Line2D([], [], color=VERMILION, lw=1.5, ls=(0, (2, 1)), label="newly optimal"),
        Patch(fc=_CHANGED, ec=VERMILION, label="optimal set changed"),
        Patch(fc=_TV, ec="#999999", label="bonus is paid"),
        Patch(fc=_GOAL, ec="#999999", label="terminal"),
        Patch(fc=_UNREACHED, ec="#999999", label="never reached"),
    ]
    if not changed:
        handles = [handles[0], *handles[3:]]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
