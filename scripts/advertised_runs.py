"""Runs the training commands that pages and help texts show, and compares what came out.

    python scripts/advertised_runs.py                  # all of them; rerun to continue
    python scripts/advertised_runs.py --only DoorKey   # those that contain this text
    python scripts/advertised_runs.py --report         # the table of what has been run so far

Every command runs with five seeds to its end. Of the long ones the first five per cent of the
iterations are run, or a quarter of an hour (`--longest`), whichever ends first; then they get
SIGTERM. `--long-seeds` runs them with fewer seeds. The final return of a run is the mean over the
last tenth of its curve. A page promises what its worst seed does: the exit code is 1 if one does
less than `PROMISES` says, or fails.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from adops_wrappers.training.log import read_metrics

ROOT = Path(__file__).resolve().parent.parent
FIRST_PART = 0.05
"""Of the iterations of a long run."""
FLAGS = {
    r"train/ppo_rnd\w*\.py": "--seed {seed} --run-dir {seed}",
    r"train/laptop\.py": "--seed {seed} --out {seed}",
    r"train/demo\.py": "--seeds {seeds} --out . --jobs 1",
    r"-m research\.(?:study|external|sweep|off_policy|tv_critic)": "",
    r"examples/(?:ppo|sb3_ppo|dqn|recurrent_ppo)\.py": "--seed {seed}",
    r"examples/sb3_dqn\.py": "--seed {seed} --seeds 1",
}
"""What is added to the commands of each script; without {seed}, one call runs all seeds."""
LONG = (
    *("--tier laptop", "train/laptop", "research.external", "--workers 2"),
    *("runs/epsilon", "KungFuMaster", "MiniZuma"),
)
"""Parts of commands that take more than 15 minutes. Runs of the default env do, too."""
NOTEBOOKS = {
    "notebooks/03_inspecting_shaped_rewards.py": (
        "python train/ppo_rnd.py --shaping adops --no-tensorboard --num-envs 8 --num-steps 128 "
        "--total-iterations 25 --obs-norm-init-iterations 2"
    )
}
"""The training command of each notebook, which puts it together from parts; a few minutes."""
ELSEWHERE = ("--resume", "--report", "slurm", "--keep", "--paper", "--dry-run", "--collect")
"""Parts of commands that continue, report or plan runs, or need a cluster."""


class Promise(NamedTuple):
    """What a page promises of a command."""

    part: str
    """A text that only this command contains."""
    least: float
    """The smallest final return."""
    method: str = ""
    """Of which runs, if the command makes runs of several methods."""


PROMISES = (
    Promise("train/ppo_rnd.py --shaping adops --env-id MiniGrid-DoorKey-5x5-v0", 0.9),
    Promise("--env-id adops/KeyDoorTV-v0 --bonus count --num-envs 64 --num-steps 64", 0.7),
    Promise("train/demo.py", 0.6, "adops"),
    Promise("examples/recurrent_ppo.py --shaping adops", 0.9),
    Promise("examples/ppo.py --env-id minigrid:MiniGrid-DoorKey-5x5-v0", 0.96),
    Promise("examples/ppo.py --one-critic --env-id minigrid:MiniGrid-DoorKey-5x5-v0", 0.96),
    Promise("examples/ppo.py --env-id adops/Fountain-v0", 0.93),
    Promise("examples/ppo.py --one-critic --env-id adops/Fountain-v0", 0.93),
)


class Job(NamedTuple):
    """A training command and the pages that show it."""

    command: str
    pages: list[str]

    @property
    def added(self) -> str:
        """The flags that choose seed and folder."""
        return next(flags for script, flags in FLAGS.items() if re.search(script, self.command))

    @property
    def long(self) -> bool:
        """Whether only its first part is run."""
        default_env = "train/ppo_rnd" in self.command and "--env-id" not in self.command
        if self.command in NOTEBOOKS.values():
            return False
        return default_env or any(part in self.command for part in LONG)

    @property
    def promise(self) -> Promise | None:
        """What its pages promise."""
        return next((p for p in PROMISES if p.part in self.command), None)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return re.sub(r"\W+", "-", self.command.removeprefix("python "))[:200]

    def seeds(self, seeds: int, long_seeds: int | None) -> range:
        """Return the seeds that it is called with; without a flag for them, only the first."""
        if "{seed}" not in self.added:
            seeds = 1
        elif self.long and long_seeds is not None:
            seeds = long_seeds
        return range(1, seeds + 1)

    def argv(self, seed: int, seeds: int) -> list[str]:
        """Return its command line for one seed, in its own folder."""
        _, *words = shlex.split(self.command)
        if words[0] != "-m":
            words[0] = str(ROOT / words[0])
        return [sys.executable, *words, *self.added.format(seed=seed, seeds=seeds).split()]


def commands_in(text: str, *, sentences: bool = True) -> Iterator[str]:
    """Yield the training commands that a page shows, also within `sentences` if they count.

    Each comes on one line, without its comment; one in a loop comes once for each method.
    """
    text = re.sub(r"\\\n|\n(?= +--)", " ", text)
    text = re.sub(r"^for method in ([^\n]*); do\n(.*?)^done$", _unrolled, text, flags=re.M | re.S)
    known = rf"python (?:{'|'.join(FLAGS)})(?![^\s`])"
    yield from re.findall(rf"^ *({known}[^\n`#]*)", text, re.M)
    yield from re.findall(rf"(?<!`)`({known}[^`]*)`", text) if sentences else ()
    for flags in re.findall(r"^ *python SCRIPT( [^\n]*)", text, re.M):
        yield f"python train/ppo_rnd.py{flags}"


def _unrolled(loop: re.Match[str]) -> str:
    return "".join(loop[2].replace("$method", method) for method in loop[1].split())


def find_jobs() -> list[Job]:
    """Return all training commands of the pages and of the scripts' help texts."""
    pages: dict[str, list[str]] = defaultdict(list)
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    paths += [p for f in ("train", "research", "examples") for p in sorted((ROOT / f).glob("*.py"))]
    for path in paths:
        for found in commands_in(path.read_text(), sentences=path.suffix == ".md"):
            if any(part in found for part in ELSEWHERE) or path.name.startswith("ppo_rnd_"):
                continue
            command = re.sub(r" --(run-dir|csv) \S+", "", found)
            pages[" ".join(command.split())].append(str(path.relative_to(ROOT)))
    for page, command in NOTEBOOKS.items():
        pages[command].append(page)
    return [Job(command, sorted(set(on))) for command, on in pages.items()]


def iterations_done(out: Path) -> int:
    """Return how many iterations the run in or below a folder has logged."""
    try:
        return len(read_metrics(next(out.rglob("metrics.csv")).parent)["iteration"])
    except (StopIteration, OSError, KeyError, ValueError):
        return 0


def total_of(out: Path) -> int:
    """Return how many iterations a run will have; many, while that is not known."""
    try:
        config = json.loads(next(out.rglob("config.json")).read_text())
        return int(config["args"]["total_iterations"])
    except (StopIteration, OSError):
        return 10**9


def run(job: Job, seed: int, seeds: int, folder: Path, longest: float) -> None:
    """Run a command with one seed, unless that has been done, and write what came of it."""
    result, log, out = (folder / f"{seed}{end}" for end in (".json", ".log", ""))
    if result.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    command, began = job.argv(seed, seeds), time.monotonic()
    if (out / "config.json").exists():
        command = [*command[:2], "--resume", str(seed)]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(1.0)
            over = time.monotonic() - began > longest
            if job.long and (over or iterations_done(out) >= FIRST_PART * total_of(out)):
                process.send_signal(signal.SIGTERM)
                process.wait()
    runs = folder if "{seed}" not in job.added else out
    said = {"code": process.returncode, "seconds": round(time.monotonic() - began)}
    said |= {"done": iterations_done(out), "finals": finals(runs, log.read_text())}
    result.write_text(json.dumps(said))


def last_tenth(values: list[float]) -> float:
    """Return the mean over the last tenth of a curve, NaN if nothing is known there."""
    tail = [v for v in values[-max(1, len(values) // 10) :] if not math.isnan(v)]
    return statistics.fmean(tail) if tail else math.nan


def finals(out: Path, log: str) -> dict[str, list[float]]:
    """Return the final returns of a run, or of the runs below a folder by method."""
    found = defaultdict(list)
    for path in sorted(out.rglob("metrics.csv")):
        method, cell, _ = path.parent.name.partition("__")
        method = method if cell else ""
        curve = [float(v or "nan") for v in read_metrics(path.parent)["charts/episodic_return"]]
        found[method].append(last_tenth(curve))
    printed = [float(value) for value in re.findall(r"extrinsic return ([\d.eE+-]+|nan)", log)]
    if printed and not found:
        found[""].append(last_tenth(printed))
    return dict(found)


def rows(out: Path, jobs: list[Job]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| pages | command | promised | runs | worst | median | slowest | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for job in jobs:
        results = [json.loads(path.read_text()) for path in (out / job.folder).glob("[0-9]*.json")]
        if results:
            yield row(job, results)


def row(job: Job, results: list[dict[str, Any]]) -> str:
    """Return one line of the table."""
    promise = job.promise
    method = promise.method if promise else ""
    values = [v for result in results for v in result["finals"].get(method, [])]
    values = [v for v in values if not math.isnan(v)]
    worst, median = (f"{f(values):.2f}" if values else "" for f in (min, statistics.median))
    remarks = [f"exit code {r['code']}" for r in results if r["code"] and not job.long]
    if promise and (not values or min(values) < promise.least):
        remarks.append("**broken promise**")
    if job.long:
        done = min(result["done"] for result in results)
        remarks.append(f"its first {done} iterations" if done else "its first part")
    slowest = max(result["seconds"] for result in results)
    count, promised = len(values) or len(results), f"{promise.least:g}" if promise else ""
    cells = (", ".join(job.pages), f"`{job.command}`", promised, count, worst, median)
    return f"| {' | '.join(map(str, cells))} | {slowest} s | {'; '.join(remarks)} |"


def main() -> int:
    """Run what is missing, print the table, and return 1 if a promise is broken."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument(
        "--out", type=Path, default=Path("runs/advertised"), help="folder of the runs"
    )
    line.add_argument("--seeds", type=int, default=5, help="the number of seeds")
    line.add_argument("--long-seeds", type=int, help="of the long commands, if fewer")
    line.add_argument(
        "--longest", type=float, default=15 * 60.0, help="seconds of each run of a long command"
    )
    line.add_argument("--jobs", type=int, default=1, help="runs at a time")
    line.add_argument(
        "--only", default="", help="a text that the command or a page's name contains"
    )
    line.add_argument("--report", action="store_true", help="run nothing")
    args = line.parse_args()
    jobs = [job for job in find_jobs() if args.only in f"{job.pages} {job.command}"]
    calls = [
        (job, seed, args.seeds, args.out / job.folder, args.longest)
        for job in sorted(jobs, key=lambda job: (job.long, job.promise is None))
        for seed in job.seeds(args.seeds, args.long_seeds)
    ]
    if not args.report:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(tqdm(pool.map(lambda call: run(*call), calls), "runs", len(calls)))
    table = "\n".join(rows(args.out, jobs))
    print(table)
    return int("broken promise" in table or "exit code" in table)


if __name__ == "__main__":
    sys.exit(main())
