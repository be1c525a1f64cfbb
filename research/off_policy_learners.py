"""The learners of the off-policy study: DQN and SAC of Stable-Baselines3, one run at a time."""

from __future__ import annotations

import math
import time
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, SAC

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, QCritic, TDCritic, make_shaping
from adops_wrappers.replay import ReplayShaper
from adops_wrappers.sb3 import ShapedReplayBuffer, ShapingCallback
from research.off_policy import ABLATION, KEY, METHODS, NO_BONUS, TASKS, UNIT, Arm, Task
from research.rows import Row

GAMMA = 0.99
EPSILON = 0.1


def make_env(task: Task) -> Any:
    """Return the bare env."""
    return gym.make(task.env, horizon=task.horizon)


def make_source(arm: Arm, task: Task, world: Any) -> Any:
    """Return the bonus of a run."""
    if arm.scale == NO_BONUS:
        return lambda obs, action, next_obs: 0.0
    scale = 1.0 if arm.scale == UNIT else float(arm.scale)
    if task.bonus == "count":
        return CountBonus(scale=scale)
    if task.algorithm == "SAC":
        return world.tempting_source(scale)
    table = world.tempting_bonus(scale)
    return lambda obs, action, next_obs: table[
        world.state_of(obs), action, world.state_of(next_obs)
    ]


def make_stack(arm: Arm, task: Task, steps: int, seed: int = 0) -> Any:
    """Return env, bonus and shaping of a run."""
    env = make_env(task)
    source = make_source(arm, task, env.unwrapped)
    normalizer: Literal["rms"] | None = "rms" if arm.scale == UNIT else None
    env = IntrinsicRewardWrapper(env, source, normalizer=normalizer)
    shaping = "adops" if arm.name == ABLATION else METHODS[arm.name]
    critic: Any = None
    settings: dict[str, Any] = {}
    if shaping == "adops":
        settings = {"gamma_ext": GAMMA, "gamma_int": GAMMA, "int_bootstrap": "none"}
        settings["epsilon"] = EPSILON
        if arm.name in ("ADOPS stored", ABLATION):
            critic = TDCritic(env.observation_space, seed=seed, replay_ratio=16.0)
        else:
            critic = QCritic(env.observation_space, env.action_space, seed=seed)
    if shaping in ("pies", "guarded"):
        settings["update_every"] = max(1, steps // 200)
    if shaping == "pies":
        settings["decay_updates"] = 100
    stored = arm.name == "ADOPS stored"
    return make_shaping(shaping, env, critic, add_to_reward=stored, **settings)


def make_model(arm: Arm, task: Task, env: Any, seed: int) -> Any:
    """Return SB3's learner; `ADOPS stored` has SB3's own buffer, all else the shaped one."""
    shared: dict[str, Any] = {"gamma": GAMMA, "seed": seed, "device": "cpu"}
    shared["policy_kwargs"] = {"optimizer_kwargs": {"fused": True}}  # the same steps, but faster
    n_steps = 5 if task.algorithm == "DQN" else 1
    if arm.name == "ADOPS stored":
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


def run(arm_and_seed: tuple[Arm, int], steps: int | None = None) -> Row:
    """Train once and return the run's row."""
    arm, seed = arm_and_seed
    torch.set_num_threads(1)
    task = TASKS[arm.task]
    steps = steps or task.steps
    start = time.perf_counter()
    env = make_stack(arm, task, steps, seed)
    model = make_model(arm, task, env, seed)
    log = ShapingCallback(log_every=max(1, steps // 20), at_rollout_end=False)
    model.learn(steps, callback=log)
    curve = [entry.get("extrinsic_return", math.nan) for entry in log.history]
    last = [value for value in curve[-2:] if not math.isnan(value)]
    return {
        **dict(zip(KEY, (*arm.key, str(seed)), strict=True)),
        "steps": str(steps),
        "final_return": f"{round(float(np.mean(last)), 4) if last else 0.0}",
        "greedy_return": f"{round(greedy_return(model, task), 4)}",
        "seconds": f"{time.perf_counter() - start:.1f}",
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
