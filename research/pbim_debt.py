"""Measures the last reward of PBIM's episodes in real rollouts of Montezuma's Revenge.

    python -m research.pbim_debt --csv docs/data/montezuma_debt.csv

PBIM pays an episode's bonuses back in its last step, divided by gamma**N: the paper expects
rewards of the order 0.99**-4500 = 4e19. Two policies are played under PBIM and PBIM-norm with an
untrained RND bonus: one that never moves, which lives until the time limit, and a random one.
`research.figures.montezuma_debt` draws the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import tyro
from gymnasium.spaces.utils import flatdim
from tqdm import tqdm

from adops_wrappers import CriticHandle, IntrinsicReturnNormalizer
from adops_wrappers.training.distributed import Ranks
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import env_kind, make_vector_env
from research.rows import Row, write_rows
from train.ppo_rnd import Args, RNDBonus, warm_up, wrap_stack


@dataclass
class Settings:
    """What to play."""

    env_id: str = "ALE/MontezumaRevenge-v5"
    """an Atari game"""
    limits: tuple[int, ...] = (500, 1000, 2000, 3000, 4500)
    """time limits for the policy that stands still; the random one gets only the last of them"""
    random_steps: int = 1500
    """steps of the random policy"""
    num_envs: int = 2
    """envs side by side"""
    warm_up: int = 2
    """rollouts of 128 random steps that initialise RND's whitening and scale"""
    seed: int = 1
    """seed of networks, policies and envs"""
    csv: str = "montezuma_debt.csv"
    """file to write, one row per finished episode"""


def play(settings: Settings, method: str, policy: str, limit: int, steps: int) -> Iterator[Row]:
    """Play some steps under a time limit, and yield every finished episode."""
    args = Args(
        env_id=settings.env_id,
        num_envs=settings.num_envs,
        shaping=method,
        max_episode_steps=limit,
        obs_norm_init_iterations=settings.warm_up,
        seed=settings.seed,
    )
    kind = env_kind(args.env_id)
    base = make_vector_env(args, kind, args.num_envs)
    num_actions = flatdim(base.single_action_space)
    encoder = Encoder(base.single_observation_space, kind, torch.device("cpu"))
    torch.manual_seed(args.seed)
    learner: Any = SimpleNamespace(
        source=RNDBonus(encoder, args.mlp_hidden, args.num_steps, args.num_envs),
        normalizer=IntrinsicReturnNormalizer(args.num_envs, gamma=args.gamma_int, update="manual"),
        critic=CriticHandle(lambda obs: (np.zeros(len(obs)), np.zeros(len(obs)))),
    )
    warm_up(args, base, learner, Ranks(args.num_envs, cuda=False))
    envs = wrap_stack(args, base, learner)
    actions = np.random.default_rng(args.seed)
    envs.reset(seed=args.seed)
    length, total = np.zeros(args.num_envs, dtype=int), np.zeros(args.num_envs)
    for _ in tqdm(range(steps), f"{method}, {policy} policy, limit {limit}", leave=False):
        if policy == "still":
            moves = np.zeros(args.num_envs, dtype=np.int64)
        else:
            moves = actions.integers(0, num_actions, args.num_envs)
        _, _, terminated, truncated, info = envs.step(moves)
        length += 1
        total += info["raw_intrinsic_reward"]
        for row in np.flatnonzero(terminated | truncated):
            yield {
                "method": method,
                "policy": policy,
                "episode_length": str(length[row]),
                "last_reward": f"{info['intrinsic_reward'][row]:.4g}",
                "raw_mean": f"{total[row] / length[row]:.4g}",
            }
            length[row], total[row] = 0, 0.0
    envs.close()


def main(settings: Settings) -> None:
    """Play and write."""
    rows: list[Row] = []
    with warnings.catch_warnings():
        # The wrapper warns of exactly what is measured here.
        warnings.filterwarnings("ignore", ".*emitted F'", RuntimeWarning)
        for method in ("pbim", "pbim-norm"):
            for limit in settings.limits:
                rows += play(settings, method, "still", limit, limit)
            rows += play(settings, method, "random", settings.limits[-1], settings.random_steps)
    write_rows(Path(settings.csv), rows)
    print(settings.csv)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
