from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers import audit
from adops_wrappers.tabular import FutureBonus
from benchmarks.evidence import KINDS, look_ahead, random_bonus, random_mdp
from tests.tabular.examples import bandit, two_steps


def as_future(table) -> FutureBonus:
    """A bonus table without any look ahead, in the form of a future bonus."""
    return FutureBonus(lambda states, actions, taken: table[states[:, :-1], actions, states[:, 1:]])


def test_bonus_that_looks_ahead_breaks_reward_matching():
    """J: F₀ = 10·[a₁ = a]. What is taken back at step 1 depends on the action at step 1."""
    ahead = look_ahead(np.array([10.0, 0.0]))
    for method in ("pbim", "grm"):
        report = audit(two_steps(), ahead, method, horizon=2)
        assert not report.preserved
        assert report.changed_states.tolist() == [1]
        assert report.gained[1].tolist() == [False, True]
        # Action a in s1 takes back 10/γ, which is seen along the trajectory.
        assert report.counterexample[-1].state == 1
        assert report.regret == pytest.approx(0.9, abs=1e-12)
    assert audit(two_steps(), ahead, "adops", horizon=2).preserved


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(KINDS),
    method=st.sampled_from(["raw", "pies", "grm", "pbim", "adops"]),
)
def test_tree_and_unfolding_agree(seed, kind, method):
    """Two routes to one verdict: all trajectories one by one, and merged histories."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind, max_states=3, max_actions=2)
    table = random_bonus(rng, mdp, scale=0.4)
    form = {"form": "trajectory"} if method == "adops" else {}
    tree = audit(mdp, as_future(table), method, horizon=3, **form)
    merged = audit(mdp, table, method, horizon=3, **form)
    assert tree.preserved == merged.preserved
    assert np.array_equal(tree.gained, merged.gained)
    assert np.array_equal(tree.lost, merged.lost)
    assert tree.regret == pytest.approx(merged.regret, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_adops_stands_any_look_ahead(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind, max_states=3, max_actions=2)

    def anything(states, actions, taken):
        return rng.normal(size=actions.shape) * 5

    assert audit(mdp, FutureBonus(anything), "adops", horizon=3).preserved


def test_bad_input():
    bonus = look_ahead(np.zeros(2))
    with pytest.raises(ValueError, match="give the horizon"):
        audit(two_steps(), bonus)
    with pytest.raises(TypeError, match="works on tables"):
        audit(two_steps(), bonus, lambda mdp, table: table, horizon=2)
    with pytest.raises(ValueError, match="must return finite values of shape"):
        audit(bandit([1, 0]), FutureBonus(lambda s, a, taken: np.zeros(3)), horizon=2)
    with pytest.raises(ValueError, match="All histories are listed"):
        audit(two_steps(), bonus, horizon=2, max_nodes=2)
    with pytest.raises(ValueError, match="one discount"):
        audit(two_steps(), bonus, horizon=2, gamma_int=0.5)
