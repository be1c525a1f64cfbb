"""A vector env whose steps are slices of tensors: nothing of it asks a device anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

torch = pytest.importorskip("torch")

READS = ("item", "tolist", "numpy", "cpu", "nonzero", "__array__")
CASTS = ("__bool__", "__int__", "__float__", "__index__")


class TensorWorld(VectorEnv[Any, Any, Any]):
    """Random observations, rewards, bonuses and ends.

    Args:
        num_envs: The number of rows.
        steps: The number of different steps, after which they come again.
        device: Where the tensors are.
        final_obs: Whether each step tells what each row saw after its action (SAME_STEP).
        mode: When rows are reset.
        dtype: The dtype of the rewards.
    """

    def __init__(
        self,
        num_envs: int = 8,
        steps: int = 50,
        *,
        device: str = "cpu",
        final_obs: bool = True,
        mode: AutoresetMode = AutoresetMode.SAME_STEP,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
        self.single_action_space = gym.spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": mode}
        draw, shape = torch.Generator().manual_seed(0), (steps, num_envs)
        self.obs, self.last = torch.randn((2, *shape, 3), generator=draw).to(device)
        self.rewards, self.bonus = torch.randn((2, *shape), generator=draw).to(device, dtype)
        self.terminated, self.truncated = (torch.rand((2, *shape), generator=draw) < 0.1).to(device)
        self.final_obs, self.time = final_obs, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.time = 0
        return self.obs[0], {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        t = self.time % len(self.obs)
        info: dict[str, Any] = {"intrinsic_reward": self.bonus[t]}
        if self.final_obs:
            info["final_obs"] = self.last[t]
        return self.obs[t], self.rewards[t], self.terminated[t], self.truncated[t], info


@contextmanager
def no_look_at_values() -> Iterator[None]:
    """Let everything fail that brings values of a tensor to the host, and so waits for a device."""

    def refuse(name: str) -> Any:
        def look(*_: Any, **__: Any) -> Any:
            pytest.fail(f"Tensor.{name} was called")

        return look

    with pytest.MonkeyPatch.context() as patch:
        for name in (*READS, *CASTS):
            patch.setattr(torch.Tensor, name, refuse(name))
        yield
