"""Stable-Baselines3's PPO, which has one critic, with ADOPS and a critic that learns beside it.

    python examples/sb3_ppo.py                      # ADOPS on adops/KeyDoorTV-v0
    python examples/sb3_ppo.py --shaping none       # the raw bonus: watch it being hacked
    python examples/sb3_ppo.py --bonus none         # no bonus at all
    python examples/sb3_ppo.py --csv runs/ppo.csv   # keep the curve

Needs `pip install adops-wrappers[sb3]`. Prints the mean extrinsic return of the episodes that
ended in each rollout; the bonus is never part of it.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, TDCritic, make_shaping
from adops_wrappers.sb3 import SB3VecEnv, ShapingCallback

GAMMA = 0.99


def make_env(args: argparse.Namespace) -> SB3VecEnv:
    """Build the stack: vector env, bonus, shaping, adapter."""
    env = gym.make_vec(args.env, num_envs=args.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    scale = args.bonus_scale if args.bonus == "count" else 1e-300
    env = IntrinsicRewardWrapper(env, CountBonus(scale=scale))
    critic, settings = None, {}
    if args.shaping.startswith("adop"):
        critic = TDCritic(
            env.single_observation_space,
            action_space=env.single_action_space if args.q_values else None,
            seed=args.seed,
        )
        # PPO has one discount, and its return stops at termination: so does V_I here.
        settings = {
            "gamma_ext": GAMMA,
            "gamma_int": GAMMA,
            "int_bootstrap": "none",
            "epsilon": args.epsilon,
        }
    elif args.shaping == "pies":
        settings = {"decay_updates": args.steps // args.num_envs // 128 // 2, "update_every": 128}
    elif args.shaping.startswith(("grm", "pbim")):
        settings = {"gamma": GAMMA}
    return SB3VecEnv(make_shaping(args.shaping, env, critic, **settings))


def train(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, and return the log entries."""
    torch.set_num_threads(1)
    log = ShapingCallback(log_every=10**9)
    model = PPO(
        "MlpPolicy",
        make_env(args),
        n_steps=args.rollout,
        batch_size=args.rollout * args.num_envs // 4,
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
    line.add_argument("--env", default="adops/KeyDoorTV-v0")
    line.add_argument("--shaping", default="adops", help="a name that make_shaping takes")
    line.add_argument("--bonus", default="count", choices=["count", "none"])
    line.add_argument("--bonus-scale", type=float, default=1.0, help="of a first visit")
    line.add_argument("--epsilon", type=float, default=1e-2, help="ADOPS's epsilon")
    line.add_argument("--q-values", action="store_true", help="let TDCritic learn Q_E too")
    line.add_argument("--num-envs", type=int, default=64)
    line.add_argument("--rollout", type=int, default=64, help="steps per env and update")
    line.add_argument("--steps", type=int, default=400_000)
    line.add_argument("--seed", type=int, default=0)
    line.add_argument("--csv", type=Path, help="write the curve here")
    return line


def main() -> None:
    """Train once and print the curve."""
    args = parser().parse_args()
    history = train(args)
    for entry in history[:: max(1, len(history) // 20)]:
        print(
            f"{int(entry['timesteps']):>8} steps  "
            f"extrinsic return {entry.get('extrinsic_return', float('nan')):.3f}  "
            f"corrected {entry['corrected_share']:.0%}"
        )
    if args.csv is not None:
        args.csv.parent.mkdir(parents=True, exist_ok=True)
        names = sorted({name for entry in history for name in entry})
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(history)


if __name__ == "__main__":
    main()
