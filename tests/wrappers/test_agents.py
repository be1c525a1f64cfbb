"""Two kinds of agent, two short spellings; what contradicts itself is refused with the way out."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    ADOPESWrapper,
    ADOPSWrapper,
    CountBonus,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    make_shaping,
)
from tests import toolkit as tk

WRAPPERS = [ADOPSWrapper, ADOPESWrapper]


def env_with_bonus(kind: str = "single") -> Any:
    env: Any = tk.ScriptedEnv()
    if kind == "vector":
        env = tk.make_vector("sync", AutoresetMode.SAME_STEP)
    return IntrinsicRewardWrapper(env, tk.source)


def facts(env: Any) -> tuple[Any, ...]:
    return (*env.shaper.discounts, env.core.int_bootstrap, env.add_to_reward)


@pytest.mark.parametrize("kind", ["single", "vector"])
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_one_critic_gives_one_discount_and_gets_the_sum(wrap: Any, kind: str) -> None:
    env = wrap(env_with_bonus(kind), tk.critic, gamma=0.9)
    assert facts(env) == (0.9, 0.9, "none", True)
    # A buffer that stores R and shapes what it samples.
    env = wrap(env_with_bonus(kind), tk.critic, gamma=0.9, add_to_reward=False)
    assert facts(env) == (0.9, 0.9, "none", False)


@pytest.mark.parametrize("kind", ["single", "vector"])
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_two_heads_give_two_discounts_and_get_r_untouched(wrap: Any, kind: str) -> None:
    env = wrap(env_with_bonus(kind), tk.critic, gamma_ext=0.95, gamma_int=0.9)
    assert facts(env) == (0.95, 0.9, "final", False)
    env.reset(seed=0)
    action = env.action_space.sample()
    _, reward, _, _, info = env.step(action)
    np.testing.assert_array_equal(reward, info["extrinsic_reward"])
    env = wrap(env_with_bonus(kind), tk.critic, gamma_ext=0.95, gamma_int=0.9, add_to_reward=True)
    assert facts(env) == (0.95, 0.9, "final", True)


def test_nothing_said_is_what_it_was() -> None:
    assert facts(ADOPSWrapper(env_with_bonus(), tk.critic)) == (0.999, 0.99, "final", True)
    assert NoShapingWrapper(env_with_bonus()).add_to_reward
    assert make_shaping("grm", env_with_bonus(), gamma=0.9).shaper.gamma == 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"gamma": 0.9, "gamma_int": 0.8},
            r"gamma=0.9 is the one discount .* gamma_int=0.8 is given too\. Leave gamma_int out",
        ),
        ({"gamma": 0.9, "int_bootstrap": "final"}, "int_bootstrap='final' would not be its own"),
        (
            {"gamma_ext": 0.9, "gamma_int": 0.9},
            "gamma=0.9 for one critic, add_to_reward=False for two heads",
        ),
        ({"gamma_ext": 0.99}, "gamma_ext=0.99 and gamma_int=0.99 fit .* Say which"),
        ({"gamma": 1.5}, r"gamma_ext must be a discount in \(0, 1\]"),
    ],
)
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_contradictions_name_the_way_out(wrap: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(env_with_bonus(), tk.critic, **settings)


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_a_bonus_can_be_given_to_the_wrapper_and_comes_at_unit_size(kind: str) -> None:
    def bare() -> Any:
        if kind == "single":
            return tk.ScriptedEnv(longest=10**6)
        return tk.make_vector("sync", AutoresetMode.NEXT_STEP)

    short = PBIMWrapper(bare(), bonus=CountBonus(scale=50.0), gamma=0.9)
    long = PBIMWrapper(
        IntrinsicRewardWrapper(bare(), CountBonus(scale=50.0), normalizer="rms"), gamma=0.9
    )
    for env in (short, long):
        env.reset(seed=1)
    action = np.zeros(3, dtype=np.int64) if kind == "vector" else 0
    bonuses = []
    for _ in range(130):
        one, other = short.step(action), long.step(action)
        np.testing.assert_array_equal(one[1], other[1])
        bonuses.append(float(np.mean(one[4]["raw_intrinsic_reward"])))
    assert 0.0 < max(bonuses) < 2.0
    assert bonuses[0] == 0.0  # its size is not known yet


def test_a_spec_rebuilds_a_stack_whose_bonus_was_given_to_the_wrapper() -> None:
    env = ADOPSWrapper(gym.make("CartPole-v1"), tk.critic, bonus=CountBonus(), gamma=0.9)
    wrappers = json.loads(env.spec.to_json())["additional_wrappers"]
    assert [wrapper["entry_point"].split(":")[1] for wrapper in wrappers] == [
        "SingleIntrinsicReward",
        "ShapingWrapper",
    ]
    rebuilt = gym.make(env.spec)
    assert facts(rebuilt) == facts(env)
    assert str(rebuilt) == str(env)


def test_a_second_bonus_is_refused() -> None:
    with pytest.raises(ValueError, match=r"already has a source of F\. Leave bonus= out"):
        ADOPSWrapper(env_with_bonus(), tk.critic, bonus=CountBonus())
