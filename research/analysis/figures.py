"""The figures of a report."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from tqdm import tqdm

from adops_wrappers._files import write_atomically
from research.analysis.collect import LAST_ITERATIONS
from research.analysis.compact import block_size, mean_of
from research.analysis.labels import CLAMPED, COLOURS, DEFAULTS, NO_BONUS, Label
from research.analysis.statistics import Arm, Arms, delay_arms, standard_error
from research.analysis.text import env_name, slug

FAMILIES = {
    "PIES, GRM and PBIM": ("PIES", "GRM", "GRM-norm", "PBIM", "PBIM-norm"),
    "ADOPS and ADOPES": ("ADOPS", "ADOPES", "ADOPES F/2"),
    "beyond the paper": (CLAMPED, "gated ADOPS", "guarded", "raw"),
}
"""Panels of the learning curves; raw and no bonus are in all of them, a late raw in the last."""
DELAYS, OTHERS = "other delays", "other methods"


def style(label: str) -> dict[str, Any]:
    """Return how an arm's line looks, in all figures."""
    parts = Label.parse(label)
    colour: Any = COLOURS.get(parts.base, "#5a5a5a")
    if parts.delay is not None and has_other_delay(parts):
        colour = matplotlib.colormaps["viridis"](min(0.95, math.log2(parts.delay) / 7.0))
    dashed = parts.method == NO_BONUS or parts.epsilon != DEFAULTS["epsilon"]
    dotted = parts.method != parts.base or (parts.method == "GRM" and has_other_delay(parts))
    return {
        "color": colour,
        "linestyle": "--" if dashed else "-." if parts.has_other_quiet else ":" if dotted else "-",
        "linewidth": 2.0 if parts.method == "raw" else 1.5,
    }


def has_other_delay(label: Label) -> bool:
    """Whether an arm has a delay that is not the default."""
    return label.delay not in (None, DEFAULTS["delay"])


def family(label: str) -> str:
    """Return the panel of an arm's learning curve; empty for those that are in all."""
    parts = Label.parse(label)
    if parts.method in (NO_BONUS, "raw"):
        return ""
    if has_other_delay(parts):
        return DELAYS
    return next((name for name, held in FAMILIES.items() if parts.base in held), OTHERS)


def trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the last `window` values at each point, without the NaN among them."""
    present = ~np.isnan(values)
    sums, counts = (
        np.cumsum(np.pad(array, [(0, 0)] * (values.ndim - 1) + [(window, 0)]), -1)
        for array in (np.where(present, values, 0.0), present.astype(float))
    )
    total, count = (array[..., window:] - array[..., :-window] for array in (sums, counts))
    means = np.full(values.shape, np.nan)
    np.divide(total, count, out=means, where=count > 0.0)
    return means


def smoothed(arm: Arm, curve: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return env steps in thousands, and mean and standard error over the runs of an arm."""
    size = block_size(arm.iterations)
    window = max(1, round(LAST_ITERATIONS / size))
    curves = trailing_mean(arm.curves[curve], window)
    ends = np.minimum(np.arange(1, curves.shape[1] + 1) * size, arm.iterations)
    means = np.array([mean_of(column) for column in curves.T])
    errors = np.array([standard_error(column[~np.isnan(column)]) for column in curves.T])
    return ends * arm.env_steps / arm.iterations / 1e3, means, np.nan_to_num(errors)


def scale_groups(arms: Mapping[str, Arm]) -> dict[str, list[Arm]]:
    """Return the arms by scale and bonus; runs without a bonus belong to all."""
    groups: dict[str, list[Arm]] = defaultdict(list)
    for label, arm in arms.items():
        if label != NO_BONUS:
            groups[Label.parse(label).group].append(arm)
    plain = [arms[NO_BONUS]] if NO_BONUS in arms else []
    return {group: [*plain, *own] for group, own in (groups or {"": []}).items()}


def group_title(group: str) -> str:
    """Name a scale and bonus."""
    scaled = "×" in group or "as is" in group
    return f"bonus{group}" if scaled else f"bonus of unit size{group}"


def column_title(group: str) -> str:
    """Name a scale and bonus in a narrow column."""
    label = Label.parse(f"raw{group}")
    scale = f"×{label.scale:g}" if label.scale != 1.0 or label.size else ""
    return "\n".join(filter(None, (scale, label.size, "RND" if label.rnd else ""))) or "unit\nsize"


def bare(axis: Axes) -> None:
    """Remove the top and right spines."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axis.set_axisbelow(True)


def draw_curves(env: str, arms: Mapping[str, Arm]) -> Figure:
    """Draw learning curves: a row for each scale, a column for each family of methods."""
    groups = scale_groups(arms)
    used = {family(label) for label in arms} - {""}
    columns = [name for name in (*FAMILIES, DELAYS, OTHERS) if name in used] or [""]
    figure = Figure(figsize=(1.0 + 4.3 * len(columns), 4.4 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), len(columns), squeeze=False, sharey=True, sharex=True)
    for row, (group, own) in zip(axes, groups.items(), strict=True):
        held = {family(arm.label) for arm in own} - {""} or {columns[0]}
        leftmost = next(axis for axis, column in zip(row, columns, strict=True) if column in held)
        for axis, column in zip(row, columns, strict=True):
            if column not in held:
                axis.set_visible(False)
                continue
            for arm in own:
                if family(arm.label) not in ("", column):
                    continue
                steps, means, errors = smoothed(arm, "return")
                look = style(arm.label)
                label = f"{arm.label.removesuffix(group)} (N={arm.count})"
                axis.plot(steps, means, label=label, **look)
                axis.fill_between(
                    steps, means - errors, means + errors, color=look["color"], alpha=0.15, lw=0
                )
            axis.set_title(f"{column}: {group_title(group)}".removeprefix(": "), fontsize=13)
            axis.tick_params(labelbottom=True, labelsize=11)
            axis.set_xlabel("env steps (thousands)", fontsize=12)
            bare(axis)
            axis.legend(
                loc="upper center",
                bbox_to_anchor=(0.5, -0.17),
                ncols=2,
                frameon=False,
                fontsize=11,
            )
        leftmost.set_ylabel("extrinsic return", fontsize=12)
        leftmost.tick_params(labelleft=True)
    title = f"return over the past {LAST_ITERATIONS} iterations, mean ± standard error"
    figure.suptitle(f"{env_name(env)}: {title}", fontsize=14)
    return figure


def draw_finals(env: str, arms: Mapping[str, Arm]) -> Figure:
    """Draw the final return of every run: a strip for each arm."""
    figure = Figure(figsize=(9.0, 1.4 + 0.36 * len(arms)), layout="constrained")
    axis = figure.subplots()
    # Steps of the golden ratio keep neighbours apart, and the jitter is always the same.
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for place, arm in enumerate(arms.values()):
        colour = style(arm.label)["color"]
        offsets = ((np.arange(arm.count) * golden) % 1.0 - 0.5) * 0.5
        axis.scatter(arm.finals, place + offsets, s=16, color=colour, alpha=0.45, linewidths=0)
        axis.errorbar(
            *(arm.mean, place),
            xerr=np.nan_to_num(arm.error),
            fmt="D",
            color=colour,
            markeredgecolor="white",
            markersize=7,
            capsize=4,
        )
        axis.annotate(
            f"{arm.solved_text}   {arm.mean_text}",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    axis.annotate(
        "solved   mean ± SE", (1.02, -0.95), xycoords=("axes fraction", "data"), fontsize=9
    )
    labels = list(arms)
    groups = [Label.parse(label).group if label != NO_BONUS else "none" for label in labels]
    for place in range(1, len(labels)):
        if groups[place] != groups[place - 1]:
            axis.axhline(place - 0.5, color="#bbbbbb", linewidth=0.8)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlabel(f"final extrinsic return (mean of the last {LAST_ITERATIONS} iterations)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(
        f"{env_name(env)}: every run (dots), mean ± standard error (diamonds)", fontsize=11
    )
    return figure


def draw_rates(env: str, arms: Mapping[str, Arm]) -> Figure:
    """Draw conflict and intervention rates: a row for each scale."""
    panels = {
        "conflict": "conflict rate: raw F contradicts the critic",
        "intervention": "intervention rate: the method changes F",
    }
    groups = scale_groups({name: arm for name, arm in arms.items() if family(name) != DELAYS})
    # High enough for the legend beside it
    height = max(3.6, 0.25 * max(map(len, groups.values())) + 0.4)
    figure = Figure(figsize=(12.5, height * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), len(panels), squeeze=False, sharex=True, sharey=True)
    for row, (group, own) in zip(axes, groups.items(), strict=True):
        for axis, (curve, title) in zip(row, panels.items(), strict=True):
            for arm in own:
                steps, means, _ = smoothed(arm, curve)
                axis.plot(steps, means, label=arm.label.removesuffix(group), **style(arm.label))
            axis.set_title(f"{title}, {group_title(group)}", fontsize=10)
            axis.set_ylim(-0.03, 1.03)
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("env steps (thousands)")
            bare(axis)
        row[0].set_ylabel("share of steps")
        if own:
            row[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    figure.suptitle(
        f"{env_name(env)}: rates over the past {LAST_ITERATIONS} iterations, mean over runs"
    )
    return figure


def draw_delays(env: str, delays: Mapping[str, list[tuple[str, Arm]]]) -> Figure:
    """Draw the final return over GRM-norm's delay."""
    figure = Figure(figsize=(1.5 + 5.0 * len(delays), 4.2), layout="constrained")
    axes = figure.subplots(1, len(delays), squeeze=False, sharey=True)[0]
    for axis, (group, own) in zip(axes, delays.items(), strict=True):
        places = np.arange(len(own))
        for place, (_, arm) in zip(places, own, strict=True):
            offsets = np.linspace(-0.12, 0.12, arm.count) if arm.count > 1 else np.zeros(1)
            axis.scatter(
                place + offsets, arm.finals, s=14, color="#0057a8", alpha=0.3, linewidths=0
            )
            axis.annotate(
                arm.solved_text,
                (place, 1.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=9,
            )
        axis.errorbar(
            places,
            [arm.mean for _, arm in own],
            yerr=[np.nan_to_num(arm.error) for _, arm in own],
            fmt="D-",
            color="#0057a8",
            capsize=4,
        )
        names = [name if name != "N−1" else "N−1\n(PBIM-norm)" for name, _ in own]
        axis.set_xticks(places, names)
        axis.set_xlim(-0.5, len(own) - 0.5)
        axis.set_xlabel("delay D")
        axis.set_title(f"{group_title(group)}; solved runs above", fontsize=10, pad=20)
        bare(axis)
    axes[0].set_ylabel("final extrinsic return")
    figure.suptitle(f"{env_name(env)}: GRM-norm(D), every run and mean ± standard error")
    return figure


def draw_overview(arms: Arms) -> Figure:
    """Draw the share of solved runs: a row for each method, a column for each env and scale."""
    groups = {
        env: dict.fromkeys(Label.parse(label).group for label in own if label != NO_BONUS)
        for env, own in arms.items()
    }
    columns = [(env, group) for env, own in groups.items() for group in own or {"": None}]
    found = {}
    for env, own in arms.items():
        for label, arm in own.items():
            # Runs without a bonus stand in the first column of their env.
            group = Label.parse(label).group if label != NO_BONUS else next(iter(groups[env]), "")
            if family(label) != DELAYS:
                found[label.removesuffix(group), env, group] = arm
    rows = sorted({method for method, _, _ in found}, key=lambda label: Label.parse(label).order)
    size = (2.2 + 0.62 * len(columns), 1.6 + 0.36 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    share = np.full((len(rows), len(columns)), np.nan)
    for (method, env, group), arm in found.items():
        row, column = rows.index(method), columns.index((env, group))
        share[row, column] = arm.solved.mean()
        dark = share[row, column] < 0.5
        axis.text(
            column,
            row,
            arm.solved_text,
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else "black",
        )
    axis.imshow(share, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axis.set_yticks(range(len(rows)), rows)
    names = [column_title(group) for _, group in columns]
    axis.set_xticks(range(len(columns)), names, fontsize=8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for env, names_of_env in groups.items():
        first = columns.index((env, next(iter(names_of_env), "")))
        last = len(names_of_env or [""]) - 1
        # A name is wider than one column, so it is slanted there.
        look = {"ha": "center"} if last else {"ha": "left", "rotation": 35}
        axis.text(first + last / 2, -0.7, env_name(env), va="bottom", fontsize=10, **look)
        if first:
            axis.axvline(first - 0.5, color="white", linewidth=4)
    axis.set_title("Solved runs", loc="left", pad=52)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture that depends only on its data, with a palette: a third of the size."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100, metadata={"Software": None})
    picture = Image.open(drawn).convert("RGB")
    # Without k-means, wide areas would take the palette and thin lines lose their colours.
    palette = picture.quantize(256, kmeans=4, dither=Image.Dither.NONE)
    palette.save(small, format="png", optimize=True)
    write_atomically(path, small.getvalue())


def draw_figures(arms: Arms, out: Path) -> None:
    """Draw the overview and all figures of all envs."""
    save(draw_overview(arms), out / "solved.png")
    for env, own in tqdm(arms.items(), "drawing", unit="env"):
        delays = delay_arms(own)
        figures = {
            "curves": draw_curves(env, own),
            "final": draw_finals(env, own),
            "rates": draw_rates(env, own),
            **({"delay": draw_delays(env, delays)} if delays else {}),
        }
        for kind, figure in figures.items():
            save(figure, out / f"{kind}_{slug(env)}.png")
