from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers import FiniteMDP, audit
from adops_wrappers.tabular import mdp_from_env, solver
from benchmarks.evidence import KINDS, random_mdp
from tests.tabular.examples import TAXI, all_policies, chain, policy_value


def brute_force_values(mdp: FiniteMDP) -> np.ndarray:
    """The best value of each state over all deterministic policies, each solved on its own."""
    return np.max([policy_value(mdp, policy, mdp.reward) for policy in all_policies(mdp)], axis=0)


def test_chain_by_hand():
    solution = chain().solve()
    # V(1) = max(4, 1 + V(1)/2) = 4; V(0) = max(1 + 4/2, V(0)/2) = 3.
    np.testing.assert_allclose(solution.v, [3.0, 4.0, 0.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(solution.q, [[3.0, 1.5], [4.0, 3.0], [0.0, 0.0]], atol=1e-14)
    assert solution.optimal.tolist() == [[True, False], [True, False], [True, True]]


def test_chain_with_a_horizon_by_hand():
    solution = chain(gamma=1.0).solve(horizon=3)
    # With one step left moving on pays 4 in state 1; with more, staying first pays 1 a step.
    assert solution.v.tolist() == [[6.0, 6.0, 0.0], [5.0, 5.0, 0.0], [1.0, 4.0, 0.0], [0.0] * 3]
    assert solution.optimal[2, 1].tolist() == [True, False]
    assert solution.optimal[1, 1].tolist() == [False, True]


def test_tie_tolerance():
    transition = np.zeros((2, 2, 2))
    transition[:, :, 1] = 1.0
    mdp = FiniteMDP(transition, [[1.0, 1.0 - 1e-6], [0.0, 0.0]], 0.9, terminal=[1])
    assert mdp.solve().optimal[0].tolist() == [True, False]
    assert mdp.solve(tie_tolerance=1e-5).optimal[0].tolist() == [True, True]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_solution_equals_enumeration_of_all_policies(seed, kind):
    mdp = random_mdp(np.random.default_rng(seed), kind, max_states=4)
    solution = mdp.solve()
    np.testing.assert_allclose(solution.v, brute_force_values(mdp), rtol=0, atol=1e-10)
    np.testing.assert_allclose(solution.q.max(axis=1), solution.v, rtol=0, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_long_horizon_approaches_the_discounted_solution(seed, kind):
    mdp = random_mdp(np.random.default_rng(seed), kind)
    finite, discounted = mdp.solve(horizon=300), mdp.solve()
    # What is cut off is at most γ^300·max|R|/(1 − γ) < 1e-11.
    np.testing.assert_allclose(finite.v[0], discounted.v, rtol=0, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_occupancy_times_reward_is_the_value(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    policy = rng.dirichlet(np.ones(mdp.num_actions), mdp.num_states)
    occupied = mdp.occupancy(policy)
    gained = (occupied[:, None] * policy * mdp.reward)[~mdp.terminal].sum()
    start = np.where(mdp.terminal, 0.0, 1.0 / np.count_nonzero(~mdp.terminal))
    assert gained == pytest.approx(start @ mdp.evaluate(policy).v, abs=1e-10)
    if not kind.terminating:
        assert occupied.sum() == pytest.approx(10.0, abs=1e-9)  # 1 / (1 − γ)


def test_occupancy_of_the_optimal_policy():
    np.testing.assert_allclose(chain(start=0).occupancy(), [1.0, 0.5, 0.0], atol=1e-14)


def test_reward_per_next_state_equals_its_mean():
    rng = np.random.default_rng(3)
    transition = rng.dirichlet(np.ones(4), (4, 2))
    reward = rng.normal(size=(4, 2, 4))
    mean = (transition * reward).sum(axis=2)
    full, short = FiniteMDP(transition, reward, 0.9), FiniteMDP(transition, mean, 0.9)
    np.testing.assert_allclose(full.solve().q, short.solve().q, rtol=0, atol=1e-12)


def test_gamma_one_where_every_policy_ends():
    transition = np.zeros((3, 2, 3))
    transition[0, :, 1] = transition[1, :, 2] = 1.0
    mdp = FiniteMDP(transition, [[1, 2], [3, 4], [0, 0]], 1.0, terminal=[2])
    assert mdp.solve().v.tolist() == [6.0, 4.0, 0.0]


def test_sparse_and_dense_solutions_agree(monkeypatch):
    pytest.importorskip("scipy")
    mdp = mdp_from_env(gym.make(TAXI), 0.99)
    sparse, occupied = mdp.solve(), mdp.occupancy()
    monkeypatch.setattr(solver, "_SPARSE_DENSITY", 0.0)
    again = mdp_from_env(gym.make(TAXI), 0.99)
    np.testing.assert_allclose(again.solve().v, sparse.v, rtol=0, atol=1e-11)
    np.testing.assert_allclose(again.occupancy(), occupied, rtol=0, atol=1e-11)
    assert np.array_equal(again.solve().optimal, sparse.optimal)


def test_scipy_is_needed_for_large_problems_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    assert mdp_from_env(gym.make(TAXI), 0.99).solve().v.max() == pytest.approx(20.0)
    monkeypatch.setattr(solver, "_MAX_DENSE_NODES", 100)
    with pytest.raises(ImportError, match=r"500 nodes needs scipy.*adops-wrappers\[analysis\]"):
        mdp_from_env(gym.make(TAXI), 0.99).solve()


def test_ideal_adops_keeps_the_optimal_set_of_taxi():
    mdp = mdp_from_env(gym.make(TAXI), 0.99)
    bonus = np.random.default_rng(0).normal(size=(500, 6))
    assert audit(mdp, bonus).preserved
    assert not audit(mdp, bonus, "raw").preserved


GOOD = np.full((2, 1, 2), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transition": GOOD * 0.9}, r"transition\[0, 0\] .* sums to 0\.9"),
        ({"transition": np.array([[[1.5, -0.5]], [[0.5, 0.5]]])}, "least entry is -0.5"),
        ({"transition": np.ones((2, 2))}, r"shape \(S, A, S\)"),
        ({"transition": np.ones((0, 1, 0))}, "at least one state"),
        ({"reward": [[np.nan], [0.0]]}, r"reward must be finite, but reward\[0, 0\] is nan"),
        ({"reward": np.zeros((3, 1))}, r"reward must have shape \(2, 1\) or \(2, 1, 2\)"),
        ({"gamma": 1.5}, r"gamma must be a discount in \(0, 1\]"),
        ({"gamma": 0.0}, r"gamma must be a discount in \(0, 1\]"),
        ({"terminal": [2]}, "Unknown state 2: the states are 0 … 1"),
        ({"terminal": np.array([True])}, r"mask of shape \(2,\)"),
        ({"start": 5}, "Unknown state 5"),
        ({"start": [0.5, 0.6]}, "sums to 1"),
        ({"action_names": ("a", "b")}, "1 names, got 2"),
    ],
)
def test_bad_arrays(arguments, message):
    good = {"transition": GOOD, "reward": np.zeros((2, 1)), "gamma": 0.9}
    FiniteMDP(**good)
    with pytest.raises(ValueError, match=message):
        FiniteMDP(**{**good, **arguments})


def test_words_for_numbers():
    with pytest.raises(TypeError, match="reward must be an array of numbers"):
        FiniteMDP(GOOD, [["much"], [0]], 0.9)


def test_terminal_rows_are_not_read():
    transition = GOOD.copy()
    transition[1] = 0.0
    assert FiniteMDP(transition, np.ones((2, 1)), 0.9, terminal=[1]).solve().v[1] == 0.0


def test_gamma_one_on_a_continuing_mdp():
    mdp = FiniteMDP(GOOD, np.ones((2, 1)), 1.0)
    with pytest.raises(ValueError, match=r"forever from state 0 \(2 such states\).*horizon"):
        mdp.solve()
    assert mdp.solve(horizon=4).v[0].tolist() == [4.0, 4.0]


def test_gamma_one_where_one_action_stays():
    with pytest.raises(ValueError, match="gamma=1 needs every policy"):
        chain(gamma=1.0).solve()


@pytest.mark.parametrize("horizon", [0, -1])
def test_bad_horizon(horizon):
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1"):
        chain().solve(horizon=horizon)


@pytest.mark.parametrize(
    "policy", [[0, 0, 7], np.ones((3, 2)), np.ones((2, 2)) / 2, [0.0, 0.0, 0.0]]
)
def test_bad_policy(policy):
    with pytest.raises(ValueError, match="policy"):
        chain().evaluate(policy)
