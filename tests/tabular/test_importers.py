from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from adops_wrappers import FiniteMDP
from adops_wrappers.tabular import bonus_table, mdp_from_env
from tests.tabular.examples import CLIFF, TAXI


def test_cliff_walking_by_hand():
    mdp = mdp_from_env(gym.make(CLIFF), 0.99)
    solution = mdp.solve()
    # 13 steps of −1 along the cliff: up, eleven times right, down.
    assert solution.v[36] == pytest.approx(-(1 - 0.99**13) / 0.01, abs=1e-10)
    assert np.flatnonzero(mdp.terminal).tolist() == [47]
    assert mdp.start[36] == 1.0
    assert solution.optimal[36].tolist() == [True, False, False, False]
    # The cliff itself is never stood on: the step into it leads back to the start.
    assert not mdp.graph.reachable()[37:47].any()
    assert mdp.reward[36, 1, 36] == -100.0


def test_frozen_lake_matches_value_iteration():
    env = gym.make("FrozenLake-v1", is_slippery=True)
    mdp = mdp_from_env(env, 0.99)
    value = np.zeros(16)
    for _ in range(5000):
        value = np.array(
            [
                max(
                    sum(p * (r + 0.99 * value[s] * (not end)) for p, s, r, end in outcomes)
                    for outcomes in env.unwrapped.P[state].values()
                )
                for state in range(16)
            ]
        )
    np.testing.assert_allclose(mdp.solve().v, value, rtol=0, atol=1e-10)


def test_taxi_by_playing():
    env = gym.make(TAXI)
    mdp = mdp_from_env(env, 0.99)
    solution = mdp.solve()
    assert mdp.num_states == 500
    for seed in range(5):
        state, _ = env.reset(seed=seed)
        first, total, discount, terminated = state, 0.0, 1.0, False
        while not terminated:
            state, reward, terminated, _, _ = env.step(int(solution.q[state].argmax()))
            total, discount = total + discount * reward, discount * 0.99
        assert total == pytest.approx(solution.v[first], abs=1e-9)


def test_minigrid_empty_by_hand():
    pytest.importorskip("minigrid")
    env = gym.make("MiniGrid-Empty-5x5-v0")
    mdp = mdp_from_env(env, 0.9)
    # 9 cells less the goal, 4 directions, and the goal entered facing right or down.
    assert (mdp.num_states, int(mdp.terminal.sum())) == (34, 2)
    # Two steps, a turn, two steps; the goal is worth 1 − 0.9/max_steps with the clock at 1.
    worth = 1 - 0.9 / env.unwrapped.max_steps
    assert mdp.solve().v[0] == pytest.approx(0.9**4 * worth, abs=1e-12)


def test_minigrid_door_key_is_solved_by_its_policy():
    pytest.importorskip("minigrid")
    env = gym.make("MiniGrid-DoorKey-5x5-v0")
    mdp = mdp_from_env(env, 0.9)
    solution = mdp.solve()
    env.reset(seed=0)
    state, steps, terminated = 0, 0, False
    while not terminated:
        action = int(solution.q[state].argmax())
        state = int(mdp.transition[state, action].argmax())
        _, _, terminated, truncated, _ = env.step(action)
        steps += 1
        assert bool(mdp.terminal[state]) == terminated
        assert not truncated
    worth = 1 - 0.9 / env.unwrapped.max_steps
    assert solution.v[0] == pytest.approx(0.9 ** (steps - 1) * worth, abs=1e-12)


class Walk(gym.Env):
    """States 0 … 9 on a line; observation and action spaces to taste."""

    observation_space = gym.spaces.Discrete(10)

    def __init__(self, actions=None, noise=False):
        self.action_space = actions or gym.spaces.Discrete(2)
        self.noise = noise

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        jump = int(self.np_random.integers(1, 3)) if self.noise else 1
        self.place = max(0, self.place + (jump if action else -1))
        return self.place, float(self.place == 9), self.place >= 9, False, {}


def test_enumeration_by_observation():
    mdp = mdp_from_env(Walk(), 0.9)
    assert mdp.num_states == 10
    assert mdp.solve().v[0] == pytest.approx(0.9**8, abs=1e-12)


class Pair(Walk):
    """The same walk with its observation in a dict and a tuple."""

    def reset(self, *, seed=None, options=None):
        return {"place": (super().reset(seed=seed)[0], 0)}, {}

    def step(self, action):
        place, *rest = super().step(action)
        return ({"place": (place, 0)}, *rest)


def test_enumeration_by_structured_observation():
    assert mdp_from_env(Pair(), 0.9).num_states == 10


def test_enumeration_by_a_key():
    mdp = mdp_from_env(Walk(), 0.9, key=lambda env, obs: env.place)
    assert mdp.num_states == 10


def test_the_old_name_works_and_says_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"use adops_wrappers\.mdp_from_env") as seen:
        mdp = FiniteMDP.from_env(Pair(), 0.9)
    assert mdp.num_states == 10
    assert seen[0].filename == __file__


def test_jumps_of_random_length():
    mdp = mdp_from_env(Walk(noise=True), 0.9, accuracy=0.04)
    # Places 0 … 8, and the ends 9 and 10, where a jump of 2 overshoots.
    assert (mdp.num_states, int(mdp.terminal.sum())) == (11, 2)
    assert np.unique(mdp.transition[0, 1].round(6))[1:] == pytest.approx([0.5, 0.5], abs=0.16)


def test_not_copyable():
    env = Walk()
    env.stream = (i for i in range(3))
    with pytest.raises(ValueError, match=r"copy\.deepcopy of it fails: cannot pickle"):
        mdp_from_env(env, 0.9)


def test_too_many_states():
    with pytest.raises(ValueError, match="more than max_states=5 states"):
        mdp_from_env(Walk(), 0.9, max_states=5)
    with pytest.raises(ValueError, match="more than max_states=100 states"):
        mdp_from_env(gym.make(TAXI), 0.9, max_states=100)


def test_actions_that_are_not_discrete():
    with pytest.raises(TypeError, match="Only envs with a Discrete action space"):
        mdp_from_env(Walk(gym.spaces.Box(0, 1)), 0.9)


def test_no_env():
    with pytest.raises(TypeError, match=r"takes a gymnasium.Env, got str"):
        mdp_from_env("FrozenLake-v1", 0.9)


def test_state_that_ends_only_sometimes():
    env = Walk()
    env.initial_state_distrib = np.array([1.0, 0.0])
    env.P = {0: {0: [(1.0, 1, 0.0, True)], 1: [(1.0, 1, 0.0, False)]}}
    env.P[1] = {0: [(1.0, 0, 0.0, False)], 1: [(1.0, 0, 0.0, False)]}
    with pytest.raises(ValueError, match="State 1 is entered both with and without termination"):
        mdp_from_env(env, 0.9)


def test_bonus_table_of_a_function():
    mdp = mdp_from_env(gym.make(CLIFF), 0.99)
    bonus = bonus_table(mdp, lambda s, a, next_s: 100.0 * s + 10.0 * a + (next_s == s))
    assert bonus[0, 0, 0] == 1.0
    assert bonus[24, 1, 25] == 2410.0
    assert bonus[24, 1, 26] == 0.0
    with pytest.raises(ValueError, match="must be finite"):
        bonus_table(mdp, lambda s, a, next_s: np.inf)
