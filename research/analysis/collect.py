"""Reduces run directories, sweeps and earlier reports to compact data, and joins them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from adops_wrappers.training.log import read_metrics
from research.analysis.compact import (
    RUN_COLUMNS,
    Compact,
    InputError,
    block_size,
    mean_of,
    read_compact,
    read_object,
    read_study,
    to_text,
)
from research.analysis.labels import DEFAULTS, Label
from research.rows import Row

LAST_ITERATIONS = 10
"""Iterations of the final return, and of the trailing mean in the learning curves."""
CURVE_COLUMNS = {
    "return": "charts/episodic_return",
    "conflict": "shaping/conflict_rate",
    "intervention": "shaping/intervention_rate",
}
"""The curve files, and the column of metrics.csv that each is made of."""
OTHER_COLUMNS = ("shaping/zeta", "charts/action_prob")
STAGES = "charts/stages"
"""Only envs with stages have this column."""
SOLVED_AT = {"adops/MiniZuma-v0": 1950.0}
"""Final returns that count as solved, where it is not 0.5: half of all there is to earn."""
STATES = ("missing", "unfinished", "no return", "finished")
"""Of a run; if it is found in several places, the last of these counts."""

Key = tuple[str, str, int]
"""Env, arm and seed: there is one run of each."""


def key_of(row: Row) -> Key:
    """Return what tells runs apart."""
    return row["env"], row["arm"], int(row["seed"])


def key_order(row: Row) -> tuple[Any, ...]:
    """Sort key of runs."""
    return row["env"], Label.parse(row["arm"]).order, int(row["seed"]), row["run"]


def read_columns(run_dir: Path) -> dict[str, np.ndarray]:
    """Read the columns of metrics.csv that are used here."""
    path = run_dir / "metrics.csv"
    columns = ("iteration", "global_step", *CURVE_COLUMNS.values(), *OTHER_COLUMNS)
    try:
        table = read_metrics(run_dir)
        absent = [name for name in columns if name not in table]
        if absent:
            raise InputError(
                f"{path} has no column {', '.join(absent)}; expected a header with "
                f"{', '.join(columns)}. Restore the file, or move its folder away."
            )
        if not table["iteration"]:
            raise InputError(
                f"{path} has no rows, expected one for each iteration. Train this run again."
            )
        held = [*columns, STAGES] if STAGES in table else columns
        return {name: np.array([float(v or "nan") for v in table[name]]) for name in held}
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path}: {error}; expected the metrics of a run. Restore the file, or "
            "move its folder away."
        ) from error


def block_means(values: np.ndarray) -> list[float]:
    """Reduce a curve to at most `MAX_POINTS` points."""
    size = block_size(len(values))
    return [mean_of(values[start : start + size]) for start in range(0, len(values), size)]


def expected_row(run: str, args: Mapping[str, Any], seed: Any) -> Row:
    """Return the row of an expected run: missing until it is found."""
    return {
        "run": run,
        "env": str(args["env_id"]),
        "arm": str(Label.of(args)),
        "seed": str(int(seed)),
        "state": "missing",
        "reason": "",
    }


def collect_run(run_dir: Path, into: Compact) -> None:
    """Add a run directory; an unfinished run is only listed."""
    config = read_object(run_dir / "config.json", "the settings of a run")
    try:
        args = {**DEFAULTS, **config["args"]}
        name = expected_row(run_dir.name, args, config["args"]["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{run_dir / 'config.json'}: the settings are damaged ({error!r}), expected 'args' as "
            "ppo_rnd.py writes them. Restore the file, or move its folder away."
        ) from error
    try:
        status = read_object(run_dir / "status.json", "the state of a run")
    except InputError:
        status = {}
    if not status.get("finished"):
        reason = str(status.get("reason", "no status"))
        into.expected.append({**name, "state": "unfinished", "reason": reason})
        return
    path = run_dir / "metrics.csv"
    metrics = read_columns(run_dir)
    iterations = len(metrics["iteration"])
    if iterations != int(args.get("total_iterations", iterations)):
        raise InputError(
            f"{path} has {iterations} rows, expected {args['total_iterations']}: the run is marked "
            "as finished. Restore the file, or train this run again."
        )
    returns, conflict, intervention = (metrics[column] for column in CURVE_COLUMNS.values())
    final = mean_of(returns[-LAST_ITERATIONS:])
    if math.isnan(final):
        reason = f"no episode ended in the last {LAST_ITERATIONS} iterations"
        into.expected.append({**name, "state": "no return", "reason": reason})
        return
    tenth = max(1, round(iterations / 10))
    middle = (iterations - tenth) // 2
    half = mean_of(returns[middle : middle + tenth])
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
            "half_return": to_text(half),
            "fall": to_text(half - final),
            "action_prob": to_text(mean_of(metrics["charts/action_prob"][-LAST_ITERATIONS:])),
            "stages": to_text(
                mean_of(metrics[STAGES][-LAST_ITERATIONS:]) if STAGES in metrics else math.nan
            ),
        }
    )
    for curve, column in CURVE_COLUMNS.items():
        points = [to_text(value, 4) for value in block_means(metrics[column])]
        into.curves[curve][run_dir.name] = points


def collect_cells(path: Path, into: Compact) -> None:
    """Add the cells of sweep.json as expected runs."""
    content = read_object(path, "the cells of a sweep")
    try:
        for cell in content["cells"]:
            args = {**DEFAULTS, **cell["settings"], "shaping": cell["method"]}
            into.expected.append(expected_row(str(cell["name"]), args, cell["seed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: a cell is damaged ({error!r}), expected name, method, seed and settings as "
            "a sweep writes them. Run the sweep's command again to rewrite it."
        ) from error


def find_inputs(results: Sequence[str | os.PathLike[str]]) -> list[tuple[str, Path]]:
    """Return what is to be read: runs, sweeps, studies and compact folders."""
    if not results:
        raise InputError(
            "no results are given; expected run directories, folders of them, or folders that "
            "research.analyze wrote. Name at least one."
        )
    found: list[tuple[str, Path]] = []
    for path in map(Path, results):
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise InputError(
                f"{path} {what}; expected a run directory, a folder of them, or a folder that "
                "research.analyze wrote. Check the path."
            )
        if (path / "config.json").exists():
            found.append(("run", path))
            continue
        run_dirs = sorted(child.parent for child in path.glob("*/config.json"))
        sweep, study = path / "sweep.json", path / "study.json"
        if run_dirs or sweep.exists():
            found += [("run", run_dir) for run_dir in run_dirs]
            found += [("cells", sweep)] if sweep.exists() else []
            found += [("study", study)] if study.exists() else []
        elif (path / "runs.csv").exists():
            found.append(("compact", path))
        else:
            raise InputError(
                f"{path} holds no runs; expected run directories with config.json and metrics.csv "
                "in it, or runs.csv of research.analyze. Give the folder right above the runs."
            )
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
            "says finished. Run the sweep's command again to finish them."
        )
    for row in joined.runs:
        if solved is not None or not row["solved_if"]:
            row["solved_if"] = solved_rule(row["env"], solved, joined.study)
        row["solved"] = str(int(is_solved(float(row["final_return"]), row["solved_if"])))
    return joined


def solved_rule(env: str, solved: float | None, study: Mapping[str, Any]) -> str:
    """Return the final return from which a run counts as solved."""
    threshold = study.get("solved", SOLVED_AT.get(env)) if solved is None else solved
    if threshold is None:
        return ">= 0.5" if env.startswith("adops/") else "> 0"
    return f">= {float(threshold):g}"


def is_solved(final_return: float, rule: str) -> bool:
    """Apply a rule of `solved_rule`."""
    sign, threshold = rule.split()
    return final_return > float(threshold) or (sign == ">=" and final_return == float(threshold))


def join(parts: Sequence[Compact]) -> Compact:
    """Join all results, each run once, in a fixed order."""
    joined = Compact(study=join_studies([part.study for part in parts if part.study]))
    held: dict[Key, tuple[Row, list[list[str]]]] = {}
    expected: dict[Key, Row] = {}
    for part in parts:
        for row in part.runs:
            points = [part.curves[curve][row["run"]] for curve in CURVE_COLUMNS]
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
        for curve, values in zip(CURVE_COLUMNS, points, strict=True):
            joined.curves[curve][name] = values
    joined.expected = sorted(expected.values(), key=key_order)
    check_lengths(joined.runs)
    return joined


def join_studies(studies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join the questions of several studies."""
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
    joined = {"tier": " + ".join(tiers), "questions": list(questions.values())}
    threshold = thresholds.pop()
    return joined if threshold is None else joined | {"solved": threshold}


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
