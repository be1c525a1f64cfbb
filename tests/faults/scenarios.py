"""What is attacked: commands of this repository, and what each of them has to leave behind."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from adops_wrappers.methods import trainable_methods

SCRIPT = "train/ppo_rnd.py"
SIZE = (
    *("--num-envs", "2", "--num-steps", "8", "--mlp-hidden", "8", "--total-iterations", "6"),
    *("--obs-norm-init-iterations", "1", "--checkpoint-every", "2", "--torch-threads", "1"),
)
ENVS = {
    "count": ("--env-id", "adops/KeyDoorTV-v0", "--env-kwargs", '{"horizon": 10}'),
    "rnd": ("--env-id", "MiniGrid-Empty-Random-5x5-v0", "--max-episode-steps", "10"),
}
IGNORED = ("charts/SPS", "time/")
"""Columns of metrics.csv that no two runs share."""

Command = tuple[str, ...]
Result = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """A command, how to go on after it was interrupted, and what it leaves behind.

    All paths are relative to the folder in which the commands run.
    """

    name: str
    command: Command
    again: Callable[[Path], Command]
    """The command to give after an interruption."""
    result: Callable[[Path, str], Result]
    """What is compared, from the folder and the output of the last command."""
    base: tuple[Command, ...] = ()
    """Commands that make what this one reads."""
    read: tuple[str, ...] = field(default=())
    """Patterns of files that the command reads."""
    optional: tuple[str, ...] = ()
    """Names of files that the command does without: a removed one was perhaps never made."""
    writes: bool = True
    """Whether the command writes anything but its output."""
    passed_over: str = ""
    """What the output says when the command made do with an older file."""
    seconds: float = 1.0
    """How long it takes, roughly."""


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name."""
    everything = [
        *(_training(method, bonus) for method in trainable_methods() for bonus in ENVS),
        *(_others()),
    ]
    return {scenario.name: scenario for scenario in everything}


def _training(method: str, bonus: str) -> Scenario:
    flags = ("--shaping", method, "--bonus", bonus, *ENVS[bonus], *SIZE, "--save-model")
    command = (SCRIPT, *flags, "--run-dir", "run")
    return Scenario(
        f"train {method} {bonus}",
        command,
        lambda folder: resume(folder, command),
        lambda folder, output: {"run": run_result(folder / "run")},
        read=("run/**/*",),
    )


def resume(folder: Path, command: Command) -> Command:
    """Return what continues a run: the command itself if it has not begun."""
    begun = any((folder / "run" / name).exists() for name in ("config.json", "checkpoints"))
    launcher = command[: command.index(SCRIPT)]
    return (*launcher, SCRIPT, "--resume", "run") if begun else command


def _others() -> Iterator[Scenario]:
    trained, split = (_training("adops", bonus).command for bonus in ("count", "rnd"))
    ranks = (
        *("torch.distributed.run", "--standalone", "--nproc-per-node", "2", SCRIPT),
        *split[1:],
    )
    yield Scenario(
        "two ranks",
        ranks,
        lambda folder: resume(folder, ranks),
        lambda folder, output: {"run": run_result(folder / "run")},
        seconds=12.0,
    )
    settings = ("env_id=adops/KeyDoorTV-v0", "bonus=count", "num_envs=2", "num_steps=8")
    settings += ("mlp_hidden=8", "total_iterations=4", "checkpoint_every=1", "max_episode_steps=9")
    sweep = ("research.sweep", "sweep", "--methods", "adops", "grm", "--settings", *settings)
    sweep += ("--jobs", "2", "--refresh", "0.1")
    yield Scenario(
        "sweep",
        sweep,
        lambda folder: sweep,
        lambda folder, output: {
            **{path.parent.name: run_result(path.parent) for path in _configs(folder / "sweep")},
            "sweep.json": (folder / "sweep" / "sweep.json").read_text(),
        },
        read=("sweep/sweep.json", "sweep/*/config.json", "sweep/*/status.json"),
        seconds=10.0,
    )
    analyze = ("research.analyze", "sweep", "--out", "out", "--reps", "50", "--solved", "0.5")
    yield Scenario(
        "analysis",
        analyze,
        lambda folder: analyze,
        lambda folder, output: files_below(folder / "out"),
        base=(sweep,),
        read=("sweep/sweep.json", "sweep/*/*.json", "sweep/*/metrics.csv"),
        seconds=4.0,
    )
    analyze_again = ("research.analyze", "out", "--out", "again", "--reps", "50")
    yield Scenario(
        "analysis of compact data",
        analyze_again,
        lambda folder: analyze_again,
        lambda folder, output: files_below(folder / "again"),
        base=(sweep, analyze),
        read=("out/*",),
        seconds=4.0,
    )
    record = ("train/record.py", "run", "--steps", "40")
    yield Scenario(
        "recording",
        record,
        lambda folder: record,
        lambda folder, output: {"recording": zip_contents(folder / "run" / "recording.npz")},
        base=(trained,),
        read=("run/config.json", "run/checkpoints/*/*"),
        passed_over="trying the one before",
    )
    report = ("adops_wrappers.inspect", "run", "--out", "report.html")
    yield Scenario(
        "report",
        report,
        lambda folder: report,
        lambda folder, output: {"report": digest((folder / "report.html").read_bytes())},
        base=(trained, record),
        read=("run/recording.npz", "run/metrics.csv", "run/config.json", "run/status.json"),
        optional=("recording.npz", "status.json", "config.json"),
        seconds=4.0,
    )
    evaluate = ("train/evaluate.py", "run", "--episodes", "2")
    yield Scenario(
        "evaluation",
        evaluate,
        lambda folder: evaluate,
        lambda folder, output: {"output": output},
        base=(trained,),
        read=("run/model.pt", "run/config.json", "run/checkpoints/*/*"),
        optional=("model.pt",),
        writes=False,
        passed_over="trying the one before",
    )


# Results


def _configs(root: Path) -> list[Path]:
    return sorted(root.glob("*/config.json"))


def digest(data: bytes) -> str:
    """Return a short name for bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def files_below(folder: Path) -> Result:
    """Return the contents of all files of a folder."""
    return {
        str(path.relative_to(folder)): digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".tmp-")
    }


def zip_contents(path: Path) -> Result:
    """Return the members of a zip file without their times."""
    with zipfile.ZipFile(path) as file:
        return {name: digest(file.read(name)) for name in sorted(file.namelist())}


def run_result(run_dir: Path) -> Result:
    """Return what a run has learned and logged, without times."""
    return {
        "metrics": _metrics(run_dir / "metrics.csv"),
        "settings": json.loads((run_dir / "config.json").read_text())["args"],
        "status": {
            name: value
            for name, value in json.loads((run_dir / "status.json").read_text()).items()
            if name in ("iteration", "finished", "reason")
        },
        "checkpoints": {
            path.parent.name: _tensors(path)
            # A kill may come before the oldest is dropped.
            for path in sorted(run_dir.glob("checkpoints/[0-9]*/state.pt"))[-2:]
        },
        "model": {path.name: _tensors(path) for path in run_dir.glob("model.pt")},
        "events": _events(run_dir),
    }


def _metrics(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith(IGNORED)} for row in rows]


def _tensors(path: Path) -> str:
    """Return a digest of a file of torch; the file itself may differ in its layout."""
    data = torch.load(io.BytesIO(path.read_bytes()), weights_only=True)
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                if key != "resume":
                    found.update(repr(key).encode())
                    add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)
        elif isinstance(value, torch.Tensor):
            found.update(value.contiguous().view(-1).numpy().tobytes())
        else:
            found.update(repr(value).encode())

    add(data)
    return found.hexdigest()[:16]


def _events(run_dir: Path) -> Result:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not tag.startswith(IGNORED)
    }
