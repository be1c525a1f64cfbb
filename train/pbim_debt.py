"""Measures the last reward of PBIM's episodes in real rollouts of Montezuma's Revenge.

    python train/pbim_debt.py --out docs/images/montezuma_debt.png
        --csv docs/data/montezuma_debt.csv

PBIM pays an episode's bonuses back in its last step, divided by gamma**N: the paper expects
rewards of the order 0.99**-4500 = 4e19. Two policies are played under PBIM and PBIM-norm with an
untrained RND bonus: one that never moves, which lives until the time limit, and a random one.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import ppo_rnd
import tyro
from tqdm import tqdm

from adops_wrappers import CriticHandle, IntrinsicReturnNormalizer

COLUMNS = ("method", "policy", "episode_length", "last_reward", "raw_mean")
MARKERS = {"pbim": "o", "pbim-norm": "x"}
COLOURS = {"still": "tab:red", "random": "tab:blue"}


@dataclass
class Settings:
    """What to play."""

    env_id: str = "ALE/MontezumaRevenge-v5"
    """an Atari game"""
    limits: tuple[int, ...] = (500, 1000, 2000, 3000, 4500)
    """time limits under which the still policy is played; the random one knows the last alone"""
    random_steps: int = 1500
    """steps of the random policy"""
    num_envs: int = 2
    """envs side by side"""
    warm_up: int = 2
    """rollouts of 128 random steps that start RND's whitening and scale"""
    seed: int = 1
    """seed of networks, policies and envs"""
    out: str = "montezuma_debt.png"
    """the picture"""
    csv: str = "montezuma_debt.csv"
    """one row per finished episode"""


def play(
    settings: Settings, method: str, policy: str, limit: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Play some steps under a time limit, and yield every finished episode."""
    args = ppo_rnd.Args(
        env_id=settings.env_id,
        num_envs=settings.num_envs,
        shaping=method,
        max_episode_steps=limit,
        obs_norm_init_iterations=settings.warm_up,
        seed=settings.seed,
        cuda=False,
    )
    ppo_rnd.torch.manual_seed(args.seed)
    ranks = ppo_rnd.Ranks(args)
    kind = ppo_rnd.env_kind(args.env_id)
    base = ppo_rnd.make_vector_env(args, kind)
    encoder = ppo_rnd.Encoder(base.single_observation_space, kind, ranks.device, False)
    target, predictor = ppo_rnd.make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
    clock = {"bonus": 0.0}
    source = ppo_rnd.RNDBonus(encoder, target, predictor, args.num_steps, args.num_envs, clock)
    normalizer = IntrinsicReturnNormalizer(args.num_envs, gamma=args.gamma_int, update="manual")
    ppo_rnd.warm_up(args, base, source, normalizer, ranks)
    critic = CriticHandle(lambda obs: (np.zeros(len(obs)), np.zeros(len(obs))))
    envs = ppo_rnd.wrap_stack(args, base, source, normalizer, critic)
    actions = np.random.default_rng(args.seed)
    envs.reset(seed=args.seed)
    length, total = np.zeros(args.num_envs, dtype=int), np.zeros(args.num_envs)
    for _ in tqdm(range(steps), f"{method}, {policy} policy, limit {limit}", leave=False):
        if policy == "still":
            moves = np.zeros(args.num_envs, dtype=np.int64)
        else:
            moves = actions.integers(0, base.single_action_space.n, args.num_envs)
        _, _, terminated, truncated, info = envs.step(moves)
        length += 1
        total += info["raw_intrinsic_reward"]
        for row in np.flatnonzero(terminated | truncated):
            yield {
                "method": method,
                "policy": policy,
                "episode_length": int(length[row]),
                "last_reward": f"{info['intrinsic_reward'][row]:.4g}",
                "raw_mean": f"{total[row] / length[row]:.4g}",
            }
            length[row], total[row] = 0, 0.0
    envs.close()


def draw(rows: list[dict[str, Any]], gamma: float, path: Path) -> None:
    """Draw the size of the last reward against the episode's length."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for method, marker in MARKERS.items():
        for policy, colour in COLOURS.items():
            own = [r for r in rows if (r["method"], r["policy"]) == (method, policy)]
            axis.scatter(
                [int(r["episode_length"]) for r in own],
                [abs(float(r["last_reward"])) for r in own],
                marker=marker,
                c=colour,
                alpha=0.7,
                label=f"{method}, {policy} policy ({len(own)} episodes)",
            )
    longest = max(int(r["episode_length"]) for r in rows)
    lengths = np.arange(longest)
    axis.plot(lengths, gamma**-lengths, color="0.5", zorder=0, label=f"{gamma:g}$^{{-N}}$")
    axis.set_yscale("log")
    axis.set_xlabel("length N of the episode")
    axis.set_ylabel("|F'| of its last step")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(settings: Settings) -> None:
    """Play, write, draw."""
    rows = []
    with warnings.catch_warnings():
        # What is to be shown is what the wrapper warns of.
        warnings.filterwarnings("ignore", ".*emitted F'", RuntimeWarning)
        for method in MARKERS:
            for limit in settings.limits:
                rows += play(settings, method, "still", limit, limit)
            rows += play(settings, method, "random", settings.limits[-1], settings.random_steps)
    path = Path(settings.csv)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, ppo_rnd.Args.gamma_int, Path(settings.out))
    print(settings.out)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
