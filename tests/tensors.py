"""A vector env stepped in torch, and a guard against looking at the values of its tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import adops_wrappers

torch = pytest.importorskip("torch")

PACKAGE = str(Path(adops_wrappers.__file__).parent)


class TensorWalk(VectorEnv):
    """Random walks on one device, every step the same wherever it is; row i has episodes of i + 3.

    Args:
        device: The device of the tensors; None for NumPy.
        mode: When episodes begin anew; with DISABLED none ends.
        num_envs: The number of walks.
        horizon: The largest number of steps.
    """

    def __init__(
        self,
        device: str | None,
        mode: AutoresetMode = AutoresetMode.SAME_STEP,
        num_envs: int = 4,
        horizon: int = 300,
    ) -> None:
        self.num_envs, self.mode, self.in_numpy = num_envs, mode, device is None
        self.device = torch.device(device or "cpu")
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        rng = np.random.default_rng(5)
        self.moves, self.starts = (
            torch.tensor(rng.normal(size=(horizon, num_envs, 3)).astype(np.float32)).to(device)
            for device in (self.device, self.device)
        )
        self.lengths = torch.arange(3, num_envs + 3).to(self.device)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        self.state = self.starts[0] + 0.0
        self.age = torch.zeros_like(self.lengths)
        self.over = self.age > 0
        return self.shown(self.state), {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        moved, fresh = self.state + 0.1 * self.moves[self.t], self.starts[self.t]
        self.age += 1
        info = {}
        if self.mode is AutoresetMode.SAME_STEP:
            ended = fresh_now = self.age >= self.lengths
            info = {"final_obs": self.shown(moved), "_final_obs": self.shown(ended)}
        elif self.mode is AutoresetMode.NEXT_STEP:
            fresh_now = self.over
            ended = self.over = (self.age >= self.lengths) & ~fresh_now
        else:
            ended = fresh_now = self.over
        self.state = torch.where(fresh_now[:, None], fresh, moved)
        self.age = torch.where(fresh_now, 0, self.age)
        answer = (self.state, moved[:, 0], ended, torch.zeros_like(ended))
        return *map(self.shown, answer), info

    def shown(self, tensor: Any) -> Any:
        return tensor.numpy().copy() if self.in_numpy else tensor.clone()

    def no_action(self) -> Any:
        return self.shown(torch.zeros_like(self.lengths))


def play(env: Any, steps: int, *, after_step: Callable[[], None] = lambda: None) -> list[Any]:
    """Return the bonus of every step of an env around a `TensorWalk` that was reset."""
    action, found = env.unwrapped.no_action(), []
    for _ in range(steps):
        found.append(env.step(action)[4]["intrinsic_reward"])
        after_step()
    return found


def as_arrays(values: list[Any]) -> np.ndarray:
    """Return columns of tensors on any device, or of arrays, as one array."""
    return np.array([v.cpu().numpy() if torch.is_tensor(v) else v for v in values])


@contextmanager
def nobody_looks() -> Iterator[None]:
    """Raise where code of the package would wait for a device, had the tensors been there."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            *("numpy", "__array__", "cpu", "tolist", "item", "nonzero"),
            *("__bool__", "__float__", "__int__", "__index__", "__iter__", "__contains__"),
        ):
            patch.setattr(torch.Tensor, name, _refused(name))
        for name in ("__getitem__", "__setitem__"):
            patch.setattr(torch.Tensor, name, _refused(name, only_with_masks=True))
        yield


def _refused(name: str, *, only_with_masks: bool = False) -> Callable[..., Any]:
    original = getattr(torch.Tensor, name)

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        refused = sys._getframe(1).f_code.co_filename.startswith(PACKAGE)
        if only_with_masks:
            refused = refused and getattr(arguments[0], "dtype", None) in (torch.bool, bool)
        if refused:
            raise AssertionError(f"Tensor.{name} looks at the values of {tuple(self.shape)}")
        return original(self, *arguments, **keywords)

    return method
