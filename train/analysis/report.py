"""The report as Markdown and as HTML, and its tables as CSV files."""

from __future__ import annotations

import base64
import html
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from analysis.compact import (
    LAST_ITERATIONS,
    QUESTION_KEYS,
    RATE_COLUMNS,
    STATES,
    Compact,
    Row,
    to_text,
    write_table,
)
from analysis.statistics import (
    MIN_RUNS,
    SIGNIFICANT,
    Arm,
    Arms,
    Bootstrap,
    Comparison,
    Interval,
    Summary,
    delay_arms,
    load_arms,
    summarize,
)
from analysis.text import TOO_FEW, env_name, ranges, shown, shown_p, slug
from analysis.verdicts import ANSWERS, Answer, Verdict, answer, paper_verdicts


class Heading(NamedTuple):
    """A heading."""

    level: int
    text: str


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class Bullets(NamedTuple):
    """A list of items, each with words in bold before its text."""

    items: list[tuple[str, str]]


class Table(NamedTuple):
    """A table."""

    header: Sequence[str]
    rows: list[list[str]]


class Image(NamedTuple):
    """A picture beside the report, with what it shows."""

    name: str
    caption: str


Block = Heading | Paragraph | Bullets | Table | Image

STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --page: #fff; --line: #bbb; --faint: #555; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --page: #16181b; --line: #555; --faint: #aaa; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { font-size: 1.3rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
li { margin: .4rem 0; }
figure { margin: 1.4rem 0; }
img { max-width: 100%; height: auto; background: #fff; }
figcaption { color: var(--faint); font-size: .92rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top;
         white-space: nowrap; }
td.long { white-space: normal; min-width: 22rem; }
th { border-bottom: 1px solid var(--line); }
"""


def html_cell(text: str) -> str:
    """Return a cell of a table; long ones have lines."""
    return f"<td{' class=long' if len(text) > 60 else ''}>{html.escape(text)}</td>"


def render_html(blocks: Sequence[Block], folder: Path) -> str:
    """Return the report as one page that needs nothing but itself."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"<h{block.level}>{html.escape(block.text)}</h{block.level}>")
        elif isinstance(block, Paragraph):
            parts.append(f"<p>{html.escape(block.text)}</p>")
        elif isinstance(block, Bullets):
            items = [f"<li><b>{html.escape(b)}</b> {html.escape(t)}</li>" for b, t in block.items]
            parts.append("\n".join(["<ul>", *items, "</ul>"]))
        elif isinstance(block, Table):
            lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in block.header)]
            lines += ["".join(map(html_cell, row)) for row in block.rows]
            rows = "\n".join(f"<tr>{line}</tr>" for line in lines)
            parts.append(f'<div class="wide"><table>\n{rows}\n</table></div>')
        else:
            data = base64.b64encode((folder / block.name).read_bytes()).decode()
            caption = html.escape(block.caption)
            parts.append(
                f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
    title = next(html.escape(b.text) for b in blocks if isinstance(b, Heading))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{STYLE}</style></head>\n'
        "<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def markdown_text(text: str) -> str:
    """Escape what Markdown or HTML would read as markup, and nothing else."""
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text)
    return re.sub(r"[\\`*|]|\](?=[(\[])", r"\\\g<0>", text)


def render_markdown(blocks: Sequence[Block]) -> str:
    """Return the report as Markdown with its pictures beside it."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {markdown_text(block.text)}")
        elif isinstance(block, Paragraph):
            parts.append(markdown_text(block.text))
        elif isinstance(block, Bullets):
            items = [f"- **{markdown_text(b)}** {markdown_text(t)}" for b, t in block.items]
            parts.append("\n".join(items))
        elif isinstance(block, Table):
            lines = [list(map(markdown_text, block.header)), ["---"] * len(block.header)]
            lines += [list(map(markdown_text, row)) for row in block.rows]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        else:
            parts.append(f"![{markdown_text(block.caption)}]({block.name})")
    return "\n\n".join(parts) + "\n"


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
    answers = answer(compact.study.get("questions", []), arms, bootstrap)
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


def answer_blocks(answers: Sequence[Answer]) -> list[Block]:
    """Return the answers to the study's questions."""
    if not answers:
        return []
    ids = {name: [a.question["id"] for a in answers if a.verdict == name] for name in ANSWERS}
    named = [f"{name.capitalize()}: {', '.join(own)}." for name, own in ids.items() if own]
    return [
        Heading(2, "Questions of the study"),
        Paragraph(" ".join(named)),
        Bullets([(f"{a.question['id']}, {a.verdict}.", a.sentence) for a in answers]),
        Paragraph(
            "Supported or contradicted: Welch's test of the final returns, corrected by Holm over "
            f"all questions, gives p < {SIGNIFICANT}. Undecided is no proof of equality. P(A "
            "better) is the probability that a run of A beats a run of the other arm, a tie "
            "counted half, with its 95 % interval. ± is the standard error."
        ),
    ]


COUNTED = {
    "agrees": ("agrees with the paper", "agree with the paper"),
    "contradicts": ("contradicts it", "contradict it"),
    "undecided": ("is undecided", "are undecided"),
    TOO_FEW: ("has too few runs", "have too few runs"),
}
"""Verdicts on the paper, of one comparison and of several."""


def paper_blocks(verdicts: Sequence[Verdict]) -> list[Block]:
    """Return the paper's claims by env: a table for each kind of bonus."""
    if not verdicts:
        return []
    counts = Counter(verdict.verdict for verdict in verdicts)
    counted = [
        f"{counts[name]} {words[counts[name] != 1]}"
        for name, words in COUNTED.items()
        if counts[name] or name != TOO_FEW
    ]
    blocks: list[Block] = [
        Heading(2, "Agreement with the paper"),
        Paragraph(
            f"Of {len(verdicts)} comparisons at scale 1, {', '.join(counted)}. The paper made them "
            "on its own env. Cells give solved runs and Welch's p, corrected by Holm within env "
            "and bonus. A difference that the paper found agrees or contradicts where this p is "
            f"below {SIGNIFICANT}; one that it did not find agrees where it is not."
        ),
    ]
    for bonus in dict.fromkeys(verdict.bonus for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.bonus == bonus]
        envs = list(dict.fromkeys(verdict.env for verdict in own))
        cells = {(v.claim, v.env): f"{v.verdict} ({v.short})" for v in own}
        claims = dict.fromkeys((verdict.claim, verdict.paper_p) for verdict in own)
        rows = [[claim, p, *(cells.get((claim, env), "–") for env in envs)] for claim, p in claims]
        blocks += [
            Heading(3, f"Bonus: {'RND' if bonus == 'rnd' else bonus}"),
            Table(("claim of the paper", "its p", *map(env_name, envs)), rows),
        ]
    return blocks


def gap_blocks(expected: Sequence[Row]) -> list[Block]:
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
        Heading(2, "Missing and unfinished runs"),
        Table(("env", "arms", "finished of each", "unfinished seeds", "missing seeds"), rows),
    ]


def finals_table(summaries: Sequence[Summary]) -> Table:
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
    return Table(header, rows)


def tests_table(summaries: Sequence[Summary]) -> Table:
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
    header = ("arm", "reference", "P(better) [95 %]", "Welch p", "corrected", "Fisher p")
    return Table((*header, "corrected"), rows)


def env_blocks(env: str, arms: Mapping[str, Arm], summaries: Sequence[Summary]) -> list[Block]:
    """Return an env's tables and figures."""
    name, file = env_name(env), f"{slug(env)}.png"
    lengths = sorted({(arm.iterations, arm.env_steps) for arm in arms.values()})
    trained = " or ".join(f"{steps:,} env steps ({n} iterations)" for n, steps in lengths)
    rules = " or ".join(sorted({row["solved_if"] for a in arms.values() for row in a.rows}))
    count = sum(arm.count for arm in arms.values())
    text = f"{count} runs of {trained}. Solved: final return {rules.replace('>=', '≥')}."
    if len(lengths) > 1:
        text += " Arms were trained for different times: mind this where they are compared."
    blocks: list[Block] = [
        Heading(2, name),
        Paragraph(text),
        finals_table(summaries),
        Image(f"final_{file}", f"Final return of every run on {name}, by arm."),
    ]
    tests = tests_table(summaries)
    if tests.rows:
        blocks += [
            Paragraph(
                "Each arm against its reference: the raw bonus of the same scale, or no bonus for "
                "the raw bonus itself. P(better) is the probability that a run of the arm beats a "
                "run of the reference, a tie counted half. Welch's test is on final returns, "
                "Fisher's on solved runs; both are corrected by Holm over this table."
            ),
            tests,
        ]
    blocks.append(Image(f"curves_{file}", f"Learning curves on {name}: extrinsic return."))
    delays = delay_arms(arms)
    if delays:
        rows = [
            [delay, arm.label, arm.solved_text, arm.mean_text]
            for own in delays.values()
            for delay, arm in own
        ]
        blocks += [
            Paragraph("GRM-norm by delay; PBIM-norm is the delay of a whole episode of N steps."),
            Table(("D", "arm", "solved", "mean ± SE"), rows),
            Image(f"delay_{file}", f"Final return on {name} over the delay of GRM-norm."),
        ]
    rates = [
        [label, *(shown(arm.average(column)) for column in RATE_COLUMNS)]
        for label, arm in arms.items()
    ]
    header = ("arm", "conflict early", "late", "intervention early", "late", "ζ at the end")
    return [
        *blocks,
        Paragraph(
            "Conflict: share of steps at which the raw bonus turns the sign of the critic's "
            "extrinsic advantage. Intervention: share of steps at which the method changes the "
            "bonus. Early and late are the first and the last tenth of training."
        ),
        Table((*header, "mean return in training"), rates),
        Image(f"rates_{file}", f"Conflict and intervention rates on {name} over training."),
    ]


def report_blocks(analysis: Analysis) -> list[Block]:
    """Return the whole report."""
    tier = analysis.compact.study.get("tier")
    count = len(analysis.compact.runs)
    expected = analysis.compact.expected
    blocks: list[Block] = [
        Heading(1, f"Results of the study, tier {tier}" if tier else f"Results of {count} runs"),
        Paragraph(progress_text(expected)),
        Image("solved.png", "Solved runs by method, env and scale of the bonus."),
        *answer_blocks(analysis.answers),
        *paper_blocks(analysis.verdicts),
    ]
    for env, arms in analysis.arms.items():
        blocks += env_blocks(env, arms, analysis.summaries[env])
    return [
        *blocks,
        *gap_blocks(expected),
        Heading(2, "How this was made"),
        Paragraph(
            f"Made by python train/analyze.py RESULTS --out DIR from {count} finished runs. The "
            f"final return of a run is its mean episodic return over the last {LAST_ITERATIONS} "
            "iterations. Intervals are percentiles of "
            f"{analysis.bootstrap.reps} bootstrap resamples of the runs, seed "
            f"{analysis.bootstrap.seed}; SE is the standard error of the mean; IQM is the mean of "
            f"the middle half. Tests and intervals need {MIN_RUNS} runs of each arm. The CSV files "
            "beside this report hold all numbers, and the command makes the same report from them."
        ),
    ]


COMPARISON_COLUMNS = (
    *("p_improvement", "p_improvement_low", "p_improvement_high"),
    *("welch_p", "welch_p_holm", "fisher_p", "fisher_p_holm"),
)


def interval_cells(interval: Interval | None) -> list[str]:
    """Return an interval's three cells of a CSV file."""
    return [to_text(value) for value in interval] if interval else [TOO_FEW] * 3


def comparison_cells(comparison: Comparison | None) -> list[str]:
    """Return a comparison's cells of a CSV file; empty where there is none."""
    if comparison is None:
        return [""] * len(COMPARISON_COLUMNS)
    p_cells = [TOO_FEW if p is None else to_text(p) for p in comparison.p_values]
    return [*interval_cells(comparison.improvement), *p_cells]


def write_tables(analysis: Analysis, out: Path) -> None:
    """Write summary.csv, paper.csv and questions.csv."""
    rows = []
    for env, summaries in analysis.summaries.items():
        for summary in summaries:
            arm = summary.arm
            numbers = (arm.mean, arm.error, np.median(arm.finals), arm.finals.min())
            rows.append(
                [env, arm.label, str(arm.count), str(int(arm.solved.sum()))]
                + [to_text(float(number)) for number in (*numbers, arm.finals.max())]
                + [*interval_cells(summary.mean)[1:], *interval_cells(summary.iqm)]
                + [summary.reference, *comparison_cells(summary.comparison)]
                + [to_text(arm.average(column)) for column in RATE_COLUMNS]
            )
    columns = (
        *("env", "arm", "runs", "solved", "mean", "se", "median", "min", "max"),
        *("mean_low", "mean_high", "iqm", "iqm_low", "iqm_high", "reference"),
        *(*COMPARISON_COLUMNS, *RATE_COLUMNS),
    )
    write_table(out / "summary.csv", columns, rows)
    paper_columns = Verdict._fields[:-1]
    write_table(out / "paper.csv", paper_columns, [verdict[:-1] for verdict in analysis.verdicts])
    if analysis.answers:
        rows = []
        for a in analysis.answers:
            arms = [a.comparison.first, a.comparison.second] if a.comparison else []
            cells = [arm.solved_text for arm in arms]
            cells += [to_text(arm.mean) for arm in arms] + [to_text(arm.error) for arm in arms]
            cells = [a.verdict, a.missing, *(cells or [""] * 6), *comparison_cells(a.comparison)]
            rows.append([*(a.question[key] for key in QUESTION_KEYS), *cells])
        columns = (
            *(*QUESTION_KEYS, "verdict", "missing"),
            *("better_solved", "worse_solved", "better_mean", "worse_mean"),
            *("better_se", "worse_se", *COMPARISON_COLUMNS),
        )
        write_table(out / "questions.csv", columns, rows)
