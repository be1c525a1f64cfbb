"""The off-policy study: DQN and SAC, with F′ stored and with F′ computed at sampling.

    python -m research.off_policy runs/off-policy --workers 2     # runs what is missing
    python -m research.off_policy runs/off-policy --report        # prints what is there
    python -m research.off_policy runs/smoke --tier smoke         # the same machinery in a minute

Every finished run is one row of DIR/results.csv. If it is killed, run the same command again: it
continues with the runs that have no row. The design is in docs/off_policy_study.md. Needs
`pip install -e '.[train,sb3,analysis]'`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro
from tqdm import tqdm

from research.analysis.page import table
from research.analysis.questions import Answer, answer
from research.analysis.statistics import Arms, Bootstrap, arms_of, share_interval
from research.analysis.text import shown_p
from research.design import Question, in_rounds
from research.rows import Row, read_rows, write_rows

SOLVED = 0.5
"""A run has solved its task if its last tenth of steps has at least this mean return."""
KEY = ("task", "arm", "scale", "seed")
"""The columns that tell runs apart."""


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
METHODS = {
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


class Arm(NamedTuple):
    """One method on one task with one size of the bonus; its seeds begin at 0."""

    task: str
    name: str
    scale: str
    seeds: int = SEEDS

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells arms apart, as the table of runs has it."""
        return self.task, self.name, self.scale

    @property
    def label(self) -> str:
        """The arm as questions name it."""
        if self.scale == NO_BONUS:
            return self.name
        return f"{self.name}, unit size" if self.scale == UNIT else f"{self.name} ×{self.scale}"


def all_arms(seeds: int = SEEDS) -> list[Arm]:
    """Return the arms of all tasks."""
    return [
        Arm(task, name, scale, seeds)
        for task in TASKS
        for name in (*METHODS, ABLATION)
        for scale in (
            (NO_BONUS,) if name == "no bonus" else ABLATED[task] if name == ABLATION else SCALES
        )
    ]


FARM, TV, FOUNTAIN = TASKS
LARGE, MEDIUM, UNIT_SIZE = (f"{AT_SAMPLING}{end}" for end in (" ×1", " ×0.3", ", unit size"))
KEEPS_DQN, KEEPS_SAC = (f"ADOPS at sampling keeps {name} on its task" for name in ("DQN", "SAC"))
STORED, LACKED = "F′ stored by an old critic does not", "unit size is what ADOPS lacked"
QUESTIONS = [
    Question(name, claim, task, better, worse, "solved", round=name[0])
    for name, claim, task, better, worse in (
        ("O1", "the raw bonus captures DQN", FARM, "no bonus", "raw ×1"),
        ("O2", KEEPS_DQN, FARM, LARGE, "raw ×1"),
        ("O3", STORED, FARM, LARGE, "ADOPS stored ×1"),
        ("O4", "it takes the critic too", FARM, LARGE, f"{ABLATION} ×1"),
        ("O5", "a count bonus helps DQN to find a hidden goal", TV, "raw ×0.3", "no bonus"),
        ("O6", KEEPS_DQN, TV, MEDIUM, "raw ×0.3"),
        ("O7", "the raw bonus captures SAC", FOUNTAIN, "no bonus", "raw ×1"),
        ("O8", KEEPS_SAC, FOUNTAIN, LARGE, "raw ×1"),
        ("U1", LACKED, TV, UNIT_SIZE, MEDIUM),
        ("U2", LACKED, FOUNTAIN, UNIT_SIZE, LARGE),
        ("U3", KEEPS_DQN, TV, UNIT_SIZE, "raw, unit size"),
        ("U4", KEEPS_SAC, FOUNTAIN, UNIT_SIZE, "raw, unit size"),
        ("U5", STORED, FARM, UNIT_SIZE, "ADOPS stored, unit size"),
    )
]
"""The first letter is the round in which a question was asked."""


def key_of(row: Row) -> tuple[str, ...]:
    """Return what tells runs apart."""
    return tuple(row[name] for name in KEY)


def read(path: Path) -> list[Row]:
    """Return the finished runs; a row that a crash of an older version cut off does not count."""
    return [row for row in read_rows(path) if row["curve"] is not None]


def results(rows: Sequence[Row]) -> Arms:
    """Return the runs by task and arm, in the order of the design."""
    runs: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        runs[key_of(row)[:-1]].append(row)
    return arms_of(
        [
            {**row, "env": arm.task, "arm": arm.label, "solved": solved(row)}
            for arm in all_arms()
            for row in runs[arm.key]
        ]
    )


def solved(row: Row) -> str:
    """Return 1 if a run has solved its task, 0 if not."""
    return str(int(float(row["final_return"]) >= SOLVED))


def report(rows: Sequence[Row]) -> str:
    """Return the table of solved runs as Markdown."""
    lines = []
    for task, arms in results(rows).items():
        for arm in arms.values():
            low, high = share_interval(int(arm.solved.sum()), arm.count)
            means = (arm.average(name) for name in ("final_return", "greedy_return"))
            shown = [f"{low:.0%}–{high:.0%}", *(f"{mean:.2f}" for mean in means)]
            lines.append([task, arm.label, arm.solved_text.replace("/", " of "), *shown])
    return table(("task", "arm", "solved", "95 %", "mean return", "greedy return"), lines)


def answers(rows: Sequence[Row], seeds: int = SEEDS) -> str:
    """Return the questions with what the runs say about them, as Markdown.

    The tests are Fisher's, two-sided, with Holm's correction over each round.
    """
    arms = results(rows)
    given = answer(QUESTIONS, arms, Bootstrap(1, 0), seeds)
    header = ("id", "claim", "task", "expected better", "than", "p", "p, Holm", "answer")
    return table(header, [answer_cells(one, arms) for one in given])


def answer_cells(one: Answer, arms: Arms) -> list[str]:
    """Return the line of a question."""
    asked, tests = one.question, one.comparison
    found = [
        f"{label}: {arms[asked.env][label].solved_text.replace('/', ' of ')}"
        if label in arms.get(asked.env, {})
        else f"{label}: 0 of 0"
        for label in (asked.better, asked.worse)
    ]
    p_values = map(shown_p, (tests.fisher, tests.fisher_holm)) if tests else ("–", "–")
    return [asked.id, asked.claim, asked.env, *found, *p_values, one.verdict]


def run_missing(path: Path, seeds: int, steps: int | None, workers: int) -> None:
    """Run every arm and seed that has no row, and add the rows one by one."""
    from research.off_policy_learners import run

    rows = read(path)
    done = {key_of(row) for row in rows}
    runs = [(arm, seed - 1) for arm, seed in in_rounds([all_arms(seeds)], range(1, seeds + 1))]
    missing = [(arm, seed) for arm, seed in runs if (*arm.key, str(seed)) not in done]
    print(f"{len(done)} runs done, {len(missing)} to go.", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A fresh process now and then: what the learners leave behind adds up.
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=8) as pool:
        ended = pool.imap_unordered(partial(run, steps=steps), missing)
        for row in tqdm(ended, "off-policy study", len(runs), initial=len(runs) - len(missing)):
            rows.append(row)
            write_rows(path, rows)
            tqdm.write(f"{key_of(row)}: {row['final_return']} in {row['seconds']} s")


@dataclass
class Settings:
    """What to run or to report."""

    directory: Annotated[Path, tyro.conf.Positional]
    """where results.csv is, or will be"""
    tier: Literal["study", "smoke"] = "study"
    """smoke: one seed, 1,200 steps per run"""
    seeds: int = SEEDS
    """runs of each arm"""
    workers: int = 1
    """the number of processes"""
    report: bool = False
    """print tables and run nothing"""


def main(argv: list[str] | None = None) -> int:
    """Run or report."""
    settings = tyro.cli(Settings, args=argv, description=__doc__)
    path = settings.directory / "results.csv"
    if not settings.report:
        seeds, steps = (1, 1200) if settings.tier == "smoke" else (settings.seeds, None)
        run_missing(path, seeds, steps, settings.workers)
    rows = read(path)
    print(report(rows))
    if settings.report:
        print(f"\n{answers(rows, settings.seeds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
