"""Runs the study: all methods on small envs in which agents exploit the bonus, or the paper's own.

    python -m research.study --tier smoke          # a minute: does everything work?
    python -m research.study --tier laptop         # about six hours on two cores
    python -m research.study --tier paper --executor slurm --partition gpu --gpus 1

Every cell is a run of ppo_rnd.py, started by the sweep: run the same command again to continue
where it stopped. `research.analyze` writes the report at the end; you can also call it yourself at
any time. docs/study.md describes the design and the questions.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from adops_wrappers._files import write_atomically
from adops_wrappers.training.exit import fail
from research import analyze, design, sweep
from research.analysis.collect import expected_row, key_of
from research.analysis.compact import InputError, read_compact
from research.analysis.labels import LATE, LATE_SHARE
from research.design import Arm, Cell, Question, in_rounds
from research.sweeping.cells import paper_cells

LATE_METHODS = [f"{LATE}{method}" for method in ("raw", "ADOPS on A", "guarded")]
METHODS = design.METHODS | {late: design.METHODS[late.removeprefix(LATE)] for late in LATE_METHODS}

CANDIDATES = ("ADOPS on A", "guarded", *LATE_METHODS[1:])
"""Methods that are held to the goal of both regimes, with 20 seeds on every grid."""
GRIDS = ("KeyDoor", "KeyDoorTV", "TVCorridor", "KeyDoorCoin")
MINIATURE = "MiniZuma"

GRID_LEARNER = {
    "bonus": "count",
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
"""Settings of all runs on the grids; the others are ppo_rnd.py's defaults."""
MINIATURE_LEARNER = {
    "bonus": "rnd",
    "reward_scale": "0.001",
    "num_envs": "128",
    "num_steps": "64",
    "total_iterations": "600",
    "update_epochs": "2",
    "learning_rate": "0.002",
    "clip_coef": "0.2",
    "ent_coef": "0.003",
    "ext_coef": "20",
    "int_coef": "10",
    "scale_adv": "False",
    "obs_norm_init_iterations": "4",
    "checkpoint_every": "300",
    "tensorboard": "False",
}
"""The same for the miniature."""
TUNED = {"ADOPS": {"int_coef": "20"}, "ADOPS on A": {"int_coef": "5"}}
"""Settings of methods on the miniature, chosen in pilots with the same budget for each."""
SLOW = (("schedule_iterations", MINIATURE_LEARNER["total_iterations"]),)
"""ζ changes over all of training, not over half of it."""
SHORT_QUIET = (
    ("quiet_iterations", str(int(GRID_LEARNER["total_iterations"]) // LATE_SHARE)),
    ("int_coef", MINIATURE_LEARNER["int_coef"]),
)
"""On the miniature, for late ADOPS on A: as many quiet iterations as on the grids, raw's weight."""
AS_IS = (("normalize_intrinsic", "no"),)
COUNTS = (("bonus", "count"),)
SMALL = {"num_envs": "8", "num_steps": "32", "total_iterations": "12", "checkpoint_every": "0"}
"""Over the learner's settings, for the smoke tier."""


def make_arm(
    env: str,
    method: str,
    seeds: int,
    scale: str = "1",
    settings: tuple[tuple[str, str], ...] = (),
    small: bool = False,
) -> Arm:
    """Return an arm of a method on an env."""
    varied = {"env_id": f"adops/{env}-v0", **METHODS[method][1], **dict(settings)}
    if scale != "1":
        varied["intrinsic_scale"] = scale
    learner = dict(GRID_LEARNER)
    if env == MINIATURE:
        learner = MINIATURE_LEARNER | TUNED.get(method.removeprefix(LATE), {})
    if small:
        learner |= SMALL
    if method in LATE_METHODS:
        varied["quiet_iterations"] = str(int(learner["total_iterations"]) // LATE_SHARE)
    return Arm.of(env, method, seeds, METHODS[method][0], varied, learner)


def label_of(method: str, end: str = "") -> str:
    """Return the label of an arm as questions name it."""
    if method == "no bonus":
        return method
    return f"{method}(1){end}" if method.startswith("GRM") else f"{method}{end}"


def laptop_arms() -> list[list[Arm]]:
    """Return the arms of the laptop tier in groups, in the order in which they run.

    20 seeds where a question names them, and for the goal that candidates are held to on the
    grids; 5 elsewhere.
    """
    named = {arm for q in QUESTIONS for arm in ((q.env, q.better), (q.env, q.worse))}
    named |= {(env, method) for env in GRIDS for method in CANDIDATES}

    def arm(env: str, method: str, end: str = "", **settings: Any) -> Arm:
        return make_arm(env, method, 20 if (env, label_of(method, end)) in named else 5, **settings)

    shaped = [method for method in METHODS if method != "no bonus"]
    as_is = {"3": " ×3 (as is)", "1": " (as is)", "0.3": " ×0.3 (as is)", "0.1": " ×0.1 (as is)"}
    return [
        [arm(env, method) for env in GRIDS for method in METHODS],
        [
            *(arm(MINIATURE, method, " (RND)") for method in METHODS),
            arm(MINIATURE, "PIES", " C=600 (RND)", settings=SLOW),
            arm(MINIATURE, "ADOPES", " C=600 (RND)", settings=SLOW),
            make_arm(MINIATURE, "ADOPS on A", 20, settings=SHORT_QUIET),
        ],
        [make_arm(env, method, 5) for env in ("LoopFarm", "DancingSkulls") for method in METHODS],
        [make_arm(MINIATURE, "GRM-norm", 5, settings=(("delay", d),)) for d in ("3", "10", "30")],
        [
            arm(env, method, end, scale=scale, settings=AS_IS)
            for env in GRIDS
            for method in ("raw", "PIES", "ADOPS on A")
            for scale, end in as_is.items()
        ],
        [make_arm(MINIATURE, method, 5, settings=COUNTS) for method in shaped],
    ]


def smoke_arms() -> list[Arm]:
    """Return one small arm of each kind."""
    arm = partial(make_arm, small=True)
    return [
        *(arm("TVCorridor", method, 1) for method in METHODS),
        *(arm("TVCorridor", method, 3, "0.3", AS_IS) for method in ("raw", "ADOPS")),
        # Long enough for an episode to end.
        arm(MINIATURE, "raw", 1, settings=(("num_steps", "128"),)),
    ]


def read_questions(text: str, round: str = "") -> list[Question]:
    """Read a table: id, claim, env, the arm expected to be better, than which one, in what."""
    lines = [re.split(r"\s*\|\s*", line.strip()) for line in text.strip().splitlines()]
    questions = [Question(*cells[:5], *cells[5:]) for cells in lines]
    return [question._replace(round=round) for question in questions]


QUESTIONS = [
    *read_questions("""
        N1 | a bonus of unit size finds a hidden goal | KeyDoor | raw | no bonus
        N2 | bringing F to unit size escapes the TV | KeyDoorTV | raw | raw (as is)
        N3 | ADOPS escapes the TV | KeyDoorTV | ADOPS | raw
        N4 | ADOPES escapes the TV | KeyDoorTV | ADOPES | raw
        N5 | PIES escapes the TV | KeyDoorTV | PIES | raw
        N6 | the guarded scale escapes the TV | KeyDoorTV | guarded | raw
        N7 | ADOPS on A escapes the TV | KeyDoorTV | ADOPS on A | raw
        N8 | ADOPS escapes a TV beside the start | TVCorridor | ADOPS | raw
        N9 | PIES escapes a TV beside the start | TVCorridor | PIES | raw
        N10 | the guarded scale escapes a TV beside the start | TVCorridor | guarded | raw
        N11 | ADOPS on A escapes a TV beside the start | TVCorridor | ADOPS on A | raw
        N12 | ADOPS on A is above ADOPS | TVCorridor | ADOPS on A | ADOPS
        P1 | GRM costs return | MiniZuma | raw (RND) | GRM(1) (RND)
        P2 | PBIM learns nothing | MiniZuma | raw (RND) | PBIM (RND)
        P3 | PBIM saturates | MiniZuma | PBIM (RND) | raw (RND) | action_prob
        P4 | PIES falls after half-time | MiniZuma | PIES (RND) | raw (RND) | fall
        P5 | ADOPS is above PIES | MiniZuma | ADOPS (RND) | PIES (RND)
        P6 | ADOPES is above PIES | MiniZuma | ADOPES (RND) | PIES (RND)
        P7 | ADOPES on F/2 is above PIES | MiniZuma | ADOPES F/2 (RND) | PIES (RND)
        P8 | ADOPES is above raw RND | MiniZuma | ADOPES (RND) | raw (RND)
        P9 | ADOPES learns faster on F/2 | MiniZuma | ADOPES F/2 (RND) | ADOPES (RND) | mean_return
        A1 | ADOPS on A is above PIES | MiniZuma | ADOPS on A (RND) | PIES (RND)
        A2 | ADOPS on A is above a PIES that fades to the end | MiniZuma | ADOPS on A (RND) \
            | PIES C=600 (RND)
        A3 | ADOPS on A costs return against RND | MiniZuma | raw (RND) | ADOPS on A (RND)
        A4 | the guarded scale is above PIES | MiniZuma | guarded (RND) | PIES (RND)
        A5 | the guarded scale costs return against RND | MiniZuma | raw (RND) | guarded (RND)
    """),
    # Asked when most runs of the others were done.
    *read_questions(
        """
        L1 | a late start helps ADOPS on A | TVCorridor | late ADOPS on A | ADOPS on A
        L2 | a late start helps the guarded scale | TVCorridor | late guarded | guarded
        L3 | late ADOPS on A escapes the TV | KeyDoorTV | late ADOPS on A | late raw
        L4 | the late guarded scale escapes the TV | KeyDoorTV | late guarded | late raw
        L5 | late ADOPS on A is above PIES | MiniZuma | late ADOPS on A (RND) | PIES (RND)
        L6 | the late guarded scale is above PIES | MiniZuma | late guarded (RND) | PIES (RND)
        L7 | late ADOPS on A costs return against RND | MiniZuma | raw (RND) \
            | late ADOPS on A (RND)
        L8 | the late guarded scale costs return against RND | MiniZuma | raw (RND) \
            | late guarded (RND)
        """,
        "late",
    ),
    # Asked last.
    *read_questions(
        """
        S1 | a short quiet phase is above PIES | MiniZuma | late 10 ADOPS on A (RND) | PIES (RND)
        S2 | a short quiet phase costs return against RND | MiniZuma | raw (RND) \
            | late 10 ADOPS on A (RND)
        """,
        "short",
    ),
]


@dataclass
class Args(sweep.RunArgs):
    """Settings of a study."""

    root: Annotated[str, tyro.conf.Positional] = ""
    """directory of the runs; empty: runs/study-TIER"""
    tier: Literal["smoke", "laptop", "paper"] = "smoke"
    """smoke: a minute; laptop: six hours on two cores; paper: Montezuma's Revenge, 122 runs"""
    keep: str = ""
    """folder that an earlier report of this tier wrote: its runs are not run again, and enter the
    new report"""
    out: str = ""
    """directory of the report; empty: ROOT/report"""


def study_cells(tier: str) -> list[Cell]:
    """Return the runs of a tier, first seeds first."""
    if tier == "paper":
        return paper_cells()
    groups = laptop_arms() if tier == "laptop" else [smoke_arms()]
    rounds = range(5, 5 + max(arm.seeds for group in groups for arm in group), 5)
    return [arm.cell(seed) for arm, seed in in_rounds(groups, rounds)]


def without_kept(cells: Sequence[Cell], folder: str) -> list[Cell]:
    """Return the runs that a folder of an earlier report does not hold."""
    kept = {key_of(row) for row in read_compact(Path(folder)).runs}

    def key(cell: Cell) -> tuple[str, str, int]:
        settings = dict((*cell.fixed, *cell.varied))
        row = expected_row(cell.name, {**settings, "shaping": cell.method}, cell.seed)
        return key_of(row)

    return [cell for cell in cells if key(cell) not in kept]


def questions(tier: str) -> list[dict[str, Any]]:
    """Return the questions of a tier, as the analysis reads them."""
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

    cells = study_cells(args.tier)
    if args.keep:
        try:
            cells = without_kept(cells, args.keep)
        except InputError as error:
            fail(str(error))
    code = sweep.run(args, cells, at_start=write_study) if cells else 0
    if args.dry_run:
        return code
    out = args.out or str(Path(args.root) / "report")
    kept = [args.keep] if args.keep else []
    return analyze.main([*([args.root] if cells else []), *kept, "--out", out]) or code


if __name__ == "__main__":
    sys.exit(main())
