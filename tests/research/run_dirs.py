"""Writes run directories as ppo_rnd.py does, for the tests of the analysis."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

ENV = "adops/KeyDoorTV-v0"
COLUMNS = (
    *("iteration", "global_step", "charts/episodic_return", "losses/entropy"),
    *("shaping/conflict_rate", "shaping/intervention_rate", "shaping/zeta"),
    *("charts/action_prob", "charts/stages"),
)
LOW, HIGH = [0.0, 0.1, 0.0, 0.2, 0.1], [0.9, 1.0, 0.8, 0.9, 1.0]


def write_run(
    folder: Path,
    returns,
    *,
    seed=1,
    conflict=None,
    intervention=None,
    finished=True,
    reason="finished",
    **args,
):
    """Write a run directory as ppo_rnd.py does; a return of None is an empty cell."""
    folder.mkdir(parents=True)
    args = {"env_id": ENV, "bonus": "count", "seed": seed, "total_iterations": len(returns)} | args
    (folder / "config.json").write_text(json.dumps({"args": args}))
    status = {"iteration": len(returns), "finished": finished, "reason": reason}
    (folder / "status.json").write_text(json.dumps(status))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for i, value in enumerate(returns):
            rates = [0.5 if v is None else v[i] for v in (conflict, intervention)]
            cell = "" if value is None else value
            zeta, certainty = 1.0 - i / len(returns), (i + 1) / len(returns)
            writer.writerow([i + 1, 100 * (i + 1), cell, 1.5, *rates, zeta, certainty, 2 * i])


def write_arm(root: Path, finals, **args):
    """Write one run for each final return, which it has from the start on."""
    name = "__".join(f"{key}={value}".replace("/", "-") for key, value in args.items())
    for seed, final in enumerate(finals, 1):
        write_run(root / f"{name}__seed{seed}", [final] * 12, seed=seed, **args)


def study_of(*questions):
    keys = ("id", "claim", "env", "better", "worse", "metric")
    asked = [(*question, "final_return")[: len(keys)] for question in questions]
    return {"tier": "t", "questions": [dict(zip(keys, q, strict=True)) for q in asked]}


def computed(*results):
    """Return all statistics of results."""
    from research.analysis.collect import collect
    from research.analysis.report import compute
    from research.analysis.statistics import Bootstrap

    return compute(collect(results), Bootstrap(300, 0))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())


def write_study(root: Path):
    """Write two envs with a question, a missing and an unfinished run, and names with markup."""
    write_arm(root, LOW, shaping="none")
    write_arm(root, HIGH, shaping="adops")
    write_arm(root, [0.1, 0.2 / 3, 1 / 3, 0.7], shaping="grm-norm", delay=1)
    write_arm(root, [0.0, 1 / 7], shaping="grm-norm", delay=4)
    markup = "<img src=x onerror=alert(1)>|`*[a](b)"
    write_run(root / markup, [1.0], seed=9, finished=False, reason=markup)
    write_run(root / "long", np.sin(np.arange(230)) ** 2, env_id="adops/KeyDoor-v0")
    question = ("H1", "ADOPS < raw & <script>alert(2)</script>.", ENV, "ADOPS", "raw")
    (root / "study.json").write_text(json.dumps(study_of(question)))
    cell = {"name": "pies__seed1", "method": "pies", "seed": 1, "varied": {}}
    cell["settings"] = {"env_id": ENV, "bonus": "count"}
    (root / "sweep.json").write_text(json.dumps({"cells": [cell]}))
