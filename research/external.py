"""Runs the external study: the methods on tasks that others wrote, with nothing tuned on them.

    python -m research.external runs/external              # what is left of it; rerun to continue
    python -m research.external runs/external --dry-run    # the plan, and how long it will take
    python -m research.external runs/external --collect docs/data/external_study.csv --report
    python -m research.external runs/again --keep docs/data/external_study.csv --again 10

docs/external_study.md has the design and the questions. Runs are sorted so that every task and
every question has some seeds early. Collecting adds what has finished to the CSV file; runs whose
rows it holds are not run again with `--keep FILE`. `--report` writes what the committed rows say
into the pages. `--again N` makes N of the kept runs once more and compares the numbers.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from adops_wrappers._files import read_json, write_atomically
from adops_wrappers.envs.deep_sea import EPISODES, solved_after
from adops_wrappers.training.exit import fail
from adops_wrappers.training.log import read_metrics
from adops_wrappers.training.rundir import read_config
from research import ROOT, sweep
from research.analysis.labels import usual_size
from research.design import METHODS, Arm, Cell, in_rounds
from research.rows import Row, read_rows, write_rows
from research.sweeping.processes import is_finished

ARMS = {
    "raw": METHODS["raw"],
    "recipe": ("none", {"clamp_advantage": "True", "quiet_iterations": "10"}),
    **{name: METHODS[name] for name in ("PIES", "no bonus", "ADOPS", "ADOPES")},
    "GRM(1)": METHODS["GRM"],
    "PBIM": METHODS["PBIM"],
}
"""Each arm's method in ppo_rnd.py and its settings, in the order in which they run."""
FOUR = dict.fromkeys(("raw", "recipe", "PIES", "no bonus"), 10)
SEVEN = dict.fromkeys(ARMS.keys() - {"PBIM"}, 10)
SEEDS_OF_PILOTS = 10
"""Pilots had the seeds 1 to 10 and those above 1000."""
ROUNDS = (1, 3, 5, 10)
"""All tasks run their first seed, then their seeds up to the third, and so on."""

SHARED = {"bonus": "count", "tensorboard": "False", "checkpoint_every": "25"}
MONTEZUMA_LEARNER = {
    "num_envs": "32",
    "num_steps": "128",
    "mlp_hidden": "256",
    "learning_rate": "2.5e-4",
}
MINIGRID_LEARNER = {
    "num_envs": "32",
    "num_steps": "64",
    "learning_rate": "1e-3",
    "clip_coef": "0.2",
    "ent_coef": "0.005",
    "gamma_ext": "0.99",
    "scale_adv": "True",
}


class Task(NamedTuple):
    """A task, its learner and the number of seeds of each arm."""

    name: str
    env_id: str
    iterations: int
    learner: dict[str, str]
    seeds: dict[str, int]
    solved: float
    """The final return from which a run has solved it."""
    settings: tuple[tuple[str, str], ...] = ()

    def arms(self) -> list[Arm]:
        """Return its arms, in the order in which they run."""
        fixed = {**SHARED, **self.learner, "total_iterations": str(self.iterations)}
        task = {"env_id": self.env_id, **dict(self.settings)}
        return [
            Arm.of(self.name, name, self.seeds[name], method, {**task, **own}, fixed)
            for name, (method, own) in ARMS.items()
            if name in self.seeds
        ]


def deep_sea(size: int) -> Task:
    """Return DeepSea of one size, for bsuite's number of episodes."""
    settings = (("env_kwargs", json.dumps({"size": size})),)
    seeds = dict.fromkeys(ARMS, 10)
    rows = int(MINIGRID_LEARNER["num_envs"]) * int(MINIGRID_LEARNER["num_steps"])
    iterations = -(-EPISODES * size // rows)
    return Task(
        *(f"DeepSea-{size}", "adops/DeepSea-v0", iterations, MINIGRID_LEARNER, seeds, 0.0),
        settings=settings,
    )


def minigrid(name: str, iterations: int, seeds: dict[str, int]) -> Task:
    """Return a task of MiniGrid."""
    env_id = f"MiniGrid-{name}"
    return Task(name.rpartition("-")[0], env_id, iterations, MINIGRID_LEARNER, seeds, 0.5)


def with_tv(name: str, iterations: int, seeds: dict[str, int]) -> Task:
    """Return a task of MiniGrid in which an action that it ignores switches a noisy TV on."""
    tv = {"task": f"MiniGrid-{name}", "place": "everywhere", "action": 6}
    env_id, settings = "research.tv_tasks:MiniGridTV-v0", (("env_kwargs", json.dumps(tv)),)
    task = f"{name.rpartition('-')[0]} TV"
    return Task(task, env_id, iterations, MINIGRID_LEARNER, seeds, 0.5, settings)


TASKS = (
    Task(
        *("Montezuma", "adops/MontezumaRam-v0", 1500, MONTEZUMA_LEARNER),
        {**dict.fromkeys(SEVEN, 5), "GRM(1)": 3, "no bonus": 2},
        solved=1000.0,
    ),
    minigrid("MultiRoom-N4-S5-v1", 490, SEVEN),
    with_tv("Empty-8x8-v0", 245, SEVEN),
    with_tv("MultiRoom-N2-S4-v0", 245, FOUR),
    minigrid("DoorKey-16x16-v0", 980, FOUR),
    minigrid("KeyCorridorS3R3-v0", 1470, FOUR),
    *(deep_sea(size) for size in (10, 20, 30)),
    minigrid("RedBlueDoors-8x8-v0", 980, FOUR),
    minigrid("FourRooms-v0", 980, FOUR),
)


Run = tuple[Task, Arm, Cell]
Key = tuple[str, str, str]
"""Task, arm and seed of a row."""
DATA = ROOT / "docs" / "data" / "external_study.csv"
NUMBERS = (
    *("final_return", "solved", "steps", "steps_to_1000", "episodes_to_solve", "rooms", "curve"),
)
"""The columns that a run's seed and settings decide; the others are about where it was made."""


def planned(tasks: Sequence[Task] = TASKS) -> list[Run]:
    """Return all runs in their order."""
    by_name = {task.name: task for task in tasks}
    return [
        (by_name[arm.task], arm, arm.cell(SEEDS_OF_PILOTS + seed))
        for arm, seed in in_rounds([task.arms() for task in tasks], ROUNDS)
    ]


def row_of(task: Task, arm: Arm, seed: int, run_dir: Path, commit: str) -> Row:
    """Return what a finished run has to report."""
    config, metrics = read_config(run_dir), read_metrics(run_dir)
    returns = np.array([float(x or "nan") for x in metrics["charts/episodic_return_recent"]])
    steps = np.array([int(x) for x in metrics["global_step"]])
    speeds = np.array([float(x) for x in metrics["charts/SPS"]])
    twentieths = np.linspace(0, len(returns), 21).astype(int)[1:] - 1
    above = np.flatnonzero(returns >= 1000.0)
    episodes, solved = "", returns[-1] >= task.solved
    if task.name.startswith("DeepSea"):
        episodes = str(solved_after(list(bad_episodes(metrics))) or "")
        solved = episodes != ""
    return {
        "task": task.name,
        "arm": arm.name,
        "seed": str(seed),
        "final_return": f"{returns[-1]:.6g}",
        "solved": str(int(solved)),
        "steps": str(steps[-1]),
        "steps_to_1000": str(steps[above[0]]) if len(above) else "",
        "episodes_to_solve": episodes,
        "rooms": _last(metrics, "charts/rooms"),
        "hours": f"{(np.diff(steps, prepend=0) / speeds).sum() / 3600:.3g}",
        "curve": " ".join(f"{value:.4g}" for value in returns[twentieths]),
        "commit": commit,
        "versions": json.dumps(config["versions"]),
        "machine": platform.machine(),
        "settings": json.dumps(_resolved(config["args"])),
    }


def _resolved(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with what `auto` stood for, and without the place where the run was made."""
    size = args["normalize_intrinsic"]
    kept = {name: value for name, value in args.items() if name not in ("run_dir", "resume")}
    return {**kept, "normalize_intrinsic": usual_size(args["bonus"]) if size == "auto" else size}


def bad_episodes(metrics: Mapping[str, Sequence[str]]) -> Iterator[float]:
    """Yield whether each episode was bad; those of one iteration share its mean."""
    before = 0
    for total, share in zip(metrics["charts/episodes"], metrics["charts/bad"], strict=True):
        yield from [float(share or 0.0)] * (int(float(total)) - before)
        before = int(float(total))


def _last(metrics: Mapping[str, Sequence[str]], name: str) -> str:
    return metrics[name][-1] if name in metrics else ""


def collect(root: Path, path: Path) -> None:
    """Add the runs that have finished to the file."""
    commit = read_json(root / "commit.json")["commit"]
    rows = {_key(row): row for row in read_rows(path)}
    for task, arm, cell in planned():
        if is_finished(root / cell.name):
            row = row_of(task, arm, cell.seed, root / cell.name, commit)
            rows[_key(row)] = row
    if not rows:
        fail(f"no run in {root} has finished.")
    order = [key_of(*run) for run in planned()]
    place = {key: number for number, key in enumerate(order)}
    sorted_keys = sorted(rows, key=lambda key: place.get(key, len(order)))
    write_rows(path, [rows[key] for key in sorted_keys])
    print(f"{path}: {len(rows)} of {len(order)} runs")


def _key(row: Row) -> Key:
    return row["task"], row["arm"], row["seed"]


def key_of(task: Task, arm: Arm, cell: Cell) -> Key:
    """Return the key of a run's row."""
    return task.name, arm.name, str(cell.seed)


def spread(runs: Sequence[Run], number: int) -> list[Run]:
    """Return some runs, from the first to the last and as far apart as can be."""
    places = np.linspace(0, len(runs) - 1, min(number, len(runs))).round().astype(int)
    return [runs[place] for place in places]


def compare(root: Path, runs: Sequence[Run], kept: Mapping[Key, Row]) -> int:
    """Print whether runs have ended with the numbers of their rows; 1 if one has not."""
    code = 0
    for task, arm, cell in runs:
        if not is_finished(root / cell.name):
            continue
        row = kept[key_of(task, arm, cell)]
        new = row_of(task, arm, cell.seed, root / cell.name, commit="")
        changed = [name for name in NUMBERS if row[name] != new[name]]
        other = [f"{name} {row[name]}, now {new[name]}" for name in changed]
        print(f"{task.name}, {arm.name}, seed {cell.seed}: {'; '.join(other) or 'the same'}")
        code |= bool(changed)
    return code


def commit_of(folder: Path) -> str:
    """Return the commit that is checked out here; the runs must come from exactly one."""
    git = ("git", "-C", str(folder))
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True
    )
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode or changed.stdout.strip():
        fail("the study runs from a clean checkout, so that its rows can name their commit.")
    return head.stdout.strip()


@dataclass
class Args(sweep.RunArgs):
    """Settings of the study."""

    collect: str = ""
    """add the finished runs to this CSV file, and run nothing"""
    keep: str = ""
    """CSV file of finished runs, which are not run again"""
    only: str = ""
    """run only tasks whose names begin like this"""
    report: bool = False
    """write what the rows say into the pages, and run nothing"""
    again: int = 0
    """run this many of the runs that --keep holds once more, and compare their numbers"""


def main(argv: list[str] | None = None) -> int:
    """Run what is left, or collect."""
    args = tyro.cli(Args, args=argv, description=__doc__)
    root = Path(args.root)
    if args.collect:
        collect(root, Path(args.collect))
    if args.report:
        from research import external_report

        external_report.write(read_rows(Path(args.collect or DATA)))
    if args.collect or args.report:
        return 0
    kept = {_key(row): row for row in read_rows(Path(args.keep))} if args.keep else {}
    plan = planned([task for task in TASKS if task.name.startswith(args.only)])
    if args.again:
        plan = spread([run for run in plan if key_of(*run) in kept], args.again)
    else:
        plan = [run for run in plan if key_of(*run) not in kept]
    cells = [cell for *_, cell in plan]
    if not cells:
        return 0
    commit = "" if args.dry_run else commit_of(ROOT)

    def write_commit(root: Path) -> None:
        path = root / "commit.json"
        if path.exists() and read_json(path)["commit"] != commit:
            fail(f"{root} holds runs of another commit. Choose another directory.")
        write_atomically(path, json.dumps({"commit": commit}).encode())

    code = sweep.run(args, cells, at_start=write_commit)
    if args.again and not args.dry_run:
        return compare(root, plan, kept) or code
    return code


if __name__ == "__main__":
    sys.exit(main())
