"""Whole stacks on envs that people use: envpool and MiniGrid, with every part at once."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    ADOPSWrapper,
    CountBonus,
    EpisodicCountBonus,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    TDCritic,
    Transition,
)
from adops_wrappers.intrinsic.rnd import RND  # noqa: E402

GAMMA_EXT, GAMMA_INT, EPSILON = 0.99, 0.95, 0.01

pytestmark = pytest.mark.usefixtures("one_thread")


class Watched(TDCritic):
    """Keeps what the wrapper showed it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[Transition] = []

    def observe(self, transition: Transition) -> None:
        self.seen.append(transition)
        super().observe(transition)


def adops(env: Any, source: Any, space: Any, **settings: Any) -> tuple[Any, Watched]:
    critic = Watched(space, seed=0, batch_size=64, **settings)
    wrapped = ADOPSWrapper(
        IntrinsicRewardWrapper(env, source),
        critic,
        gamma_ext=GAMMA_EXT,
        gamma_int=GAMMA_INT,
        epsilon=EPSILON,
    )
    return wrapped, critic


def check_clamp(critic: Watched) -> None:
    """Recompute F′ of every valid row from what the critic said, case by case (eq. f_2_weak)."""
    rows = 0
    for t in critic.seen:
        assert t.shaped is not None
        for i in np.flatnonzero(t.valid):
            q_ext = t.reward[i] + GAMMA_EXT * (0.0 if t.terminated[i] else t.next_value_ext[i])
            omega = t.value_ext[i] - q_ext
            omega += t.value_int[i] - GAMMA_INT * t.next_value_int[i] - t.intrinsic[i]
            f_2 = min(0.0, omega - EPSILON) if q_ext < t.value_ext[i] else max(0.0, omega)
            assert t.shaped[i] == pytest.approx(t.intrinsic[i] + f_2, abs=1e-9)
            rows += 1
        assert (t.shaped[~t.valid] == 0.0).all()
    assert rows > 100
    assert critic.updates > 0


def test_envpool_with_rnd_and_learning_critic() -> None:
    envpool = pytest.importorskip("envpool")
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, seed=3)
    source = RND(env.single_observation_space, seed=0)
    normalizer = IntrinsicReturnNormalizer(4, warm_up=2)
    critic = Watched(env.single_observation_space, seed=0, batch_size=64)
    stack: Any = IntrinsicRewardWrapper(env, source, normalizer=normalizer)
    stack = ADOPSWrapper(stack, critic, gamma_ext=GAMMA_EXT, gamma_int=GAMMA_INT, epsilon=EPSILON)
    stack.reset()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(100):
        _, _, terminated, truncated, info = stack.step(rng.integers(0, 2, 4).astype(np.int32))
        ends += np.count_nonzero(np.logical_or(terminated, truncated))
        assert info["intrinsic_reward"].shape == (4,)
    assert ends > 5
    assert sum(np.count_nonzero(~t.valid) for t in critic.seen) >= ends - 4  # dummy resets
    check_clamp(critic)


def minigrid(name: str = "MiniGrid-DoorKey-5x5-v0", steps: int = 30) -> Any:
    pytest.importorskip("minigrid")
    return gym.make(name, max_steps=steps)


@pytest.mark.parametrize("bonus", ["counts", "episodic counts", "RND"])
@pytest.mark.parametrize("mode", [None, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_minigrid_with_its_native_dict_observations(mode: AutoresetMode | None, bonus: str) -> None:
    env: Any = minigrid()
    assert isinstance(env.observation_space, gym.spaces.Dict)
    assert {"image", "direction", "mission"} == set(env.observation_space.spaces)
    space, n = env.observation_space, 1
    if mode is not None:
        n = 3
        env = SyncVectorEnv([minigrid] * n, autoreset_mode=mode)
        space = env.single_observation_space
    source: Any = {
        "counts": CountBonus(),
        "episodic counts": EpisodicCountBonus(),
        "RND": RND(space, seed=0),
    }[bonus]
    stack, critic = adops(env, source, space, action_space=None)
    stack.reset(seed=0)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(70 if mode else 150):
        action: Any = rng.integers(0, 7, n) if mode else int(rng.integers(0, 7))
        _, _, terminated, truncated, _ = stack.step(action)
        done = np.logical_or(terminated, truncated)
        ends += np.count_nonzero(done)
        if mode is None and done:
            stack.reset()
    assert ends >= 2
    check_clamp(critic)


def test_minigrid_counts_tell_missions_and_directions_apart() -> None:
    env = IntrinsicRewardWrapper(minigrid("MiniGrid-Empty-5x5-v0"), CountBonus())
    env.reset(seed=0)
    turns = [env.step(0)[4]["intrinsic_reward"] for _ in range(5)]  # left, four times around
    np.testing.assert_allclose(turns, [1.0, 1.0, 1.0, 1.0, 2**-0.5])
