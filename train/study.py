"""Runs the study: all methods on small envs in which agents exploit the bonus, or the paper's own.

    python train/study.py --tier smoke          # a minute: does everything work?
    python train/study.py --tier laptop         # about two hours on two cores
    python train/study.py --tier paper --executor slurm --partition gpu --gpus 1

Every cell is a run of ppo_rnd.py, started by the sweep: run the same command again to continue
where it stopped. `train/analyze.py` writes the report at the end; you can also call it yourself at
any time. docs/study.md describes the design and the questions.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import analyze
import sweep
import tyro
from sweeping.cells import tidy

from adops_wrappers._files import write_atomically

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "raw": ("none", {}),
    "PIES": ("pies", {}),
    "GRM": ("grm", {}),
    "PBIM": ("pbim", {}),
    "PBIM-norm": ("pbim-norm", {}),
    "GRM-norm": ("grm-norm", {}),
    "ADOPS": ("adops", {}),
    "ADOPS ε=0.01": ("adops", {"epsilon": "0.01"}),
    "ADOPES": ("adopes", {}),
    "ADOPES F/2": ("adopes-half", {}),
    "guarded": ("guarded", {}),
    "off": ("guarded", {"balance": "0"}),
    "no bonus": ("none", {"bonus": "none"}),
}
"""Each method's name in ppo_rnd.py and its settings."""

LEARNER = {
    "bonus": "count",
    "normalize_intrinsic": "no",
    "num_envs": "64",
    "num_steps": "64",
    "total_iterations": "80",
    "learning_rate": "0.002",
    "clip_coef": "0.2",
    "ent_coef": "0.01",
    "scale_adv": "True",
    "gamma_ext": "0.99",
    "checkpoint_every": "40",
    "tensorboard": "False",
}
"""Settings of all runs of the laptop tier; the others are ppo_rnd.py's defaults."""
RND = {"bonus": "rnd", "normalize_intrinsic": "auto", "obs_norm_init_iterations": "2"}
SMALL = {"num_envs": "8", "num_steps": "32", "total_iterations": "12", "checkpoint_every": "0"}
"""Over LEARNER, for the smoke tier."""


class Arm(NamedTuple):
    """One configuration; its runs differ only in their seeds."""

    env: str
    method: str
    seeds: int
    scale: str = "1"
    settings: tuple[tuple[str, str], ...] = ()

    def cell(self, seed: int, learner: dict[str, str]) -> sweep.Cell:
        """Return one run."""
        method, own = METHODS[self.method]
        varied = {"env_id": f"adops/{self.env}-v0", **own, **dict(self.settings)}
        if self.scale != "1":
            varied["intrinsic_scale"] = self.scale
        fixed = {name: value for name, value in learner.items() if name not in varied}
        return sweep.Cell(
            method,
            seed,
            tuple((name, tidy(value)) for name, value in varied.items()),
            tuple((name, tidy(value)) for name, value in fixed.items()),
        )


def laptop_arms() -> Iterator[Arm]:
    """Yield the arms of the laptop tier."""
    shaped = [name for name in METHODS if name not in ("raw", "no bonus", "off")]
    few = ("PBIM", "PBIM-norm", "GRM-norm", "off")
    for env in ("KeyDoor", "KeyDoorTV"):
        yield Arm(env, "no bonus", 20)
        for method in ("raw", *shaped, "off"):
            yield Arm(env, method, 5 if method in few else 20)
        for method, scale in itertools.product(("raw", *shaped), ("0.3", "0.1")):
            many = method == "raw" or (method == "ADOPS ε=0.01" and scale == "0.3")
            yield Arm(env, method, 20 if many else 5, scale)
        for method in ("raw", "ADOPS", "guarded"):
            yield Arm(env, method, 5, settings=tuple(RND.items()))
    for method in METHODS:
        yield Arm("TVCorridor", method, 5)
    for env, method, scale in itertools.product(
        ("TVCorridor", "KeyDoorCoin"), ("raw", "guarded"), ("0.3", "0.1")
    ):
        yield Arm(env, method, 5, scale)
    for method in ("no bonus", "raw", "PIES", "ADOPS", "ADOPS ε=0.01", "ADOPES", "guarded", "off"):
        yield Arm("KeyDoorCoin", method, 10 if method in ("raw", "guarded", "off") else 5)
    for delay in ("3", "10", "30"):
        yield Arm("KeyDoor", "GRM-norm", 5, settings=(("delay", delay),))


def smoke_arms() -> Iterator[Arm]:
    """Yield one small arm of each kind."""
    for method in METHODS:
        yield Arm("TVCorridor", method, 1)
    for method in ("raw", "ADOPS"):
        yield Arm("TVCorridor", method, 3, "0.3")
    yield Arm("TVCorridor", "raw", 1, settings=tuple(RND.items()))


def cells_of(arms: Sequence[Arm], learner: dict[str, str]) -> list[sweep.Cell]:
    """Return the runs, first seeds first, so that an interrupted study is balanced."""
    most = max(arm.seeds for arm in arms)
    rounds = [range(first, first + 5) for first in range(1, most + 1, 5)]
    return [
        arm.cell(seed, learner)
        for seeds in rounds
        for arm in arms
        for seed in seeds
        if seed <= arm.seeds
    ]


class Question(NamedTuple):
    """A comparison fixed before the runs: is the final return of one arm higher?"""

    id: str
    claim: str
    env: str
    better: str
    worse: str


QUESTIONS = [
    Question("H1", "a bonus helps to find a hidden goal", "KeyDoor", "raw", "no bonus"),
    Question("H2", "ADOPS escapes the TV", "KeyDoorTV", "ADOPS", "raw"),
    Question("H3", "ADOPS with a larger ε escapes the TV", "KeyDoorTV", "ADOPS ε=0.01", "raw"),
    Question("H4", "so it does at a smaller scale", "KeyDoorTV", "ADOPS ε=0.01 ×0.3", "raw ×0.3"),
    Question("H5", "ADOPES escapes the TV", "KeyDoorTV", "ADOPES", "raw"),
    Question("H6", "PIES escapes the TV", "KeyDoorTV", "PIES", "raw"),
    Question("H7", "GRM escapes the TV", "KeyDoorTV", "GRM(1)", "raw"),
    Question("H8", "GRM costs return where nothing distracts", "KeyDoor", "raw", "GRM(1)"),
    Question("H9", "ADOPS costs return where nothing distracts", "KeyDoor", "raw", "ADOPS"),
    Question("H10", "a smaller bonus alone escapes the TV", "KeyDoorTV", "raw ×0.1", "raw"),
    Question("G1", "the guarded scale escapes the TV", "KeyDoorTV", "guarded", "raw"),
    Question("G2", "it is better than a small bonus", "KeyDoorTV", "guarded", "raw ×0.1"),
    Question("G3", "it is better than ADOPS", "KeyDoorTV", "guarded", "ADOPS ε=0.01"),
    Question("G4", "it costs return where nothing distracts", "KeyDoor", "raw", "guarded"),
    Question("G5", "it escapes a TV beside the start", "TVCorridor", "guarded", "raw"),
    Question(
        "G6",
        "it goes on exploring after a small reward",
        "KeyDoorCoin",
        "guarded",
        "off at first reward",
    ),
]


@dataclass
class Args(sweep.RunArgs):
    """Settings of a study."""

    root: Annotated[str, tyro.conf.Positional] = ""
    """directory of the runs; empty: runs/study-TIER"""
    tier: Literal["smoke", "laptop", "paper"] = "smoke"
    """smoke: a minute; laptop: two hours on two cores; paper: Montezuma's Revenge, 122 runs"""
    out: str = ""
    """directory of the report; empty: ROOT/report"""


def study_cells(tier: str) -> list[sweep.Cell]:
    """Return the runs of a tier."""
    if tier == "paper":
        return sweep.paper_cells()
    if tier == "laptop":
        return cells_of(list(laptop_arms()), LEARNER)
    return cells_of(list(smoke_arms()), LEARNER | SMALL)


def questions(tier: str) -> list[dict[str, Any]]:
    """Return the questions of a tier, as analyze.py reads them."""
    if tier != "laptop":
        return []
    return [q._asdict() | {"env": f"adops/{q.env}-v0"} for q in QUESTIONS]


def main(argv: list[str] | None = None) -> int:
    """Run a tier and report."""
    args = tyro.cli(Args, args=argv, description=__doc__)
    args.root = args.root or f"runs/study-{args.tier}"
    study = {"tier": args.tier, "questions": questions(args.tier)}
    text = json.dumps(study, indent=1, ensure_ascii=False)

    def write_study(root: Path) -> None:
        write_atomically(root / "study.json", text.encode())

    code = sweep.run(args, study_cells(args.tier), at_start=write_study)
    if args.dry_run:
        return code
    out = args.out or str(Path(args.root) / "report")
    return analyze.main([args.root, "--out", out]) or code


if __name__ == "__main__":
    sys.exit(main())
