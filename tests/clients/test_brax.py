"""Envs of Brax and MuJoCo Playground, stepped by JAX, through the vector env of the guide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("brax")

from adops_wrappers import ADOPSWrapper, CriticHandle
from tests.clients.guide import defined_in_guide

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, LENGTH, STEPS, GAMMA = 4, 5, 17, 0.9


def critic(obs: Any) -> tuple[Any, Any]:
    return 3.0 * obs[:, 0] - obs[:, 1], 0.5 * obs[:, 1] + 1.0


def bonus(obs: Any, action: Any, next_obs: Any) -> Any:
    return (next_obs[:, 0] - obs[:, 1]) ** 2


def shaped(env: Any) -> Any:
    from adops_wrappers import IntrinsicRewardWrapper

    env = IntrinsicRewardWrapper(defined_in_guide("JaxEnv")(env, ROWS, LENGTH), bonus)
    return ADOPSWrapper(env, CriticHandle(critic), gamma=GAMMA)


def assert_shaped_by_the_true_next_state(env: Any) -> None:
    """F' written out in NumPy, from what the env reports."""
    import jax

    env = shaped(env)
    obs, _ = env.reset(seed=0)
    rng, ends = np.random.default_rng(0), 0
    for t in range(STEPS):
        action = rng.uniform(-1.0, 1.0, (ROWS, *env.single_action_space.shape))
        before = np.asarray(obs, dtype=np.float64)
        obs, reward, terminated, truncated, info = env.step(jax.numpy.asarray(action))
        assert isinstance(reward, jax.Array)
        assert reward.dtype == info["intrinsic_reward"].dtype == np.float32
        after = np.asarray(info["final_obs"], dtype=np.float64)
        over, cut = np.asarray(terminated), np.asarray(truncated)
        assert cut.all() == ((t + 1) % LENGTH == 0) or over.any()
        ends += int((over | cut).sum())
        (v_ext, v_int), (next_ext, next_int) = critic(before), critic(after)
        intrinsic = bonus(before, None, after)
        extrinsic = np.asarray(info["extrinsic_reward"], dtype=np.float64)
        advantage = extrinsic + GAMMA * next_ext * ~over - v_ext
        total = advantage + intrinsic + GAMMA * next_int * ~over - v_int
        clamped = np.where(advantage < 0, np.minimum(total, -1e-7), np.maximum(total, 0.0))
        expected = intrinsic + clamped - total
        sure = np.abs(advantage) > 1e-4
        np.testing.assert_allclose(
            np.asarray(info["intrinsic_reward"])[sure], expected[sure], rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            reward, info["extrinsic_reward"] + info["intrinsic_reward"], rtol=1e-5, atol=1e-6
        )
        assert sure.any()
    assert ends >= ROWS * (STEPS // LENGTH)


def test_brax() -> None:
    from brax import envs

    assert_shaped_by_the_true_next_state(envs.get_environment("fast"))


def test_brax_pendulum() -> None:
    from brax import envs

    assert_shaped_by_the_true_next_state(
        envs.get_environment("inverted_pendulum", backend="spring")
    )


def test_playground() -> None:
    pytest.importorskip("mujoco_playground", exc_type=ImportError)
    from mujoco_playground import registry

    assert_shaped_by_the_true_next_state(registry.load("CartpoleBalance"))
