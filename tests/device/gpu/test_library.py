"""The library with its networks on a GPU, and with envs that live there."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    SHAPINGS,
    ADOPSWrapper,
    CountBonus,
    CriticHandle,
    IntrinsicRewardWrapper,
    TDCritic,
)
from adops_wrappers.intrinsic.rnd import RND
from tests.device import simulated_gpu
from tests.test_critic import assert_steps_are_noticed
from tests.vector.test_tensors import (
    MODES,
    TensorEnv,
    assert_rows_can_be_reset,
    assert_same_as_arrays,
    assert_sb3_sees_arrays,
    play,
    scripted,
    stack,
)

GPU = torch.device("cuda", 0)
DEVICES = ("cuda", "cpu")
ENV_IDS = ("CartPole-v1", "FrozenLake-v1")


def vector_env(env_id: str = "CartPole-v1") -> Any:
    return gym.make_vec(
        env_id,
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )


def rnd(space: gym.Space[Any], device: str, **settings: Any) -> RND:
    return RND(space, seed=1, batch_size=20, device=device, **settings)


# Networks on the device


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_rnd_gives_what_it_gives_on_the_cpu(env_id: str) -> None:
    found = {}
    for device in DEVICES:
        env = vector_env(env_id)
        source = rnd(env.single_observation_space, device)
        with simulated_gpu.counting() as counts:
            found[device] = play(IntrinsicRewardWrapper(env, source), 40)[:, 1]
        assert (counts.launches > 0) == (device == "cuda")
    assert found["cuda"].std() > 0.0
    np.testing.assert_array_equal(found["cuda"], found["cpu"])


@pytest.mark.parametrize(("saved_on", "loaded_on"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_rnd_learns_on_after_a_change_of_device(saved_on: str, loaded_on: str) -> None:
    """The observations that wait for a full batch move with the networks."""
    env = vector_env()
    first = rnd(env.single_observation_space, saved_on)
    play(IntrinsicRewardWrapper(env, first), 25)
    state = first.state_dict()
    second = rnd(env.single_observation_space, loaded_on)
    second.load_state_dict(state)
    obs = np.random.default_rng(0).normal(size=(50, 3, 4)).astype(np.float32)
    for one in obs:
        np.testing.assert_array_equal(first(None, None, one), second(None, None, one))


@pytest.mark.parametrize("q_values", [False, True])
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_td_critic_learns_what_it_learns_on_the_cpu(env_id: str, q_values: bool) -> None:
    def critic_on(device: str) -> tuple[TDCritic, Any]:
        env = vector_env(env_id)
        critic = TDCritic(
            env.single_observation_space,
            action_space=env.single_action_space if q_values else None,
            batch_size=32,
            learn_every=8,
            seed=0,
            device=device,
        )
        return critic, ADOPSWrapper(IntrinsicRewardWrapper(env, CountBonus()), critic)

    def values_of(critic: TDCritic, env: Any) -> Any:
        # Not F′, which jumps with the sign of an A_E that may be all rounding.
        return np.column_stack([v for v in critic.evaluate(env.reset(seed=9)[0]) if v is not None])

    found, states = {}, {}
    for device in DEVICES:
        critic, env = critic_on(device)
        play(env, 60)
        assert critic.updates > 3
        found[device], states[device] = values_of(critic, env), critic.state_dict()
    # Numpy sums products in another order than torch.
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found["cuda"], found["cpu"], **close)
    for device, state in zip(DEVICES, reversed(states.values()), strict=True):
        critic, env = critic_on(device)
        critic.load_state_dict(state)
        play(env, 20)
        found[device] = values_of(critic, env)
    np.testing.assert_allclose(found["cuda"], found["cpu"], **close)


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_stable_baselines_learns_on_the_device(algorithm: str) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from adops_wrappers.sb3 import SB3VecEnv, ShapingCallback

    env = vector_env()
    space = env.single_observation_space
    env = ADOPSWrapper(
        IntrinsicRewardWrapper(env, rnd(space, "cuda")), TDCritic(space, device="cuda", seed=0)
    )
    settings: dict[str, Any] = {"n_steps": 16, "batch_size": 24, "n_epochs": 2}
    if algorithm == "DQN":
        settings = {"learning_starts": 20, "batch_size": 16, "buffer_size": 200}
    log = ShapingCallback(log_every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sb3.PPO, "_maybe_recommend_cpu", lambda *_, **__: None)
        model = getattr(sb3, algorithm)("MlpPolicy", SB3VecEnv(env), device="cuda", **settings)
        model.learn(96, callback=log)
    assert all(p.is_cuda and torch.isfinite(p).all() for p in model.policy.parameters())
    assert log.history


def test_a_critic_may_answer_with_tensors_of_the_device() -> None:
    env = vector_env()
    weights = torch.linspace(0.1, 0.4, 4, device=GPU)

    def values(obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.as_tensor(obs, device=GPU) @ weights
        return x.bfloat16(), x

    env = ADOPSWrapper(IntrinsicRewardWrapper(env, CountBonus()), CriticHandle(values))
    assert np.isfinite(play(env, 20)).all()


def test_steps_of_optimisers_on_the_device_are_noticed() -> None:
    assert_steps_are_noticed("cuda")


# Envs on the device


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", SHAPINGS)
def test_envs_on_the_device_give_what_others_give(method: str, mode: AutoresetMode) -> None:
    """The others are tensors of the CPU, which other tests compare with arrays."""
    found = []
    for device in DEVICES:
        env = TensorEnv(scripted(mode=mode), device)
        source = rnd(env.single_observation_space, device)
        found.append(play(stack(env, method, device, source), 30))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", ["box", "discrete", "dict", "tuple"])
@pytest.mark.parametrize("final_obs", ["rows", "numpy"])
def test_all_kinds_of_observations_may_be_on_the_device(kind: str, final_obs: str) -> None:
    assert_same_as_arrays("cuda", kind, AutoresetMode.SAME_STEP, final_obs)


def test_rows_on_the_device_can_be_reset() -> None:
    assert_rows_can_be_reset("cuda")


def test_sb3_sees_arrays_of_envs_on_the_device() -> None:
    assert_sb3_sees_arrays("cuda")
