"""PPO with a GRU (after CleanRL's PPO-LSTM) on a task that needs memory, under a tempting bonus.

    python examples/recurrent_ppo.py --shaping adops   # it learns to turn as the cue said
    python examples/recurrent_ppo.py --shaping none    # the raw bonus: it keeps pressing the button
    python examples/recurrent_ppo.py --memory off      # ADOPS, forgetting at every step: half right

The first observation says on which side the reward will be; the junction is six steps away, and
nothing on the way repeats the cue. On the way there is a button that pays a bonus and nothing else.
The lines marked `# shaped` are all that distinguishes this script from PPO on the raw bonus. It
needs `pip install adops-wrappers[torch]`, and prints the mean extrinsic return of the episodes that
ended since the last line. It takes less than a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

from adops_wrappers import IntrinsicRewardWrapper, RecurrentCritic, make_shaping

GAMMA, LAMBDA, CLIP, ENTROPY = 0.97, 0.95, 0.2, 0.01
ENVS, ROLLOUT, EPOCHS = 16, 64, 4
LEFT, FORWARD = 0, 2


class Corridor(gym.Env[Any, Any]):
    """Go forward six times and turn to the side that the first observation named."""

    length = 6
    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def _obs(self, cue: float = 0.0) -> Any:
        here = self.position == self.length
        return np.array([cue, self.position / self.length, here], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Draw a side and show it."""
        super().reset(seed=seed)
        self.side, self.position = int(self.np_random.integers(2)), 0
        return self._obs(cue=2.0 * self.side - 1.0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move, or turn at the junction."""
        if action == FORWARD:
            self.position = min(self.position + 1, self.length)
        elif self.position == self.length:
            return self._obs(), float(action == self.side), True, False, {}
        return self._obs(), 0.0, False, False, {}


class Agent(nn.Module):
    """A GRU, and heads for the policy, V_E and V_I."""

    def __init__(self, inputs: int, actions: int, *, remembers: bool) -> None:
        super().__init__()
        self.cell, self.heads = nn.GRUCell(inputs, 64), nn.Linear(64, actions + 2)
        self.remembers = remembers

    def forward(self, obs: Any, state: Any, begins: Any) -> tuple[SimpleNamespace, torch.Tensor]:
        """Return logits and values for a batch, and the next state."""
        obs = torch.as_tensor(obs)
        begins = torch.as_tensor(begins) | (not self.remembers)
        if state is None:
            state = torch.zeros(len(obs), self.cell.hidden_size)
        state = self.cell(obs, state * ~begins[:, None])
        out = self.heads(state)
        logits, value_ext, value_int = out[:, :-2], out[:, -2], out[:, -1]
        return SimpleNamespace(logits=logits, value_ext=value_ext, value_int=value_int), state


def button(scale: float) -> Any:
    """Return the bonus: `scale` for pressing the button (turning left where there is no turn)."""
    return lambda obs, action, next_obs: scale * ((action == LEFT) & (obs[:, 2] == 0.0))


def make_env(args: argparse.Namespace, critic: RecurrentCritic) -> Any:
    """Build the stack: vector env, bonus, shaping."""
    env: Any = SyncVectorEnv(
        [lambda: gym.wrappers.TimeLimit(Corridor(), 64)] * ENVS,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    env = IntrinsicRewardWrapper(env, button(args.bonus_scale))
    settings: dict[str, Any] = {"add_to_reward": False}
    if args.shaping == "adops":
        # Two value heads with one discount, both ending where the episode terminates.
        settings |= {"gamma": GAMMA, "epsilon": 0.1}  # shaped
    return make_shaping(args.shaping, env, critic, **settings)  # shaped


def collect(env: Any, critic: RecurrentCritic, obs: Any, begins: Any) -> tuple[Any, Any, Any]:
    """Return a rollout, and the observations and beginnings at which the next one starts."""
    columns: dict[str, list[Any]] = {}
    state = critic.state
    for _ in range(ROLLOUT):
        output = critic(obs)  # computed already: the wrapper has valued obs in the step before
        action = Categorical(logits=output.logits).sample()
        values = torch.stack([output.value_ext, output.value_int])
        step = {"obs": torch.as_tensor(obs), "begins": torch.as_tensor(begins), "action": action}
        step |= {"logp": Categorical(logits=output.logits).log_prob(action), "values": values}
        obs, reward, terminated, truncated, info = env.step(action.numpy())
        begins = terminated | truncated
        # V(s'): of the true last observation where the time was up, 0 where the task was over.
        final = np.zeros((2, ENVS))
        if begins.any():
            final = np.stack([info["final_value_ext"], info["final_value_int"]]) * ~terminated
        step |= {"final": torch.as_tensor(final), "ended": torch.as_tensor(begins)}
        step["rewards"] = torch.as_tensor(np.stack([reward, info["intrinsic_reward"]]))
        for name, column in step.items():
            columns.setdefault(name, []).append(column)
    rollout = {name: torch.stack(column) for name, column in columns.items()}
    output = critic(obs)
    last = torch.stack([output.value_ext, output.value_int])
    return SimpleNamespace(**rollout, state=state, last=last), obs, begins


def advantages(rollout: Any) -> torch.Tensor:
    """Return GAE of both streams, shape (steps, 2, envs)."""
    following = torch.cat([rollout.values[1:], rollout.last[None]])
    ended = rollout.ended[:, None]
    following = torch.where(ended, rollout.final.float(), following)
    delta = rollout.rewards.float() + GAMMA * following - rollout.values
    result, running = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(ROLLOUT)):
        running = result[t] = delta[t] + GAMMA * LAMBDA * ~ended[t] * running
    return result


def learn(agent: Agent, optimizer: Any, rollout: Any) -> None:
    """Make PPO's epochs, unrolling the GRU from the state at the rollout's start."""
    gae = advantages(rollout)
    returns, advantage = gae + rollout.values, gae.sum(dim=1)
    advantage = advantage / (advantage.square().mean().sqrt() + 1e-8)
    for _ in range(EPOCHS):
        state, outputs = rollout.state, []
        for obs, begins in zip(rollout.obs, rollout.begins, strict=True):
            output, state = agent(obs, state, begins)
            outputs.append(output)
        policy = Categorical(logits=torch.stack([output.logits for output in outputs]))
        values = torch.stack([torch.stack([o.value_ext, o.value_int]) for o in outputs])
        ratio = (policy.log_prob(rollout.action) - rollout.logp).exp()
        gain = torch.min(ratio * advantage, ratio.clip(1 - CLIP, 1 + CLIP) * advantage).mean()
        loss = (values - returns).square().mean() - gain - ENTROPY * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()


def train(args: argparse.Namespace) -> Iterator[tuple[int, float]]:
    """Train, and yield the mean extrinsic return of each tenth of the steps."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    agent = Agent(3, 3, remembers=args.memory == "on")
    optimizer = torch.optim.Adam(agent.parameters(), lr=2e-3)
    critic = RecurrentCritic(torch.no_grad()(agent.forward))
    env = make_env(args, critic)
    obs, _ = env.reset(seed=args.seed)
    begins = np.ones(ENVS, dtype=np.bool_)
    earned = ended = 0.0
    rollouts = max(1, args.steps // (ENVS * ROLLOUT))
    for count in range(1, rollouts + 1):
        rollout, obs, begins = collect(env, critic, obs, begins)
        learn(agent, optimizer, rollout)
        critic.updated()
        # Rewards come at the end of an episode alone.
        earned, ended = (
            earned + float(rollout.rewards[:, 0].sum()),
            ended + int(rollout.ended.sum()),
        )
        if count % max(1, rollouts // 10) == 0:
            yield count * ENVS * ROLLOUT, earned / max(ended, 1.0)
            earned = ended = 0.0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--shaping", default="adops", choices=["adops", "none"])
    line.add_argument("--memory", default="on", choices=["on", "off"])
    line.add_argument("--bonus-scale", type=float, default=0.2)
    line.add_argument("--steps", type=int, default=120_000)
    line.add_argument("--seed", type=int, default=0)
    return line


def main() -> None:
    """Train once and print the curve."""
    args = parser().parse_args()
    for step, mean in train(args):
        print(f"{step:>8} steps  extrinsic return {mean:.3f}  seed {args.seed}", flush=True)


if __name__ == "__main__":
    main()
