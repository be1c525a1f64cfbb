"""Chosen columns of several runs as one small table, which is committed beside its picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from matplotlib.figure import Figure

from adops_wrappers.training.exit import fail
from adops_wrappers.training.log import read_metrics
from adops_wrappers.training.rundir import read_config
from research.rows import Row, read_rows


@dataclass
class Drawing:
    """What to draw, and where to."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """run directories, or one CSV that this command has written before"""
    out: str = "drawn.png"
    """the picture"""
    csv: str = ""
    """also write what is drawn of all runs to this file"""


def save(figure: Figure, out: str | Path, dpi: int = 120) -> None:
    """Write a picture and say where it is."""
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=dpi, metadata={"Software": None})
    print(out)


def chosen_rows(paths: Iterable[str], columns: Sequence[str]) -> list[Row]:
    """Return the rows of run directories, each with its method, or those of written tables."""
    rows: list[Row] = []
    run_of: dict[str, Path] = {}
    for path in map(Path, paths):
        if path.suffix == ".csv":
            rows += read_rows(path)
            continue
        method = read_config(path)["args"].get("shaping", path.name)
        if (other := run_of.setdefault(method, path)) is not path:
            fail(f"{other} and {path} are both runs of {method}. Give one run of each method.")
        metrics = read_metrics(path)
        for place, iteration in enumerate(metrics["iteration"]):
            cells = {name: _shorten(metrics[name][place]) for name in columns}
            rows.append({"method": method, "iteration": iteration, **cells})
    return rows


def _shorten(cell: str) -> str:
    return cell if not cell or cell.isdigit() else f"{float(cell):.6g}"


def rows_by_method(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the rows of each method, in the order of the table."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["method"], []).append(row)
    return grouped
