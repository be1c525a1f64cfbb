"""Compact data: writes and reads the small CSV files that a report is made from."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers._files import read_json, write_atomically
from research.design import METRICS, Question
from research.rows import Row, csv_bytes

MAX_POINTS = 100
"""Points of a curve in the compact files."""

CURVES = ("return", "conflict", "intervention")
RATE_COLUMNS = (
    *("conflict_early", "conflict_late", "intervention_early", "intervention_late"),
    *("zeta_end", "mean_return"),
)
RUN_COLUMNS = (
    *("run", "env", "arm", "method", "bonus", "scale", "seed", "iterations", "env_steps"),
    *("final_return", "solved_if", "solved", *RATE_COLUMNS),
    *("half_return", "fall", "action_prob", "stages"),
)
EXPECTED_COLUMNS = ("run", "env", "arm", "seed", "state", "reason")
QUESTION_KEYS = Question._fields[:-1]
SUMS = "SHA256SUMS"
"""Checksums of the files that are read again, as `sha256sum` writes them."""


class InputError(ValueError):
    """The results cannot be analysed; the message says why and what to do."""


@dataclass
class Compact:
    """What a report is made from, as the text of its files."""

    runs: list[Row] = field(default_factory=list)
    curves: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: {name: {} for name in CURVES}
    )
    """By file and name of the run."""
    expected: list[Row] = field(default_factory=list)
    study: dict[str, Any] = field(default_factory=dict)


def to_text(value: float, digits: int = 6) -> str:
    """Write a cell; NaN is empty."""
    return "" if math.isnan(value) else f"{value + 0.0:.{digits}g}"


def mean_of(values: np.ndarray) -> float:
    """Return the mean without NaN; NaN where nothing is left."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else math.nan


def block_size(iterations: int) -> int:
    """Return how many iterations a point of a compact curve covers."""
    return math.ceil(iterations / MAX_POINTS)


def read_object(path: Path, kind: str) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path}: {error}; expected {kind}. Restore it, or move it away."
        ) from error


def sum_line(name: str, data: bytes) -> str:
    """Return a file's line of `SUMS`."""
    return f"{hashlib.sha256(data).hexdigest()}  {name}\n"


def write_compact(compact: Compact, out: Path) -> None:
    """Write the files that `read_compact` reads."""
    tables: dict[str, tuple[Sequence[str], list[list[str]]]] = {
        "runs.csv": (RUN_COLUMNS, [[row[c] for c in RUN_COLUMNS] for row in compact.runs]),
        "expected.csv": (
            EXPECTED_COLUMNS,
            [[row[c] for c in EXPECTED_COLUMNS] for row in compact.expected],
        ),
    }
    for curve, runs in compact.curves.items():
        points = max(map(len, runs.values()))
        rows = [[name, *values, *[""] * (points - len(values))] for name, values in runs.items()]
        tables[f"{curve}.csv"] = ["run", *map(str, range(1, points + 1))], rows
    files = {name: csv_bytes(*table) for name, table in tables.items()}
    if compact.study:
        text = json.dumps(compact.study, indent=1, ensure_ascii=False)
        files["study.json"] = f"{text}\n".encode()
    # Last: a call that was killed leaves sums that do not fit, and is noticed.
    sums = "".join(itertools.starmap(sum_line, files.items()))
    for name, data in {**files, SUMS: sums.encode()}.items():
        write_atomically(out / name, data)


def read_compact(folder: Path) -> Compact:
    """Read what an earlier call wrote."""
    files = read_checked(folder)

    def rows_of(name: str) -> list[Row]:
        return list(csv.DictReader(io.StringIO(files[name].decode(), newline="")))

    compact = Compact(rows_of("runs.csv"), expected=rows_of("expected.csv"))
    for curve, runs in compact.curves.items():
        points = {name: values for name, *values in map(Row.values, rows_of(f"{curve}.csv"))}
        for row in compact.runs:
            iterations = int(row["iterations"])
            runs[row["run"]] = points[row["run"]][: math.ceil(iterations / block_size(iterations))]
    if "study.json" in files:
        compact.study = read_study(folder / "study.json")
    return compact


def read_checked(folder: Path) -> dict[str, bytes]:
    """Return the compact files, if they are what an earlier call wrote."""
    files = {}
    try:
        for line in (folder / SUMS).read_text().splitlines(keepends=True):
            name = line[66:-1]
            files[name] = (folder / name).read_bytes()
            if line != sum_line(name, files[name]):
                raise ValueError(f"{name} is not the file whose checksum it holds")
        if not {"runs.csv", "expected.csv", *(f"{curve}.csv" for curve in CURVES)} <= files.keys():
            raise ValueError("it does not list all files")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder / SUMS} does not vouch for the files beside it: {error}. Restore them, or "
            "make them again from the run directories; if you trust or changed them yourself, "
            f"write new checksums: cd {folder} && sha256sum runs.csv expected.csv "
            f"{' '.join(f'{curve}.csv' for curve in CURVES)} study.json > {SUMS}"
        ) from error
    return files


def read_study(path: Path) -> dict[str, Any]:
    """Read and check study.json."""
    study = read_object(path, "a study with its questions")
    solved, questions = study.get("solved"), study.get("questions", [])
    if not isinstance(solved, int | float | None) or not isinstance(questions, list):
        raise InputError(
            f"{path}: expected a number as 'solved' and a list as 'questions'. Correct it, or move "
            "it away."
        )
    for question in questions:
        known = question if isinstance(question, dict) else {}
        absent = [key for key in QUESTION_KEYS if not isinstance(known.get(key), str)]
        if absent:
            raise InputError(
                f"{path}: a question has no text for {', '.join(absent)}; expected "
                f"{', '.join(QUESTION_KEYS)} in each. Correct it, or move it away."
            )
        if known["metric"] not in METRICS:
            raise InputError(
                f"{path}: question {known['id']} compares {known['metric']!r}, expected one of "
                f"{', '.join(METRICS)}. Correct it, or move it away."
            )
    return study
