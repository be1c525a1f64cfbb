"""What TorchRL asks of the envs that it wraps, and TorchRL itself where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import SHAPINGS, CountBonus, GRMWrapper, IntrinsicRewardWrapper, make_shaping
from adops_wrappers.inspect import ShapingRecorder
from tests import toolkit as tk

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


class VectorClient:
    """Reads of a vector env what TorchRL's `GymWrapper` reads, and as it does: without `unwrapped`.

    It resets ended rows by a mask where, and only where, the env says DISABLED.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.resets_rows = env, env.autoreset_mode == AutoresetMode.DISABLED

    def rollout(self, steps: int) -> np.ndarray:
        self.env.reset(seed=0)
        rewards = []
        for _ in range(steps):
            _, reward, terminated, truncated, _ = self.env.step(np.zeros(3, dtype=np.int64))
            rewards.append(reward)
            if self.resets_rows and (terminated | truncated).any():
                self.env.reset(options={"reset_mask": terminated | truncated})
        return np.array(rewards)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SHAPINGS)
def test_every_vector_wrapper_says_its_mode(name: str, mode: AutoresetMode, tmp_path: Path) -> None:
    extra: dict[str, Any] = (
        {"potential": tk.potential, "gamma": 0.9} if name == "pbrs" else {"critic": tk.critic}
    )
    source = IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source)
    env = make_shaping(name, source, **extra)
    assert source.autoreset_mode is env.autoreset_mode is mode
    env = ShapingRecorder(env, tmp_path / "a.npz")
    assert VectorClient(env).rollout(12).shape == (12, 3)


def limited(mode: AutoresetMode | None) -> Any:
    def make() -> Any:
        return gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 5)

    env = make() if mode is None else SyncVectorEnv([make] * 2, autoreset_mode=mode)
    return GRMWrapper(IntrinsicRewardWrapper(env, CountBonus()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_torchrl_wraps_a_vector_stack(mode: AutoresetMode) -> None:
    pytest.importorskip("torchrl")
    from torchrl.envs.libs.gym import GymWrapper

    env = GymWrapper(limited(mode))
    env.set_seed(0)
    rollout = env.rollout(9, break_when_any_done=False)
    actions = rollout["action"].argmax(-1).T.numpy()
    done = rollout["next", "done"].squeeze(-1).T.numpy()
    plain = limited(mode)
    plain.reset(seed=0)
    rewards = []
    for action, ended in zip(actions, done, strict=True):
        _, reward, *_ = plain.step(action)
        rewards.append(reward)
        if mode is AutoresetMode.DISABLED and ended.any():
            plain.reset(options={"reset_mask": ended})
    found = rollout["next", "reward"].squeeze(-1).T.numpy()
    assert done.sum() >= 2
    np.testing.assert_allclose(found, np.array(rewards), rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_torchrl_reads_the_streams_of_a_single_stack() -> None:
    pytest.importorskip("torchrl")
    from torchrl.envs import default_info_dict_reader
    from torchrl.envs.libs.gym import GymWrapper

    keys = ["extrinsic_reward", "intrinsic_reward"]
    env = GymWrapper(limited(None))
    env.set_info_dict_reader(default_info_dict_reader(keys))
    rollout = env.rollout(4)
    reward, *streams = (rollout["next", key].flatten() for key in ("reward", *keys))
    np.testing.assert_allclose(reward, sum(streams), rtol=1e-6)
    assert reward.tolist() != streams[0].tolist()


@pytest.mark.parametrize("kind", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_info_of_a_single_stack_becomes_float64_arrays_of_a_vector_env(kind: Any) -> None:
    env = kind([lambda: limited(None)] * 2)
    env.reset(seed=0)
    info = env.step(np.zeros(2, dtype=np.int64))[4]
    env.close()
    for key in ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward"):
        assert info[key].dtype == np.float64
    assert info["raw_intrinsic_reward"].tolist() == [1.0, 1.0]
