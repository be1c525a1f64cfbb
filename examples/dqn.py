"""DQN in one file (after CleanRL's) that learns from R + F′, with F′ computed at sampling time.

    python examples/dqn.py                              # ADOPS, Q_E and Q_I as heads of the agent
    python examples/dqn.py --critic separate            # the same, with QCritic beside the agent
    python examples/dqn.py --shaping none               # the raw bonus

A bonus that is not of unit size can capture it nevertheless: none of five seeds solves
    python examples/dqn.py --env adops/KeyDoorTV-v0 --bonus count --bonus-scale 0.3

The lines marked `# shaped` are all that distinguishes this script from a DQN on the raw bonus. It
needs `pip install adops-wrappers[torch]`, and prints the mean extrinsic return of the episodes that
ended since the last line.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from adops_wrappers import (
    CountBonus,
    CriticHandle,
    IntrinsicRewardWrapper,
    QCritic,
    make_shaping,
)
from adops_wrappers.replay import ReplayBatch, ReplayShaper

GAMMA = 0.99


class Agent(nn.Module):
    """Three Q heads: of R + F′, by which it acts, and of R (Q_E) and F (Q_I), for the critic."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                nn.Linear(64, actions),
            )
            for _ in range(3)
        )  # fmt: skip
        for head in self.heads:  # nothing looks good before it has been tried
            nn.init.zeros_(head[-1].weight)  # type: ignore[index,arg-type]
            nn.init.zeros_(head[-1].bias)  # type: ignore[index,arg-type]

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the Q values of all heads and actions, shape (3, n, actions)."""
        return torch.stack([head(obs) for head in self.heads])

    @torch.no_grad()
    def critic(self, obs: Any) -> Any:
        """Return V_E, V_I and Q_E: a Q learned from R alone is Q_E, whatever else is learned."""
        _, q_ext, q_int = self(torch.as_tensor(np.atleast_2d(obs)))
        best = q_ext == q_ext.max(dim=1, keepdim=True).values  # V_I averages over ties
        return q_ext.max(dim=1).values, (q_int * best).sum(dim=1) / best.sum(dim=1), q_ext


class ReplayBuffer:
    """The last steps: observation, action, next observation, R, F, terminated, truncated."""

    def __init__(self, size: int, inputs: int) -> None:
        obs = np.zeros((size, inputs), dtype=np.float32)
        flags = np.zeros(size, dtype=np.bool_)
        action, reward, bonus = np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(size)
        self.columns = [obs, action, obs.copy(), reward, bonus, flags, flags.copy()]
        self.added = 0

    def add(self, *step: Any) -> None:
        """Store a step over the oldest one."""
        for column, value in zip(self.columns, step, strict=True):
            column[self.added % len(column)] = value
        self.added += 1

    def sample(self, rng: np.random.Generator, size: int) -> ReplayBatch:
        """Draw steps with replacement."""
        rows = rng.integers(min(self.added, len(self.columns[0])), size=size)
        return ReplayBatch(*(column[rows] for column in self.columns))


def make_source(name: str, env: Any, scale: float) -> Any:
    """Return the bonus: visit counts, or the tempting bonus of a gallery env."""
    if name == "count":
        return CountBonus(scale=scale)
    world = env.unwrapped
    table = world.tempting_bonus(scale)
    return lambda obs, action, next_obs: table[
        world.state_of(obs), action, world.state_of(next_obs)
    ]


def make_critic(args: argparse.Namespace, env: Any, agent: Agent) -> CriticHandle:
    """Return the agent's own heads as the critic, or one that learns beside it."""
    if args.critic == "heads":
        return CriticHandle(agent.critic)
    return QCritic(env.observation_space, env.action_space, seed=args.seed)


def learn(agent: Agent, average: Agent, optimizer: Any, batch: ReplayBatch, shaped: Any) -> None:
    """Take one gradient step of double Q-learning on the streams R + F′, R and F."""
    obs, next_obs = (torch.as_tensor(o) for o in (batch.observation, batch.next_observation))
    streams = np.stack([batch.reward + shaped, batch.reward, batch.intrinsic])
    with torch.no_grad():
        greedy = agent(next_obs).argmax(dim=2)
        greedy[2] = greedy[1]  # Q_I follows the policy that is best for the task
        following = average(next_obs).gather(2, greedy[..., None])[..., 0]
        goes_on = torch.as_tensor(~batch.terminated, dtype=torch.float32)
        target = torch.as_tensor(streams, dtype=torch.float32) + GAMMA * goes_on * following
    action = torch.as_tensor(batch.action).expand(3, -1)[..., None]
    error = agent(obs).gather(2, action)[..., 0] - target
    optimizer.zero_grad()
    (error**2).mean(dim=1).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    with torch.no_grad():
        for mean, new in zip(average.parameters(), agent.parameters(), strict=True):
            mean.lerp_(new, 0.01)


def train(args: argparse.Namespace) -> list[tuple[int, float]]:
    """Train, and return the mean extrinsic return of each tenth of the steps."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env: Any = gym.make(args.env)
    env = IntrinsicRewardWrapper(env, make_source(args.bonus, env, args.bonus_scale))
    inputs, actions = env.observation_space.shape[0], int(env.action_space.n)
    agent, average = Agent(inputs, actions), Agent(inputs, actions)
    average.load_state_dict(agent.state_dict())
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    critic = make_critic(args, env, average)  # shaped
    adops = {"gamma": GAMMA, "epsilon": args.epsilon}  # shaped
    settings = adops if args.shaping == "adops" else {}  # shaped
    env = make_shaping(args.shaping, env, critic, add_to_reward=False, **settings)  # shaped
    shaper = ReplayShaper(env)  # shaped
    replay = ReplayBuffer(50_000, inputs)
    history: list[tuple[int, float]] = []
    finished: list[float] = []
    total = 0.0
    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        explore = max(0.05, 1.0 - 2.0 * step / args.steps)
        action = int(rng.integers(actions))
        if rng.random() > explore:
            action = int(agent.heads[0](torch.as_tensor(obs)).argmax())
        next_obs, reward, terminated, truncated, info = env.step(action)
        bonus = info["raw_intrinsic_reward"]
        replay.add(obs, action, next_obs, reward, bonus, terminated, truncated)
        obs, total = next_obs, total + reward
        if terminated or truncated:
            finished.append(total)
            obs, total = env.reset()[0], 0.0
        if step > 500 and step % 2 == 0:
            batch = replay.sample(rng, 64)
            shaper.learn(batch)  # shaped
            shaped = shaper.shape(batch)  # shaped; for the raw bonus: batch.intrinsic
            learn(agent, average, optimizer, batch, shaped)
            critic.updated()  # shaped
        if step % max(1, args.steps // 10) == 0:
            history.append((step, float(np.mean(finished)) if finished else 0.0))
            finished.clear()
    return history


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--env", default="adops/LoopFarm-v0")
    line.add_argument("--shaping", default="adops", choices=["adops", "none"])
    line.add_argument("--critic", default="heads", choices=["heads", "separate"])
    line.add_argument("--bonus", default="tempting", choices=["tempting", "count"])
    line.add_argument("--bonus-scale", type=float, default=0.2)
    line.add_argument("--epsilon", type=float, default=0.1, help="epsilon of ADOPS")
    line.add_argument("--steps", type=int, default=10_000)
    line.add_argument("--seed", type=int, default=0)
    return line


def main() -> None:
    """Train once and print the curve."""
    args = parser().parse_args()
    for step, mean in train(args):
        print(f"{step:>8} steps  extrinsic return {mean:.3f}  seed {args.seed}")


if __name__ == "__main__":
    main()
