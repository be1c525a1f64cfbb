"""Stacks whose rewards are on the device: the values of NumPy, few launches, nobody waits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode

from adops_wrappers import CriticHandle, RolloutShaper, make_shaping
from benchmarks.tensor_steps import KINDS, METHODS, work_per_step
from tests.device import simulated_gpu
from tests.vector.tensor_world import TensorWorld
from tests.vector.test_backends import CASES, assert_same_as_numpy

MOST_LAUNCHES = 41


@pytest.mark.parametrize(("case", "mode"), CASES)
def test_values_are_those_of_numpy(case: str, mode: AutoresetMode) -> None:
    assert_same_as_numpy(case, mode, "cuda", "batch")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_nobody_waits_for_a_step(method: str, kind: str) -> None:
    steps = 20  # an update of the guarded scale looks at values once in 128
    work = work_per_step(method, KINDS[kind], steps)
    assert work.syncs == work.downloads == work.uploads == 0
    if method != "adops-gated":
        assert work.launches <= MOST_LAUNCHES * steps


def critic_that_counts(env: Any) -> tuple[CriticHandle, list[int]]:
    calls: list[int] = []

    def fn(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(len(obs))
        return obs[:, 0], obs[:, 1]

    return CriticHandle(fn), calls


def test_one_pass_serves_wrapper_and_agent() -> None:
    """The agent asks about the tensor that the env gave it, of which the wrapper has a copy."""
    world = TensorWorld(device="cuda", final_obs=False)
    critic, calls = critic_that_counts(world)
    env = make_shaping("adops", world, critic)
    obs, _ = env.reset(seed=0)
    for _ in range(10):
        value_ext, _ = critic(obs)
        assert torch.equal(value_ext, obs[:, 0])
        obs, *_ = env.step(torch.zeros(8, dtype=torch.int64, device="cuda"))
    assert len(calls) == 11
    with pytest.warns(RuntimeWarning, match="as rsl_rl"):
        critic.updated()


def test_a_buffer_that_the_env_overwrites_is_not_taken_for_the_old_observation() -> None:
    class OneBuffer(TensorWorld):
        def step(self, actions: Any) -> Any:
            obs, *rest = super().step(actions)
            self.buffer.copy_(obs)
            return self.buffer, *rest

        def reset(self, **settings: Any) -> Any:
            obs, info = super().reset(**settings)
            self.buffer = obs.clone()
            return self.buffer, info

    same = []
    for kind in (TensorWorld, OneBuffer):
        world = kind(device="cuda")
        critic, _ = critic_that_counts(world)
        env = make_shaping("adops", world, critic)
        obs, _ = env.reset(seed=0)
        shaped = []
        for _ in range(30):
            assert torch.equal(critic(obs)[0], obs[:, 0])
            obs, _, _, _, info = env.step(torch.zeros(8, dtype=torch.int64, device="cuda"))
            shaped.append(info["intrinsic_reward"].cpu())
        same.append(torch.stack(shaped))
    assert torch.equal(*same)


@pytest.mark.parametrize("ask", ["updated", "state_dict", "reset", "close", "128 steps"])
def test_nan_is_reported_with_its_step(ask: str) -> None:
    world = TensorWorld(device="cuda")
    world.bonus[4, 2] = torch.nan
    critic, _ = critic_that_counts(world)
    env = make_shaping("adops", world, critic)
    env.reset(seed=0)
    actions = torch.zeros(8, dtype=torch.int64, device="cuda")
    for _ in range(10):
        env.step(actions)

    def go_on() -> None:
        if ask == "128 steps":
            for _ in range(118):
                env.step(actions)
        elif ask == "updated":
            critic.updated()
        else:
            getattr(env, ask)()

    with pytest.raises(ValueError, match=r"intrinsic reward was nan at step 4 of this wrapper"):
        go_on()
    critic.updated()  # said once


def test_a_critic_on_another_device_is_refused() -> None:
    world = TensorWorld(device="cuda")
    critic = CriticHandle(lambda obs: (obs[:, 0].cpu(), obs[:, 1].cpu()))
    env = make_shaping("adops", world, critic)
    env.reset(seed=0)
    message = r"value_ext must be where .* torch on cpu .* torch on cuda"
    with pytest.raises(TypeError, match=message):
        env.step(torch.zeros(8, dtype=torch.int64, device="cuda"))


def test_a_rollout_waits_once() -> None:
    shape = RolloutShaper("adops", 4)
    ends = torch.zeros((16, 4), dtype=torch.bool, device="cuda")
    arrays = torch.randn((4, 17, 4), device="cuda")
    values: dict[str, Any] = {"values_ext": arrays[0], "values_int": arrays[1]}
    reward, bonus = arrays[2, :16], arrays[3, :16]
    shape(reward, bonus, terminated=ends, truncated=ends, **values)
    with simulated_gpu.counting() as counts:
        shaped = shape(reward, bonus, terminated=ends, truncated=ends, **values)
    assert counts.syncs + counts.downloads == 1
    assert counts.launches <= 40
    assert shaped.dtype == torch.float32
