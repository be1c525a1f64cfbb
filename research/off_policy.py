"""The off-policy study: DQN and SAC, with F′ stored and with F′ computed at sampling.

    python -m research.off_policy runs/off-policy --workers 2     # runs what is missing
    python -m research.off_policy runs/off-policy --report        # prints what is there
    python -m research.off_policy runs/smoke --tier smoke         # the same machinery in a minute

Every finished run is one row of DIR/results.csv. If it is killed, run the same command again: it
continues with the runs that have no row. The design is in docs/off_policy_study.md. Needs
`pip install adops-wrappers[train,sb3,analysis]`.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, SAC
from tqdm import tqdm

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, QCritic, TDCritic, make_shaping
from adops_wrappers.replay import ReplayShaper
from adops_wrappers.sb3 import ShapedReplayBuffer, ShapingCallback
from research.off_policy_design import (
    ABLATION,
    ARMS,
    FIELDS,
    NO_BONUS,
    SEEDS,
    TASKS,
    UNIT,
    Cell,
    Task,
    answers,
    cells,
    key_of,
    read,
    report,
)

GAMMA = 0.99
EPSILON = 0.1


def make_env(task: Task) -> Any:
    """Return the bare env."""
    return gym.make(task.env, horizon=task.horizon)


def make_source(cell: Cell, task: Task, world: Any) -> Any:
    """Return the bonus of a run."""
    if cell.scale == NO_BONUS:
        return lambda obs, action, next_obs: 0.0
    scale = 1.0 if cell.scale == UNIT else float(cell.scale)
    if task.bonus == "count":
        return CountBonus(scale=scale)
    if task.algorithm == "SAC":
        return world.tempting_source(scale)
    table = world.tempting_bonus(scale)
    return lambda obs, action, next_obs: table[
        world.state_of(obs), action, world.state_of(next_obs)
    ]


def make_stack(cell: Cell, task: Task, steps: int) -> Any:
    """Return env, bonus and shaping of a run."""
    env = make_env(task)
    source = make_source(cell, task, env.unwrapped)
    normalizer: Literal["rms"] | None = "rms" if cell.scale == UNIT else None
    env = IntrinsicRewardWrapper(env, source, normalizer=normalizer)
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
    env = make_env(task)
    total = 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 + episode)
        ended = False
        while not ended:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
    return total / episodes


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


def main(argv: list[str] | None = None) -> int:
    """Run or report."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("directory", type=Path, help="where results.csv is, or will be")
    line.add_argument(
        "--tier",
        choices=["study", "smoke"],
        default="study",
        help="smoke: one seed, 1,200 steps per run",
    )
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
