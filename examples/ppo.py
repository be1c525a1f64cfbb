"""PPO with an exploration bonus that does not fight the task, in one file to copy from.

    python examples/ppo.py --env-id minigrid:MiniGrid-DoorKey-5x5-v0
    python examples/ppo.py --env-id adops/Fountain-v0 --steps 60000  # continuous actions
    python examples/ppo.py --one-critic --env-id minigrid:MiniGrid-DoorKey-5x5-v0
    python examples/ppo.py --one-critic --env-id adops/Fountain-v0 --steps 60000

The lines marked `# bonus` are all that differs from plain PPO: strike them out, and plain PPO is
left. Two value heads learn the task's reward R and the bonus F (RND), and ADOPS is applied to the
sum of their advantages: an action that the task calls bad is never made likelier. F has unit size
and starts after ten rollouts. With --one-critic the agent has one value head, for R + F', and
`TDCritic` learns beside it the values that ADOPS needs.

It needs `pip install adops-wrappers[torch,minigrid]`, takes any env with Discrete or Box actions,
and prints the task's mean return over the last 100 episodes. A minute or two. Plain PPO learns
these small tasks, too: they show that the parts fit together, not what a bonus is worth.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import adops_wrappers as adops  # bonus

ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 16, 128, 4, 8
GAMMA, LAMBDA, CLIP, ENTROPY, LEARNING_RATE = 0.99, 0.95, 0.2, 0.01, 1e-3


def make_env(env_id: str) -> gym.Env[Any, Any]:
    """Make one env with flat observations, and actions that a Gaussian can take."""
    env = gym.make(env_id)
    if isinstance(env.observation_space, gym.spaces.Dict):  # MiniGrid's, without its text
        parts, known = env.observation_space.spaces, (gym.spaces.Box, gym.spaces.Discrete)
        flat = [name for name, space in parts.items() if isinstance(space, known)]
        env = gym.wrappers.FilterObservation(env, flat)
    env = gym.wrappers.FlattenObservation(env)
    if isinstance(env.action_space, gym.spaces.Box):
        env = gym.wrappers.ClipAction(
            gym.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
        )
    return env


def make_envs(args: argparse.Namespace) -> Any:
    """Make the vector env and what is around it."""
    envs: Any = SyncVectorEnv(
        [lambda: make_env(args.env_id)] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    space, late = envs.single_observation_space, 10 * ROLLOUT  # bonus
    rnd = adops.RND(space, seed=args.seed)  # bonus
    envs = adops.IntrinsicRewardWrapper(envs, rnd, normalizer="rms", quiet_steps=late)  # bonus
    if args.one_critic:  # bonus
        critic = adops.TDCritic(space, seed=args.seed)  # bonus
        envs = adops.ADOPSWrapper(envs, critic, gamma=GAMMA)  # bonus
    return envs


def mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a network with two hidden layers."""
    layers = [nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, gain)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


class Agent(nn.Module):
    """A policy, and a value head for each stream of rewards, of whitened observations."""

    def __init__(self, inputs: int, action_space: gym.Space[Any], streams: int) -> None:
        super().__init__()
        self.discrete = isinstance(action_space, gym.spaces.Discrete)
        actions = int(action_space.n) if self.discrete else int(np.prod(action_space.shape))
        self.policy, self.value = mlp(inputs, actions, 0.01), mlp(inputs, streams, 1.0)
        self.log_std = nn.Parameter(torch.zeros(actions))
        self.seen, self.mean, self.square = 0, torch.zeros(inputs), torch.ones(inputs)

    def forward(self, obs: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return the distribution of actions, and V of each stream: shape (streams, n)."""
        std = (self.square - self.mean.square()).clamp(min=1e-6).sqrt()
        x = ((obs - self.mean) / std).clamp(-5.0, 5.0)
        out = self.policy(x)
        chances = Categorical(logits=out) if self.discrete else self.gaussian(out)
        return chances, self.value(x).T

    def gaussian(self, mean: torch.Tensor) -> Independent:
        """Return the distribution of continuous actions."""
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean)), 1)

    def whiten(self, obs: torch.Tensor) -> None:
        """Update the moments of observations."""
        self.seen += len(obs)
        self.mean = torch.lerp(self.mean, obs.mean(0), len(obs) / self.seen)
        self.square = torch.lerp(self.square, obs.square().mean(0), len(obs) / self.seen)


def gae(rewards: Any, values: Any, following: Any, cut: Any) -> torch.Tensor:
    """Return the advantages, shape (steps, streams, envs); no trace passes where `cut`."""
    deltas = rewards + GAMMA * following - values
    result, running = torch.zeros_like(deltas), torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        running = result[t] = deltas[t] + GAMMA * LAMBDA * ~cut[t] * running
    return result


def train(args: argparse.Namespace) -> Iterator[tuple[int, float]]:
    """Train, and yield after each tenth the steps so far and the mean return."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    envs, streams = make_envs(args), 1
    streams = 1 if args.one_critic else 2  # bonus
    combine = adops.ClampedAdvantage(ext_coef=2.0, int_coef=1.0)  # bonus
    floor = adops.AdvantageFloor()  # bonus
    inputs = envs.single_observation_space.shape[0]
    agent = Agent(inputs, envs.single_action_space, streams)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE)
    returns, earned = deque[float](maxlen=100), np.zeros(ENVS)

    observations = torch.zeros(ROLLOUT, ENVS, inputs)
    actions = torch.zeros(ROLLOUT, ENVS, *envs.single_action_space.shape)
    logprobs, ended = torch.zeros(ROLLOUT, ENVS), torch.zeros(ROLLOUT, ENVS, dtype=torch.bool)
    rewards, values = torch.zeros(ROLLOUT, streams, ENVS), torch.zeros(ROLLOUT + 1, streams, ENVS)

    obs = torch.as_tensor(envs.reset(seed=args.seed)[0], dtype=torch.float32)
    rollouts = max(1, args.steps // (ENVS * ROLLOUT))
    for count in range(1, rollouts + 1):
        final = torch.zeros(ROLLOUT, streams, ENVS)
        for t in range(ROLLOUT):
            with torch.no_grad():
                chances, values[t] = agent(obs)
            observations[t], actions[t] = obs, chances.sample()
            logprobs[t] = chances.log_prob(actions[t])
            taken = actions[t].long() if agent.discrete else actions[t]
            following, reward, terminated, truncated, info = envs.step(taken.numpy())
            rewards[t, 0], extrinsic = torch.as_tensor(reward), reward
            rewards[t, 1:] = torch.as_tensor(info["intrinsic_reward"])  # bonus
            extrinsic = info.get("extrinsic_reward", reward)  # bonus
            earned, over = earned + extrinsic, terminated | truncated
            ended[t] = torch.as_tensor(over)
            if over.any():
                # V(s') of the true last observation where the time was up, else 0.
                last = torch.as_tensor(np.stack(info["final_obs"][over]), dtype=torch.float32)
                with torch.no_grad():
                    final[t][:, ended[t]] = agent(last)[1]
                final[t][:, torch.as_tensor(terminated)] = 0.0
                returns.extend(earned[over])
                earned[over] = 0.0
            obs = torch.as_tensor(following, dtype=torch.float32)
        with torch.no_grad():
            values[ROLLOUT] = agent(obs)[1]

        cut = ended[:, None].repeat(1, streams, 1)
        cut[:, 1:] = False  # bonus: what is new stays new in the next episode
        advantages = gae(rewards, values[:-1], torch.where(cut, final, values[1:]), cut)
        targets, advantage = advantages + values[:-1], advantages[:, 0]
        combine.observe(rewards[:, 0])  # bonus
        advantage = combine(advantage, advantages[:, 1]) if streams == 2 else advantage  # bonus
        size = float(advantage.square().mean().sqrt()) + 1e-8  # subtract no mean: it turns signs
        size = max(size, floor.after(advantage))  # bonus

        rows = ENVS * ROLLOUT
        flat = [part.flatten(0, 1) for part in (observations, actions, logprobs, advantage / size)]
        targets = targets.transpose(0, 1).flatten(1)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(rows).split(rows // MINIBATCHES):
                seen, done, logprob, gain = (part[chosen] for part in flat)
                chances, value = agent(seen)
                ratio = (chances.log_prob(done) - logprob).exp()
                gain = torch.min(gain * ratio, gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                misfit = (value - targets[:, chosen]).square().mean(1).sum()
                loss = 0.5 * misfit - gain - ENTROPY * chances.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        agent.whiten(flat[0])
        if count * 10 // rollouts > (count - 1) * 10 // rollouts:
            yield count * rows, float(np.mean(returns)) if returns else float("nan")


def main() -> None:
    """Train once and print the curve."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--env-id", default="minigrid:MiniGrid-DoorKey-5x5-v0")
    line.add_argument("--steps", type=int, default=100_000)
    line.add_argument("--seed", type=int, default=0)
    line.add_argument("--one-critic", action="store_true", help="one value head")  # bonus
    args = line.parse_args()
    for steps, mean in train(args):
        print(f"{steps:>8} steps  extrinsic return {mean:.3f}  seed {args.seed}", flush=True)


if __name__ == "__main__":
    main()
