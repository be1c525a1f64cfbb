"""The gallery's grid worlds in torch: thousands of rows whose tensors never leave their device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adops_wrappers import _checks
from adops_wrappers.envs.gridworld import IMAGE_BITS, get_world


class GalleryTensorEnv(VectorEnv):  # type: ignore[type-arg,unused-ignore]
    """`num_envs` gallery envs of one layout, stepped on a device without waiting for it.

    The rules are those of `GalleryVectorEnv`; observations, rewards and ends are tensors. Rows are
    reset within their last step (SAME_STEP), and every step reports in `info["final_obs"]` what
    all rows saw before that. Pictures and skulls draw from one generator for all rows, which
    `reset(seed=…)` restarts. Nobody looks at the actions: they are int64 tensors of this device.

    Args:
        num_envs: The number of rows.
        layout: A name in `adops_wrappers.envs.LAYOUTS`.
        horizon: The number of steps after which an episode is truncated; None for the layout's own.
        device: Where the tensors are.

    Example:
        >>> import torch
        >>> from adops_wrappers.envs import GalleryTensorEnv
        >>> env = GalleryTensorEnv(3, "TVCorridor")
        >>> obs, info = env.reset(seed=0)
        >>> env.step(torch.tensor([1, 1, 3]))[1]
        tensor([0., 0., 0.])
    """

    def __init__(
        self,
        num_envs: int,
        layout: str,
        horizon: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.world = world = get_world(layout)
        self.num_envs = _checks.whole("num_envs", num_envs, least=1)
        default = world.layout.horizon
        self.horizon = _checks.whole("horizon", default if horizon is None else horizon, least=1)
        self.device = torch.device(device)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = Box(-1.0, 1.0, (world.observation_size,), np.float32)
        self.single_action_space = Discrete(world.num_actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        arrived = 1.0 - 0.9 * np.arange(self.horizon + 1) / self.horizon
        self._observations, self._next_state = self._here(world.observations, world.next_state)
        self._noisy, self._goal, self._terminal = self._here(
            world.noisy, world.goal, world.terminal
        )
        self._arrived, self._coin, self._catch = self._here(
            *(a.astype(np.float32) for a in (arrived, world.coin_reward, world.catch_probability))
        )
        self._random = torch.Generator(self.device)
        self._state = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._time = torch.zeros_like(self._state)

    def _here(self, *tables: Any) -> list[torch.Tensor]:
        return [torch.tensor(table, device=self.device) for table in tables]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Send all rows back to the start."""
        if seed is not None:
            self._random.manual_seed(seed)
        self._state, self._time = torch.zeros_like(self._state), torch.zeros_like(self._time)
        return self._observe(), {}

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Step all rows, and send those that have ended back to the start."""
        before, time = self._state, self._time + 1
        state = self._next_state[before, actions]
        if self.world.catch_probability.any():
            chance = torch.rand(self.num_envs, generator=self._random, device=self.device)
            state = torch.where(chance < self._catch[state], self.world.skull, state)
        reward = self._coin[before, actions] + self._goal[state] * self._arrived[time]
        terminated = self._terminal[state]
        truncated = (time >= self.horizon) & ~terminated
        ended = terminated | truncated
        self._state = state
        final = self._observe()
        self._state, self._time = torch.where(ended, 0, state), torch.where(ended, 0, time)
        obs = torch.where(ended[:, None], self._observations[0], final)
        return obs, reward, terminated, truncated, {"final_obs": final, "_final_obs": ended}

    def _observe(self) -> torch.Tensor:
        obs = self._observations[self._state]
        if self.world.noisy.any():
            shape = (self.num_envs, IMAGE_BITS)
            bits = torch.randint(0, 2, shape, generator=self._random, device=self.device)
            obs[:, -IMAGE_BITS:] = self._noisy[self._state, None] * (2.0 * bits - 1.0)
        return obs
