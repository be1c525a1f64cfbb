from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import BSRSWrapper, make_shaping
from adops_wrappers.shaping import BSRS, PBRS
from adops_wrappers.shaping.bsrs import largest_eta
from tests import toolkit as tk
from tests.shaping.transitions import random_transitions, transition

GAMMA = 0.9
seeds = st.integers(0, 10**6)


@given(seeds, st.sampled_from([-0.9, -0.25, 0.05]))
def test_it_is_pbrs_with_a_share_of_the_value_as_potential(seed: int, eta: float) -> None:
    rows = random_transitions(np.random.default_rng(seed), 5, 3)
    potentials = {"potential": eta * rows.value_ext, "next_potential": eta * rows.next_value_ext}
    expected = PBRS(3, gamma=GAMMA).rollout(rows._replace(**potentials))
    found = BSRS(3, eta=eta, gamma_int=GAMMA).rollout(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_by_hand() -> None:
    step = transition(
        [1.0, 1.0, 1.0, 1.0],
        value_ext=[2.0, 2.0, 2.0, 2.0],
        next_value_ext=[8.0, 8.0, 8.0, 8.0],
        terminated=[False, True, False, False],
        truncated=[False, False, True, False],
        valid=[True, True, True, False],
    )
    shaper = BSRS(4, eta=0.25, gamma_int=0.5)
    assert shaper.step(step).tolist() == [1.5, 0.5, 1.5, 0.0]
    assert shaper.describe() == "BSRS (eta=0.25, gamma_int=0.5)"


def test_by_name_without_a_bonus_and_with_the_agents_discount() -> None:
    for env in (
        BSRSWrapper(tk.ScriptedEnv(), tk.critic, gamma=GAMMA, eta=0.05),
        make_shaping("bsrs", tk.ScriptedEnv(), tk.critic, gamma=GAMMA, eta=0.05),
    ):
        obs, _ = env.reset(seed=1)
        after, reward, terminated, _, info = env.step(1)
        value, following = (float(tk.critic(o)[0]) for o in (obs, after))
        expected = 0.05 * (GAMMA * following * (not terminated) - value)
        assert info["intrinsic_reward"] == pytest.approx(expected, rel=1e-12)
        assert reward == info["extrinsic_reward"] + info["intrinsic_reward"]
    with pytest.raises(TypeError, match="consults a critic"):
        BSRSWrapper(gym.make(tk.CLIFF), eta=0.001)  # type: ignore[call-arg]


# The range of η


def test_range_of_eta_by_hand_and_its_error() -> None:
    assert largest_eta(0.5) == pytest.approx(1 / 3, rel=1e-15)
    assert BSRS(gamma_int=0.5).weight == pytest.approx(1 / 6, rel=1e-15)
    assert BSRS(gamma_int=1.0, gamma_ext=1.0).weight == 0.0
    for eta in (-1.0, 0.34, 2.0):
        with pytest.raises(ValueError, match=r"eta=.* 0\.3333 at gamma=0\.5.*allow_any_eta=True"):
            BSRS(eta=eta, gamma_int=0.5)
        assert BSRS(eta=eta, gamma_int=0.5, allow_any_eta=True).weight == eta
    with pytest.raises(ValueError, match="eta must be a finite number"):
        BSRS(eta=float("inf"), allow_any_eta=True)


def test_a_critic_that_learns_by_itself_learns_from_the_stack() -> None:
    pytest.importorskip("torch")
    from adops_wrappers import TDCritic

    env = gym.make_vec("CartPole-v1", num_envs=4)
    critic = TDCritic(env.single_observation_space, seed=0)
    env = BSRSWrapper(env, critic, gamma=GAMMA, eta=0.05)
    obs, _ = env.reset(seed=0)
    assert critic.learner is None
    first, before = obs, critic.evaluate(obs)[0].copy()
    for _ in range(200):
        obs, _, terminated, truncated, info = env.step(np.zeros(4, np.int64))
        assert critic.learner is env.core
    assert (critic.evaluate(first)[0] > before).all()  # CartPole pays 1 at every step
    assert (info["intrinsic_reward"][~(terminated | truncated)] != 0.0).any()
