"""Stable-Baselines3's PPO, which has one critic, with ADOPS and a critic that learns beside it.

    python examples/sb3_ppo.py                      # ADOPS on adops/LoopFarm-v0
    python examples/sb3_ppo.py --shaping none       # the raw bonus: the agent farms the bell
    python examples/sb3_ppo.py --bonus none --shaping none

A bonus that is not of unit size can capture it nevertheless: none of five seeds solves
    python examples/sb3_ppo.py --env adops/KeyDoorTV-v0 --bonus count --bonus-scale 1 --steps 400000

It needs `pip install adops-wrappers[sb3]`, and prints the mean extrinsic return (without the bonus)
of the episodes that ended in each rollout.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, TDCritic, make_shaping
from adops_wrappers.sb3 import SB3VecEnv, ShapingCallback

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


def make_env(args: argparse.Namespace) -> SB3VecEnv:
    """Build the stack: vector env, bonus, shaping, adapter."""
    env = gym.make_vec(args.env, num_envs=args.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    env = IntrinsicRewardWrapper(env, source_of(args.bonus, env, args.bonus_scale))
    critic, settings = None, {}
    if args.shaping in ("adops", "adopes", "adopes-half"):
        critic = TDCritic(env.single_observation_space, seed=args.seed)
        settings = {"gamma": GAMMA, "epsilon": args.epsilon}
    elif args.shaping.startswith(("grm", "pbim")):
        settings = {"gamma": GAMMA}
    return SB3VecEnv(make_shaping(args.shaping, env, critic, **settings))


def train(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, and return one log entry per rollout."""
    torch.set_num_threads(1)
    log = ShapingCallback(log_every=10**9)
    model = PPO(
        "MlpPolicy",
        make_env(args),
        n_steps=64,
        batch_size=16 * args.num_envs,
        n_epochs=4,
        learning_rate=1e-3,
        gamma=GAMMA,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
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
    line.add_argument("--epsilon", type=float, default=1e-2, help="epsilon of ADOPS")
    line.add_argument("--num-envs", type=int, default=64)
    line.add_argument("--steps", type=int, default=100_000)
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
