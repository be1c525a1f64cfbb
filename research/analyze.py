"""Turns the runs of ppo_rnd.py into tables, tests, figures and one report.

    python -m research.analyze runs/study --out docs/study
    python -m research.analyze docs/study --out docs/study

Takes run directories, folders of them such as a sweep's, and folders that an earlier call wrote.
It first reduces the runs to small CSV files in --out and computes everything else from these, so
that the files alone reproduce the report. Incomplete results are fine: unfinished and missing runs
are left out of the numbers and listed in the report.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

try:
    import tyro

    from adops_wrappers._files import write_atomically
    from research.analysis.collect import collect
    from research.analysis.compact import InputError, read_compact, write_compact
    from research.analysis.figures import draw_figures
    from research.analysis.page import render_html
    from research.analysis.report import compute, report
    from research.analysis.statistics import Bootstrap
    from research.analysis.tables import write_tables
except ModuleNotFoundError as error:
    sys.exit(f"error: {error.name} is missing: pip install 'adops-wrappers[train,analysis]'")


@dataclass
class Settings:
    """What to analyse."""

    results: Annotated[tuple[str, ...], tyro.conf.Positional]
    """run directories, folders of run directories, or folders that this command wrote"""
    out: str
    """folder of the report, its figures and the compact data"""
    solved: float | None = None
    """final return that counts as solved; None: study.json's, else 0.5 for adops/, > 0 elsewhere"""
    reps: int = 2000
    """resamples of each bootstrap interval"""
    seed: int = 0
    """seed of the bootstrap"""


def analyze(settings: Settings) -> Path:
    """Write the compact data, tables, figures and the report; return report.html.

    Raises:
        InputError: The results cannot be analysed.
    """
    if settings.reps < 1 or settings.seed < 0:
        raise InputError(
            f"reps is {settings.reps} and seed is {settings.seed}; expected reps of at least 1 and "
            "a seed of at least 0. The defaults are 2000 and 0."
        )
    compact = collect(settings.results, settings.solved)
    out = Path(settings.out)
    out.mkdir(parents=True, exist_ok=True)
    write_compact(compact, out)
    analysis = compute(read_compact(out), Bootstrap(settings.reps, settings.seed))
    write_tables(analysis, out)
    draw_figures(analysis.arms, out)
    text = report(analysis)
    write_atomically(out / "report.md", text.encode())
    write_atomically(out / "report.html", render_html(text, out).encode())
    return out / "report.html"


def main(argv: Sequence[str] | None = None) -> int:
    """Analyse what the command line names; return the exit code."""
    settings = tyro.cli(Settings, args=argv, description=__doc__)
    try:
        report = analyze(settings)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"error: cannot write to {settings.out}: {error.strerror}; expected a folder with "
            "space. Choose another --out, or make room.",
            file=sys.stderr,
        )
        return 1
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
