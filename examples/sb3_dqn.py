"""Stable-Baselines3's DQN on one env, with ADOPS and a critic that learns beside it.

    python examples/sb3_dqn.py                      # ADOPS on adops/LoopFarm-v0
    python examples/sb3_dqn.py --shaping none       # the raw bonus: watch it being hacked
    python examples/sb3_dqn.py --bonus none --shaping none

Needs `pip install adops-wrappers[sb3]`. Prints the mean extrinsic return of the episodes that
ended since the last line; the bonus is no part of it. DQN's replay keeps F′ as it was when the
step was made: keep the buffer small enough to forget what an untrained critic shaped.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import DQN

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, TDCritic, make_shaping
from adops_wrappers.sb3 import ShapingCallback

GAMMA = 0.99


def source_of(name: str, env: Any, scale: float) -> Any:
    """Return the bonus: visit counts, the gallery's own temptation, or nothing."""
    if name == "count":
        return CountBonus(scale=scale)
    world = env.unwrapped
    table = world.tempting_bonus(scale if name == "tempting" else 0.0)
    return lambda obs, action, next_obs: table[
        world.state_of(obs), action, world.state_of(next_obs)
    ]


def make_env(args: argparse.Namespace) -> Any:
    """Build the stack: env, bonus, shaping. SB3 wraps a single env by itself."""
    env: Any = gym.make(args.env)
    env = IntrinsicRewardWrapper(env, source_of(args.bonus, env, args.bonus_scale))
    critic, settings = None, {}
    if args.shaping in ("adops", "adopes", "adopes-half"):
        critic = TDCritic(env.observation_space, seed=args.seed, replay_ratio=16.0)
        settings = {"gamma_ext": GAMMA, "gamma_int": GAMMA, "int_bootstrap": "none"}
        settings["epsilon"] = args.epsilon
    elif args.shaping.startswith(("grm", "pbim")):
        settings = {"gamma": GAMMA}
    return make_shaping(args.shaping, env, critic, **settings)


def train(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, and return a log entry for every 1,000 steps."""
    torch.set_num_threads(1)
    log = ShapingCallback(log_every=1000, at_rollout_end=False)
    model = DQN(
        "MlpPolicy",
        make_env(args),
        buffer_size=3000,
        learning_starts=2500,
        train_freq=4,
        gradient_steps=2,
        n_steps=5,
        target_update_interval=250,
        exploration_fraction=0.6,
        exploration_final_eps=0.05,
        learning_rate=1e-3,
        gamma=GAMMA,
        seed=args.seed,
        device="cpu",
    )
    model.learn(args.steps, callback=log)
    return log.history


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--env", default="adops/LoopFarm-v0")
    line.add_argument("--shaping", default="adops", help="a name that make_shaping takes")
    line.add_argument("--bonus", default="tempting", choices=["tempting", "count", "none"])
    line.add_argument("--bonus-scale", type=float, default=0.2)
    line.add_argument("--epsilon", type=float, default=1e-2, help="ADOPS's epsilon")
    line.add_argument("--steps", type=int, default=12_000)
    line.add_argument("--seed", type=int, default=0)
    return line


def main() -> None:
    """Train once and print the curve."""
    history = train(parser().parse_args())
    for entry in history[:: max(1, len(history) // 20)]:
        print(
            f"{int(entry['timesteps']):>8} steps  "
            f"extrinsic return {entry.get('extrinsic_return', float('nan')):.3f}  "
            f"steps corrected {entry['corrected_share']:.0%}"
        )


if __name__ == "__main__":
    main()
