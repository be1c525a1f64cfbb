from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper, audit
from adops_wrappers.tabular import ideal_critic, mdp_from_env, policy_critic
from tests.tabular.examples import CLIFF, chain


def random_table(mdp, seed=0):
    return np.random.default_rng(seed).normal(size=mdp.transition.shape) * 2


@pytest.mark.parametrize("env_id", [CLIFF, "FrozenLake-v1"])
def test_wrapper_with_oracle_is_the_audits_ideal_adops(env_id):
    """The wrapper's F′ of each sampled step is the audit's F′ of that transition."""
    env = gym.make(env_id)
    mdp = mdp_from_env(env, 0.9)
    bonus = random_table(mdp)
    report = audit(mdp, bonus, form="trajectory")
    assert report.preserved
    oracle = ideal_critic(mdp, bonus)
    wrapped = IntrinsicRewardWrapper(env, lambda s, a, next_s: bonus[s, a, next_s])
    wrapped = ADOPSWrapper(wrapped, oracle, **oracle.settings)
    rng = np.random.default_rng(1)
    state, _ = wrapped.reset(seed=0)
    corrected = 0
    for _ in range(400):
        action = int(rng.integers(4))
        next_state, _, terminated, truncated, info = wrapped.step(action)
        expected = report.shaped_bonus[state, action, next_state]
        assert info["intrinsic_reward"] == pytest.approx(expected, abs=1e-12)
        corrected += info["shaping_correction"] != 0.0
        state = wrapped.reset()[0] if terminated or truncated else next_state
    assert corrected > 20


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_wrapper_with_oracle(mode):
    env = gym.make_vec("FrozenLake-v1", num_envs=5, vector_kwargs={"autoreset_mode": mode})
    mdp = mdp_from_env(gym.make("FrozenLake-v1"), 0.9)
    bonus = random_table(mdp)
    shaped = audit(mdp, bonus, form="trajectory").shaped_bonus
    oracle = ideal_critic(mdp, bonus)
    wrapped = IntrinsicRewardWrapper(env, lambda s, a, next_s: bonus[s, a, next_s])
    wrapped = ADOPSWrapper(wrapped, oracle, **oracle.settings)
    rng = np.random.default_rng(1)
    states, _ = wrapped.reset(seed=0)
    ended_rows = 0
    for _ in range(150):
        actions = rng.integers(0, 4, 5)
        next_states, _, terminated, _, info = wrapped.step(actions)
        true_next = next_states.copy()
        if mode is AutoresetMode.SAME_STEP and "final_obs" in info:
            rows = info["_final_obs"]
            true_next[rows] = info["final_obs"][rows]
        real = info["_intrinsic_reward"]
        expected = shaped[states, actions, true_next]
        np.testing.assert_allclose(info["intrinsic_reward"][real], expected[real], atol=1e-12)
        ended_rows += np.count_nonzero(terminated)
        states = next_states
    assert ended_rows > 20


def test_gallery_env_with_oracle():
    env = gym.make("adops/DancingSkulls-v0")
    base = env.unwrapped
    mdp = base.to_mdp(0.99)
    bonus = base.tempting_bonus()
    report = audit(mdp, bonus, form="trajectory")
    oracle = ideal_critic(mdp, bonus, state_of=base.state_of)

    def source(obs, action, next_obs):
        return bonus[base.state_of(obs), action, base.state_of(next_obs)]

    wrapped = ADOPSWrapper(IntrinsicRewardWrapper(env, source), oracle, **oracle.settings)
    rng = np.random.default_rng(0)
    obs, _ = wrapped.reset(seed=0)
    seen = set()
    for _ in range(300):
        action = int(rng.integers(4))
        next_obs, _, terminated, truncated, info = wrapped.step(action)
        where = (int(base.state_of(obs)), action, int(base.state_of(next_obs)))
        assert info["intrinsic_reward"] == pytest.approx(report.shaped_bonus[where], abs=1e-12)
        seen.add(where[2])
        obs = wrapped.reset()[0] if terminated or truncated else next_obs
    assert len(seen) > 15


def test_policy_critic_by_hand():
    # Always moving on from 0 and 1: V_E = (1 + 4/2, 4), V_I = (2 + 6/2, 6).
    bonus = np.array([[2.0, 0.0], [6.0, 0.0], [0.0, 0.0]])
    critic = policy_critic(chain(), [0, 0, 0], bonus)
    answer = critic(np.array([0, 1, 2]))
    np.testing.assert_allclose(answer.value_ext, [3.0, 4.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(answer.value_int, [5.0, 6.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(answer.q_ext[0], [3.0, 1.5], atol=1e-14)


def test_forms_of_w_differ_only_by_chance():
    cliff = mdp_from_env(gym.make(CLIFF), 0.9)
    lake = mdp_from_env(gym.make("FrozenLake-v1"), 0.9)
    for mdp, same in ((cliff, True), (lake, False)):
        bonus = random_table(mdp)
        expected, best = (
            ideal_critic(mdp, bonus, form=form).value_int for form in ("expected", "trajectory")
        )
        assert (best >= expected - 1e-9).all()
        assert np.allclose(best, expected, atol=1e-9) == same


def test_settings_carry_the_discounts():
    critic = ideal_critic(chain(), np.ones((3, 2)), gamma_int=0.25)
    assert critic.settings == {
        "add_to_reward": True,
        "gamma_ext": 0.5,
        "gamma_int": 0.25,
        "tie_tolerance": 1e-9,
    }
    # W(1) = 1 for moving on; W(0) = 1 + 1/4.
    np.testing.assert_allclose(critic.value_int, [1.25, 1.0, 0.0], atol=1e-14)


def test_unknown_states():
    critic = ideal_critic(chain(), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"Unknown state \[7\]: the oracle knows the states 0 … 2"):
        critic(7)
    with pytest.raises(TypeError, match="Pass state_of="):
        critic(np.array([0.5]))
