"""Stable-Baselines3's DQN with ADOPS: each step is shaped when it is sampled.

    python examples/sb3_dqn.py                          # ADOPS on adops/LoopFarm-v0
    python examples/sb3_dqn.py --shaping none           # the raw bonus: the bell wins
    python examples/sb3_dqn.py --stored                 # ADOPS with F′ stored: it gets out of date
    python examples/sb3_dqn.py --bonus none --shaping none

It needs `pip install adops-wrappers[sb3]`, and prints the mean extrinsic return (without the bonus)
of the episodes that ended since the last line. The replay buffer stores R and F; `QCritic` learns
Q_E and Q_I from it, and each batch is shaped with what the critic knows by then.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import DQN

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, QCritic, make_shaping
from adops_wrappers.methods import find_method
from adops_wrappers.replay import ReplayShaper
from adops_wrappers.sb3 import ShapedReplayBuffer, ShapingCallback

GAMMA = 0.99


def source_of(name: str, env: Any, scale: float) -> Any:
    """Return the bonus: visit counts, the tempting bonus of a gallery env, or nothing."""
    if name == "count":
        return CountBonus(scale=scale)
    world = env.unwrapped
    table = world.tempting_bonus(scale if name == "tempting" else 0.0)
    return lambda obs, action, next_obs: table[
        world.state_of(obs), action, world.state_of(next_obs)
    ]


def make_env(args: argparse.Namespace) -> Any:
    """Build the stack: env, bonus, shaping. SB3 vectorises a single env itself."""
    env: Any = gym.make(args.env)
    env = IntrinsicRewardWrapper(env, source_of(args.bonus, env, args.bonus_scale))
    method = find_method(args.shaping)
    given = {
        "gamma": GAMMA,
        "epsilon": args.epsilon,
        "decay_updates": 100,
        "ramp_updates": 100,
        "update_every": max(1, args.steps // 200),
    }
    settings = {name: value for name, value in given.items() if name in method.settings}
    critic = None
    if method.needs_critic:
        critic = QCritic(env.observation_space, env.action_space, seed=args.seed)
        settings["gamma"] = GAMMA
    return make_shaping(args.shaping, env, critic, add_to_reward=args.stored, **settings)


def replay(env: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Return DQN's arguments for a buffer that shapes what it samples, or for SB3's own."""
    if args.stored:
        return {"n_steps": 5}
    return {
        "replay_buffer_class": ShapedReplayBuffer,
        "replay_buffer_kwargs": {"shaper": ReplayShaper(env), "n_steps": 5, "gamma": GAMMA},
    }


def train(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, and return a log entry for every 1,000 steps."""
    torch.set_num_threads(1)
    log = ShapingCallback(log_every=1000, at_rollout_end=False)
    env = make_env(args)
    model = DQN(
        "MlpPolicy",
        env,
        buffer_size=20_000,
        learning_starts=1000,
        train_freq=4,
        gradient_steps=2,
        target_update_interval=250,
        exploration_fraction=0.6,
        exploration_final_eps=0.05,
        learning_rate=1e-3,
        gamma=GAMMA,
        seed=args.seed,
        device="cpu",
        **replay(env, args),
    )
    model.learn(args.steps, callback=log)
    return log.history


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--env", default="adops/LoopFarm-v0")
    line.add_argument("--shaping", default="adops", help="a method's name, as for make_shaping")
    line.add_argument("--bonus", default="tempting", choices=["tempting", "count", "none"])
    line.add_argument("--bonus-scale", type=float, default=0.2)
    line.add_argument("--epsilon", type=float, default=0.1, help="epsilon of ADOPS")
    line.add_argument(
        "--stored", action="store_true", help="store F′ as computed when the step is taken"
    )
    line.add_argument("--steps", type=int, default=12_000)
    line.add_argument("--seed", type=int, default=0, help="the first seed")
    line.add_argument("--seeds", type=int, default=3, help="the number of seeds")
    return line


def main() -> None:
    """Train once for each seed and print the curves."""
    args = parser().parse_args()
    for seed in range(args.seed, args.seed + args.seeds):
        history = train(argparse.Namespace(**{**vars(args), "seed": seed}))
        for entry in history[:: max(1, len(history) // 20)]:
            print(
                f"{int(entry['timesteps']):>8} steps  "
                f"extrinsic return {entry.get('extrinsic_return', float('nan')):.3f}  "
                f"steps corrected {entry['corrected_share']:.0%}  seed {seed}"
            )


if __name__ == "__main__":
    main()
