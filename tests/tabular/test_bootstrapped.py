"""BSRS on finite MDPs, solved exactly: the range of η, and what the shaping does to PPO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers import FiniteMDP, audit
from adops_wrappers.shaping import BSRS, Transition
from adops_wrappers.shaping.bsrs import largest_eta
from benchmarks.evidence import KINDS, random_mdp
from tests.shaping.transitions import random_transitions

GAMMA = 0.9
seeds = st.integers(0, 10**6)


def gae(reward: Any, value: Any, after: Any, terminated: Any, ended: Any, lam: float) -> Any:
    """The advantages of one row, by the definition: a sum over the rest of the episode."""
    delta = reward + GAMMA * np.where(terminated, 0.0, after) - value
    advantages = []
    for t in range(len(delta)):
        total, weight = 0.0, 1.0
        for k in range(t, len(delta)):
            total += weight * delta[k]
            weight *= GAMMA * lam
            if ended[k]:
                break
        advantages.append(total)
    return np.array(advantages)


def bootstrapped_iteration(mdp: FiniteMDP, eta: float, steps: int) -> Any:
    """V ← max over a of E[R + F′ + γ·V(s′)], F′ being what BSRS pays with this V as its critic."""
    graph, value = mdp.graph, np.zeros(mdp.num_states)
    shaper = BSRS(len(graph.source), eta=eta, gamma_int=mdp.gamma, allow_any_eta=True)
    zeros, no = np.zeros(len(graph.source)), np.zeros(len(graph.source), bool)
    for _ in range(steps):
        after = graph.next_value(value)
        shaped = shaper.step(
            Transition(
                graph.reward, zeros, value[graph.source], zeros, after, zeros, None, no, no, ~no
            )
        )
        q = graph.expected(graph.reward + shaped + mdp.gamma * after)
        value = np.where(mdp.terminal, 0.0, q.max(axis=1))
    return value


@pytest.mark.parametrize("share", [-0.9, -0.5, 0.5, 0.9])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
def test_inside_the_range_the_critic_converges_to_the_value_by_one_plus_eta(
    kind: Any, share: float
) -> None:
    rng = np.random.default_rng(3)
    eta = share * (largest_eta(GAMMA) if share > 0 else 1.0)
    for _ in range(3):
        mdp = random_mdp(rng, kind)
        found = bootstrapped_iteration(mdp, eta, 2500)
        np.testing.assert_allclose(found, mdp.solve().v / (1 + eta), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("way", "end"), [("there and back", 1 / 19), ("stay", -1.0)])
def test_both_ends_of_the_range_are_reached_by_a_task_of_two_states(way: str, end: float) -> None:
    """γ·(1 + η)·λ − η is an eigenvalue of the update for each eigenvalue λ of the transitions.

    There and back has λ = −1, which leaves the unit circle at η = (1 − γ)/(1 + γ); staying has
    λ = 1, which does at η = −1.
    """
    ways = np.zeros((2, 1, 2))
    ways[:, 0, :] = [[0.0, 1.0], [1.0, 0.0]] if way == "there and back" else np.eye(2)
    mdp = FiniteMDP(ways, [[1.0], [0.0]], gamma=GAMMA)
    inside, outside = (end * share for share in (0.9, 1.1))
    fixed = mdp.solve().v / (1 + inside)
    np.testing.assert_allclose(bootstrapped_iteration(mdp, inside, 2500), fixed, rtol=1e-8)
    sizes = [np.abs(bootstrapped_iteration(mdp, outside, n)).max() for n in (500, 1000, 2000)]
    assert sizes[0] > 10.0
    assert sizes[1] > 10.0 * sizes[0]
    assert sizes[2] > 100.0 * sizes[1]


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(KINDS), st.sampled_from([-0.9, 0.05]))
def test_any_value_as_potential_keeps_the_optimal_policies(
    seed: int, kind: Any, eta: float
) -> None:
    mdp = random_mdp(np.random.default_rng(seed), kind)
    assert audit(mdp, np.zeros((mdp.num_states, mdp.num_actions)), "bsrs", eta=eta).preserved


# What it does to PPO


@given(seeds, st.floats(0.0, 1.0), st.sampled_from([-0.5, 0.05, 1.0, 2.0]))
def test_ppos_advantage_with_its_own_critic_as_potential(seed: int, lam: float, eta: float) -> None:
    """A′ = (1 + η)·A − η·R^{γλ} at every step, with ends of both kinds and any values."""
    rows = random_transitions(np.random.default_rng(seed), 12, 1)
    rows = rows._replace(intrinsic=np.zeros((12, 1)), valid=np.ones((12, 1), bool))
    shaper = BSRS(1, eta=eta, gamma_int=GAMMA, allow_any_eta=True)
    shaped = shaper.rollout(rows)[:, 0]
    reward, value, after, terminated, truncated = (
        getattr(rows, name)[:, 0]
        for name in ("reward", "value_ext", "next_value_ext", "terminated", "truncated")
    )
    ends = (terminated, terminated | truncated, lam)
    found = gae(reward + shaped, value, after, *ends)
    plain, zeros = gae(reward, value, after, *ends), np.zeros(12)
    returns = gae(reward, zeros, zeros, *ends)
    np.testing.assert_allclose(found, (1 + eta) * plain - eta * returns, rtol=1e-10, atol=1e-10)
    # At its fixed point V/(1 + η) the critic makes the shaping vanish from the advantage.
    fixed = rows._replace(
        value_ext=value[:, None] / (1 + eta), next_value_ext=after[:, None] / (1 + eta)
    )
    shaped = shaper.rollout(fixed)[:, 0]
    found = gae(reward + shaped, value / (1 + eta), after / (1 + eta), *ends)
    np.testing.assert_allclose(found, plain, rtol=1e-10, atol=1e-10)


def expected_advantages(mdp: FiniteMDP, policy: Any, eta: float, lam: float) -> tuple[Any, Any]:
    """E[A′ | s, a] and A of a policy, the potential and the baseline being η·V and V of R alone."""
    solution = mdp.evaluate(policy)
    graph = mdp.graph
    after = graph.next_value(solution.v)
    delta = graph.reward + mdp.gamma * after - solution.v[graph.source]
    shaped = (1 + eta) * graph.expected(delta) - eta * graph.expected(graph.reward)
    # The sum of λ-weighted later steps is the value of their expectation under the policy.
    later = FiniteMDP(mdp.transition, shaped, mdp.gamma * lam or 1e-12, mdp.terminal)
    tail = later.evaluate(policy).v
    total = shaped + mdp.gamma * lam * graph.expected(graph.next_value(tail))
    return total, solution.q - solution.v[:, None]


@pytest.mark.parametrize(("eta", "expected"), [(-0.5, 10), (0.05, 0), (2.0, 29)])
def test_with_an_exact_critic_of_r_alone_only_lambda_one_keeps_the_signs(
    eta: float, expected: int
) -> None:
    rng, changed = np.random.default_rng(0), 0
    for i in range(80):
        mdp = random_mdp(rng, KINDS[i % len(KINDS)])
        policy = rng.dirichlet(np.ones(mdp.num_actions), mdp.num_states)
        alive = ~mdp.terminal
        shaped, plain = expected_advantages(mdp, policy, eta, lam=1.0)
        shift = -eta * mdp.evaluate(policy).v[:, None]
        np.testing.assert_allclose(shaped[alive], (plain + shift)[alive], rtol=1e-8, atol=1e-8)
        shaped, plain = expected_advantages(mdp, policy, eta, lam=0.5)
        centred = shaped - (policy * shaped).sum(axis=1, keepdims=True)
        changed += not (np.sign(centred[alive].round(9)) == np.sign(plain[alive].round(9))).all()
    assert changed == expected  # of 80 tasks, in some state


def test_a_short_view_prefers_the_later_reward_by_hand() -> None:
    """Action 0 pays 1.1 at once, action 1 nothing and 2 a step later, which is worth 1: λ = 0.

    A is ±0.05 under an even policy, and A′ = 1.25·A − 0.25·R = −0.2125 and −0.0625.
    """
    ways = np.zeros((3, 2, 3))
    ways[0, 0, 2] = ways[0, 1, 1] = ways[1:, :, 2] = 1.0
    mdp = FiniteMDP(ways, [[1.1, 0.0], [2.0, 2.0], [0.0, 0.0]], gamma=0.5, terminal=[2])
    shaped, plain = expected_advantages(mdp, np.full((3, 2), 0.5), eta=0.25, lam=0.0)
    assert plain[0] == pytest.approx([0.05, -0.05], abs=1e-12)
    assert shaped[0] == pytest.approx([-0.2125, -0.0625], abs=1e-9)
