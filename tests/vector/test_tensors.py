"""Vector envs that return torch tensors, such as simulators on a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    CountBonus,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    TDCritic,
    make_shaping,
)
from adops_wrappers.arrays import to_host  # noqa: E402
from tests.toolkit import ScriptedEnv  # noqa: E402

ROUNDING: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
"""The normaliser adds up the rows of a tensor in another order than NumPy."""
MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


class TensorEnv(VectorEnv):
    """Takes and returns tensors of a device, the final observations in `info` included.

    Args:
        env: The env that does the work.
        device: The device of the tensors.
        final_obs: "batch" reports final observations as one tensor, "rows" as one a row,
            "numpy" as the env below does.
    """

    def __init__(self, env: VectorEnv, device: str, final_obs: str = "batch") -> None:
        self.env, self.device, self.final_obs = env, torch.device(device), final_obs
        self.num_envs, self.metadata = env.num_envs, env.metadata
        self.single_observation_space = env.single_observation_space
        self.single_action_space = env.single_action_space
        self.observation_space = batch_space(env.single_observation_space, env.num_envs)
        self.action_space = batch_space(env.single_action_space, env.num_envs)

    def tensors(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.tensors(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(map(self.tensors, value))
        return torch.as_tensor(np.array(value)).to(self.device)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        return self.tensors(obs), info

    def step(self, actions: Any) -> Any:
        *rest, info = self.env.step(torch.as_tensor(actions).cpu().numpy())
        info = dict(info)
        if "final_obs" in info and self.final_obs != "numpy":
            rows = [None if row is None else self.tensors(row) for row in info["final_obs"]]
            if self.final_obs == "batch":
                blank = torch.zeros_like(next(row for row in rows if row is not None))
                info["final_obs"] = torch.stack([blank if r is None else r for r in rows])
            else:
                info["final_obs"] = np.empty(len(rows), dtype=object)
                for row, final in enumerate(rows):
                    info["final_obs"][row] = final
            info["_final_obs"] = self.tensors(info["_final_obs"])
        return *map(self.tensors, rest), info


def scripted(kind: str = "box", mode: AutoresetMode = AutoresetMode.SAME_STEP) -> VectorEnv:
    return gym.vector.SyncVectorEnv([lambda: ScriptedEnv(kind)] * 3, autoreset_mode=mode)


def stack(env: VectorEnv, method: str = "adops", device: str = "cpu", source: Any = None) -> Any:
    """Return a stack with a critic that learns, so that every observation leaves its trace."""
    normalizer = IntrinsicReturnNormalizer(env.num_envs, warm_up=2)
    critic = TDCritic(env.single_observation_space, batch_size=32, seed=0, device=device)
    settings: dict[str, Any] = {
        "pbrs": {"potential": lambda obs, t: obs[:, 0], "gamma": 0.9},
        "pies": {"decay_updates": 5, "update_every": 4},
        "adopes": {"ramp_updates": 5, "update_every": 4},
        "adopes-half": {"ramp_updates": 5, "update_every": 4},
    }.get(method, {})
    env = IntrinsicRewardWrapper(env, source or CountBonus(), normalizer=normalizer)
    return make_shaping(method, env, critic, **settings)


def play(env: VectorEnv, steps: int, seed: int | None = 0) -> np.ndarray:
    """Return the rewards and the intrinsic rewards of random actions."""
    if seed is not None:
        env.reset(seed=seed)
        env.action_space.seed(seed)
    found = []
    for _ in range(steps):
        _, reward, _, _, info = env.step(env.action_space.sample())
        found.append([to_host(reward), to_host(info["intrinsic_reward"])])
    return np.array(found)


def assert_same_as_arrays(device: str, kind: str, mode: AutoresetMode, final_obs: str) -> None:
    tensors = stack(TensorEnv(scripted(kind, mode), device, final_obs), device=device)
    arrays = stack(scripted(kind, mode))
    close = partial(np.testing.assert_allclose, **ROUNDING)
    close(play(tensors, 40), play(arrays, 40))
    tensors.load_state_dict(tensors.state_dict())
    close(play(tensors, 5, seed=None), play(arrays, 5, seed=None))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "final_obs"),
    [("box", "batch"), ("box", "rows"), ("box", "numpy"), ("dict", "rows"), ("tuple", "numpy")],
)
def test_tensors_give_what_arrays_give(kind: str, final_obs: str, mode: AutoresetMode) -> None:
    assert_same_as_arrays("cpu", kind, mode, final_obs)


def assert_rows_can_be_reset(device: str) -> None:
    disabled = AutoresetMode.DISABLED
    tensors = stack(TensorEnv(scripted(mode=disabled), device), device=device)
    arrays, found = stack(scripted(mode=disabled)), []
    for env in (tensors, arrays):
        play(env, 1)
        env.reset(options={"reset_mask": np.array([True, False, True])})
        found.append(play(env, 1, seed=None))
    np.testing.assert_array_equal(*found)


def test_some_rows_can_be_reset() -> None:
    assert_rows_can_be_reset("cpu")


def assert_sb3_sees_arrays(device: str) -> None:
    pytest.importorskip("stable_baselines3")
    from adops_wrappers.sb3 import SB3VecEnv

    env = SB3VecEnv(stack(TensorEnv(scripted(), device), "grm", device))
    seen = [env.reset()]
    for _ in range(12):
        obs, reward, done, infos = env.step(np.zeros(3, dtype=np.int64))
        assert isinstance(reward, np.ndarray)
        assert isinstance(done, np.ndarray)
        finals = [i["terminal_observation"] for i in infos if "terminal_observation" in i]
        seen += [obs, *finals]
    assert all(isinstance(array, np.ndarray) for array in seen)
    assert len(seen) > 13


def test_sb3_sees_arrays() -> None:
    assert_sb3_sees_arrays("cpu")
