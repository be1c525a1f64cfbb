"""The off-policy study: DQN and SAC, with F′ stored and with F′ computed at sampling.

    python train/off_policy.py runs/off-policy --workers 2     # runs what is missing
    python train/off_policy.py runs/off-policy --report        # prints what is there
    python train/off_policy.py runs/smoke --tier smoke         # the same machinery in a minute

Every finished run is one row of DIR/results.csv. If it is killed, run the same command again: it
continues with the runs that have no row. The design is in docs/off_policy_study.md. Needs
`pip install adops-wrappers[train,sb3]`, and `[analysis]` for the report's tests.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, SAC
from tqdm import tqdm

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, QCritic, TDCritic, make_shaping
from adops_wrappers.replay import ReplayShaper
from adops_wrappers.sb3 import ShapedReplayBuffer, ShapingCallback

GAMMA = 0.99
EPSILON = 0.1
SOLVED = 0.5
"""A run has solved its task if its last tenth of steps has at least this mean return."""
FIELDS = [
    "task", "arm", "scale", "seed", "steps", "final_return", "greedy_return", "seconds", "curve",
]  # fmt: skip


class Task(NamedTuple):
    """One learner on one env."""

    algorithm: str
    env: str
    bonus: str
    steps: int
    horizon: int | None = None
    """The length of an episode; None for the env's own."""

    def make_env(self) -> Any:
        """Return the bare env."""
        return gym.make(self.env, horizon=self.horizon)


TASKS = {
    "DQN LoopFarm": Task("DQN", "adops/LoopFarm-v0", "tempting", 12_000),
    "DQN KeyDoorTV": Task("DQN", "adops/KeyDoorTV-v0", "count", 60_000, horizon=120),
    "SAC Fountain": Task("SAC", "adops/Fountain-v0", "tempting", 6_000),
}
ARMS = {
    "no bonus": "none",
    "raw": "none",
    "ADOPS stored": "adops",
    "ADOPS at sampling": "adops",
    "PIES": "pies",
    "guarded": "guarded",
}
ABLATION = "ADOPS at sampling, TDCritic"
"""On LoopFarm only: separates when F′ is computed from which critic computes it."""
SCALES = (1.0, 0.3)
SEEDS = 10


class Question(NamedTuple):
    """A claim: on a task, more runs of one arm than of another solve it."""

    name: str
    claim: str
    task: str
    scale: float
    better: str
    worse: str


AT_SAMPLING = "ADOPS at sampling"
QUESTIONS = [
    Question("O1", "the raw bonus captures DQN", "DQN LoopFarm", 1.0, "no bonus", "raw"),
    Question(
        "O2", "ADOPS at sampling keeps DQN on its task", "DQN LoopFarm", 1.0, AT_SAMPLING, "raw"
    ),
    Question(
        "O3", "F′ stored by an old critic does not", "DQN LoopFarm", 1.0, AT_SAMPLING,
        "ADOPS stored",
    ),
    Question("O4", "it takes the critic too", "DQN LoopFarm", 1.0, AT_SAMPLING, ABLATION),
    Question(
        "O5", "a count bonus helps DQN to find a hidden goal", "DQN KeyDoorTV", 0.3, "raw",
        "no bonus",
    ),
    Question(
        "O6", "ADOPS at sampling keeps DQN on its task", "DQN KeyDoorTV", 0.3, AT_SAMPLING, "raw"
    ),
    Question("O7", "the raw bonus captures SAC", "SAC Fountain", 1.0, "no bonus", "raw"),
    Question(
        "O8", "ADOPS at sampling keeps SAC on its task", "SAC Fountain", 1.0, AT_SAMPLING, "raw"
    ),
]  # fmt: skip


class Cell(NamedTuple):
    """One run."""

    task: str
    arm: str
    scale: float
    seed: int


def cells(seeds: int) -> Iterator[Cell]:
    """Yield all runs, seed by seed, so that partial results are balanced."""
    for seed in range(seeds):
        for task in TASKS:
            arms = [*ARMS, ABLATION] if task == "DQN LoopFarm" else [*ARMS]
            for arm in arms:
                for scale in (0.0,) if arm == "no bonus" else SCALES:
                    yield Cell(task, arm, scale, seed)


def make_source(cell: Cell, task: Task, world: Any) -> Any:
    """Return the bonus of a run."""
    if cell.scale == 0.0:
        return lambda obs, action, next_obs: 0.0
    if task.bonus == "count":
        return CountBonus(scale=cell.scale)
    if task.algorithm == "SAC":
        return world.tempting_source(cell.scale)
    table = world.tempting_bonus(cell.scale)
    return lambda obs, action, next_obs: table[
        world.state_of(obs), action, world.state_of(next_obs)
    ]


def make_stack(cell: Cell, task: Task, steps: int) -> Any:
    """Return env, bonus and shaping of a run."""
    env = task.make_env()
    env = IntrinsicRewardWrapper(env, make_source(cell, task, env.unwrapped))
    shaping = "adops" if cell.arm == ABLATION else ARMS[cell.arm]
    critic: Any = None
    settings: dict[str, Any] = {}
    if shaping == "adops":
        settings = {"gamma_ext": GAMMA, "gamma_int": GAMMA, "int_bootstrap": "none"}
        settings["epsilon"] = EPSILON
        if cell.arm in ("ADOPS stored", ABLATION):
            critic = TDCritic(env.observation_space, seed=cell.seed, replay_ratio=16.0)
        else:
            critic = QCritic(env.observation_space, env.action_space, seed=cell.seed)
    if shaping in ("pies", "guarded"):
        settings["update_every"] = max(1, steps // 200)
    if shaping == "pies":
        settings["decay_updates"] = 100
    stored = cell.arm == "ADOPS stored"
    return make_shaping(shaping, env, critic, add_to_reward=stored, **settings)


def make_model(cell: Cell, task: Task, env: Any) -> Any:
    """Return SB3's learner; `ADOPS stored` has SB3's own buffer, all else the shaped one."""
    shared: dict[str, Any] = {"gamma": GAMMA, "seed": cell.seed, "device": "cpu"}
    shared["policy_kwargs"] = {"optimizer_kwargs": {"fused": True}}  # the same steps, but faster
    n_steps = 5 if task.algorithm == "DQN" else 1
    if cell.arm == "ADOPS stored":
        shared["n_steps"] = n_steps
    else:
        settings = {"shaper": ReplayShaper(env), "n_steps": n_steps, "gamma": GAMMA}
        shared |= {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": settings}
    if task.algorithm == "SAC":
        model = SAC(
            "MlpPolicy",
            env,
            learning_starts=1000,
            buffer_size=100_000,
            batch_size=64,
            # SB3 starts at 1 and adapts it. An agent that is paid more for randomness avoids a
            # goal that ends the episode; one that is soon paid nothing stops looking for it.
            ent_coef=0.003,
            **shared,
        )
        if isinstance(env.core.critic, QCritic):
            env.core.critic.policy = lambda obs: model.predict(obs, deterministic=True)[0]
        return model
    return DQN(
        "MlpPolicy",
        env,
        buffer_size=100_000,
        learning_starts=1000,
        train_freq=4,
        gradient_steps=2,
        target_update_interval=250,
        exploration_fraction=0.6,
        exploration_final_eps=0.05,
        learning_rate=1e-3,
        **shared,
    )


def run(cell: Cell, steps: int | None = None) -> dict[str, Any]:
    """Train once and return the run's row."""
    torch.set_num_threads(1)
    task = TASKS[cell.task]
    steps = steps or task.steps
    start = time.perf_counter()
    env = make_stack(cell, task, steps)
    model = make_model(cell, task, env)
    log = ShapingCallback(log_every=max(1, steps // 20), at_rollout_end=False)
    model.learn(steps, callback=log)
    curve = [entry.get("extrinsic_return", math.nan) for entry in log.history]
    last = [value for value in curve[-2:] if not math.isnan(value)]
    return {
        **cell._asdict(),
        "steps": steps,
        "final_return": round(float(np.mean(last)), 4) if last else 0.0,
        "greedy_return": round(greedy_return(model, task), 4),
        "seconds": round(time.perf_counter() - start, 1),
        "curve": " ".join(f"{value:.3f}" for value in curve),
    }


def greedy_return(model: Any, task: Task, episodes: int = 5) -> float:
    """Return the mean return of the policy without exploration, in the env without a bonus."""
    env = task.make_env()
    total = 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 + episode)
        ended = False
        while not ended:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
    return total / episodes


def read(table: Path) -> list[dict[str, str]]:
    """Return the finished runs; a row that a crash cut off does not count."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["curve"] is not None]


def key_of(row: dict[str, str]) -> Cell:
    """Return the cell that a row belongs to."""
    return Cell(row["task"], row["arm"], float(row["scale"]), int(row["seed"]))


def run_missing(table: Path, seeds: int, steps: int | None, workers: int) -> None:
    """Run every cell that has no row, and append the rows one by one."""
    table.parent.mkdir(parents=True, exist_ok=True)
    rows = read(table)
    done = {key_of(row) for row in rows}
    # Rewritten, to drop a row that was cut off: the next one must start on a new line.
    rewritten = table.with_suffix(".tmp")
    with rewritten.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    rewritten.replace(table)
    missing = [cell for cell in cells(seeds) if cell not in done]
    print(f"{len(done)} runs done, {len(missing)} to go.", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=8) as pool:
        made = pool.imap_unordered(partial(run, steps=steps), missing)
        for row in tqdm(made, "off-policy study", len(done) + len(missing), initial=len(done)):
            with table.open("a", newline="") as file:
                csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(row)
            tqdm.write(f"{key_of(row)}: {row['final_return']} in {row['seconds']} s")


def wilson(solved: int, runs: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion."""
    share, factor = solved / runs, 1 + z * z / runs
    centre = (share + z * z / (2 * runs)) / factor
    half = z * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs)) / factor
    return max(0.0, centre - half), min(1.0, centre + half)


class Group(NamedTuple):
    """The runs of one arm on one task, seed by seed."""

    final_return: list[float]
    greedy_return: list[float]

    @property
    def solved(self) -> list[bool]:
        """Which runs have solved the task."""
        return [value >= SOLVED for value in self.final_return]

    @property
    def solved_text(self) -> str:
        """The number of solved runs, of all runs."""
        return f"{sum(self.solved)} of {len(self.solved)}"


def grouped(rows: list[dict[str, str]]) -> dict[tuple[str, str, float], Group]:
    """Return the runs by task, arm and scale, in the order of the design."""
    runs: dict[tuple[str, str, float], list[dict[str, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        runs[key_of(row)[:3]].append(row)
    return {
        key: Group(*([float(row[name]) for row in runs[key]] for name in Group._fields))
        for key in (cell[:3] for cell in cells(1))
        if key in runs
    }


def report(rows: list[dict[str, str]]) -> str:
    """Return the table of solved runs as Markdown."""
    lines = [
        "| task | arm | scale | solved | 95 % | mean return | greedy return |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (task, arm, scale), group in grouped(rows).items():
        low, high = wilson(sum(group.solved), len(group.solved))
        mean, greedy = (sum(values) / len(values) for values in group)
        size = f"{scale:g}" if scale else "–"
        lines.append(
            f"| {task} | {arm} | {size} | {group.solved_text} | {low:.0%}–{high:.0%} | "
            f"{mean:.2f} | {greedy:.2f} |"
        )
    return "\n".join(lines)


def answers(rows: list[dict[str, str]], seeds: int = SEEDS) -> str:
    """Return the questions with what the runs say about them, as Markdown.

    The tests are Fisher's, two-sided, with Holm's correction over all questions. One that lacks
    runs is not tested but counts in the correction, so that later runs never take an answer back.
    """
    from analysis.statistics import SIGNIFICANT, fisher_p, holm
    from analysis.text import TOO_FEW, shown_p

    groups = grouped(rows)
    pairs = []
    for question in QUESTIONS:
        arms = question.better, question.worse
        keys = [(question.task, arm, question.scale * (arm != "no bonus")) for arm in arms]
        pairs.append([groups.get(key, Group([], [])) for key in keys])
    made = [min(len(group.solved) for group in pair) >= seeds for pair in pairs]
    p_values = [
        fisher_p(*(np.array(group.solved) for group in pair)) if complete else 1.0
        for pair, complete in zip(pairs, made, strict=True)
    ]
    lines = [
        "| | claim | task | expected better | than | p | p, Holm | answer |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for question, (better, worse), complete, p, corrected in zip(
        QUESTIONS, pairs, made, p_values, holm(p_values), strict=True
    ):
        if not complete:
            answer = TOO_FEW
        elif corrected >= SIGNIFICANT:
            answer = "undecided"
        else:
            answer = "supported" if sum(better.solved) > sum(worse.solved) else "contradicted"
        numbers = f"{shown_p(p)} | {shown_p(corrected)}" if complete else "– | –"
        lines.append(
            f"| {question.name} | {question.claim} | {question.task}, scale {question.scale:g} | "
            f"{question.better}: {better.solved_text} | {question.worse}: {worse.solved_text} | "
            f"{numbers} | {answer} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run or report."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("directory", type=Path, help="where results.csv is, or will be")
    line.add_argument("--tier", choices=["study", "smoke"], default="study", help="smoke: short")
    line.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each arm ({SEEDS})")
    line.add_argument("--workers", type=int, default=1, help="the number of processes (1)")
    line.add_argument("--report", action="store_true", help="print tables and run nothing")
    args = line.parse_args(argv)
    table = args.directory / "results.csv"
    if not args.report:
        smoke = args.tier == "smoke"
        run_missing(table, 1 if smoke else args.seeds, 1200 if smoke else None, args.workers)
    rows = read(table)
    print(report(rows))
    if args.report:
        print(f"\n{answers(rows, args.seeds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
