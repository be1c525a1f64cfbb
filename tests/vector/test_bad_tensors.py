"""Tensors that cannot be shaped, or only just: right, or an error that names both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    ADOPSWrapper,
    CriticHandle,
    IntrinsicRewardWrapper,
    PBRSWrapper,
    make_shaping,
)
from tests.vector.tensor_world import TensorWorld  # noqa: E402

META = torch.device("meta")
"""A second device that every build of torch has."""
ACTIONS = torch.zeros(8, dtype=torch.long)


def zeros(obs: Any) -> tuple[Any, Any]:
    return torch.zeros(len(obs)), torch.zeros(len(obs))


def step(env: Any, critic: Any = zeros, method: str = "adops", **settings: Any) -> Any:
    env = make_shaping(method, env, CriticHandle(critic), gamma=0.9, **settings)
    env.reset()
    return env.step(ACTIONS)


@pytest.mark.parametrize("elsewhere", ["value_ext value_int q_ext", "value_int", "q_ext"])
def test_a_critic_on_another_device_is_an_error_that_names_both(elsewhere: str) -> None:
    wrong = elsewhere.split()

    def critic(obs: Any) -> tuple[Any, ...]:
        answer = {"value_ext": torch.zeros(8), "value_int": torch.zeros(8)}
        answer["q_ext"] = torch.zeros(8, 3)
        return tuple(v.to(META) if key in wrong else v for key, v in answer.items())

    message = rf"The critic's {wrong[0]} must be .* is torch on meta and they are torch on "
    with pytest.raises(TypeError, match=message + "cpu"):
        step(TensorWorld(), critic)


def test_a_source_on_another_device_is_an_error_that_names_both() -> None:
    env = IntrinsicRewardWrapper(TensorWorld(), lambda s, a, after: torch.zeros(8, device=META))
    env.reset()
    with pytest.raises(
        TypeError, match=r"What the source returns must be .* torch on meta .* torch on cpu"
    ):
        env.step(ACTIONS)


def test_a_potential_on_another_device_is_an_error_that_names_both() -> None:
    env = PBRSWrapper(TensorWorld(), lambda obs, t: torch.zeros(8, device=META), gamma=0.9)
    env.reset()
    with pytest.raises(TypeError, match=r"potential.* torch on meta .* torch on cpu"):
        env.step(ACTIONS)


def test_a_bonus_of_the_env_on_another_device_is_an_error_that_names_both() -> None:
    env = TensorWorld()
    env.bonus = env.bonus.to(META)
    with pytest.raises(TypeError, match=r"'intrinsic_reward'.* torch on meta .* torch on cpu"):
        step(env)


def test_after_the_error_a_full_reset_goes_on() -> None:
    place = [META]
    env = ADOPSWrapper(TensorWorld(), lambda obs: (torch.zeros(8, device=place[0]),) * 2, gamma=0.9)
    env.reset()
    with pytest.raises(TypeError):
        env.step(ACTIONS)
    place[0] = torch.device("cpu")
    env.reset()
    assert env.step(ACTIONS)[1].device.type == "cpu"


@pytest.mark.parametrize("wrap", ["shaping", "source"])
def test_rewards_that_require_grad_are_an_error(wrap: str) -> None:
    env: Any = TensorWorld()
    env.rewards.requires_grad_()
    if wrap == "shaping":
        env = make_shaping("adops", env, CriticHandle(zeros), gamma=0.9)
    else:
        env = IntrinsicRewardWrapper(env, lambda s, a, after: after[:, 0])
    env.reset()
    with pytest.raises(TypeError, match=r"require grad.*torch.no_grad\(\)"):
        env.step(ACTIONS)


def test_values_and_bonuses_that_require_grad_lose_it() -> None:
    """A critic is called without gradients; what is kept of a bonus keeps no graph."""
    weight = torch.ones(3, requires_grad=True)

    def critic(obs: Any) -> tuple[Any, Any]:
        with torch.enable_grad():
            value = obs @ weight
        return value, value

    env: Any = TensorWorld()
    env.bonus.requires_grad_()
    _, reward, _, _, info = step(env, critic)
    assert not reward.requires_grad
    floats = [value for value in info.values() if value.dtype.is_floating_point]
    kept = [value for value in floats if value.data_ptr() != env.last[1].data_ptr()]
    assert len(kept) >= 6
    assert not any(value.requires_grad for value in kept)
    plain = step(TensorWorld(), lambda obs: (obs.sum(1), obs.sum(1)))[4]
    assert torch.allclose(info["intrinsic_reward"], plain["intrinsic_reward"], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["adops", "grm"])
def test_half_precision_is_rounded_once_at_the_end(method: str, dtype: torch.dtype) -> None:
    """The maths is in float64: a stack on the same numbers in float64 gives these, rounded."""

    def critic(obs: Any) -> tuple[Any, Any]:
        return obs[:, 0].double(), obs[:, 1].double()

    half, wide = TensorWorld(dtype=dtype), TensorWorld(dtype=torch.float64)
    wide.rewards, wide.bonus = half.rewards.double(), half.bonus.double()
    envs = [make_shaping(method, env, CriticHandle(critic), gamma=0.9) for env in (half, wide)]
    for env in envs:
        env.reset()
    ends = 0
    for _ in range(40):
        (_, reward, over, cut, info), (_, exact, _, _, exact_info) = [e.step(ACTIONS) for e in envs]
        assert reward.dtype == dtype
        assert torch.equal(reward, exact.to(dtype))
        ends += int((over | cut).sum())
        for key, values in exact_info.items():
            if values.is_floating_point() and key != "final_obs":
                assert info[key].dtype == dtype, key
                assert torch.equal(info[key], values.to(dtype)), key
    assert ends > 10


def test_integer_rewards_come_back_as_floats() -> None:
    env: Any = TensorWorld()
    env.rewards = torch.ones_like(env.rewards, dtype=torch.int32)
    reward = step(env)[1]
    assert reward.dtype == torch.float32


@pytest.mark.parametrize("kind", ["numpy", "list"])
def test_a_critic_that_answers_in_numpy_is_taken_to_the_device(kind: str) -> None:
    def critic(obs: Any) -> Any:
        values = np.arange(8.0)
        return (values, values) if kind == "numpy" else (values.tolist(), values.tolist())

    reward = step(TensorWorld(), critic)[1]
    expected = step(TensorWorld(), lambda obs: (torch.arange(8.0), torch.arange(8.0)))[1]
    assert torch.equal(reward, expected)
