"""The questions of the external study, and the rules by which its runs answer them.

docs/external_study.md fixed both before the first run. A score is what the tests compare: the final
return, and on DeepSea the number of episodes until it was solved, with a minus sign, so that more
is always better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from adops_wrappers.envs.deep_sea import EPISODES
from research.analysis.statistics import (
    SIGNIFICANT,
    Arm,
    Arms,
    arms_of,
    holm,
    share_interval,
    welch_p,
)
from research.analysis.text import TOO_FEW
from research.external import ARMS, TASKS, Task
from research.rows import Row

FEWEST = 3
"""Runs that an arm needs before a question is answered, or all it was given if those are fewer."""
SOLVES = 0.8
"""The share of solved runs from which the raw bonus solves a task."""
NO_ANSWER = f"{TOO_FEW} so far"
ORDER = (("ADOPES", "raw"), ("ADOPS", "PIES"), ("ADOPES", "PIES"), ("raw", "GRM(1)"))
"""The paper's order on its game: the first of each two is above the second."""


class Asked(NamedTuple):
    """Is an arm above another one on a task, or above a share of it?"""

    id: str
    task: Task
    better: str
    worse: str
    share: float = 1.0
    """What the mean score of `worse` is multiplied by."""


class Answer(NamedTuple):
    """A question with what the runs say; the numbers are NaN while there are too few runs."""

    asked: Asked
    runs: tuple[int, int]
    difference: float
    interval: tuple[float, float]
    """Of the difference, 90 %: each end is the limit of a one-sided interval of 95 %."""
    p: float | None
    p_holm: float | None
    complete: bool
    """Whether all runs of the design are in."""

    @property
    def verdict(self) -> str:
        """Whether the difference has the expected sign, by the corrected p."""
        if self.p_holm is None:
            return NO_ANSWER
        if self.p_holm >= SIGNIFICANT:
            word = "undecided"
        else:
            word = "supported" if self.difference > 0 else "contradicted"
        return word if self.complete else f"{word} so far"


def is_deep_sea(task: Task) -> bool:
    """Whether fewer episodes are better."""
    return task.name.startswith("DeepSea")


def with_tv(task: Task) -> bool:
    """Whether a noisy TV was added to the task."""
    return task.name.endswith(" TV")


def results(rows: Sequence[Row]) -> Arms:
    """Return the runs by task and arm, each with its score."""
    scored = []
    for row in rows:
        score = row["final_return"]
        if row["task"].startswith("DeepSea"):
            score = str(-float(row["episodes_to_solve"] or EPISODES))
        scored.append({**row, "env": row["task"], "score": score})
    return arms_of(scored)


def questions(tasks: Sequence[Task] = TASKS) -> list[Asked]:
    """Return the questions that are tests, which are corrected together."""
    asked = [Asked("B", task, "raw", "no bonus") for task in tasks]
    # 10 % worse: nine tenths of a return, eleven tenths of a number of episodes.
    asked += [
        Asked("W", task, "recipe", "raw", 1.1 if is_deep_sea(task) else 0.9) for task in tasks
    ]
    for task in tasks:
        if task.name == "Montezuma":
            asked.append(Asked("P", task, "recipe", "PIES"))
            asked += [Asked("O", task, above, below) for above, below in ORDER]
    return asked + [Asked("T", task, "recipe", "raw") for task in tasks if with_tv(task)]


def has_enough(task: Task, name: str, runs: int) -> bool:
    """Whether an arm has the runs that an answer needs."""
    return runs >= min(FEWEST, task.seeds[name])


def answers(rows: Sequence[Row], tasks: Sequence[Task] = TASKS) -> list[Answer]:
    """Answer all questions that are tests; those that lack runs count in Holm's correction."""
    arms = results(rows)
    given = [_answer(asked, arms.get(asked.task.name, {})) for asked in questions(tasks)]
    corrected = holm([one.p for one in given], len(given))
    return [one._replace(p_holm=p) for one, p in zip(given, corrected, strict=True)]


def _answer(asked: Asked, arms: Mapping[str, Arm]) -> Answer:
    names = asked.better, asked.worse
    runs = tuple(arms[name].count if name in arms else 0 for name in names)
    nothing = Answer(asked, (runs[0], runs[1]), math.nan, (math.nan, math.nan), None, None, False)
    if not all(has_enough(asked.task, *one) for one in zip(names, runs, strict=True)):
        return nothing
    better, worse = (arms[name].values("score") for name in names)
    worse = asked.share * worse
    p = welch_p(better, worse)
    return nothing._replace(
        difference=float(better.mean() - worse.mean()),
        interval=difference_interval(better, worse),
        p=p / 2.0 if asked.id == "W" else p,  # W is a one-sided question
        complete=all(n >= asked.task.seeds[name] for name, n in zip(names, runs, strict=True)),
    )


def difference_interval(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return Welch's 90 % interval of the difference of two means."""
    difference = float(first.mean() - second.mean())
    if not (np.ptp(first) or np.ptp(second)):
        return difference, difference
    ends = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.9)
    return float(ends.low), float(ends.high)


class Solved(NamedTuple):
    """Question R: how many runs of the raw bonus have solved a task."""

    task: Task
    solved: int
    runs: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share."""
        return share_interval(self.solved, self.runs)

    @property
    def verdict(self) -> str:
        """Whether at least 80 % have."""
        if not has_enough(self.task, "raw", self.runs):
            return NO_ANSWER
        word = "yes" if self.solved >= SOLVES * self.runs else "no"
        return word if self.runs >= self.task.seeds["raw"] else f"{word} so far"


def raw_solves(rows: Sequence[Row], tasks: Sequence[Task] = TASKS) -> list[Solved]:
    """Answer question R on each task."""
    arms = results(rows)
    own = [arms.get(task.name, {}).get("raw") for task in tasks]
    return [
        Solved(task, int(arm.solved.sum()) if arm else 0, arm.count if arm else 0)
        for task, arm in zip(tasks, own, strict=True)
    ]


def share_of_best(scores: np.ndarray | float, best: float) -> np.ndarray | float:
    """Return scores as shares of the best arm's: of its return, or its episodes per theirs."""
    if best == 0.0:  # nobody has earned anything: all are the best
        return np.ones_like(scores)
    return scores / best if best > 0.0 else best / scores


class Pick(NamedTuple):
    """Question X for a set of arms: the mean share of each, and its worst task."""

    arms: tuple[str, ...]
    tasks: tuple[str, ...]
    """The tasks that all of these arms run."""
    shares: dict[str, float]
    """By arm, the best first; empty while there are too few runs."""
    worst: dict[str, tuple[str, float]]
    complete: bool
    """Whether all runs of the design are in."""


def blind_pick(
    rows: Sequence[Row], names: Sequence[str] = tuple(ARMS), tasks: Sequence[Task] = TASKS
) -> Pick:
    """Answer question X among these arms, over the tasks that all of them run."""
    arms = results(rows)
    common = [task for task in tasks if all(name in task.seeds for name in names)]
    pick = Pick(tuple(names), tuple(task.name for task in common), {}, {}, True)
    by_task: dict[str, dict[str, float]] = {}
    complete = True
    for task in common:
        own = {name: arms.get(task.name, {}).get(name) for name in names}
        found = {name: arm for name, arm in own.items() if arm is not None}
        if not all(name in found and has_enough(task, name, found[name].count) for name in names):
            return pick
        complete &= all(found[name].count >= task.seeds[name] for name in names)
        means = {name: float(arm.values("score").mean()) for name, arm in found.items()}
        best = max(means.values())
        by_task[task.name] = {n: float(share_of_best(mean, best)) for n, mean in means.items()}
    means = {name: float(np.mean([of[name] for of in by_task.values()])) for name in names}
    order = sorted(names, key=lambda name: -means[name])
    worst = {name: min((of[name], task) for task, of in by_task.items()) for name in order}
    return pick._replace(
        shares={name: means[name] for name in order},
        worst={name: (task, share) for name, (share, task) in worst.items()},
        complete=complete,
    )


def against_recipe(rows: Sequence[Row], tasks: Sequence[Task] = TASKS) -> list[str]:
    """Return what speaks against the recipe by the design, which then changes our advice."""
    fails = {one.task.name for one in raw_solves(rows, tasks) if one.verdict.startswith("no")}
    found = []
    for one in answers(rows, tasks):
        name, verdict = one.asked.task.name, one.verdict
        if one.asked.id == "W" and verdict.startswith("contradicted"):
            found.append(f"W is {verdict} on {name}")
        lost = one.asked.id == "T" and name in fails and verdict != NO_ANSWER
        if lost and not verdict.startswith("supported"):
            found.append(f"T is {verdict} on {name}, where the raw bonus fails")
    return found
