"""The numbers of a report as CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from adops_wrappers._files import write_atomically
from research.analysis.compact import QUESTION_KEYS, RATE_COLUMNS, to_text
from research.analysis.report import Analysis
from research.analysis.statistics import Comparison, Interval, standard_error
from research.analysis.text import TOO_FEW
from research.analysis.verdicts import Verdict
from research.rows import csv_bytes

COMPARISON_COLUMNS = (
    *("p_improvement", "p_improvement_low", "p_improvement_high"),
    *("welch_p", "welch_p_holm", "fisher_p", "fisher_p_holm"),
)
SUMMARY_COLUMNS = (
    *("env", "arm", "runs", "solved", "mean", "se", "median", "min", "max"),
    *("mean_low", "mean_high", "iqm", "iqm_low", "iqm_high", "reference"),
    *(*COMPARISON_COLUMNS, *RATE_COLUMNS),
)
QUESTION_COLUMNS = (
    *(*QUESTION_KEYS, "verdict", "missing"),
    *("better_solved", "worse_solved", "better_mean", "worse_mean"),
    *("better_se", "worse_se", *COMPARISON_COLUMNS),
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


def summary_rows(analysis: Analysis) -> Iterator[list[str]]:
    """Yield an arm's numbers for each env and arm."""
    for env, summaries in analysis.summaries.items():
        for summary in summaries:
            arm = summary.arm
            numbers = (arm.mean, arm.error, np.median(arm.finals), arm.finals.min())
            yield [
                *(env, arm.label, str(arm.count), str(int(arm.solved.sum()))),
                *(to_text(float(number)) for number in (*numbers, arm.finals.max())),
                *(*interval_cells(summary.mean)[1:], *interval_cells(summary.iqm)),
                *(summary.reference, *comparison_cells(summary.comparison)),
                *(to_text(arm.average(column)) for column in RATE_COLUMNS),
            ]


def question_rows(analysis: Analysis) -> Iterator[list[str]]:
    """Yield the answer to each question."""
    for a in analysis.answers:
        arms = [a.comparison.first, a.comparison.second] if a.comparison else []
        cells = [arm.solved_text for arm in arms]
        values = [arm.values(a.question.metric) for arm in arms]
        cells += [to_text(float(own.mean())) for own in values]
        cells += [to_text(standard_error(own)) for own in values]
        yield [
            *a.question[: len(QUESTION_KEYS)],
            *(a.verdict, a.missing, *(cells or [""] * 6), *comparison_cells(a.comparison)),
        ]


def write_tables(analysis: Analysis, out: Path) -> None:
    """Write summary.csv, paper.csv and questions.csv."""
    tables = {
        "summary.csv": (SUMMARY_COLUMNS, summary_rows(analysis)),
        "paper.csv": (Verdict._fields[:-1], [verdict[:-1] for verdict in analysis.verdicts]),
    }
    if analysis.answers:
        tables["questions.csv"] = QUESTION_COLUMNS, question_rows(analysis)
    for name, (columns, rows) in tables.items():
        write_atomically(out / name, csv_bytes(columns, rows))
