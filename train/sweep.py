"""Runs a grid of methods, seeds and settings of ppo_rnd.py, here or on a SLURM cluster.

    python train/sweep.py runs/small --methods none adops pbim --seeds 1-3
        --settings env_id=adops/KeyDoorTV-v0 total_iterations=50 bonus=count
    python train/sweep.py runs/paper --paper --executor slurm --partition gpu --gpus 1

The same command, given again, goes on where the last one stopped: finished cells are skipped,
unfinished ones resume from their checkpoint. `--dry-run` prints the plan alone.

As a library: `expand` or `paper_cells` make the cells and `run` runs them. Its parts: `check`
refuses what cannot work, `hold` locks the directory, `run_local` or `run_slurm` run the cells, and
`report` says what failed.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import dataclasses
import difflib
import fcntl
import getpass
import importlib.util
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

import ppo_rnd
import tyro
from torch.nn import Module

SCRIPT = Path(__file__).with_name("ppo_rnd.py")
METHODS = typing.get_args(typing.get_type_hints(ppo_rnd.Args)["shaping"])
OWN_FLAGS = ("seed", "shaping", "run_dir", "resume", "exp_name")
"""Flags of ppo_rnd.py that the grid sets."""

PAPER_SEEDS = {
    **dict.fromkeys(("none", "pies", "adops", "adopes", "adopes-half"), 20),
    **dict.fromkeys(("grm", "grm-norm"), 10),
    **dict.fromkeys(("pbim", "pbim-norm"), 1),
}
"""The paper's nine configurations with their numbers of seeds; none is plain RND."""

GPU_STEPS_PER_SECOND = 30_000 * 32 * 128 / (30 * 3600)
"""The paper's 30 GPU-hours for 30,000 iterations on Atari."""
CPU_STEPS_PER_SECOND = {
    "atari": 100.0,
    "minigrid": 2_000.0,
    "gallery": 25_000.0,
    "other": 3_000.0,
}
"""One thread of a CPU, by kind of env: an order of magnitude. The gallery's envs are tables."""


@dataclass
class RunArgs:
    """Where and how cells are run."""

    root: Annotated[str, tyro.conf.Positional]
    """directory of the sweep; each cell's run directory is made in it"""
    dry_run: bool = False
    """print the plan with estimated hours and disk, and run nothing"""
    executor: Literal["local", "slurm"] = "local"
    """local: processes on this machine; slurm: a job array through submitit"""
    jobs: int = 0
    """runs at a time; 0: local, one for each CPU core; slurm, as many as the cluster gives"""
    threads: int = 1
    """CPU threads of each process"""
    ranks: int = 1
    """processes (GPUs) of each run, through torchrun on one node"""
    sps: float = 0.0
    """steps per second of one run, for the estimate; 0: measured in this directory, or assumed"""
    refresh: float = 0.0
    """seconds between looks at the runs; 0: 1 here, 15 on a cluster"""

    partition: str = ""
    """slurm: partition; empty: the cluster's default"""
    hours: float = 24.0
    """slurm: time limit of one job; a run that needs longer is requeued and resumes"""
    gpus: int = 0
    """slurm: GPUs of each job; 0: a CPU job, or one GPU for each rank if ranks > 1"""
    mem_gb: float = 8.0
    """slurm: memory of each job"""
    signal_delay: int = 120
    """slurm: seconds before the time limit at which a run is told to write its checkpoint"""
    slurm_extra: list[str] = dataclasses.field(default_factory=list)
    """slurm: further name=value pairs for sbatch, such as account=me qos=high"""


@dataclass
class Args(RunArgs):
    """Settings of one sweep."""

    methods: list[str] = dataclasses.field(default_factory=list)
    """values of --shaping"""
    seeds: list[str] = dataclasses.field(default_factory=lambda: ["1"])
    """seeds, single (7) or as ranges (1-20)"""
    settings: list[str] = dataclasses.field(default_factory=list)
    """name=value pairs of ppo_rnd.py for every cell, such as num_envs=8"""
    grid: list[str] = dataclasses.field(default_factory=list)
    """name=value,value,... axes of the grid; a method that does not read one has no such axis"""
    paper: bool = False
    """the paper's nine configurations and seeds; --settings still apply"""


def fail(message: str) -> typing.NoReturn:
    """End the script with a message and exit code 1."""
    sys.exit(f"error: {message}")


# Cells


@dataclass(frozen=True)
class Cell:
    """One run: a method, a seed and the settings of ppo_rnd.py that differ from its defaults."""

    method: str
    seed: int
    varied: tuple[tuple[str, str], ...] = ()
    """Settings that tell cells apart; they are part of the name."""
    fixed: tuple[tuple[str, str], ...] = ()
    """Settings that all cells of the sweep share."""

    @property
    def name(self) -> str:
        """Name of the run directory; it depends on nothing but this cell's own place."""
        settings = [f"{name}={value}".replace("/", "-") for name, value in self.varied]
        return "__".join([self.method, *settings, f"seed{self.seed}"])

    @property
    def configuration(self) -> Cell:
        """This cell with a seed that is the same for all: equal for cells of one configuration."""
        return dataclasses.replace(self, seed=1)

    def flags(self) -> list[str]:
        """Return the command line of ppo_rnd.py, run directory aside."""
        flags = ["--shaping", self.method, "--seed", str(self.seed)]
        for name, value in (*self.fixed, *self.varied):
            flag = name.replace("_", "-")
            if value in ("True", "False"):
                flags.append(f"--{flag}" if value == "True" else f"--no-{flag}")
            else:
                flags += [f"--{flag}", value]
        return flags


def tidy(value: str) -> str:
    """Write a number in one way, so that 1e-2 and 0.01 are the same cell."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return repr(kind(value))
    return {"true": "True", "false": "False"}.get(value.lower(), value)


def read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Split name=value texts and check the names."""
    known = [f.name for f in dataclasses.fields(ppo_rnd.Args)]
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or not value:
            fail(f"{option} takes name=value, got {text!r}.")
        if name in OWN_FLAGS:
            fail(f"{option}: {name} is set by the sweep itself.")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            fail(f"{option}: ppo_rnd.py has no setting {name}.{hint}")
        if name in pairs:
            fail(f"{option} names {name} twice.")
        pairs[name] = value
    return pairs


def read_seeds(texts: Iterable[str]) -> list[int]:
    """Read seeds such as 7 or 1-20."""
    seeds: dict[int, None] = {}
    for text in texts:
        first, dash, last = text.partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            fail(f"--seeds takes numbers and ranges such as 1-20, got {text!r}.")
        if not numbers:
            fail(f"--seeds: the range {text} is empty.")
        seeds.update(dict.fromkeys(numbers))
    return list(seeds)


def check_methods(methods: Iterable[str]) -> None:
    """Refuse a method that ppo_rnd.py does not know."""
    for method in methods:
        if method not in METHODS:
            near = difflib.get_close_matches(method, METHODS, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            fail(f"unknown method {method!r}; there are {', '.join(METHODS)}.{hint}")


def reads(method: str, setting: str) -> bool:
    """Whether a method looks at a setting."""
    methods = ppo_rnd.METHOD_FLAGS.get(setting)
    return methods is None or method in methods


def expand(
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: dict[str, str] | None = None,
    grid: dict[str, Sequence[str]] | None = None,
) -> list[Cell]:
    """Return the cells of methods × grid × seeds.

    A setting that only some methods read (epsilon, delay, ...) goes to those alone, so that one
    grid serves all methods.
    """
    check_methods(methods)
    cells: dict[Cell, None] = {}
    for method in methods:
        fixed = tuple((k, tidy(v)) for k, v in (settings or {}).items() if reads(method, k))
        axes = [
            [(name, tidy(value)) for value in values]
            for name, values in sorted((grid or {}).items())
            if reads(method, name)
        ]
        for varied in itertools.product(*axes):
            cells.update({Cell(method, seed, varied, fixed): None for seed in seeds})
    return list(cells)


def paper_cells(settings: dict[str, str] | None = None) -> list[Cell]:
    """Return the paper's 122 runs."""
    return [
        cell
        for method, seeds in PAPER_SEEDS.items()
        for cell in expand([method], range(1, seeds + 1), settings)
    ]


def cells_of(args: Args) -> list[Cell]:
    """Return the cells that the command line asks for."""
    settings = read_pairs("--settings", args.settings)
    grid = {k: v.split(",") for k, v in read_pairs("--grid", args.grid).items()}
    twice = settings.keys() & grid.keys()
    if twice:
        fail(f"{', '.join(sorted(twice))} cannot stand in --settings and in --grid at once.")
    if args.paper:
        if args.methods or grid or args.seeds != ["1"]:
            fail("--paper sets methods and seeds itself; drop --methods, --seeds and --grid.")
        return paper_cells(settings)
    if not args.methods:
        fail(f"name the --methods, of {', '.join(METHODS)}, or give --paper.")
    return expand(args.methods, read_seeds(args.seeds), settings, grid)


# Plan


class Progress(NamedTuple):
    """How far a cell has come, from the files of its run directory."""

    state: Literal["waiting", "unfinished", "finished"]
    iteration: int = 0
    sps: float = 0.0
    score: str = "-"
    reason: str = ""


def read_progress(run_dir: Path) -> Progress:
    """Read status.json and the last row of metrics.csv."""
    status: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        status = json.loads((run_dir / "status.json").read_text())
    row = last_row(run_dir / "metrics.csv")
    state: Literal["waiting", "unfinished", "finished"] = "waiting"
    if status.get("finished"):
        state = "finished"
    elif (run_dir / "config.json").exists():
        state = "unfinished"
    score = row.get("charts/episodic_return_recent") or row.get("charts/episodic_return")
    return Progress(
        state,
        int(row.get("iteration") or status.get("iteration") or 0),
        float(row.get("charts/SPS") or 0.0),
        f"{float(score):.3g}" if score else "-",
        str(status.get("reason", "")),
    )


def last_row(path: Path) -> dict[str, str]:
    """Return the last whole row of a CSV file without reading the rest."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            file.seek(max(file.tell(), path.stat().st_size - 8192))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    names, *rows = csv.reader(line.decode() for line in [header, *lines[-1:]])
    return dict(zip(names, rows[0], strict=True)) if rows and len(rows[0]) == len(names) else {}


@dataclass
class Plan:
    """What a sweep will do, and what it will need."""

    root: Path
    cells: list[Cell]
    args: dict[str, ppo_rnd.Args]
    """The full settings of each cell, by name."""
    progress: dict[str, Progress]
    bytes_per_run: dict[str, int]
    sps: float
    sps_source: str

    @property
    def open(self) -> list[Cell]:
        """Cells that are not finished."""
        return [c for c in self.cells if self.progress[c.name].state != "finished"]

    def hours(self, cell: Cell) -> float:
        """Return the hours that a cell still needs."""
        args = self.args[cell.name]
        left = args.total_iterations - self.progress[cell.name].iteration
        return left * args.num_envs * args.num_steps / self.sps / 3600

    def bytes_left(self) -> int:
        """Return the disk space that the open cells still need."""
        return sum(
            max(0, self.bytes_per_run[c.name] - directory_size(self.root / c.name))
            for c in self.open
        )


def check(
    cells: Sequence[Cell], root: Path, *, ranks: int = 1, sps: float = 0.0, on_gpu: bool = False
) -> Plan:
    """Refuse cells that cannot run before any of them starts; return the plan.

    Settings go through ppo_rnd.py's own checks, the env is built once, and a run directory that
    holds a run with other settings is left alone.
    """
    names = Counter(cell.name for cell in cells)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        fail(f"two cells share the run directory {twice[0]}; their settings differ elsewhere.")
    parsed: dict[Cell, ppo_rnd.Args] = {}
    sizes: dict[Cell, int] = {}
    for cell in cells:
        key = cell.configuration
        if key not in parsed:
            try:
                parsed[key] = ppo_rnd.parse_args(key.flags())
            except SystemExit as error:
                fail(f"cell {cell.name}: {str(error).removeprefix('error: ')}")
            if parsed[key].num_envs % ranks:
                fail(
                    f"cell {cell.name}: num_envs={parsed[key].num_envs} cannot be split over "
                    f"--ranks {ranks}. Choose a multiple."
                )
            if ranks > 1 and parsed[key].bonus == "count":
                fail(f"cell {cell.name}: bonus=count keeps its counts in one process: no --ranks.")
            if ranks > 1 and cell.method == "guarded":
                fail(f"cell {cell.name}: guarded has one beta for a process: no --ranks.")
            sizes[key] = run_bytes(parsed[key])
    args = {
        c.name: dataclasses.replace(
            parsed[c.configuration], seed=c.seed, run_dir=str(root / c.name)
        )
        for c in cells
    }
    for cell in cells:
        refuse_other_run(root / cell.name, args[cell.name])
    progress = {cell.name: read_progress(root / cell.name) for cell in cells}
    sps, source = (sps, "--sps") if sps else estimate_sps(args, progress, ranks, on_gpu)
    return Plan(
        root,
        list(cells),
        args,
        progress,
        {cell.name: sizes[cell.configuration] for cell in cells},
        sps,
        source,
    )


def refuse_other_run(run_dir: Path, wanted: ppo_rnd.Args) -> None:
    """Stop if the directory holds a run whose learning settings are not the wanted ones."""
    path = run_dir / "config.json"
    if not path.exists():
        return
    try:
        there = json.loads(path.read_text())["args"]
    except (OSError, ValueError, KeyError) as error:
        fail(f"{path} cannot be read ({error}). Move {run_dir} away to run this cell anew.")
    different = [
        f"{name} is {there.get(name)!r} there and {value!r} here"
        for name, value in dataclasses.asdict(wanted).items()
        if name not in ppo_rnd.FREE_ON_RESUME and there.get(name) != value
    ]
    if different:
        fail(
            f"{run_dir} holds a run with other settings: {'; '.join(different)}. Choose another "
            "directory for this sweep; nothing was changed."
        )


def run_bytes(args: ppo_rnd.Args) -> int:
    """Return the disk space that one run needs, by ppo_rnd.py's own reckoning."""
    kind = ppo_rnd.env_kind(args.env_id)
    try:
        env = ppo_rnd.make_env(args, kind)
    except Exception as error:
        fail(f"env_id={args.env_id} cannot be built: {error}")
    encoder = ppo_rnd.Encoder(env.observation_space, kind, ppo_rnd.torch.device("cpu"), False)
    modules: list[Module] = []
    if isinstance(env.action_space, ppo_rnd.gym.spaces.Discrete):
        modules.append(ppo_rnd.Agent(encoder.shape, int(env.action_space.n), args.mlp_hidden))
    if args.bonus == "rnd":
        modules += ppo_rnd.make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
    env.close()
    return ppo_rnd.disk_needed(modules, args)


def estimate_sps(
    args: dict[str, ppo_rnd.Args], progress: dict[str, Progress], ranks: int, on_gpu: bool
) -> tuple[float, str]:
    """Return steps per second of one run, and where the figure comes from."""
    seen = [p.sps for p in progress.values() if p.sps > 0.0]
    if seen:
        return sum(seen) / len(seen), f"mean of {len(seen)} runs in this directory"
    env_id = next(iter(args.values())).env_id
    kind = "gallery" if env_id.startswith("adops/") else ppo_rnd.env_kind(env_id)
    if on_gpu and kind == "atari":
        return ranks * GPU_STEPS_PER_SECOND, "assumed: the paper's 30 GPU-hours; see --sps"
    return ranks * CPU_STEPS_PER_SECOND[kind], f"assumed for {kind} on one CPU thread; see --sps"


def directory_size(path: Path) -> int:
    """Return the bytes of all files below a directory."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total


def print_plan(plan: Plan, jobs: int) -> None:
    """Print cells by configuration, hours and disk."""
    rows = []
    for cell in dict.fromkeys(c.configuration for c in plan.cells):
        of_cell = [c for c in plan.cells if c.configuration == cell]
        states = Counter(plan.progress[c.name].state for c in of_cell)
        varied = " ".join(f"{k}={v}" for k, v in cell.varied) or "-"
        hours = sum(plan.hours(c) for c in of_cell if c in plan.open)
        states_text = [str(states[s]) for s in ("finished", "unfinished", "waiting")]
        rows.append([cell.method, varied, str(len(of_cell)), *states_text, duration(hours)])
    head = ["method", "settings", "seeds", "finished", "to resume", "to start", "time left"]
    print(table([head, *rows]))
    hours = sum(plan.hours(c) for c in plan.open)
    free = free_bytes(plan.root)
    print(
        f"{len(plan.cells)} cells, {len(plan.cells) - len(plan.open)} finished. "
        f"About {duration(hours)} of runs at {plan.sps:.0f} steps/s each ({plan.sps_source}); "
        f"{duration(hours / max(1, min(jobs, len(plan.open))))} with {jobs} at a time. "
        f"Disk: {plan.bytes_left() / 2**20:.0f} MB needed, {free / 2**20:.0f} MB free."
    )


def duration(hours: float) -> str:
    """Write a time in the unit that suits it."""
    if hours >= 1.0:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1.0 else f"{hours * 3600:.0f} s"


def table(rows: list[list[str]]) -> str:
    """Align columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


# Disk and locks


def free_bytes(path: Path) -> int:
    """Return the free space of the disk on which a directory is or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


class Held(Exception):
    """Somebody else holds a lock; the text says who."""


def take_lock(path: Path) -> IO[str]:
    """Lock a file until it is closed, or until the last process that inherits it ends.

    The kernel drops the lock of a process that dies, so none is ever left behind.
    """
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise Held(holder or "another process") from None
    sign_lock(file, os.getpid())
    return file


def sign_lock(file: IO[str], pid: int) -> None:
    """Write into a lock who holds it."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    file.truncate(0)
    file.write(f"process {pid} of {user()} on {socket.gethostname()} since {since}\n")
    file.flush()


def user() -> str:
    """Return the user's name, or number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Make the sweep's directory and lock it: two sweeps in one directory would both write it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = take_lock(root / ".lock")
    except Held as holder:
        fail(
            f"{root} is in use by another sweep: {holder}. Wait for it, stop it, or choose "
            "another directory."
        )
    except OSError as error:
        fail(f"cannot write to {root}: {error.strerror}. Choose another directory.")
    with lock:
        yield


def write_cells(plan: Plan) -> None:
    """Add the cells to sweep.json, for whoever evaluates the directory later."""
    path = plan.root / "sweep.json"
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = {cell["name"]: cell for cell in json.loads(path.read_text())["cells"]}
    for c in plan.cells:
        settings = dict((*c.fixed, *c.varied))
        known[c.name] = {
            "name": c.name,
            "method": c.method,
            "seed": c.seed,
            "varied": dict(c.varied),
            "settings": settings,
        }
    text = json.dumps({"cells": list(known.values())}, indent=1)
    try:
        ppo_rnd.write_atomically(path, text.encode())
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}. Free some space; nothing was changed.")


def check_space(plan: Plan) -> None:
    """Stop before the first run if the disk cannot hold them all."""
    needed, free = plan.bytes_left(), free_bytes(plan.root)
    if needed > free:
        fail(
            f"the disk of {plan.root} has {free / 2**20:.0f} MB free and the sweep needs about "
            f"{needed / 2**20:.0f} MB more. Free some space or choose another directory; finished "
            "runs are kept."
        )


# One cell, here or in a job of the cluster; this section runs without ppo_rnd's imports


def die_with_parent() -> None:
    """Run in the child: SIGTERM when the sweep dies, deaf to the cluster's preemption signal."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def start_run(
    run_dir: Path,
    flags: Sequence[str],
    *,
    threads: int = 1,
    ranks: int = 1,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start or resume one run; its output goes to output.log of the run directory.

    Raises:
        Held: Another process is still at work in this directory.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    lock = take_lock(run_dir / ".lock")
    started = (run_dir / "config.json").exists()
    chosen = ["--resume", str(run_dir)] if started else ["--run-dir", str(run_dir), *flags]
    command = [sys.executable, str(SCRIPT), *chosen, "--torch-threads", str(threads)]
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command[1:1] = launcher
    env = {**os.environ, **(environment or {}), "OMP_NUM_THREADS": str(threads)}
    # Until when torchrun waits for ranks that finish their iteration, in seconds.
    env.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    with lock, (run_dir / "output.log").open("ab") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(command)}\n".encode())
        log.flush()
        # A session of its own: Ctrl-C reaches the sweep alone, which then asks each run once. The
        # run inherits the lock and so keeps it, even if it outlives the sweep.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
            pass_fds=[lock.fileno()],
        )
        sign_lock(lock, process.pid)
        return process


def is_finished(run_dir: Path) -> bool:
    """Whether the run has come to its regular end."""
    try:
        return bool(json.loads((run_dir / "status.json").read_text())["finished"])
    except (OSError, ValueError, KeyError):
        return False


def log_tail(run_dir: Path, lines: int = 12) -> str:
    """Return the last lines of a run's output."""
    try:
        with (run_dir / "output.log").open("rb") as file:
            file.seek(max(0, os.stat(file.fileno()).st_size - 16384))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no output)"
    # A progress bar overwrites itself: what follows the last carriage return counts.
    shown = [line.rstrip().rsplit("\r", 1)[-1] for line in text.split("\n")]
    return "\n".join([line for line in shown if line][-lines:])


# Local executor


class Result(NamedTuple):
    """How a cell ended."""

    state: Literal["finished", "failed", "stopped", "waiting"]
    detail: str = ""


class StopOnSignal:
    """SIGINT or SIGTERM: the runs finish their iteration and write a checkpoint; twice: at once."""

    def __init__(self) -> None:
        self.count = 0
        self.before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}

    def _handle(self, number: int, frame: Any) -> None:
        self.count += 1

    def restore(self) -> None:
        """Put back the handlers found at the start."""
        for number, handler in self.before.items():
            signal.signal(number, handler)


def run_local(
    plan: Plan, *, jobs: int = 0, threads: int = 1, ranks: int = 1, refresh: float = 0.0
) -> dict[str, Result]:
    """Run the open cells as processes, `jobs` at a time; return how each cell of the plan ended."""
    jobs = jobs or max(1, (os.cpu_count() or 1) // (threads * ranks))
    results = {c.name: Result("finished") for c in plan.cells if c not in plan.open}
    waiting = list(plan.open)
    running: dict[int, tuple[Cell, subprocess.Popen[bytes]]] = {}
    held: dict[str, str] = {}
    full_disk = ""
    asked = 0
    show = ProgressTable(plan)
    stop = StopOnSignal()
    try:
        while waiting or running:
            for slot, (cell, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    results[cell.name] = end_of_run(plan.root / cell.name, process, stop.count > 0)
            if stop.count > asked:
                asked = stop.count
                for _, process in running.values():
                    process.terminate() if asked == 1 else process.kill()
                show.say("Stopping: the runs finish their iteration and write a checkpoint.")
            for slot in range(jobs):
                if slot in running or stop.count or full_disk:
                    continue
                for cell in list(waiting):
                    run_dir = plan.root / cell.name
                    full_disk = no_space(plan, cell)
                    if full_disk:
                        show.say(full_disk)
                        break
                    try:
                        process = start_run(
                            run_dir,
                            cell.flags(),
                            threads=threads,
                            ranks=ranks,
                            environment=gpus_of_slot(slot, ranks),
                        )
                    except Held as holder:
                        held[cell.name] = str(holder)
                        continue
                    except OSError as error:
                        results[cell.name] = Result("failed", f"cannot be started: {error}")
                        waiting.remove(cell)
                        continue
                    held.pop(cell.name, None)
                    running[slot] = (cell, process)
                    waiting.remove(cell)
                    break
            if (stop.count or full_disk) and not running:
                break
            states = {cell.name: "running" for cell, _ in running.values()}
            states |= {name: f"waiting for {holder}" for name, holder in held.items()}
            show.draw(states, results)
            time.sleep(refresh or (0.05 if len(running) < jobs and waiting and not held else 1.0))
    finally:
        stop.restore()
        for _, process in running.values():
            process.kill()
    for cell in waiting:
        results[cell.name] = Result("waiting", full_disk or "not started")
    show.draw({}, results, last=True)
    return {cell.name: results[cell.name] for cell in plan.cells}


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may hand out."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name]
    return [str(i) for i in range(ppo_rnd.torch.cuda.device_count())]


def gpus_of_slot(slot: int, ranks: int) -> dict[str, str]:
    """Return the environment that gives the runs of one slot their own GPUs, in turn."""
    gpus = visible_gpus()
    if not gpus:
        return {}
    chosen = [gpus[(slot * ranks + i) % len(gpus)] for i in range(ranks)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(chosen))}


def no_space(plan: Plan, cell: Cell) -> str:
    """Return a message if the disk no longer holds one more run."""
    free = free_bytes(plan.root)
    needed = plan.bytes_per_run[cell.name] - directory_size(plan.root / cell.name)
    if free >= needed:
        return ""
    return (
        f"the disk has {free / 2**20:.0f} MB free and a run needs {needed / 2**20:.0f} MB: no "
        "further run is started."
    )


def end_of_run(run_dir: Path, process: subprocess.Popen[bytes], stopping: bool) -> Result:
    """Say how a run's process ended."""
    if is_finished(run_dir):
        return Result("finished")
    code = process.returncode
    if stopping or (code == 0 and read_progress(run_dir).reason.startswith("stopped")):
        return Result("stopped", "goes on with the same command")
    if code < 0:
        return Result("failed", f"killed by {signal.Signals(-code).name}")
    return Result("failed", f"exit code {code}")


# SLURM executor


class CellJob:
    """What one job of the array does; submitit calls `checkpoint` before a time-out or preemption.

    A job that SLURM itself starts again, after a node failure or a requeue, finds the run
    directory and resumes in the same way.
    """

    def __init__(
        self, run_dir: Path, flags: Sequence[str], threads: int, ranks: int, patience: float
    ) -> None:
        self.run_dir, self.flags, self.patience = run_dir, list(flags), patience
        self.threads, self.ranks = threads, ranks
        self.pid = 0

    def __call__(self) -> str:
        """Run the cell to its end."""
        process = self._start()
        self.pid = process.pid
        # No blocking wait: `checkpoint` interrupts this very thread and waits for the same child.
        while process.poll() is None:
            time.sleep(0.2)
        if not is_finished(self.run_dir):
            raise RuntimeError(
                f"{self.run_dir} ended with code {process.returncode}:\n{log_tail(self.run_dir)}"
            )
        return "finished"

    def _start(self) -> subprocess.Popen[bytes]:
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return start_run(self.run_dir, self.flags, threads=self.threads, ranks=self.ranks)
            except Held as holder:
                # The run of the job's former life may still be writing its checkpoint.
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.run_dir} is in use by {holder}") from None
                time.sleep(1.0)

    def checkpoint(self) -> Any:
        """Let the run write its checkpoint, and ask for the same job again."""
        import submitit

        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGTERM)
                deadline = time.monotonic() + self.patience
                while time.monotonic() < deadline and not has_ended(self.pid):
                    time.sleep(0.1)
        again = CellJob(self.run_dir, self.flags, self.threads, self.ranks, self.patience)
        return submitit.helpers.DelayedSubmission(again)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def require_slurm() -> None:
    """Say what is missing for --executor slurm."""
    if importlib.util.find_spec("submitit") is None:
        fail('--executor slurm needs submitit: pip install "adops-wrappers[cluster]"')
    missing = [name for name in ("sbatch", "squeue", "scontrol") if shutil.which(name) is None]
    if missing:
        fail(
            f"--executor slurm: there is no SLURM on this machine ({', '.join(missing)} not "
            "found). Run it on a login node of the cluster, or use --executor local."
        )
    answer = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True)
    if answer.returncode:
        fail(f"--executor slurm: SLURM does not answer: {answer.stderr.strip()}")


def queue_states() -> dict[str, str] | None:
    """Return the state of every job of this user that has not ended; None if SLURM is silent."""
    answer = subprocess.run(
        ["squeue", "--noheader", "--array", "--user", str(os.getuid()), "--format", "%i %T"],
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        return None
    return dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if line.strip())


def submit(plan: Plan, cells: Sequence[Cell], args: RunArgs) -> dict[str, str]:
    """Submit cells as one job array; return their job ids."""
    import cloudpickle
    import submitit

    extra = dict(pair.split("=", 1) for pair in args.slurm_extra)
    gpus = args.gpus or (args.ranks if args.ranks > 1 else 0)
    executor = submitit.AutoExecutor(
        plan.root / "slurm", cluster="slurm", slurm_max_num_timeout=1_000_000
    )
    executor.update_parameters(
        name=f"sweep-{plan.root.name}",
        timeout_min=max(1, round(args.hours * 60)),
        mem_gb=args.mem_gb,
        cpus_per_task=args.threads * args.ranks,
        slurm_array_parallelism=args.jobs or len(cells),
        slurm_signal_delay_s=args.signal_delay,
        slurm_additional_parameters={"requeue": True, **extra},
        **({"slurm_partition": args.partition} if args.partition else {}),
        **({"gpus_per_node": gpus} if gpus else {}),
    )
    if __name__ != "__main__":
        # The job's python need not find this file as a module.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
    patience = max(10.0, args.signal_delay - 20.0)
    try:
        with executor.batch():
            jobs = [
                executor.submit(
                    CellJob(
                        (plan.root / cell.name).resolve(),
                        cell.flags(),
                        args.threads,
                        args.ranks,
                        patience,
                    )
                )
                for cell in cells
            ]
    except submitit.core.utils.FailedJobError as error:
        fail(f"SLURM refused the jobs: {error}")
    ids = {cell.name: job.job_id for cell, job in zip(cells, jobs, strict=True)}
    for name, job_id in ids.items():
        (plan.root / name).mkdir(exist_ok=True)
        ppo_rnd.write_atomically(plan.root / name / "job.txt", job_id.encode())
    return ids


def run_slurm(plan: Plan, args: RunArgs) -> dict[str, Result]:
    """Submit the open cells, or take up the jobs that an earlier sweep submitted; watch them."""
    require_slurm()
    queued = queue_states() or {}
    jobs = {}
    for cell in plan.open:
        with contextlib.suppress(OSError):
            job_id = (plan.root / cell.name / "job.txt").read_text()
            if job_id in queued:
                jobs[cell.name] = job_id
    new = [cell for cell in plan.open if cell.name not in jobs]
    if jobs:
        print(f"{len(jobs)} cells are in the queue already: watching their jobs.")
    if new:
        jobs |= submit(plan, new, args)
    results = {c.name: Result("finished") for c in plan.cells if c not in plan.open}
    show = ProgressTable(plan)
    missing: Counter[str] = Counter()
    stop = StopOnSignal()
    try:
        while len(results) < len(plan.cells) and not stop.count:
            states = queue_states()
            for name, job_id in jobs.items():
                if name in results or states is None or job_id in states:
                    missing[name] = 0
                    continue
                # Twice, for a shared disk may show the job's last words a moment late.
                missing[name] += 1
                if is_finished(plan.root / name):
                    results[name] = Result("finished")
                elif missing[name] > 1:
                    results[name] = Result("failed", f"job {job_id} ended before the run did")
            known = {name: (states or {}).get(job_id, "?").lower() for name, job_id in jobs.items()}
            show.draw({k: v for k, v in known.items() if k not in results}, results)
            if len(results) < len(plan.cells):
                interruptible_sleep(args.refresh or 15.0, stop)
    finally:
        stop.restore()
    left = [job_id for name, job_id in jobs.items() if name not in results]
    if left:
        print(
            "The jobs go on without this watcher. Watch them again with the same command; cancel "
            f"them with: scancel {' '.join(left)}"
        )
    for cell in plan.cells:
        results.setdefault(cell.name, Result("stopped", "its job goes on"))
    show.draw({}, results, last=True)
    return {cell.name: results[cell.name] for cell in plan.cells}


def interruptible_sleep(seconds: float, stop: StopOnSignal) -> None:
    """Sleep, but not past a signal."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop.count:
        time.sleep(min(0.2, seconds))


# Progress and report


class ProgressTable:
    """A table redrawn in place on a terminal; elsewhere one line for each change."""

    def __init__(self, plan: Plan, write: Callable[[str], Any] | None = None) -> None:
        self.plan = plan
        self.live = sys.stdout.isatty()
        self.write = write or (lambda text: print(text, end="", flush=True))
        self.lines = 0
        self.said: dict[str, str] = {}
        self.last_drawn = self.last_summary = time.monotonic()

    def say(self, message: str) -> None:
        """Print a line above the table."""
        self._clear()
        self.write(message + "\n")

    def _clear(self) -> None:
        if self.lines:
            self.write(f"\x1b[{self.lines}A\x1b[J")
            self.lines = 0

    def draw(self, states: dict[str, str], results: dict[str, Result], last: bool = False) -> None:
        """Show the cells that are at work, and how many are not."""
        if not self.live:
            self._print_changes(states, results)
        now = time.monotonic()
        pause = 1.0 if self.live else 60.0
        if now - self.last_drawn < pause and not last:
            return
        self.last_drawn = now
        counts = Counter(result.state for result in results.values())
        waiting = len(self.plan.cells) - len(results) - len(states) + counts.pop("waiting", 0)
        summary = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
        summary = f"{len(self.plan.cells)} cells: {summary or '0 finished'}"
        if states or waiting:
            summary += f", {len(states)} at work, {waiting} waiting"
        rows = [["cell", "state", "iteration", "SPS", "return", "left"]]
        height = shutil.get_terminal_size().lines - 4
        for name, state in list(states.items())[: max(1, height)]:
            p, args = read_progress(self.plan.root / name), self.plan.args[name]
            left = (args.total_iterations - p.iteration) * args.num_envs * args.num_steps
            time_left = duration(left / p.sps / 3600) if p.sps else "-"
            done = f"{p.iteration}/{args.total_iterations}"
            rows.append([name, state, done, f"{p.sps:.0f}", p.score, time_left])
        text = summary + "\n" + (table(rows) + "\n" if states else "")
        self._clear()
        self.write(text)
        self.lines = text.count("\n") if self.live and not last else 0

    def _print_changes(self, states: dict[str, str], results: dict[str, Result]) -> None:
        now = {name: result.state for name, result in results.items()} | states
        for name, state in now.items():
            if self.said.get(name) != state and not (name not in self.said and name in results):
                self.write(f"{time.strftime('%H:%M:%S')} {name}: {state}\n")
        self.said |= now


def report(plan: Plan, results: dict[str, Result]) -> int:
    """Print what failed, with the last lines of its log; return the exit code."""
    failed = {name: r for name, r in results.items() if r.state == "failed"}
    for name, result in failed.items():
        run_dir = plan.root / name
        print(f"\nFAILED {name}: {result.detail}. Last lines of {run_dir / 'output.log'}:")
        print("    " + log_tail(run_dir).replace("\n", "\n    "))
    counts = Counter(result.state for result in results.values())
    print(
        f"{counts['finished']} of {len(results)} cells finished, {counts['failed']} failed, "
        f"{counts['stopped'] + counts['waiting']} to go on with. Results in {plan.root}"
    )
    reasons = {r.detail for r in results.values() if r.state == "waiting"} - {"not started"}
    for reason in reasons:
        print(f"Not started: {reason}")
    return 0 if counts["finished"] == len(results) else 1


def main(argv: list[str] | None = None) -> int:
    """Run the sweep that the command line asks for."""
    args = tyro.cli(Args, args=argv, description=__doc__)
    return run(args, cells_of(args))


def run(args: RunArgs, cells: Sequence[Cell]) -> int:
    """Check, plan and run cells as the settings say; return the exit code."""
    for name in ("threads", "ranks"):
        if getattr(args, name) < 1:
            fail(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.jobs < 0:
        fail(f"--jobs must not be negative, got {args.jobs}.")
    bad = [pair for pair in args.slurm_extra if "=" not in pair]
    if bad:
        fail(f"--slurm-extra takes name=value, got {bad[0]!r}.")
    root = Path(args.root)
    on_gpu = bool(args.gpus if args.executor == "slurm" else visible_gpus())
    if args.executor == "slurm" and not args.dry_run:
        require_slurm()
    plan = check(cells, root, ranks=args.ranks, sps=args.sps, on_gpu=on_gpu)
    slots = args.jobs
    if not slots:
        cores = max(1, (os.cpu_count() or 1) // (args.threads * args.ranks))
        slots = cores if args.executor == "local" else len(cells)
    print_plan(plan, slots)
    if args.dry_run:
        return 0
    with hold(root):
        # Once more under the lock: another sweep may just have finished some cells.
        plan.progress = {cell.name: read_progress(root / cell.name) for cell in cells}
        check_space(plan)
        write_cells(plan)
        if args.executor == "slurm":
            results = run_slurm(plan, args)
        else:
            results = run_local(
                plan,
                jobs=args.jobs,
                threads=args.threads,
                ranks=args.ranks,
                refresh=args.refresh,
            )
        return report(plan, results)


if __name__ == "__main__":
    sys.exit(main())
