"""What a report says, as Markdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from research.analysis.collect import LAST_ITERATIONS, STATES
from research.analysis.compact import RATE_COLUMNS, Compact
from research.analysis.page import bullets, heading, image, markdown_text, table
from research.analysis.questions import ANSWERS, Answer, answer
from research.analysis.statistics import (
    MIN_RUNS,
    SIGNIFICANT,
    Arm,
    Arms,
    Bootstrap,
    Summary,
    delay_arms,
    load_arms,
    summarize,
)
from research.analysis.text import TOO_FEW, env_name, ranges, shown, shown_p, slug
from research.analysis.verdicts import Verdict, paper_verdicts
from research.design import Question
from research.rows import Row


@dataclass(frozen=True)
class Analysis:
    """Everything that the report says."""

    compact: Compact
    arms: Arms
    summaries: dict[str, list[Summary]]
    verdicts: list[Verdict]
    answers: list[Answer]
    bootstrap: Bootstrap


def compute(compact: Compact, bootstrap: Bootstrap) -> Analysis:
    """Make all tests."""
    arms = load_arms(compact)
    summaries, verdicts = {}, []
    for env, own in tqdm(arms.items(), "bootstrap", unit="env"):
        summaries[env] = summarize(own, bootstrap)
        verdicts += paper_verdicts(env, own, bootstrap)
    questions = [Question.read(texts) for texts in compact.study.get("questions", [])]
    answers = answer(questions, arms, bootstrap)
    return Analysis(compact, arms, summaries, verdicts, answers, bootstrap)


def progress_text(expected: Sequence[Row]) -> str:
    """Say how many runs have finished."""
    states = Counter(row["state"] for row in expected)
    if states["finished"] == len(expected):
        return f"All {len(expected)} runs finished."
    listed = ", ".join(f"{states[state]} {state}" for state in reversed(STATES) if states[state])
    return (
        f"Of {len(expected)} runs: {listed}. Only finished runs are in the numbers; the others are "
        "listed below."
    )


def answer_blocks(answers: Sequence[Answer]) -> list[str]:
    """Return the answers to the study's questions."""
    if not answers:
        return []
    ids = {name: [a.question.id for a in answers if a.verdict == name] for name in ANSWERS}
    named = [f"{name.capitalize()}: {', '.join(own)}." for name, own in ids.items() if own]
    rounds = " asked at the same time" if len({a.question.round for a in answers}) > 1 else ""
    return [
        heading(2, "Questions of the study"),
        markdown_text(" ".join(named)),
        bullets([(f"{a.question.id}, {a.verdict}.", a.sentence) for a in answers]),
        markdown_text(
            "Supported or contradicted: Welch's test of the final returns, or of what stands in "
            f"brackets, corrected by Holm over all questions{rounds}, gives "
            f"p < {SIGNIFICANT}. Undecided does not mean equal. P(A better) is the probability "
            "that a run of A beats a run of the other arm, counting a "
            "tie as half, with its 95 % interval. ± is the standard error."
        ),
    ]


COUNTED = {
    "agrees": ("agrees with the paper", "agree with the paper"),
    "contradicts": ("contradicts it", "contradict it"),
    "undecided": ("is undecided", "are undecided"),
    TOO_FEW: ("has too few runs", "have too few runs"),
}
"""Verdicts on the paper, of one comparison and of several."""


def paper_blocks(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the paper's claims by env: a table for each kind of bonus."""
    if not verdicts:
        return []
    counts = Counter(verdict.verdict for verdict in verdicts)
    counted = [
        f"{counts[name]} {words[counts[name] != 1]}"
        for name, words in COUNTED.items()
        if counts[name] or name != TOO_FEW
    ]
    blocks: list[str] = [
        heading(2, "Agreement with the paper"),
        markdown_text(
            f"Of {len(verdicts)} comparisons at scale 1, {', '.join(counted)}. The paper made them "
            "on its own env. Cells give solved runs and Welch's p, corrected by Holm within env "
            "and bonus. Where the paper found a difference, these runs agree or contradict if "
            f"p < {SIGNIFICANT}; where it found none, they agree if p ≥ {SIGNIFICANT}. Fewer tests "
            "are corrected together here than among the questions of a study, so p is smaller."
        ),
    ]
    for bonus in dict.fromkeys(verdict.bonus for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.bonus == bonus]
        envs = list(dict.fromkeys(verdict.env for verdict in own))
        cells = {(v.claim, v.env): f"{v.verdict} ({v.short})" for v in own}
        claims = dict.fromkeys((verdict.claim, verdict.paper_p) for verdict in own)
        rows = [[claim, p, *(cells.get((claim, env), "–") for env in envs)] for claim, p in claims]
        blocks += [
            heading(3, f"Bonus: {'RND' if bonus == 'rnd' else bonus}"),
            table(("claim of the paper", "its p", *map(env_name, envs)), rows),
        ]
    return blocks


def gap_blocks(expected: Sequence[Row]) -> list[str]:
    """Return what is missing or unfinished; arms of an env that lack the same share a row."""
    seeds: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in expected:
        seeds[row["env"], row["arm"]].append(row)
    lacking: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (env, arm), own in seeds.items():
        finished = sum(row["state"] == "finished" for row in own)
        started = [f"{r['seed']} ({r['reason']})" for r in own if r["state"] in STATES[1:3]]
        missing = ranges(int(row["seed"]) for row in own if row["state"] == "missing")
        if finished < len(own):
            held = f"{finished}/{len(own)}"
            lacking[env_name(env), held, ", ".join(started), missing].append(arm)
    if not lacking:
        return []
    rows = [[env, ", ".join(arms), *others] for (env, *others), arms in lacking.items()]
    return [
        heading(2, "Missing and unfinished runs"),
        table(("env", "arms", "finished of each", "unfinished seeds", "missing seeds"), rows),
    ]


def finals_table(summaries: Sequence[Summary]) -> str:
    """Return the final returns of an env's arms."""
    rows = []
    for summary in summaries:
        arm = summary.arm
        rows.append(
            [
                *(arm.label, arm.solved_text, arm.mean_text),
                summary.mean.ends if summary.mean else TOO_FEW,
                str(summary.iqm) if summary.iqm else TOO_FEW,
                shown(float(np.median(arm.finals))),
                f"{shown(arm.finals.min())} to {shown(arm.finals.max())}",
            ]
        )
    header = ("arm", "solved", "mean ± SE", "95 % of mean", "IQM [95 %]", "median", "min to max")
    return table(header, rows)


TEST_HEADER = (
    *("arm", "reference", "P(better) [95 %]"),
    *("Welch p", "corrected", "Fisher p", "corrected"),
)


def comparison_rows(summaries: Sequence[Summary]) -> list[list[str]]:
    """Return the comparisons of an env's arms to their references."""
    rows = []
    for summary in summaries:
        comparison, reference = summary.comparison, summary.reference
        if comparison:
            improvement = str(comparison.improvement) if comparison.improvement else TOO_FEW
            cells = [reference, improvement, *map(shown_p, comparison.p_values)]
            rows.append([summary.arm.label, *cells])
        elif reference:
            rows.append([summary.arm.label, f"{reference} (no runs)", *["–"] * 5])
    return rows


def env_blocks(env: str, arms: Mapping[str, Arm], summaries: Sequence[Summary]) -> list[str]:
    """Return an env's tables and figures."""
    name, file = env_name(env), f"{slug(env)}.png"
    lengths = sorted({(arm.iterations, arm.env_steps) for arm in arms.values()})
    trained = " or ".join(f"{steps:,} env steps ({n} iterations)" for n, steps in lengths)
    rules = " or ".join(sorted({row["solved_if"] for a in arms.values() for row in a.rows}))
    count = sum(arm.count for arm in arms.values())
    text = f"{count} runs of {trained}. Solved: final return {rules.replace('>=', '≥')}."
    if len(lengths) > 1:
        text += " Arms were trained for different times; compare them with care."
    blocks: list[str] = [
        heading(2, name),
        markdown_text(text),
        finals_table(summaries),
        image(f"final_{file}", f"Final return of every run on {name}, by arm."),
    ]
    tests = comparison_rows(summaries)
    if tests:
        blocks += [
            markdown_text(
                "Each arm against its reference: the raw bonus of the same scale, or no bonus for "
                "the raw bonus itself. P(better) is the probability that a run of the arm beats a "
                "run of the reference, counting a tie as half. Welch's test compares final "
                "returns, Fisher's test solved runs; both are corrected by Holm over this table."
            ),
            table(TEST_HEADER, tests),
        ]
    blocks.append(image(f"curves_{file}", f"Learning curves on {name}: extrinsic return."))
    delays = delay_arms(arms)
    if delays:
        rows = [
            [delay, arm.label, arm.solved_text, arm.mean_text]
            for own in delays.values()
            for delay, arm in own
        ]
        blocks += [
            markdown_text(
                "GRM-norm by delay; PBIM-norm corresponds to a delay of the whole episode of N "
                "steps."
            ),
            table(("D", "arm", "solved", "mean ± SE"), rows),
            image(f"delay_{file}", f"Final return on {name} over the delay of GRM-norm."),
        ]
    rates = [
        [label, *(shown(arm.average(column)) for column in RATE_COLUMNS)]
        for label, arm in arms.items()
    ]
    header = ("arm", "conflict early", "late", "intervention early", "late", "ζ at the end")
    return [
        *blocks,
        markdown_text(
            "Conflict: the share of steps at which the raw bonus flips the sign of the critic's "
            "extrinsic advantage. Intervention: the share of steps at which the method changes "
            "the bonus. Early and late are the first and the last tenth of training."
        ),
        table((*header, "mean return in training"), rates),
        image(f"rates_{file}", f"Conflict and intervention rates on {name} over training."),
    ]


def report(analysis: Analysis) -> str:
    """Return the whole report."""
    tier = analysis.compact.study.get("tier")
    count = len(analysis.compact.runs)
    expected = analysis.compact.expected
    blocks: list[str] = [
        heading(1, f"Results of the study, tier {tier}" if tier else f"Results of {count} runs"),
        markdown_text(progress_text(expected)),
        image("solved.png", "Solved runs by method, env and scale of the bonus."),
        *answer_blocks(analysis.answers),
        *paper_blocks(analysis.verdicts),
    ]
    for env, arms in analysis.arms.items():
        blocks += env_blocks(env, arms, analysis.summaries[env])
    blocks += [
        *gap_blocks(expected),
        heading(2, "How this was made"),
        markdown_text(
            f"Made by python -m research.analyze RESULTS --out DIR from {count} finished runs. The "
            f"final return of a run is its mean episodic return over the last {LAST_ITERATIONS} "
            "iterations. Intervals are percentiles of "
            f"{analysis.bootstrap.reps} bootstrap resamples of the runs, seed "
            f"{analysis.bootstrap.seed}; SE is the standard error of the mean; IQM is the mean of "
            f"the middle half. Tests and intervals need {MIN_RUNS} runs of each arm. The CSV files "
            "beside this report hold all its numbers; the command reproduces the report from them."
        ),
    ]
    return "\n\n".join(blocks) + "\n"
