"""Turns the runs of ppo_rnd.py into tables, tests, figures and one report.

    python train/analyze.py runs/study --out docs/data/study
    python train/analyze.py docs/data/study --out docs/data/study

Takes run directories, folders of them such as a sweep's, and folders that an earlier call wrote.
Runs are first cut down to small CSV files in --out and everything else is computed from these, so
that the files alone give the same report again. Sets that are not complete are fine: what is
unfinished or missing is left out of the numbers and named in the report.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import math
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import matplotlib
import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats
from tqdm import tqdm

LAST_ITERATIONS = 10
"""Iterations of the final return, and of the trailing mean in the learning curves."""
MAX_POINTS = 100
"""Points of a curve in the compact files."""
MIN_RUNS = 4
"""Fewest runs of an arm in a test: three against three, wholly apart, are Fisher's p = 0.1."""
SIGNIFICANT = 0.05
TOO_FEW = "too few runs"

METRICS = {
    "return": "charts/episodic_return",
    "conflict": "shaping/conflict_rate",
    "intervention": "shaping/intervention_rate",
}
"""The curve files, and the column of metrics.csv that each is made of."""
RATE_COLUMNS = (
    *("conflict_early", "conflict_late", "intervention_early", "intervention_late"),
    *("zeta_end", "mean_return"),
)
RUN_COLUMNS = (
    *("run", "env", "arm", "method", "bonus", "scale", "seed", "iterations", "env_steps"),
    *("final_return", "solved_if", "solved", *RATE_COLUMNS),
)
EXPECTED_COLUMNS = ("run", "env", "arm", "seed", "state", "reason")
STATES = ("missing", "unfinished", "no return", "finished")
"""Of a run; what is found in several places is in the last of these."""
QUESTION_KEYS = ("id", "claim", "env", "better", "worse")

Row = dict[str, str]
Key = tuple[str, str, int]
"""Env, arm and seed: there is one run of each."""


@dataclass
class Settings:
    """What to analyse."""

    results: Annotated[tuple[str, ...], tyro.conf.Positional]
    """run directories, folders of run directories, or folders that this command wrote"""
    out: str
    """folder of the report, its figures and the compact data"""
    solved: float | None = None
    """a run counts as solved from this final return on; default: what study.json says, else 0.5
    for the envs of adops, and anything above 0 elsewhere"""
    reps: int = 2000
    """resamples of each bootstrap interval"""
    seed: int = 0
    """seed of the bootstrap"""


class InputError(ValueError):
    """The results cannot be analysed; the message says why and what to do."""


# Labels of arms

DEFAULTS: dict[str, Any] = {
    "env_id": "ALE/MontezumaRevenge-v5",
    "shaping": "none",
    "bonus": "rnd",
    "intrinsic_scale": 1.0,
    "epsilon": 1e-7,
    "delay": 1,
    "balance": 0.1,
}
"""Of ppo_rnd.py, for the cells of a sweep: they name only what differs."""
SHAPINGS = {
    "none": "raw",
    "pies": "PIES",
    "grm": "GRM",
    "grm-norm": "GRM-norm",
    "pbim": "PBIM",
    "pbim-norm": "PBIM-norm",
    "adops": "ADOPS",
    "adopes": "ADOPES",
    "adopes-half": "ADOPES F/2",
    "guarded": "guarded",
}
NO_BONUS = "no bonus"
SWITCHED_OFF = "off at first reward"
ORDER = (NO_BONUS, *SHAPINGS.values(), SWITCHED_OFF)


def arm_label(args: Mapping[str, Any]) -> str:
    """Return the name of the configuration that a run's settings belong to.

    Args:
        args: Settings of ppo_rnd.py, as in config.json or as texts; absent ones are its defaults.
    """
    args = {**DEFAULTS, **args}
    if args["bonus"] == "none":
        return NO_BONUS
    shaping = args["shaping"]
    label = SHAPINGS.get(shaping, shaping)
    if shaping in ("grm", "grm-norm"):
        label += f"({int(args['delay'])})"
    if shaping == "guarded" and float(args["balance"]) == 0.0:
        label = SWITCHED_OFF
    epsilon, scale = float(args["epsilon"]), float(args["intrinsic_scale"])
    if shaping in ("adops", "adopes", "adopes-half") and epsilon != DEFAULTS["epsilon"]:
        label += f" ε={epsilon:g}"
    if scale != DEFAULTS["intrinsic_scale"]:
        label += f" ×{scale:g}"
    if args["bonus"] == "rnd" and not args["env_id"].startswith("ALE/"):
        label += " (RND)"
    return label


class Label(NamedTuple):
    """The parts of an arm's label."""

    method: str
    delay: int
    epsilon: float
    scale: float
    rnd: bool

    @property
    def group(self) -> str:
        """What an arm shares with those that it is compared to."""
        return suffix(self.scale, self.rnd)


LABEL = re.compile(
    r"(?P<method>.+?)(\((?P<delay>\d+)\))?( ε=(?P<epsilon>\S+))?( ×(?P<scale>\S+))?"
    r"(?P<rnd> \(RND\))?"
)


def parse_label(label: str) -> Label:
    """Split what `arm_label` has made."""
    parts = LABEL.fullmatch(label)
    if parts is None:
        raise InputError("an arm has an empty name; expected one such as 'ADOPS ×0.3'.")
    return Label(
        parts["method"],
        int(parts["delay"] or DEFAULTS["delay"]),
        float(parts["epsilon"] or DEFAULTS["epsilon"]),
        float(parts["scale"] or DEFAULTS["intrinsic_scale"]),
        parts["rnd"] is not None,
    )


def suffix(scale: float, rnd: bool) -> str:
    """Return the end of the labels with this scale and bonus."""
    return (f" ×{scale:g}" if scale != 1.0 else "") + (" (RND)" if rnd else "")


def arm_order(label: str) -> tuple[Any, ...]:
    """Sort key: without a bonus, then by bonus and falling scale, then by method."""
    parts = parse_label(label)
    place = ORDER.index(parts.method) if parts.method in ORDER else len(ORDER)
    return (
        parts.method != NO_BONUS,
        parts.rnd,
        -parts.scale,
        place,
        parts.delay,
        parts.epsilon,
        label,
    )


def reference_of(label: str) -> str:
    """Return the arm that an arm is tested against; empty for runs without a bonus."""
    parts = parse_label(label)
    if parts.method == NO_BONUS:
        return ""
    return NO_BONUS if parts.method == "raw" else f"raw{parts.group}"


# Compact data: from run directories, sweeps and earlier reports


@dataclass
class Compact:
    """What a report is made of, as the texts of its files."""

    runs: list[Row] = field(default_factory=list)
    curves: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: {name: {} for name in METRICS}
    )
    """By file and name of the run."""
    expected: list[Row] = field(default_factory=list)
    study: dict[str, Any] = field(default_factory=dict)


def key_of(row: Row) -> Key:
    """Return what tells runs apart."""
    return row["env"], row["arm"], int(row["seed"])


def key_order(row: Row) -> tuple[Any, ...]:
    """Sort key of runs."""
    return row["env"], arm_order(row["arm"]), int(row["seed"]), row["run"]


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replace a file in one step."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data.encode() if isinstance(data, str) else data)
    os.replace(temporary, path)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and the chosen cells of a CSV file; its ragged end is an error."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            absent = [name for name in columns if name not in header]
            if absent:
                raise InputError(
                    f"{path} has no column {', '.join(absent)}; expected a header with "
                    f"{', '.join(columns)}. Restore the file, or move its folder away."
                )
            places = [header.index(name) for name in columns]
            for row in lines:
                if len(row) != len(header):
                    raise InputError(
                        f"{path}, line {lines.line_num}: {len(row)} cells, expected {len(header)} "
                        "as in the header. Restore the file, or move its folder away."
                    )
                yield lines.line_num, [row[place] for place in places]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot read {path}: {error}; expected a CSV file. Restore it, or move its folder "
            "away."
        ) from error


def to_number(text: str, path: Path, line: int, column: str) -> float:
    """Read a cell; empty is NaN."""
    try:
        value = float(text) if text else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise InputError(
            f"{path}, line {line}: {column} is {text!r}, expected a number or an empty cell. "
            "Restore the file, or move its folder away."
        )
    return value


def to_text(value: float, digits: int = 6) -> str:
    """Write a cell; NaN is empty."""
    return "" if math.isnan(value) else f"{value + 0.0:.{digits}g}"


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is no object")
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path}: {error}; expected {kind}. Restore it, or move it away."
        ) from error
    return content


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of metrics.csv that are used here."""
    columns = ("iteration", "global_step", *METRICS.values(), "shaping/zeta")
    rows = [
        [to_number(text, path, line, name) for text, name in zip(cells, columns, strict=True)]
        for line, cells in read_rows(path, columns)
    ]
    if not rows:
        raise InputError(
            f"{path} has no rows, expected one for each iteration. Train this run again."
        )
    values = np.array(rows).T
    if not np.array_equal(values[0], np.arange(1, len(rows) + 1)):
        raise InputError(
            f"{path}: the iterations are not 1, 2, 3, ... up to {len(rows)}, so rows are lost or "
            "doubled. Train this run again."
        )
    return dict(zip(columns, values, strict=True))


def mean_of(values: np.ndarray) -> float:
    """Return the mean without NaN; NaN where nothing is left."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else math.nan


def block_size(iterations: int) -> int:
    """Return how many iterations a point of a compact curve covers."""
    return math.ceil(iterations / MAX_POINTS)


def block_means(values: np.ndarray) -> list[float]:
    """Cut a curve down to at most MAX_POINTS points."""
    size = block_size(len(values))
    return [mean_of(values[start : start + size]) for start in range(0, len(values), size)]


def expected_row(run: str, args: Mapping[str, Any], seed: Any) -> Row:
    """Return the row of a run that ought to be there, missing until it is found."""
    return {
        "run": run,
        "env": str(args["env_id"]),
        "arm": arm_label(args),
        "seed": str(int(seed)),
        "state": "missing",
        "reason": "",
    }


def collect_run(run_dir: Path, into: Compact) -> None:
    """Add a run directory; a run that has not finished is only noted."""
    config = read_json(run_dir / "config.json", "the settings of a run")
    try:
        args = {**DEFAULTS, **config["args"]}
        name = expected_row(run_dir.name, args, config["args"]["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{run_dir / 'config.json'}: the settings are damaged ({error!r}), expected 'args' as "
            "ppo_rnd.py writes them. Restore the file, or move its folder away."
        ) from error
    try:
        status = read_json(run_dir / "status.json", "the state of a run")
    except InputError:
        status = {}
    if not status.get("finished"):
        reason = str(status.get("reason", "no status"))
        into.expected.append({**name, "state": "unfinished", "reason": reason})
        return
    path = run_dir / "metrics.csv"
    metrics = read_metrics(path)
    iterations = len(metrics["iteration"])
    if iterations != int(args.get("total_iterations", iterations)):
        raise InputError(
            f"{path} has {iterations} rows, expected {args['total_iterations']}: the run is marked "
            "as finished. Restore the file, or train this run again."
        )
    returns, conflict, intervention = (metrics[column] for column in METRICS.values())
    final = mean_of(returns[-LAST_ITERATIONS:])
    if math.isnan(final):
        reason = f"no episode ended in the last {LAST_ITERATIONS} iterations"
        into.expected.append({**name, "state": "no return", "reason": reason})
        return
    tenth = max(1, round(iterations / 10))
    into.runs.append(
        {
            **{column: name[column] for column in ("run", "env", "arm", "seed")},
            "method": str(args["shaping"]),
            "bonus": str(args["bonus"]),
            "scale": f"{float(args['intrinsic_scale']):g}",
            "iterations": str(iterations),
            "env_steps": str(int(metrics["global_step"][-1])),
            "final_return": to_text(final),
            "solved_if": "",
            "solved": "",
            "mean_return": to_text(mean_of(returns)),
            "conflict_early": to_text(mean_of(conflict[:tenth])),
            "conflict_late": to_text(mean_of(conflict[-tenth:])),
            "intervention_early": to_text(mean_of(intervention[:tenth])),
            "intervention_late": to_text(mean_of(intervention[-tenth:])),
            "zeta_end": to_text(float(metrics["shaping/zeta"][-1])),
        }
    )
    for curve, column in METRICS.items():
        points = [to_text(value, 4) for value in block_means(metrics[column])]
        into.curves[curve][run_dir.name] = points


def collect_cells(path: Path, into: Compact) -> None:
    """Add the cells of sweep.json as runs that ought to be there."""
    content = read_json(path, "the cells of a sweep")
    try:
        for cell in content["cells"]:
            args = {**DEFAULTS, **cell["settings"], "shaping": cell["method"]}
            into.expected.append(expected_row(str(cell["name"]), args, cell["seed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: a cell is damaged ({error!r}), expected name, method, seed and settings as "
            "sweep.py writes them. Give the sweep's command again to rewrite it."
        ) from error


def read_study(path: Path) -> dict[str, Any]:
    """Read and check study.json."""
    study = read_json(path, "a study with its questions")
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
    return study


NUMBER = r"-?\d+(\.\d+)?(e[+-]\d+)?"
CELLS = {
    "arm": r".+",
    "seed": r"\d+",
    **dict.fromkeys(("iterations", "env_steps"), r"[1-9]\d*"),
    "final_return": NUMBER,
    "solved_if": rf">=? {NUMBER}",
    "solved": r"[01]",
    **dict.fromkeys(RATE_COLUMNS, rf"({NUMBER})?"),
    "state": "|".join(STATES),
}
"""What must stand in the columns of runs.csv and expected.csv; others hold any text."""


def read_checked(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of runs.csv or expected.csv."""
    for line, cells in read_rows(path, columns):
        row = dict(zip(columns, cells, strict=True))
        for name, text in row.items():
            if not re.fullmatch(CELLS.get(name, r"[\s\S]*"), text):
                raise InputError(
                    f"{path}, line {line}: {name} is {text!r}, which analyze.py does not write. "
                    "Restore the file, or make it again from the run directories."
                )
        yield row


def read_compact(folder: Path) -> Compact:
    """Read what an earlier call wrote."""
    compact = Compact()
    compact.runs = list(read_checked(folder / "runs.csv", RUN_COLUMNS))
    compact.expected = list(read_checked(folder / "expected.csv", EXPECTED_COLUMNS))
    for curve, runs in compact.curves.items():
        path = folder / f"{curve}.csv"
        for line, (name, *points) in read_curve_rows(path):
            for text in points:
                to_number(text, path, line, f"a value of {name}")
            runs[name] = points
        for row in compact.runs:
            size = math.ceil(int(row["iterations"]) / block_size(int(row["iterations"])))
            points = runs.get(row["run"], [])
            if any(points[size:]) or len(points) < size:
                raise InputError(
                    f"{path} does not hold {size} points of {row['run']}, which runs.csv lists. "
                    "Restore the file, or make it again from the run directories."
                )
            runs[row["run"]] = points[:size]
    if (folder / "study.json").exists():
        compact.study = read_study(folder / "study.json")
    return compact


def read_curve_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a curve file, whose number of points is free."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {error}; expected a curve file beside runs.csv. Restore it, or "
            "make it again from the run directories."
        ) from error
    return read_rows(path, ["run", *header[1:]])


def find_inputs(results: Sequence[str | os.PathLike[str]]) -> list[tuple[str, Path]]:
    """Return what is to be read: runs, sweeps, studies and compact folders."""
    if not results:
        raise InputError(
            "no results are given; expected run directories, folders of them, or folders that "
            "analyze.py wrote. Name at least one."
        )
    found: list[tuple[str, Path]] = []
    for path in map(Path, results):
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise InputError(
                f"{path} {what}; expected a run directory, a folder of them, or a folder that "
                "analyze.py wrote. Check the path."
            )
        if (path / "config.json").exists():
            found.append(("run", path))
            continue
        run_dirs = sorted(child.parent for child in path.glob("*/config.json"))
        is_sweep = (path / "sweep.json").exists()
        if not run_dirs and not is_sweep and (path / "runs.csv").exists():
            found.append(("compact", path))
            continue
        if not run_dirs and not is_sweep:
            raise InputError(
                f"{path} holds no runs; expected run directories with config.json and metrics.csv "
                "in it, or runs.csv of analyze.py. Give the folder right above the runs."
            )
        found += [("run", run_dir) for run_dir in run_dirs]
        if is_sweep:
            found.append(("cells", path / "sweep.json"))
        if (path / "study.json").exists():
            found.append(("study", path / "study.json"))
    return found


def collect(results: Sequence[str | os.PathLike[str]], solved: float | None = None) -> Compact:
    """Read all results and join them.

    Raises:
        InputError: Nothing is there, something is damaged, or runs do not fit together.
    """
    parts: list[Compact] = []
    for kind, path in tqdm(find_inputs(results), "reading", unit="run"):
        part = Compact()
        if kind == "run":
            collect_run(path, part)
        elif kind == "cells":
            collect_cells(path, part)
        elif kind == "study":
            part.study = read_study(path)
        else:
            part = read_compact(path)
        parts.append(part)
    joined = join(parts)
    if not joined.runs:
        states = Counter(row["state"] for row in joined.expected)
        listed = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        raise InputError(
            f"there is no finished run yet ({listed}); expected at least one whose status.json "
            "says finished. Let the runs finish; the same sweep command goes on with them."
        )
    for row in joined.runs:
        if solved is not None or not row["solved_if"]:
            row["solved_if"] = solved_rule(row["env"], solved, joined.study)
        row["solved"] = str(int(is_solved(float(row["final_return"]), row["solved_if"])))
    return joined


def solved_rule(env: str, solved: float | None, study: Mapping[str, Any]) -> str:
    """Return from which final return on a run counts as solved."""
    threshold = study.get("solved") if solved is None else solved
    if threshold is None:
        return ">= 0.5" if env.startswith("adops/") else "> 0"
    return f">= {float(threshold):g}"


def is_solved(final_return: float, rule: str) -> bool:
    """Apply a rule of `solved_rule`."""
    sign, threshold = rule.split()
    return final_return > float(threshold) or (sign == ">=" and final_return == float(threshold))


def join(parts: Sequence[Compact]) -> Compact:
    """Put all results together, each run once, in a fixed order."""
    joined = Compact(study=join_studies([part.study for part in parts if part.study]))
    held: dict[Key, tuple[Row, list[list[str]]]] = {}
    expected: dict[Key, Row] = {}
    for part in parts:
        for row in part.runs:
            points = [part.curves[curve][row["run"]] for curve in METRICS]
            known_row, known_points = held.setdefault(key_of(row), (row, points))
            ignored = ("run", "solved_if", "solved")
            if points != known_points or any(
                row[name] != known_row[name] for name in RUN_COLUMNS if name not in ignored
            ):
                raise InputError(
                    f"{known_row['run']} and {row['run']} are both {row['arm']} with seed "
                    f"{row['seed']} on {row['env']}, but differ; expected one run of each arm and "
                    "seed. They differ in a setting that the arm's name does not show, so analyse "
                    "them in separate calls."
                )
        for row in part.expected:
            known = expected.setdefault(key_of(row), row)
            if STATES.index(row["state"]) > STATES.index(known["state"]):
                expected[key_of(row)] = row
    names = Counter(row["run"] for row, _ in held.values())
    for row, points in sorted(held.values(), key=lambda item: key_order(item[0])):
        name = row["run"]
        if names[name] > 1:
            name = f"{name} ({row['env']}, {row['arm']}, seed {row['seed']})"
        joined.runs.append({**row, "run": name})
        own = {column: row[column] for column in ("env", "arm", "seed")}
        expected[key_of(row)] = {"run": name, **own, "state": "finished", "reason": ""}
        for curve, values in zip(METRICS, points, strict=True):
            joined.curves[curve][name] = values
    joined.expected = sorted(expected.values(), key=key_order)
    check_lengths(joined.runs)
    return joined


def join_studies(studies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Put the questions of several studies together."""
    if all(study == studies[0] for study in studies):
        return studies[0] if studies else {}
    thresholds = {study.get("solved") for study in studies}
    if len(thresholds) > 1:
        raise InputError(
            f"the studies call a run solved at different returns ({sorted(map(str, thresholds))}); "
            "expected one. Analyse them in separate calls."
        )
    questions: dict[str, dict[str, str]] = {}
    for study in studies:
        for question in study.get("questions", []):
            if questions.setdefault(question["id"], question) != question:
                raise InputError(
                    f"the studies ask two different questions {question['id']}; expected one of "
                    "each id. Analyse them in separate calls."
                )
    tiers = dict.fromkeys(str(study["tier"]) for study in studies if study.get("tier"))
    return {
        "tier": " + ".join(tiers),
        "solved": thresholds.pop(),
        "questions": list(questions.values()),
    }


def check_lengths(runs: Iterable[Row]) -> None:
    """Refuse an arm whose runs were trained for different times."""
    first: dict[tuple[str, str], Row] = {}
    for row in runs:
        known = first.setdefault((row["env"], row["arm"]), row)
        if (known["iterations"], known["env_steps"]) != (row["iterations"], row["env_steps"]):
            raise InputError(
                f"{known['run']} has {known['iterations']} iterations and {known['env_steps']} env "
                f"steps, {row['run']} has {row['iterations']} and {row['env_steps']}; expected the "
                f"same, as both are {row['arm']} on {row['env']}. Analyse them in separate calls."
            )


def write_compact(compact: Compact, out: Path) -> None:
    """Write the files that `read_compact` reads."""
    rows = [[row[name] for name in RUN_COLUMNS] for row in compact.runs]
    write_table(out / "runs.csv", RUN_COLUMNS, rows)
    for curve, runs in compact.curves.items():
        points = max(map(len, runs.values()))
        write_table(
            out / f"{curve}.csv",
            ["run", *map(str, range(1, points + 1))],
            [[name, *values, *[""] * (points - len(values))] for name, values in runs.items()],
        )
    rows = [[row[name] for name in EXPECTED_COLUMNS] for row in compact.expected]
    write_table(out / "expected.csv", EXPECTED_COLUMNS, rows)
    if compact.study:
        text = json.dumps(compact.study, indent=1, ensure_ascii=False)
        write_atomically(out / "study.json", text + "\n")


# Statistics


@dataclass(frozen=True)
class Arm:
    """All finished runs of one configuration on one env."""

    label: str
    env_steps: int
    iterations: int
    finals: np.ndarray
    solved: np.ndarray
    rows: tuple[Row, ...]
    curves: dict[str, np.ndarray]
    """By curve: runs x points, NaN where no episode ended."""

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(self.finals)

    @property
    def solved_text(self) -> str:
        """Solved runs of all runs."""
        return f"{int(self.solved.sum())}/{self.count}"

    @property
    def mean(self) -> float:
        """Mean final return."""
        return float(self.finals.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single run."""
        return standard_error(self.finals)

    @property
    def mean_text(self) -> str:
        """Mean and standard error."""
        return shown(self.mean) + (f" ± {shown(self.error, 2)}" if self.count > 1 else "")

    def average(self, column: str) -> float:
        """Return the mean of a column of runs.csv."""
        return mean_of(np.array([float(row[column] or "nan") for row in self.rows]))


Arms = dict[str, dict[str, Arm]]
"""By env and label."""


def load_arms(compact: Compact) -> Arms:
    """Sort the runs by env and arm."""
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in compact.runs:
        grouped[row["env"], row["arm"]].append(row)
    arms: Arms = defaultdict(dict)
    for (env, label), rows in grouped.items():
        arms[env][label] = Arm(
            label=label,
            env_steps=int(rows[0]["env_steps"]),
            iterations=int(rows[0]["iterations"]),
            finals=np.array([float(row["final_return"]) for row in rows]),
            solved=np.array([row["solved"] == "1" for row in rows]),
            rows=tuple(rows),
            curves={
                curve: np.array([[float(v or "nan") for v in runs[r["run"]]] for r in rows])
                for curve, runs in compact.curves.items()
            },
        )
    return dict(arms)


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    if len(values) < 2:
        return math.nan
    # Rounding must not give equal values a spread.
    return 0.0 if np.ptp(values) == 0.0 else float(values.std(ddof=1) / math.sqrt(len(values)))


def iqm(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half along the last axis."""
    cut = values.shape[-1] // 4
    return np.sort(values, -1)[..., cut : values.shape[-1] - cut].mean(-1)


def wins(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return for each pair 1 where the first is larger, 1/2 for a tie, 0 elsewhere."""
    return (np.sign(first[:, None] - second) + 1.0) / 2.0


class Interval(NamedTuple):
    """An estimate with its 95 % percentile bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{shown(self.value)} ({shown(self.low)} to {shown(self.high)})"


class Bootstrap:
    """Percentile intervals as of rliable's stratified bootstrap.

    Own code for two reasons: rliable 1.2 draws from numpy's global generator whatever its
    `random_state` is, so that no report could be made twice, and it calls a test of scipy for each
    resample of the probability of improvement, which takes minutes here.
    """

    def __init__(self, reps: int, seed: int) -> None:
        self.reps = reps
        self.seed = seed
        self._drawn: dict[tuple[int, int], np.ndarray] = {}

    def indices(self, count: int, stream: int = 0) -> np.ndarray:
        """Return resamples x count indices of runs, the same whenever asked."""
        if (count, stream) not in self._drawn:
            generator = np.random.RandomState([self.seed, stream])
            self._drawn[count, stream] = generator.randint(count, size=(self.reps, count))
        return self._drawn[count, stream]

    def mean(self, values: np.ndarray) -> Interval:
        """Return the interval of the mean."""
        return self._interval(values.mean(), values[self.indices(len(values))].mean(-1))

    def iqm(self, values: np.ndarray) -> Interval:
        """Return the interval of the interquartile mean."""
        return self._interval(iqm(values), iqm(values[self.indices(len(values))]))

    def improvement(self, first: np.ndarray, second: np.ndarray) -> Interval:
        """Return the interval of the probability that a run of the first beats one of the second.

        The two are resampled on their own; a tie counts one half.
        """
        pairs = wins(first, second)
        drawn = [
            (self.indices(len(values), stream)[..., None] == np.arange(len(values))).sum(1)
            for stream, values in enumerate((first, second))
        ]
        won = ((drawn[0] @ pairs) * drawn[1]).sum(-1)
        return self._interval(pairs.mean(), won / pairs.size)

    @staticmethod
    def _interval(value: Any, resampled: np.ndarray) -> Interval:
        low, high = np.percentile(resampled, [2.5, 97.5])
        return Interval(float(value), float(low), float(high))


def welch_p(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of Welch's t-test; arms without any spread differ or are equal."""
    errors = standard_error(first), standard_error(second)
    if not any(errors):
        return float(first[0] == second[0])
    spreads = [e * math.sqrt(len(v)) for e, v in zip(errors, (first, second), strict=True)]
    result = stats.ttest_ind_from_stats(
        *(first.mean(), spreads[0], len(first), second.mean(), spreads[1], len(second)),
        equal_var=False,
    )
    return float(result.pvalue)


def fisher_p(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of Fisher's exact test on solved runs."""
    table = [[int(solved.sum()), int((~solved).sum())] for solved in (first, second)]
    return float(stats.fisher_exact(table).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's adjusted p-values; tests that could not be made (None) do not count."""
    made = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(made):
        highest = max(highest, min(1.0, p * (len(made) - rank)))
        adjusted[place] = highest
    return adjusted


@dataclass
class Comparison:
    """Two arms of one env; the tests are None where an arm has too few runs."""

    first: Arm
    second: Arm
    welch: float | None = None
    fisher: float | None = None
    improvement: Interval | None = None
    welch_holm: float | None = None
    fisher_holm: float | None = None

    @property
    def p_values(self) -> tuple[float | None, ...]:
        """Both tests, each as it is and corrected."""
        return self.welch, self.welch_holm, self.fisher, self.fisher_holm

    @property
    def direction(self) -> int:
        """1 if the first arm is better on average, -1 if the second is, 0 if they are equal."""
        return int(np.sign(self.first.mean - self.second.mean))

    @property
    def short(self) -> str:
        """What a verdict rests on, in words."""
        arms = "; ".join(
            f"{arm.label} solved {arm.solved_text}, mean return {arm.mean_text}"
            for arm in (self.first, self.second)
        )
        if self.welch is None:
            return f"{arms}; {TOO_FEW} for a test"
        return f"{arms}; Welch p {equals_p(self.welch)}, Holm-adjusted {equals_p(self.welch_holm)}"

    @property
    def sentence(self) -> str:
        """All numbers in words."""
        if self.improvement is None:
            return f"{self.short}."
        low, high = shown(self.improvement.low), shown(self.improvement.high)
        return (
            f"{self.short}; Fisher p {equals_p(self.fisher)}; probability of improvement "
            f"{shown(self.improvement.value)} (95 % interval {low} to {high})."
        )


def compare(first: Arm, second: Arm, bootstrap: Bootstrap) -> Comparison:
    """Test one arm against another."""
    if min(first.count, second.count) < MIN_RUNS:
        return Comparison(first, second)
    return Comparison(
        first,
        second,
        welch=welch_p(first.finals, second.finals),
        fisher=fisher_p(first.solved, second.solved),
        improvement=bootstrap.improvement(first.finals, second.finals),
    )


def adjust(comparisons: Sequence[Comparison]) -> None:
    """Correct the p-values of a family of comparisons."""
    welch = holm([comparison.welch for comparison in comparisons])
    fisher = holm([comparison.fisher for comparison in comparisons])
    for comparison, own_welch, own_fisher in zip(comparisons, welch, fisher, strict=True):
        comparison.welch_holm, comparison.fisher_holm = own_welch, own_fisher


@dataclass(frozen=True)
class Summary:
    """An arm with its intervals, and its comparison to the reference arm if there is one."""

    arm: Arm
    mean: Interval | None
    iqm: Interval | None
    reference: str
    comparison: Comparison | None


def summarize(arms: Mapping[str, Arm], bootstrap: Bootstrap) -> list[Summary]:
    """Return the statistics of an env's arms; p-values are corrected over all of them."""
    summaries = []
    for label, arm in arms.items():
        enough = arm.count >= MIN_RUNS
        reference = reference_of(label)
        summaries.append(
            Summary(
                arm,
                bootstrap.mean(arm.finals) if enough else None,
                bootstrap.iqm(arm.finals) if enough else None,
                reference,
                compare(arm, arms[reference], bootstrap) if reference in arms else None,
            )
        )
    adjust([summary.comparison for summary in summaries if summary.comparison])
    return summaries


class Claim(NamedTuple):
    """A comparison of the paper's, on its own env."""

    first: str
    relation: str
    second: str
    p: str


PAPER_CLAIMS = (
    Claim("GRM(1)", "below", "raw", ".031"),
    Claim("GRM-norm(1)", "below", "raw", ".009"),
    Claim("PIES", "not different from", "raw", ".059"),
    Claim("GRM(1)", "not different from", "GRM-norm(1)", ".37"),
    Claim("ADOPES", "above", "raw", ".038"),
    Claim("ADOPS", "above", "PIES", "4.4e-5"),
    Claim("ADOPES", "above", "PIES", "2.4e-6"),
    Claim("ADOPES F/2", "above", "PIES", "6.4e-5"),
    Claim("ADOPS", "above", "GRM(1)", ""),
    Claim("ADOPES", "above", "GRM(1)", ""),
)
PAPER_UNSOLVED = ("PBIM", "PBIM-norm")
"""Methods with which the paper's runs solve nothing."""


PAPER_VERDICTS = ("agrees", "contradicts", "undecided", TOO_FEW)


class Verdict(NamedTuple):
    """What the runs say about a statement."""

    verdict: str
    env: str
    statement: str
    sentence: str


def claim_verdict(relation: str, comparison: Comparison) -> str:
    """Say whether a comparison agrees with the paper's."""
    if comparison.welch_holm is None:
        return TOO_FEW
    significant = comparison.welch_holm < SIGNIFICANT
    if relation == "not different from":
        return "contradicts" if significant else "agrees"
    if not significant:
        return "undecided"
    return (
        "agrees" if comparison.direction == {"above": 1, "below": -1}[relation] else "contradicts"
    )


def paper_verdicts(env: str, arms: Mapping[str, Arm], bootstrap: Bootstrap) -> list[Verdict]:
    """Hold the paper's claims against an env's runs at scale 1, for each bonus there is."""
    verdicts = []
    for end in ("", " (RND)"):
        held = [
            (claim, compare(arms[claim.first + end], arms[claim.second + end], bootstrap))
            for claim in PAPER_CLAIMS
            if claim.first + end in arms and claim.second + end in arms
        ]
        adjust([comparison for _, comparison in held])
        for claim, comparison in held:
            p = f" (paper: p = {claim.p})" if claim.p else ""
            statement = f"{claim.first}{end} {claim.relation} {claim.second}{end}"
            verdict = claim_verdict(claim.relation, comparison)
            verdicts.append(Verdict(verdict, env, statement + p, f"{comparison.short}."))
        for arm in (arms[name + end] for name in PAPER_UNSOLVED if name + end in arms):
            sentence = f"{arm.label} solved {arm.solved_text}, mean return {arm.mean_text}"
            if f"raw{end}" in arms:
                sentence += f"; raw{end} solved {arms[f'raw{end}'].solved_text}"
            verdict = "contradicts" if arm.solved.any() else "agrees"
            verdicts.append(Verdict(verdict, env, f"{arm.label} solves nothing", f"{sentence}."))
    return verdicts


@dataclass(frozen=True)
class Answer:
    """A question of the study with what the runs say."""

    question: Mapping[str, str]
    verdict: str
    missing: str
    comparison: Comparison | None

    @property
    def headline(self) -> str:
        """The verdict, with what is missing for one."""
        return f"{self.verdict} (missing: {self.missing})" if self.missing else self.verdict

    @property
    def sentence(self) -> str:
        """The claim and all numbers in words."""
        numbers = f": {self.comparison.sentence}" if self.comparison else "."
        return f"{self.question['claim']} On {self.question['env']}{numbers}"


def answer(
    questions: Sequence[Mapping[str, str]], arms: Arms, bootstrap: Bootstrap
) -> list[Answer]:
    """Answer the study's questions; p-values are corrected over all of them."""
    pairs: list[tuple[Mapping[str, str], str, Comparison | None]] = []
    for question in questions:
        own = arms.get(question["env"], {})
        missing = []
        for label in (question["better"], question["worse"]):
            count = own[label].count if label in own else 0
            if count < MIN_RUNS:
                missing.append(f"{label} with {count} of at least {MIN_RUNS} runs")
        comparison = None
        if not missing:
            comparison = compare(own[question["better"]], own[question["worse"]], bootstrap)
        pairs.append((question, ", ".join(missing), comparison))
    adjust([comparison for _, _, comparison in pairs if comparison])
    return [
        Answer(question, question_verdict(comparison), missing, comparison)
        for question, missing, comparison in pairs
    ]


def question_verdict(comparison: Comparison | None) -> str:
    """Say whether the first arm is better, as the question claims."""
    if comparison is None or comparison.welch_holm is None:
        return "not run"
    if comparison.welch_holm >= SIGNIFICANT:
        return "undecided"
    return "supported" if comparison.direction > 0 else "contradicted"


def delay_arms(arms: Mapping[str, Arm]) -> dict[str, list[tuple[str, Arm]]]:
    """Return GRM-norm's arms by delay where there are several, by scale and bonus.

    PBIM-norm closes the row: it takes the bonus back at the end of the episode.
    """
    groups: dict[str, list[tuple[str, Arm]]] = defaultdict(list)
    for label, arm in arms.items():
        parts = parse_label(label)
        if parts.method == "GRM-norm":
            groups[parts.group].append((str(parts.delay), arm))
    for group, own in groups.items():
        if f"PBIM-norm{group}" in arms:
            own.append(("N−1", arms[f"PBIM-norm{group}"]))
    return {
        group: own
        for group, own in groups.items()
        if sum(parse_label(arm.label).method == "GRM-norm" for _, arm in own) > 1
    }


# Figures

COLOURS = {
    NO_BONUS: "#8c8c8c",
    "raw": "#000000",
    "PIES": "#e69f00",
    "GRM": "#56b4e9",
    "GRM-norm": "#0057a8",
    "PBIM": "#d973b0",
    "PBIM-norm": "#8b1a5e",
    "ADOPS": "#009e73",
    "ADOPES": "#d55e00",
    "ADOPES F/2": "#7a3b00",
    "guarded": "#6a3fc1",
    SWITCHED_OFF: "#b8a000",
}
FAMILIES = {
    "PIES, GRM and PBIM": ("PIES", "GRM", "GRM-norm", "PBIM", "PBIM-norm"),
    "ADOPS and ADOPES": ("ADOPS", "ADOPES", "ADOPES F/2"),
    "guarded": ("guarded", SWITCHED_OFF),
}
"""Panels of the learning curves; raw and no bonus are in all of them."""
DELAYS, OTHERS = "other delays", "other methods"


def style(label: str) -> dict[str, Any]:
    """Return how an arm's line looks, in all figures."""
    parts = parse_label(label)
    colour: Any = COLOURS.get(parts.method, "#5a5a5a")
    if parts.delay != DEFAULTS["delay"]:
        colour = matplotlib.colormaps["viridis"](min(0.95, math.log2(parts.delay) / 7.0))
    dashed = parts.method == NO_BONUS or parts.epsilon != DEFAULTS["epsilon"]
    return {
        "color": colour,
        "linestyle": "--" if dashed else ":" if parts.method == "GRM" and parts.delay > 1 else "-",
        "linewidth": 2.0 if parts.method == "raw" else 1.5,
    }


def family(label: str) -> str:
    """Return the panel of an arm's learning curve; empty for those that are in all."""
    parts = parse_label(label)
    if parts.method in (NO_BONUS, "raw"):
        return ""
    if parts.delay != DEFAULTS["delay"]:
        return DELAYS
    return next((name for name, held in FAMILIES.items() if parts.method in held), OTHERS)


def trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the last `window` values at each point, without the NaN among them."""
    present = ~np.isnan(values)
    sums, counts = (
        np.cumsum(np.pad(array, [(0, 0)] * (values.ndim - 1) + [(window, 0)]), -1)
        for array in (np.where(present, values, 0.0), present.astype(float))
    )
    total, count = (array[..., window:] - array[..., :-window] for array in (sums, counts))
    return np.divide(total, count, out=np.full(values.shape, np.nan), where=count > 0.0)


def smoothed(arm: Arm, curve: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return env steps in thousands, and mean and standard error over the runs of an arm."""
    size = block_size(arm.iterations)
    window = max(1, round(LAST_ITERATIONS / size))
    curves = trailing_mean(arm.curves[curve], window)
    ends = np.minimum(np.arange(1, curves.shape[1] + 1) * size, arm.iterations)
    means = np.array([mean_of(column) for column in curves.T])
    errors = np.array([standard_error(column[~np.isnan(column)]) for column in curves.T])
    return ends * arm.env_steps / arm.iterations / 1e3, means, np.nan_to_num(errors)


def scale_groups(arms: Mapping[str, Arm]) -> dict[str, list[Arm]]:
    """Return the arms by scale and bonus; runs without a bonus belong to all."""
    groups: dict[str, list[Arm]] = defaultdict(list)
    for label, arm in arms.items():
        if label != NO_BONUS:
            groups[parse_label(label).group].append(arm)
    plain = [arms[NO_BONUS]] if NO_BONUS in arms else []
    return {group: [*plain, *own] for group, own in (groups or {"": []}).items()}


def group_title(group: str) -> str:
    """Name a scale and bonus."""
    return f"bonus{group}" if "×" in group else f"bonus ×1{group}"


def without_group(label: str, group: str) -> str:
    """Return an arm's label for places where scale and bonus are written already."""
    return label.removesuffix(group)


def bare(axis: Axes) -> None:
    """Take the frame away that no one needs."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axis.set_axisbelow(True)


def draw_curves(env: str, arms: Mapping[str, Arm]) -> Figure:
    """Draw learning curves: a row for each scale, a column for each family of methods."""
    groups = scale_groups(arms)
    used = {family(label) for label in arms} - {""}
    columns = [name for name in (*FAMILIES, DELAYS, OTHERS) if name in used] or [""]
    figure = Figure(figsize=(1.0 + 4.3 * len(columns), 4.0 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), len(columns), squeeze=False, sharey=True, sharex=True)
    for row, (group, own) in zip(axes, groups.items(), strict=True):
        held = {family(arm.label) for arm in own} - {""} or {columns[0]}
        leftmost = next(axis for axis, column in zip(row, columns, strict=True) if column in held)
        for axis, column in zip(row, columns, strict=True):
            if column not in held:
                axis.set_visible(False)
                continue
            for arm in own:
                if family(arm.label) not in ("", column):
                    continue
                steps, means, errors = smoothed(arm, "return")
                look = style(arm.label)
                label = f"{without_group(arm.label, group)} (N={arm.count})"
                axis.plot(steps, means, label=label, **look)
                axis.fill_between(
                    steps, means - errors, means + errors, color=look["color"], alpha=0.15, lw=0
                )
            axis.set_title(f"{column}: {group_title(group)}".removeprefix(": "), fontsize=11)
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("env steps (thousands)")
            bare(axis)
            axis.legend(
                loc="upper center",
                bbox_to_anchor=(0.5, -0.17),
                ncols=2,
                frameon=False,
                fontsize=9,
            )
        leftmost.set_ylabel("extrinsic return")
        leftmost.tick_params(labelleft=True)
    figure.suptitle(
        f"{env}: return over the past {LAST_ITERATIONS} iterations, mean ± standard error"
    )
    return figure


def draw_finals(env: str, arms: Mapping[str, Arm]) -> Figure:
    """Draw the final return of every run: a strip for each arm."""
    figure = Figure(figsize=(9.0, 1.4 + 0.36 * len(arms)), layout="constrained")
    axis = figure.subplots()
    # Golden ratio steps: neighbours are far apart and the jitter is the same every time.
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for place, arm in enumerate(arms.values()):
        colour = style(arm.label)["color"]
        offsets = ((np.arange(arm.count) * golden) % 1.0 - 0.5) * 0.5
        axis.scatter(arm.finals, place + offsets, s=16, color=colour, alpha=0.45, linewidths=0)
        axis.errorbar(
            *(arm.mean, place),
            xerr=np.nan_to_num(arm.error),
            fmt="D",
            color=colour,
            markeredgecolor="white",
            markersize=7,
            capsize=4,
        )
        axis.annotate(
            f"{arm.solved_text}   {arm.mean_text}",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    axis.annotate(
        "solved   mean ± SE", (1.02, -0.95), xycoords=("axes fraction", "data"), fontsize=9
    )
    labels = list(arms)
    groups = [parse_label(label).group if label != NO_BONUS else "none" for label in labels]
    for place in range(1, len(labels)):
        if groups[place] != groups[place - 1]:
            axis.axhline(place - 0.5, color="#bbbbbb", linewidth=0.8)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlabel(f"final extrinsic return (mean of the last {LAST_ITERATIONS} iterations)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(f"{env}: every run (dots), mean ± standard error (diamonds)", fontsize=11)
    return figure


def draw_rates(env: str, arms: Mapping[str, Arm]) -> Figure:
    """Draw conflict and intervention rates: a row for each scale."""
    panels = {
        "conflict": "conflict rate: raw F contradicts the critic",
        "intervention": "intervention rate: the method changes F",
    }
    groups = scale_groups({name: arm for name, arm in arms.items() if family(name) != DELAYS})
    figure = Figure(figsize=(12.5, 3.6 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), len(panels), squeeze=False, sharex=True, sharey=True)
    for row, (group, own) in zip(axes, groups.items(), strict=True):
        for axis, (curve, title) in zip(row, panels.items(), strict=True):
            for arm in own:
                steps, means, _ = smoothed(arm, curve)
                axis.plot(steps, means, label=without_group(arm.label, group), **style(arm.label))
            axis.set_title(f"{title}, {group_title(group)}", fontsize=10)
            axis.set_ylim(-0.03, 1.03)
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("env steps (thousands)")
            bare(axis)
        row[0].set_ylabel("share of steps")
        if own:
            row[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    figure.suptitle(f"{env}: rates over the past {LAST_ITERATIONS} iterations, mean over runs")
    return figure


def draw_delays(env: str, delays: Mapping[str, list[tuple[str, Arm]]]) -> Figure:
    """Draw the final return over GRM-norm's delay."""
    figure = Figure(figsize=(1.5 + 5.0 * len(delays), 4.2), layout="constrained")
    axes = figure.subplots(1, len(delays), squeeze=False, sharey=True)[0]
    for axis, (group, own) in zip(axes, delays.items(), strict=True):
        places = np.arange(len(own))
        for place, (_, arm) in zip(places, own, strict=True):
            offsets = np.linspace(-0.12, 0.12, arm.count) if arm.count > 1 else np.zeros(1)
            axis.scatter(
                place + offsets, arm.finals, s=14, color="#0057a8", alpha=0.3, linewidths=0
            )
            axis.annotate(
                arm.solved_text,
                (place, 1.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=9,
            )
        axis.errorbar(
            places,
            [arm.mean for _, arm in own],
            yerr=[np.nan_to_num(arm.error) for _, arm in own],
            fmt="D-",
            color="#0057a8",
            capsize=4,
        )
        names = [name if name != "N−1" else "N−1\n(PBIM-norm)" for name, _ in own]
        axis.set_xticks(places, names)
        axis.set_xlim(-0.5, len(own) - 0.5)
        axis.set_xlabel("delay D")
        axis.set_title(f"{group_title(group)}; solved runs above", fontsize=10, pad=20)
        bare(axis)
    axes[0].set_ylabel("final extrinsic return")
    figure.suptitle(f"{env}: GRM-norm(D), every run and mean ± standard error")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture that depends on nothing but its data."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    write_atomically(path, buffer.getvalue())


def slug(env: str) -> str:
    """Return an env's name for file names."""
    return re.sub(r"[^\w.-]+", "-", env.removeprefix("adops/").removesuffix("-v0"))


# Report


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
th, td { padding: .2rem .9rem .2rem 0; text-align: left; white-space: nowrap; }
th { border-bottom: 1px solid var(--line); }
"""


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
            lines += ["".join(f"<td>{html.escape(c)}</td>" for c in row) for row in block.rows]
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
    """Escape what Markdown or HTML would read as markup."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", html.escape(text, quote=False))


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


def shown(value: float, digits: int = 3) -> str:
    """Write a number for people; NaN is a dash."""
    if math.isnan(value):
        return "–"
    text = f"{value:.0f}" if abs(value) >= 100.0 else f"{value + 0.0:.{digits}g}"
    return text.replace("-", "−") if "e" not in text else text


def shown_p(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return TOO_FEW
    return "< 1e-15" if p < 1e-15 else f"{p:.2g}"


def equals_p(p: float | None) -> str:
    """Write a p-value behind its name."""
    text = shown_p(p)
    return text if text.startswith("<") else f"= {text}"


def ranges(numbers: Iterable[int]) -> str:
    """Write whole numbers with neighbours joined: 1–3, 7."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in spans)


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


def verdict_blocks(analysis: Analysis) -> list[Block]:
    """Return what comes first: answers, and agreement with the paper."""
    blocks: list[Block] = []
    if analysis.answers:
        blocks.append(Heading(2, "Questions of the study"))
        items = [(f"{a.question['id']} {a.headline}:", a.sentence) for a in analysis.answers]
        blocks.append(Bullets(items))
        blocks.append(
            Paragraph(
                f"Supported or contradicted: Welch's test, corrected by Holm over all questions, "
                f"gives p < {SIGNIFICANT}. Undecided is no proof of equality."
            )
        )
    if analysis.verdicts:
        blocks.append(Heading(2, "Agreement with the paper"))
        counts = Counter(verdict.verdict for verdict in analysis.verdicts)
        listed = ", ".join(f"{v}: {counts[v]}" for v in PAPER_VERDICTS if counts[v])
        blocks.append(
            Paragraph(
                "The paper's comparisons at scale 1, which it made on its own env, against the "
                f"runs here ({listed}). A claimed difference agrees or contradicts where Welch's "
                f"p, corrected by Holm within env and bonus, is below {SIGNIFICANT}; a difference "
                "that the paper did not find agrees where it is not."
            )
        )
        for name in PAPER_VERDICTS:
            own = [verdict for verdict in analysis.verdicts if verdict.verdict == name]
            if own:
                blocks.append(Heading(3, f"{name.capitalize()} ({len(own)})"))
                blocks.append(Bullets([(f"{v.env}, {v.statement}:", v.sentence) for v in own]))
    return blocks


def gap_blocks(expected: Sequence[Row]) -> list[Block]:
    """Return what is missing or unfinished."""
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in expected:
        grouped[row["env"], row["arm"]].append(row)
    rows = []
    for (env, arm), own in grouped.items():
        finished = [row for row in own if row["state"] == "finished"]
        if len(finished) == len(own):
            continue
        started = [f"{r['run']} ({r['reason']})" for r in own if r["state"] in STATES[1:3]]
        missing = ranges(int(row["seed"]) for row in own if row["state"] == "missing")
        rows.append([env, arm, f"{len(finished)}/{len(own)}", ", ".join(started), missing])
    blocks: list[Block] = [Heading(2, "Missing and unfinished runs")]
    states = Counter(row["state"] for row in expected)
    if not rows:
        return [*blocks, Paragraph(f"None: all {len(expected)} known runs have finished.")]
    listed = ", ".join(f"{states[state]} {state}" for state in reversed(STATES) if states[state])
    return [
        *blocks,
        Paragraph(f"Of {len(expected)} runs: {listed}. Only finished runs are in the numbers."),
        Table(("env", "arm", "finished", "unfinished runs", "missing seeds"), rows),
    ]


def env_blocks(env: str, arms: Mapping[str, Arm], summaries: Sequence[Summary]) -> list[Block]:
    """Return an env's tables and figures."""
    any_arm = next(iter(arms.values()))
    lengths = sorted({(arm.iterations, arm.env_steps) for arm in arms.values()})
    trained = " or ".join(f"{steps:,} env steps ({n} iterations)" for n, steps in lengths)
    rules = " or ".join(sorted({row["solved_if"] for a in arms.values() for row in a.rows}))
    count = sum(arm.count for arm in arms.values())
    text = f"{count} runs of {trained}. Solved: final return {rules.replace('>=', '≥')}."
    if len(lengths) > 1:
        text += " Arms were trained for different times: mind this where they are compared."
    finals, tests, rates = [], [], []
    for summary in summaries:
        arm, comparison = summary.arm, summary.comparison
        low_high = f"{shown(arm.finals.min())} to {shown(arm.finals.max())}"
        interval = summary.mean
        finals.append(
            [
                *(arm.label, str(arm.count), arm.solved_text, arm.mean_text),
                shown(float(np.median(arm.finals))),
                low_high,
                f"{shown(interval.low)} to {shown(interval.high)}" if interval else TOO_FEW,
                str(summary.iqm) if summary.iqm else TOO_FEW,
            ]
        )
        if comparison:
            tests.append(
                [
                    *(arm.label, summary.reference),
                    str(comparison.improvement) if comparison.improvement else TOO_FEW,
                    *map(shown_p, comparison.p_values),
                ]
            )
        elif summary.reference:
            tests.append([arm.label, f"{summary.reference} (no runs)", *["–"] * 5])
        rates.append([arm.label, *(shown(arm.average(column)) for column in RATE_COLUMNS)])
    name = slug(env)
    steps = f"{any_arm.env_steps:,}" if len(lengths) == 1 else "all"
    blocks: list[Block] = [
        Heading(2, env),
        Paragraph(text),
        Table(
            (
                *("arm", "N", "solved", "mean ± SE", "median", "min to max"),
                *("95 % of mean", "IQM (95 %)"),
            ),
            finals,
        ),
        Image(f"final_{name}.png", f"Final return of every run on {env}, by arm."),
    ]
    if tests:
        blocks += [
            Paragraph(
                "Each arm against its reference: the raw bonus of the same scale, or no bonus for "
                "the raw bonus itself. The probability of improvement is that of a run of the arm "
                "to beat a run of the reference, ties counted half; Holm's correction runs over "
                "this table."
            ),
            Table(
                (
                    *("arm", "reference", "P(improvement) (95 %)", "Welch p", "Holm"),
                    *("Fisher p (solved)", "Holm"),
                ),
                tests,
            ),
        ]
    blocks.append(
        Image(
            f"curves_{name}.png",
            f"Learning curves on {env}: extrinsic return over {steps} env steps.",
        )
    )
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
            Image(f"delay_{name}.png", f"Final return on {env} over the delay of GRM-norm."),
        ]
    return [
        *blocks,
        Paragraph(
            "Conflict: share of steps at which the raw bonus turns the sign of the critic's "
            "extrinsic advantage. Intervention: share of steps at which the method changes the "
            "bonus. Early and late are the first and the last tenth of training."
        ),
        Table(
            (
                *("arm", "conflict early", "late", "intervention early", "late"),
                *("ζ at the end", "mean return in training"),
            ),
            rates,
        ),
        Image(f"rates_{name}.png", f"Conflict and intervention rates on {env} over training."),
    ]


def report_blocks(analysis: Analysis) -> list[Block]:
    """Return the whole report."""
    tier = analysis.compact.study.get("tier")
    count = len(analysis.compact.runs)
    blocks: list[Block] = [
        Heading(1, f"Results of the study, tier {tier}" if tier else f"Results of {count} runs"),
        *verdict_blocks(analysis),
        *gap_blocks(analysis.compact.expected),
    ]
    for env, arms in analysis.arms.items():
        blocks += env_blocks(env, arms, analysis.summaries[env])
    return [
        *blocks,
        Heading(2, "How this was made"),
        Paragraph(
            f"python train/analyze.py RESULTS --out DIR, from {count} finished runs. The final "
            f"return of a run is its mean episodic return over the last {LAST_ITERATIONS} "
            "iterations. Intervals are percentiles of "
            f"{analysis.bootstrap.reps} bootstrap resamples of the runs, seed "
            f"{analysis.bootstrap.seed}; SE is the standard error of the mean; IQM is the mean of "
            f"the middle half. Tests and intervals need {MIN_RUNS} runs of each arm. The CSV files "
            "beside this report hold all numbers, and the command makes the same report from them."
        ),
    ]


def interval_cells(interval: Interval | None) -> list[str]:
    """Return an interval's three cells of a CSV file."""
    return [to_text(value) for value in interval] if interval else [TOO_FEW] * 3


def p_cell(p: float | None) -> str:
    """Return a p-value's cell of a CSV file."""
    return TOO_FEW if p is None else to_text(p)


def comparison_cells(comparison: Comparison | None) -> list[str]:
    """Return a comparison's cells of a CSV file; empty where there is none."""
    if comparison is None:
        return [""] * len(COMPARISON_COLUMNS)
    return [*interval_cells(comparison.improvement), *map(p_cell, comparison.p_values)]


COMPARISON_COLUMNS = (
    *("p_improvement", "p_improvement_low", "p_improvement_high"),
    *("welch_p", "welch_p_holm", "fisher_p", "fisher_p_holm"),
)


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
    write_table(out / "paper.csv", ("verdict", "env", "claim", "numbers"), analysis.verdicts)
    if analysis.answers:
        rows = []
        for a in analysis.answers:
            arms = [a.comparison.first, a.comparison.second] if a.comparison else [None, None]
            rows.append(
                [
                    *(a.question[key] for key in QUESTION_KEYS),
                    *(a.verdict, a.missing),
                    *(arm.solved_text if arm else "" for arm in arms),
                    *(to_text(arm.mean) if arm else "" for arm in arms),
                    *(to_text(arm.error) if arm else "" for arm in arms),
                    *comparison_cells(a.comparison),
                ]
            )
        columns = (
            *(*QUESTION_KEYS, "verdict", "missing"),
            *("better_solved", "worse_solved", "better_mean", "worse_mean"),
            *("better_se", "worse_se", *COMPARISON_COLUMNS),
        )
        write_table(out / "questions.csv", columns, rows)


def draw_figures(arms: Arms, out: Path) -> None:
    """Draw all figures of all envs."""
    drawings: list[tuple[str, Callable[[], Figure]]] = []
    for env, own in arms.items():
        name, delays = slug(env), delay_arms(own)
        drawings += [
            (f"curves_{name}.png", lambda env=env, own=own: draw_curves(env, own)),
            (f"final_{name}.png", lambda env=env, own=own: draw_finals(env, own)),
            (f"rates_{name}.png", lambda env=env, own=own: draw_rates(env, own)),
        ]
        if delays:
            drawings.append(
                (f"delay_{name}.png", lambda env=env, delays=delays: draw_delays(env, delays))
            )
    for name, draw in tqdm(drawings, "drawing", unit="figure"):
        save(draw(), out / name)


def analyze(
    results: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    solved: float | None = None,
    reps: int = 2000,
    seed: int = 0,
) -> Path:
    """Write the compact data, tables, figures and the report of results; return report.html.

    Args:
        results: Run directories, folders of them, or folders that this function wrote.
        out: Folder to write to; it may be one of the results.
        solved: Final return from which on a run counts as solved.
        reps: Resamples of each bootstrap interval.
        seed: Seed of the bootstrap.

    Raises:
        InputError: The results cannot be analysed.
    """
    if reps < 1 or seed < 0:
        raise InputError(
            f"reps is {reps} and seed is {seed}; expected reps of at least 1 and a seed that is "
            "not negative. The defaults are 2000 and 0."
        )
    compact = collect(results, solved)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_compact(compact, out)
    analysis = compute(read_compact(out), Bootstrap(reps, seed))
    write_tables(analysis, out)
    draw_figures(analysis.arms, out)
    blocks = report_blocks(analysis)
    write_atomically(out / "report.md", render_markdown(blocks))
    write_atomically(out / "report.html", render_html(blocks, out))
    return out / "report.html"


def main(argv: Sequence[str] | None = None) -> int:
    """Analyse what the command line names; return the exit code."""
    settings = tyro.cli(Settings, args=argv, description=__doc__)
    try:
        report = analyze(
            settings.results,
            settings.out,
            solved=settings.solved,
            reps=settings.reps,
            seed=settings.seed,
        )
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
