"""What shaping at sampling costs, as a multiple of a DQN gradient step with SB3's own buffer.

    python benchmarks/replay_cost.py

Four kinds of a gradient step of SB3's DQN run in turns within one process on one torch thread;
the least CPU time of several rounds counts. "critic stands still" only shapes, with a critic that
has learned; "critic learns" also makes a gradient step of QCritic at every, or at every fourth,
sampling.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper, QCritic
from adops_wrappers.replay import ReplayShaper
from adops_wrappers.sb3 import ShapedReplayBuffer


class Dots(gym.Env[Any, Any]):
    """Random observations; the time of a step does not matter here."""

    def __init__(self, images: bool) -> None:
        self.observation_space = (
            gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
            if images
            else gym.spaces.Box(-1.0, 1.0, (32,), np.float32)
        )
        self.action_space = gym.spaces.Discrete(5)
        self.observation_space.seed(0)
        self.frames = [self.observation_space.sample() for _ in range(16)]
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start anywhere."""
        return self.frames[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next of 16 observations."""
        self.t += 1
        return self.frames[self.t % 16], float(self.t % 7 == 0), self.t % 50 == 0, False, {}


def make_model(images: bool, kind: str) -> Any:
    """Return a DQN whose buffer holds 1,000 steps."""
    env: Any = Dots(images)
    settings: dict[str, Any] = {}
    if kind != "SB3's buffer":
        env = IntrinsicRewardWrapper(env, lambda obs, action, next_obs: 0.1)
        critic = QCritic(env.observation_space, env.action_space, seed=0)
        env = ADOPSWrapper(env, critic, add_to_reward=False, int_bootstrap="none")
        every = {"critic stands still": 1, "critic learns": 1, "critic learns, every 4th": 4}
        settings["replay_buffer_class"] = ShapedReplayBuffer
        settings["replay_buffer_kwargs"] = {
            "shaper": ReplayShaper(env),
            "learn_every": every[kind],
        }
    model = DQN(
        "CnnPolicy" if images else "MlpPolicy",
        env,
        buffer_size=1000,
        learning_starts=1001,
        device="cpu",
        seed=0,
        policy_kwargs=None if images else {"net_arch": [64, 64]},
        **settings,
    )
    model.learn(1000)
    if kind != "SB3's buffer":
        # A critic whitens its observations once it has learned, and learns them less often later.
        while critic.updates <= WARM_UP:
            model.replay_buffer.sample(32)
        critic.frozen = kind == "critic stands still"
    return model


WARM_UP = 100
KINDS = ("SB3's buffer", "critic stands still", "critic learns", "critic learns, every 4th")


def measure(images: bool, batch_size: int, steps: int, rounds: int) -> dict[str, float]:
    """Return the least seconds of a gradient step for each kind."""
    models = {kind: make_model(images, kind) for kind in KINDS}
    least = dict.fromkeys(KINDS, np.inf)
    for _ in range(rounds):
        for kind, model in models.items():
            start = time.process_time()
            model.train(steps, batch_size)
            least[kind] = min(least[kind], (time.process_time() - start) / steps)
    return least


def main() -> None:
    """Print the table."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--rounds", type=int, default=12)
    line.add_argument("--steps", type=int, default=40, help="gradient steps of a round")
    args = line.parse_args()
    torch.set_num_threads(1)
    print("| observations | batch | " + " | ".join(KINDS) + " |")
    print("| --- | ---: |" + " ---: |" * len(KINDS))
    for images, batch_size in ((False, 32), (False, 128), (True, 32)):
        steps = max(4, args.steps // 10) if images else args.steps
        least = measure(images, batch_size, steps, args.rounds)
        plain = least["SB3's buffer"]
        cells = [f"{1000 * plain:.2f} ms"]
        cells += [f"{least[kind] / plain:.2f}×" for kind in KINDS[1:]]
        name = "84×84×4 image" if images else "32 numbers"
        print(f"| {name} | {batch_size} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
