"""The off-policy study: its design, and what its runs say about it.

`research/off_policy.py` makes the runs; docs/off_policy_study.md gives the reasons.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from research.analysis.statistics import SIGNIFICANT, fisher_p, holm
from research.analysis.text import TOO_FEW, shown_p

SOLVED = 0.5
"""A run has solved its task if its last tenth of steps has at least this mean return."""
FIELDS = [
    "task", "arm", "scale", "seed", "steps", "final_return", "greedy_return", "seconds", "curve",
]  # fmt: skip


class Task(NamedTuple):
    """One learner on one env."""

    algorithm: str
    env: str
    bonus: str
    steps: int
    horizon: int | None = None
    """The length of an episode; None for the env's own."""


TASKS = {
    "DQN LoopFarm": Task("DQN", "adops/LoopFarm-v0", "tempting", 12_000),
    "DQN KeyDoorTV": Task("DQN", "adops/KeyDoorTV-v0", "count", 60_000, horizon=120),
    "SAC Fountain": Task("SAC", "adops/Fountain-v0", "tempting", 6_000),
}
ARMS = {
    "no bonus": "none",
    "raw": "none",
    "ADOPS stored": "adops",
    "ADOPS at sampling": "adops",
    "PIES": "pies",
    "guarded": "guarded",
}
"""The arms, and the name of the shaping of each."""
AT_SAMPLING = "ADOPS at sampling"
NO_BONUS, UNIT = "0", "unit"
SCALES = ("1", "0.3", UNIT)
"""What the bonus is multiplied by; UNIT divides it by the root mean square of its return."""
ABLATION = "ADOPS at sampling, TDCritic"
"""Separates when F′ is computed from which critic computes it."""
ABLATED = {"DQN LoopFarm": SCALES, "DQN KeyDoorTV": (UNIT,), "SAC Fountain": (UNIT,)}
"""Where that arm ran."""
SEEDS = 10


class Cell(NamedTuple):
    """One run."""

    task: str
    arm: str
    scale: str
    seed: int


def cells(seeds: int) -> Iterator[Cell]:
    """Yield all runs, seed by seed, so that partial results are balanced."""
    for seed in range(seeds):
        for task in TASKS:
            sizes = {**dict.fromkeys(ARMS, SCALES), "no bonus": (NO_BONUS,)}
            sizes[ABLATION] = ABLATED[task]
            for arm, scales in sizes.items():
                for scale in scales:
                    yield Cell(task, arm, scale, seed)


class Question(NamedTuple):
    """A claim: on a task, more runs of one arm than of another solve it.

    The first letter of its name is its round: Holm's correction is over the questions of one.
    """

    name: str
    claim: str
    task: str
    better: tuple[str, str]
    worse: tuple[str, str]


FARM, TV, FOUNTAIN = TASKS
WITHOUT = "no bonus", NO_BONUS
QUESTIONS = [
    Question("O1", "the raw bonus captures DQN", FARM, WITHOUT, ("raw", "1")),
    Question(
        "O2", "ADOPS at sampling keeps DQN on its task", FARM, (AT_SAMPLING, "1"), ("raw", "1")
    ),
    Question(
        "O3", "F′ stored by an old critic does not", FARM, (AT_SAMPLING, "1"), ("ADOPS stored", "1")
    ),
    Question("O4", "it takes the critic too", FARM, (AT_SAMPLING, "1"), (ABLATION, "1")),
    Question(
        "O5", "a count bonus helps DQN to find a hidden goal", TV, ("raw", "0.3"), WITHOUT
    ),
    Question(
        "O6", "ADOPS at sampling keeps DQN on its task", TV, (AT_SAMPLING, "0.3"), ("raw", "0.3")
    ),
    Question("O7", "the raw bonus captures SAC", FOUNTAIN, WITHOUT, ("raw", "1")),
    Question(
        "O8", "ADOPS at sampling keeps SAC on its task", FOUNTAIN, (AT_SAMPLING, "1"), ("raw", "1")
    ),
    Question(
        "U1", "unit size is what ADOPS lacked", TV, (AT_SAMPLING, UNIT), (AT_SAMPLING, "0.3")
    ),
    Question(
        "U2", "unit size is what ADOPS lacked", FOUNTAIN, (AT_SAMPLING, UNIT), (AT_SAMPLING, "1")
    ),
    Question(
        "U3", "ADOPS at sampling keeps DQN on its task", TV, (AT_SAMPLING, UNIT), ("raw", UNIT)
    ),
    Question(
        "U4", "ADOPS at sampling keeps SAC on its task", FOUNTAIN, (AT_SAMPLING, UNIT),
        ("raw", UNIT),
    ),
    Question(
        "U5", "F′ stored by an old critic does not", FARM, (AT_SAMPLING, UNIT),
        ("ADOPS stored", UNIT),
    ),
]  # fmt: skip


def label(arm: str, scale: str) -> str:
    """Name an arm at one size of its bonus."""
    if scale == NO_BONUS:
        return arm
    return f"{arm}, unit size" if scale == UNIT else f"{arm} ×{scale}"


def read(table: Path) -> list[dict[str, str]]:
    """Return the finished runs; a row that a crash cut off does not count."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["curve"] is not None]


def key_of(row: dict[str, str]) -> Cell:
    """Return the cell that a row belongs to."""
    return Cell(row["task"], row["arm"], row["scale"], int(row["seed"]))


def wilson(solved: int, runs: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion."""
    share, factor = solved / runs, 1 + z * z / runs
    centre = (share + z * z / (2 * runs)) / factor
    half = z * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs)) / factor
    return max(0.0, centre - half), min(1.0, centre + half)


class Group(NamedTuple):
    """The runs of one arm on one task, seed by seed."""

    final_return: list[float]
    greedy_return: list[float]

    @property
    def solved(self) -> list[bool]:
        """Which runs have solved the task."""
        return [value >= SOLVED for value in self.final_return]

    @property
    def solved_text(self) -> str:
        """The number of solved runs, of all runs."""
        return f"{sum(self.solved)} of {len(self.solved)}"


Groups = dict[tuple[str, str, str], Group]


def grouped(rows: list[dict[str, str]]) -> Groups:
    """Return the runs by task, arm and scale, in the order of the design."""
    runs: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        runs[key_of(row)[:3]].append(row)
    return {
        key: Group(*([float(row[name]) for row in runs[key]] for name in Group._fields))
        for key in (cell[:3] for cell in cells(1))
        if key in runs
    }


def report(rows: list[dict[str, str]]) -> str:
    """Return the table of solved runs as Markdown."""
    lines = [
        "| task | arm | solved | 95 % | mean return | greedy return |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (task, arm, scale), group in grouped(rows).items():
        low, high = wilson(sum(group.solved), len(group.solved))
        mean, greedy = (sum(values) / len(values) for values in group)
        lines.append(
            f"| {task} | {label(arm, scale)} | {group.solved_text} | {low:.0%}–{high:.0%} | "
            f"{mean:.2f} | {greedy:.2f} |"
        )
    return "\n".join(lines)


def answers(rows: list[dict[str, str]], seeds: int = SEEDS) -> str:
    """Return the questions with what the runs say about them, as Markdown.

    The tests are Fisher's, two-sided, with Holm's correction over each round. A question that lacks
    runs is not tested but counts in the correction, so that later runs never take an answer back.
    """
    groups = grouped(rows)
    lines = [
        "| | claim | task | expected better | than | p | p, Holm | answer |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for first_letter in sorted({question.name[0] for question in QUESTIONS}):
        asked = [question for question in QUESTIONS if question.name[0] == first_letter]
        p_values = [_p_value(question, groups, seeds) for question in asked]
        corrected = holm([1.0 if p is None else p for p in p_values])
        lines += map(_answer, asked, [groups] * len(asked), p_values, corrected)
    return "\n".join(lines)


def _pair(question: Question, groups: Groups) -> tuple[Group, Group]:
    better, worse = (
        groups.get((question.task, *arm), Group([], []))
        for arm in (question.better, question.worse)
    )
    return better, worse


def _p_value(question: Question, groups: Groups, seeds: int) -> float | None:
    better, worse = _pair(question, groups)
    if min(len(better.solved), len(worse.solved)) < seeds:
        return None
    return fisher_p(np.array(better.solved), np.array(worse.solved))


def _answer(question: Question, groups: Groups, p: float | None, corrected: float | None) -> str:
    better, worse = _pair(question, groups)
    numbers, answer = "– | –", TOO_FEW
    if p is not None and corrected is not None:
        numbers, answer = f"{shown_p(p)} | {shown_p(corrected)}", "undecided"
        if corrected < SIGNIFICANT:
            answer = "supported" if sum(better.solved) > sum(worse.solved) else "contradicted"
    return (
        f"| {question.name} | {question.claim} | {question.task} | "
        f"{label(*question.better)}: {better.solved_text} | "
        f"{label(*question.worse)}: {worse.solved_text} | {numbers} | {answer} |"
    )
