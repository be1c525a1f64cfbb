"""PIES as first published, on finite MDPs with exact values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers import ExplicitShaping, FiniteMDP, audit
from benchmarks.evidence import KINDS, random_bonus, random_mdp


def corridor() -> FiniteMDP:
    """0 – 1 – 2 and then the end, which pays 8. Action 0 goes on, action 1 stays; γ = 1/2."""
    ways = np.zeros((4, 2, 4))
    for state in range(3):
        ways[state, 0, state + 1] = ways[state, 1, state] = 1.0
    reward = np.zeros((4, 2))
    reward[2, 0] = 8.0
    return FiniteMDP(ways, reward, gamma=0.5, terminal=[3], start=0)


def test_xi_falls_by_its_closed_form() -> None:
    shaping = ExplicitShaping(decay_updates=3)
    seen = []
    for n in range(5):
        seen.append(shaping.xi)
        assert shaping.xi == pytest.approx(float(max(Fraction(0), 1 - Fraction(n, 3))), abs=1e-15)
        shaping.update()
    assert seen[3:] == [0.0, 0.0]
    resumed = ExplicitShaping(decay_updates=3)
    resumed.load_state_dict(shaping.state_dict())
    assert resumed.xi == 0.0
    with pytest.raises(ValueError, match="decay_updates must be a whole number of at least 1"):
        ExplicitShaping(decay_updates=0)
    with pytest.raises(ValueError, match="gamma must be a discount"):
        ExplicitShaping(decay_updates=1, gamma=0.0)


def sarsa(mdp: FiniteMDP, bonus: Any, policy: Any, sweeps: int, shaping: Any) -> Any:
    """Φ of a policy's actions by sweeps with step size 1 over a deterministic MDP."""
    after = mdp.transition.argmax(axis=2)
    phi = np.zeros(mdp.reward.shape)
    for _ in range(sweeps):
        next_phi = phi[after, np.asarray(policy)[after]]
        phi = shaping.target(bonus, next_phi, mdp.terminal[after])
        phi[mdp.terminal] = 0.0
    return phi


def test_corridor_by_hand() -> None:
    """A bonus of 3 for staying in state 1 holds the agent there until ξ has fallen below 2/3."""
    mdp, bonus = corridor(), np.zeros((4, 2))
    bonus[1, 1] = 3.0
    shaping = ExplicitShaping(decay_updates=6, gamma=0.5)
    q = mdp.solve().q
    assert q[:3].tolist() == [[2.0, 1.0], [4.0, 2.0], [8.0, 4.0]]
    onward = np.zeros(4, np.int64)
    phi = sarsa(mdp, bonus, onward, 60, shaping)
    assert phi[:3].tolist() == [[0.0, 0.0], [0.0, -3.0], [0.0, 0.0]]
    # Q − ξ·Φ in state 1 is 4 for going on and 2 + 3ξ for staying.
    chosen = []
    for _ in range(7):
        chosen.append(int(shaping.preferences(q, phi)[1].argmax()))
        shaping.update()
    assert chosen == [1, 1, 0, 0, 0, 0, 0]
    # For a policy that stays there, staying is worth −Φ = 3/(1 − γ) = 6 in bonus.
    staying = np.array([0, 1, 0, 0])
    phi = sarsa(mdp, bonus, staying, 60, shaping)
    assert phi[:3] == pytest.approx(np.array([[-3.0, -1.5], [0.0, -6.0], [0.0, 0.0]]), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_minus_phi_is_the_bonus_value_of_the_policy_and_xi_zero_the_task(
    seed: int, kind: Any
) -> None:
    """Its fixed point is −Q_F; and of one policy, Q − ξ·Φ is the Q of R + ξ·F."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    bonus = random_bonus(rng, mdp)
    policy = rng.integers(0, mdp.num_actions, mdp.num_states)
    shaping, graph = ExplicitShaping(decay_updates=4, gamma=mdp.gamma), mdp.graph
    phi = -mdp.evaluate(policy, bonus).q
    per_edge = bonus[graph.source, graph.action, graph.target]
    next_phi = phi[graph.target, policy[graph.target]]
    again = graph.expected(shaping.target(per_edge, next_phi, graph.ended))
    alive = ~mdp.terminal
    np.testing.assert_allclose(again[alive], phi[alive], rtol=1e-9, atol=1e-9)
    shaping.update()
    assert shaping.xi == 0.75
    total = mdp.reward[:, :, None] + 0.75 * bonus
    of_reward = FiniteMDP(mdp.transition, total, mdp.gamma, mdp.terminal).evaluate(policy).q
    found = shaping.preferences(mdp.evaluate(policy).q, phi)
    np.testing.assert_allclose(found[alive], of_reward[alive], rtol=1e-9, atol=1e-9)
    for _ in range(3):
        shaping.update()
    np.testing.assert_array_equal(shaping.preferences(mdp.solve().q, phi), mdp.solve().q)


def test_what_the_reward_form_has_to_unlearn_and_this_one_has_not() -> None:
    """When the factor falls to 0 at once, Q of R + ζF still holds the bonus; Q of R never did."""
    mdp, bonus = corridor(), np.zeros((4, 2))
    bonus[1, 1] = 3.0
    shaped = FiniteMDP(mdp.transition, mdp.reward + bonus, mdp.gamma, mdp.terminal, start=0)
    q = shaped.solve().q  # what a learner of R + ζF has when ζ falls from 1 to 0
    assert q[1].tolist() == [4.0, 6.0]
    steps = 0
    while q[1].argmax() == 1:  # value iteration on R alone, from there
        best = q.max(axis=1)
        q = mdp.reward + mdp.gamma * np.where(mdp.terminal, 0.0, best)[mdp.transition.argmax(2)]
        steps += 1
    assert steps == 1  # 6 → 3 < 4; the larger γ is, the longer it takes
    assert not audit(mdp, bonus, "raw").preserved


def test_torch_gives_the_same() -> None:
    torch = pytest.importorskip("torch")
    shaping = ExplicitShaping(decay_updates=2, gamma=0.5)
    shaping.update()
    rng = np.random.default_rng(0)
    q, phi, bonus = rng.normal(size=(3, 5))
    ended = rng.random(5) < 0.5
    for give in (lambda x: x, torch.as_tensor):
        found = shaping.preferences(give(q), give(phi))
        np.testing.assert_allclose(np.asarray(found), q - 0.5 * phi)
        found = shaping.target(give(bonus), give(phi), give(ended))
        np.testing.assert_allclose(np.asarray(found), np.where(ended, 0.0, 0.5 * phi) - bonus)
