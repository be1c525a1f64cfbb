"""What the runs of the external study say: text for the pages, and one picture.

`python -m research.external runs/external --report` writes them; tests hold the pages to the rows.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from adops_wrappers.envs.deep_sea import EPISODES
from research import ROOT
from research.analysis.labels import CLAMPED, COLOURS
from research.analysis.page import table
from research.analysis.statistics import Arm, share_interval, standard_error, welch_p
from research.analysis.text import shown, shown_p
from research.analysis.verdicts import PAPER_CLAIMS
from research.external import ARMS, FOUR, SEVEN, TASKS, Task
from research.external_questions import (
    FEWEST,
    NO_ANSWER,
    Answer,
    Pick,
    against_recipe,
    answers,
    blind_pick,
    is_deep_sea,
    raw_solves,
    results,
    share_of_best,
)
from research.figures.run_tables import save
from research.rows import Row

SHOWN = {
    "no bonus": COLOURS["no bonus"],
    "raw": COLOURS["raw"],
    "PIES": COLOURS["PIES"],
    "recipe": COLOURS[CLAMPED],
}
"""The arms that every task has, and their colours."""
SPOKEN = {"raw": "the raw bonus", "recipe": "our recipe"}
"""How README calls arms, where their names alone say too little."""
HEADLINES = ("Montezuma", "MultiRoom-N4-S5")
"""The tasks that README names."""
WIDEST = 1.3
"""Right end of the picture, in shares of the best arm."""


def number(value: float) -> str:
    """Write a return: whole points with commas, or two decimals."""
    return f"{value:,.0f}".replace("-", "−") if abs(value) >= 100.0 else shown(value)


def mean_interval(values: np.ndarray) -> tuple[float, float] | None:
    """Return Student's 95 % interval of a mean; None for a single run."""
    if len(values) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(values) - 1)) * standard_error(values)
    return float(values.mean()) - half, float(values.mean()) + half


def ends(interval: tuple[float, float] | None) -> str:
    """Write an interval; a dash where there is none."""
    return "–" if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def percent(interval: tuple[float, float]) -> str:
    """Write an interval of a share."""
    return f"{interval[0]:.0%}–{interval[1]:.0%}"


def counted(runs: int) -> str:
    """Write a number of runs."""
    return f"{runs} run{'' if runs == 1 else 's'}"


def planned_runs() -> int:
    """Return the number of runs in the design."""
    return sum(sum(task.seeds.values()) for task in TASKS)


def arms_in_order(rows: Sequence[Row]) -> list[tuple[Task, Arm]]:
    """Return the arms that have runs, in the order of the design."""
    arms = results(rows)
    own = [(task, arms.get(task.name, {})) for task in TASKS]
    return [(task, of[name]) for task, of in own for name in ARMS if name in of]


def table_of_runs(rows: Sequence[Row]) -> str:
    """Return final returns and solved runs of all arms."""
    lines = []
    for task, arm in arms_in_order(rows):
        solved = int(arm.solved.sum())
        lines.append(
            [
                *(task.name, arm.label, f"{arm.count} of {task.seeds[arm.label]}"),
                *(number(arm.mean), ends(mean_interval(arm.finals))),
                *(f"{solved} of {arm.count}", percent(share_interval(solved, arm.count))),
            ]
        )
    return table(("task", "arm", "runs", "final return", "95 %", "solved", "95 %"), lines)


def table_of_montezuma(rows: Sequence[Row]) -> str:
    """Return how soon Montezuma's runs reach 1,000 points, and how many rooms they see."""
    lines = []
    for task, arm in arms_in_order(rows):
        if task.name == "Montezuma":
            steps = arm.values("steps_to_1000")
            reached = steps[~np.isnan(steps)]
            median = f"{np.median(reached) / 1e6:.2f}M" if len(reached) else "–"
            rooms = shown(arm.average("rooms"), 1)
            lines.append([arm.label, f"{len(reached)} of {arm.count}", median, rooms])
    header = ("arm", "reach 1,000 points", "after, median of those", "rooms seen, mean")
    return table(header, lines) if lines else ""


def table_of_deep_sea(rows: Sequence[Row]) -> str:
    """Return after how many episodes DeepSea was solved."""
    lines = [
        [task.name, arm.label, number(-values.mean()), ends(flipped(mean_interval(values)))]
        for task, arm in arms_in_order(rows)
        if is_deep_sea(task)
        for values in [arm.values("score")]
    ]
    header = ("task", "arm", f"episodes until solved, {EPISODES:,} if not", "95 %")
    return table(header, lines) if lines else ""


def flipped(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the interval of the negative number."""
    return None if interval is None else (-interval[1], -interval[0])


def table_of_answers(given: Sequence[Answer]) -> str:
    """Return the tests whose arms have enough runs."""
    lines = []
    for one in given:
        if one.verdict == NO_ANSWER:
            continue
        asked = one.asked
        share = "" if asked.share == 1.0 else f"{asked.share:g} · "
        compared = f"{asked.better} − {share}{asked.worse}"
        lines.append(
            [
                *(asked.id, asked.task.name, compared, f"{one.runs[0]}, {one.runs[1]}"),
                *(number(one.difference), ends(one.interval)),
                *(shown_p(one.p), shown_p(one.p_holm), one.verdict),
            ]
        )
    header = ("", "task", "difference of means", "runs", "is", "90 %", "p", "p, Holm", "answer")
    return table(header, lines) if lines else ""


def lacking(given: Sequence[Answer]) -> str:
    """Name the tests that have too few runs."""
    asked: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for one in given:
        pair = f" ({one.asked.better} above {one.asked.worse})" if one.asked.id == "O" else ""
        asked.setdefault(one.asked.id, []).append(name := f"{one.asked.task.name}{pair}")
        if one.verdict == NO_ANSWER:
            missing.setdefault(one.asked.id, []).append(name)
    texts = []
    for name, own in missing.items():
        everything = len(own) > 1 and own == asked[name]
        where = f" in all {len(own)} tests" if everything else f": {', '.join(own)}"
        texts.append(f"{name}{where}")
    return "; ".join(texts)


def answers_to_r(rows: Sequence[Row]) -> str:
    """Say on which tasks the raw bonus solves enough runs."""
    known = [one for one in raw_solves(rows) if one.runs]
    texts = [
        f"{one.task.name} {one.solved} of {one.runs} ({percent(one.interval)}): {one.verdict}"
        for one in known
    ]
    return "; ".join(texts) or NO_ANSWER


def answer_to_x(pick: Pick) -> str:
    """Say which arm is the best on average, and where it is worst."""
    over = f"over {', '.join(pick.tasks)}"
    if not pick.shares:
        return f"{over}: {NO_ANSWER}"
    shares = ", ".join(f"{name} {share:.2f}" for name, share in pick.shares.items())
    best = next(iter(pick.shares))
    task, worst = pick.worst[best]
    so_far = "" if pick.complete else " so far"
    return f"{over}: **{best}**{so_far}, at worst {worst:.2f} on {task} ({shares})"


def page_of_results(rows: Sequence[Row]) -> str:
    """Return the results on the study's page."""
    given = answers(rows)
    against = against_recipe(rows)
    tables = (table_of_runs(rows), table_of_montezuma(rows), table_of_deep_sea(rows))
    missing = lacking(given)
    blocks = [
        f"**{len(rows)} of {planned_runs()} runs have finished.** A question is answered once each "
        f"of its arms has {FEWEST} runs, or all that the design gives it if those are fewer; “so "
        "far” stands behind an answer while runs are missing. All questions count in Holm's "
        "correction, those without an answer too.",
        "![Final returns as shares of the best arm's](images/external_study.png)",
        "*Mean final return as a share of the best arm's on each task, with 95 % intervals; on "
        "DeepSea, the best arm's episodes until solved as a share of the arm's. An arm with a "
        "single run is hollow and has no interval.*",
        *(text for text in tables if text),
        f"**B, W, P, O, T.** {f'Too few runs so far: {missing}.' if missing else ''}",
        table_of_answers(given),
        f"**R.** The raw bonus solves: {answers_to_r(rows)}.",
        "**X.** The mean share of the best arm's result, on the tasks that all arms run, "
        f"{answer_to_x(blind_pick(rows))}. Not asked before the runs: without PBIM, "
        f"{answer_to_x(blind_pick(rows, [name for name in ARMS if name in SEVEN]))}; among the "
        f"four arms that run everywhere, {answer_to_x(blind_pick(rows, tuple(FOUR)))}.",
        "**The recommendation.** "
        + (
            f"By the rule below it changes: {'; '.join(against)}."
            if against
            else "By the rule below, nothing so far speaks against it."
        ),
    ]
    return "\n\n".join(block if block.startswith("|") else fill(block) for block in blocks if block)


def fill(text: str) -> str:
    """Wrap a paragraph as the pages are; a picture's line stays whole."""
    if text.startswith("!["):
        return text
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def told_answers(given: Sequence[Answer]) -> str:
    """Say in words what is supported and what is contradicted, and count the rest."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in given:
        asked = one.asked
        names = [SPOKEN.get(name, name) for name in (asked.better, asked.worse)]
        claim = f"{names[0]} is above {names[1]}"
        if asked.id == "W":
            claim = f"{names[0]} is no worse than {names[1]} by more than 10 %"
        found.setdefault(one.verdict, {}).setdefault(claim, []).append(asked.task.name)
    sentences = [
        f"{verdict.capitalize()}: "
        + "; ".join(f"{claim} (on {', '.join(tasks)})" for claim, tasks in claims.items())
        for verdict, claims in found.items()
        if verdict.startswith(("supported", "contradicted"))
    ]
    undecided = sum(one.verdict.startswith("undecided") for one in given)
    if undecided:
        sentences.append(f"Undecided: {undecided} of {len(given)} questions")
    return "".join(f"{sentence}. " for sentence in sentences).strip()


def seen_so_far(rows: Sequence[Row]) -> str:
    """Return README's paragraph."""
    arms = results(rows)
    clauses = []
    for task in HEADLINES:
        own = [arms[task][name] for name in SHOWN if name in arms.get(task, {})]
        if not own:
            continue
        if task == "Montezuma":
            name = "Montezuma's Revenge from RAM"
            did, said = "ends at", [f"{number(a.mean)} points ({counted(a.count)})" for a in own]
        else:
            name = f"MiniGrid's {task}"
            did, said = "solves", [a.solved_text.replace("/", " of ") for a in own]
        named = [
            f"{SPOKEN.get(a.label, a.label)} {text}" for a, text in zip(own, said, strict=True)
        ]
        named[0] = named[0].replace(said[0], f"{did} {said[0]}")
        clauses.append(f"on {name}, {', '.join(named)}")
    told = told_answers(answers(rows)) or "No question has enough runs yet."
    seen = "; ".join(clauses)
    return fill(
        "**On tasks that others wrote**, [the external study](docs/external_study.md) asks the "
        f"same questions once more; {len(rows)} of its {planned_runs()} runs have finished. "
        f"{seen[:1].upper()}{seen[1:]}. {told}"
    )


PAPERS_RUNS = {"GRM(1)": 10, "GRM-norm(1)": 10}
"""Runs in the paper of arms that have other than 20."""


def reproduction(rows: Sequence[Row]) -> str:
    """Return docs/reproduction.md's table of the paper's order and what we saw from RAM."""
    arms = results(rows).get("Montezuma", {})
    planned = {task.name: task for task in TASKS}["Montezuma"].seeds
    lines = []
    for claim in PAPER_CLAIMS:
        names = claim.first, claim.second
        if not all(name in planned for name in names):
            continue
        paper = f"{claim.first} {claim.relation} {claim.second}"
        runs = ", ".join(str(PAPERS_RUNS.get(name, 20)) for name in names)
        seen = "; ".join(
            f"{name} {number(arms[name].mean)} ({counted(arms[name].count)})"
            if name in arms
            else f"{name}: no run yet"
            for name in names
        )
        p = "–"
        if all(name in arms and arms[name].count >= min(FEWEST, planned[name]) for name in names):
            p = shown_p(welch_p(*(arms[name].finals for name in names)))
        lines.append([paper, claim.p or "not given", runs, seen, p])
    header = ("the paper: final return", "its p", "its runs", "here, from RAM", "p here")
    return table(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the arms that every task has as shares of each task's best arm."""
    arms = results(rows)
    tasks = [task for task in TASKS if any(name in arms.get(task.name, {}) for name in SHOWN)]
    figure, axis = plt.subplots(figsize=(7.5, 0.9 + 0.5 * len(tasks)), layout="constrained")
    for place, task in enumerate(tasks):
        _draw_task(axis, place, task, arms[task.name])
    axis.set_yticks(range(len(tasks)), [task.name for task in tasks])
    axis.set_ylim(len(tasks) - 0.45, -0.55)
    axis.set_xlim(-0.03, WIDEST)
    axis.set_xlabel("final return as a share of the best arm's")
    axis.axvline(1.0, color="0.85", linewidth=1.0, zorder=0)
    axis.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], color=c, marker="o", label=name) for name, c in SHOWN.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(SHOWN), frameon=False)
    return figure


def _draw_task(axis: Axes, place: int, task: Task, own: dict[str, Arm]) -> None:
    best = max(float(arm.values("score").mean()) for arm in own.values())
    for line, (name, colour) in enumerate(SHOWN.items()):
        if name not in own:
            continue
        scores, y = own[name].values("score"), place + 0.19 * (line - 1.5)
        interval = mean_interval(scores)
        if interval is not None:
            limits = np.array(interval)
            if is_deep_sea(task):  # an interval that holds 0 episodes has no other end
                limits[1] = min(limits[1], best / WIDEST)
            axis.plot(np.clip(share_of_best(limits, best), -0.03, WIDEST), (y, y), color=colour)
        face = colour if len(scores) > 1 else "white"
        share = share_of_best(float(scores.mean()), best)
        axis.plot(share, y, "o", color=colour, markerfacecolor=face, markersize=5, clip_on=False)


def spliced(text: str, name: str, new: str) -> str:
    """Return a page with new text between its marks."""
    marks = f"<!-- {name}: made by python -m research.external -->", f"<!-- end of {name} -->"
    between = re.compile(f"(?<={re.escape(marks[0])}\n).*?(?={re.escape(marks[1])})", re.DOTALL)
    found, count = between.subn(lambda _: f"\n{new}\n\n", text)
    if count != 1:
        raise ValueError(f"expected {marks[0]} and {marks[1]} once each, found them {count} times.")
    return found


PAGES = {
    "docs/external_study.md": ("results", page_of_results),
    "docs/reproduction.md": ("Montezuma from RAM", reproduction),
    "README.md": ("external study", seen_so_far),
}
"""Each page, the name of its part that is made here, and what makes it."""
DPI = 110
PICTURE = "docs/images/external_study.png"


def write(rows: Sequence[Row], root: Path = ROOT) -> None:
    """Write what the rows say into the pages, and draw the picture."""
    for page, (name, make) in PAGES.items():
        path = root / page
        text = spliced(path.read_text(encoding="utf-8"), name, make(rows))
        path.write_text(text, encoding="utf-8")
        print(path)
    figure = draw(rows)
    save(figure, root / PICTURE, dpi=DPI)
    plt.close(figure)
