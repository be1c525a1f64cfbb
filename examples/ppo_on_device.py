"""PPO with two value heads whose tensors never leave their device, on a CPU and a GPU alike.

    python examples/ppo_on_device.py                  # ADOPS: it finds the goal and stays with it
    python examples/ppo_on_device.py --shaping none   # the raw bonus: it goes on to ring the bell

Thousands of agents walk from the start to the goal past a bell. The bonus pays each time the bell
is reached, so that laps around it pay more than arriving. It begins after ten rollouts, in which
the agent learns what the task pays. The env steps in torch, on the CPU, or on a GPU with `--device
cuda`. The lines marked `# shaped` are all that distinguishes this script from PPO on the raw bonus.
It needs `pip install adops-wrappers[torch]`, and prints the mean extrinsic return of the episodes
that ended since the last line. It takes less than a minute on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical

from adops_wrappers import (
    CriticHandle,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    make_shaping,
)
from adops_wrappers.envs import GalleryTensorEnv, get_world

GAMMA, LAMBDA, CLIP, ENTROPY = 0.9, 0.95, 0.2, 0.01
ENVS, ROLLOUT, EPOCHS, MINIBATCHES, QUIET = 2048, 16, 4, 4, 10
WORLD = get_world("LoopFarm")
BELL = [WORLD.plan[row][column] for row, column in WORLD.cells].index("B")
"""Where an observation says that the agent is at the bell."""


class Agent(nn.Module):
    """One body, and heads for the policy, V_E and V_I."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.heads = nn.Linear(64, actions + 2)
        nn.init.orthogonal_(self.heads.weight, 0.01)

    def forward(self, obs: torch.Tensor) -> SimpleNamespace:
        """Return logits and values for a batch."""
        out = self.heads(self.body(obs))
        return SimpleNamespace(logits=out[:, :-2], value_ext=out[:, -2], value_int=out[:, -1])


def bell(obs: torch.Tensor, action: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:
    """Return the bonus: 1 for each arrival at the bell."""
    return next_obs[:, BELL] * (1.0 - obs[:, BELL])


def make_env(args: argparse.Namespace, critic: CriticHandle) -> Any:
    """Build the stack: vector env, bonus at unit size, shaping."""
    env: Any = GalleryTensorEnv(ENVS, WORLD.name, device=args.device)
    # So many rows show the size of the bonus within a rollout.
    normalizer = IntrinsicReturnNormalizer(ENVS, rule="rms", warm_up=ROLLOUT)
    env = IntrinsicRewardWrapper(env, bell, normalizer=normalizer, quiet_steps=QUIET * ROLLOUT)
    settings: dict[str, Any] = {"add_to_reward": False}
    if args.shaping == "adops":
        # Two value heads with one discount, both ending where the episode terminates.
        settings |= {"gamma": GAMMA, "epsilon": 0.05}  # shaped
    return make_shaping(args.shaping, env, critic, **settings)  # shaped


def collect(env: Any, critic: CriticHandle, obs: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """Return a rollout, and the observations at which the next one starts."""
    columns: dict[str, list[torch.Tensor]] = {}
    for _ in range(ROLLOUT):
        output = critic(obs)  # computed already: the wrapper has valued obs in the step before
        policy = Categorical(logits=output.logits, validate_args=False)
        action = policy.sample()
        step = {"obs": obs, "action": action, "logp": policy.log_prob(action)}
        step["values"] = torch.stack([output.value_ext, output.value_int])
        obs, reward, terminated, truncated, info = env.step(action)
        # V(s'): of the true last observation where the time was up, 0 where the task was over.
        final = torch.stack([info["final_value_ext"], info["final_value_int"]])
        step |= {"final": final * ~terminated, "ended": terminated | truncated}
        step["rewards"] = torch.stack([reward, info["intrinsic_reward"]])
        for name, column in step.items():
            columns.setdefault(name, []).append(column)
    output = critic(obs)
    last = torch.stack([output.value_ext, output.value_int])
    stacked = {name: torch.stack(column) for name, column in columns.items()}
    return SimpleNamespace(**stacked, last=last), obs


def advantages(rollout: Any) -> torch.Tensor:
    """Return GAE of both streams, shape (steps, 2, envs)."""
    following = torch.cat([rollout.values[1:], rollout.last[None]])
    ended = rollout.ended[:, None]
    delta = rollout.rewards + GAMMA * torch.where(ended, rollout.final, following) - rollout.values
    result, running = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(ROLLOUT)):
        running = result[t] = delta[t] + GAMMA * LAMBDA * ~ended[t] * running
    return result


def learn(agent: Agent, optimizer: Any, rollout: Any) -> None:
    """Make PPO's epochs."""
    gae = advantages(rollout)
    returns = (gae + rollout.values).transpose(1, 2).reshape(-1, 2)
    gain = gae.sum(dim=1).flatten()
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    obs = rollout.obs.flatten(0, 1)
    action, logp = rollout.action.flatten(), rollout.logp.flatten()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(obs), device=obs.device).chunk(MINIBATCHES):
            output = agent(obs[rows])
            policy = Categorical(logits=output.logits, validate_args=False)
            ratio = (policy.log_prob(action[rows]) - logp[rows]).exp()
            clipped = ratio.clip(1 - CLIP, 1 + CLIP)
            policy_gain = torch.min(ratio * gain[rows], clipped * gain[rows]).mean()
            values = torch.stack([output.value_ext, output.value_int], dim=1)
            error = (values - returns[rows]).square().mean()
            loss = error - policy_gain - ENTROPY * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def train(args: argparse.Namespace) -> Iterator[tuple[int, float]]:
    """Train, and yield the mean extrinsic return of each tenth of the steps."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    critic = CriticHandle()
    env = make_env(args, critic)
    inputs = env.single_observation_space.shape[0]
    agent = Agent(inputs, int(env.single_action_space.n)).to(args.device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    critic.register(agent)
    obs, _ = env.reset(seed=args.seed)
    earned, ended = torch.zeros(2, ENVS, device=args.device)
    rollouts = max(1, args.steps // (ENVS * ROLLOUT))
    for count in range(1, rollouts + 1):
        rollout, obs = collect(env, critic, obs)
        learn(agent, optimizer, rollout)
        critic.updated()
        # Rewards come at the end of an episode alone.
        earned += rollout.rewards[:, 0].sum(0)
        ended += rollout.ended.sum(0)
        if count % max(1, rollouts // 10) == 0:
            # The one place where the device is waited for.
            yield count * ENVS * ROLLOUT, float(earned.sum() / ended.sum().clip(1))
            earned.zero_(), ended.zero_()


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("--shaping", default="adops", choices=["adops", "none"])
    line.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    line.add_argument("--steps", type=int, default=1_000_000)
    line.add_argument("--seed", type=int, default=0)
    return line


def main() -> None:
    """Train once and print the curve."""
    args = parser().parse_args()
    for step, mean in train(args):
        print(f"{step:>8} steps  extrinsic return {mean:.3f}  seed {args.seed}", flush=True)


if __name__ == "__main__":
    main()
