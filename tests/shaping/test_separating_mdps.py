"""The smallest tasks that tell the methods apart, as far as they need no solver.

All are one or two steps long, so that the return of each plan can be written down.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from adops_wrappers.shaping import ADOPS, GRM, PBIM, NoShaping, Shaper
from tests.shaping.transitions import run_episode, transition

BANDITS = {
    "A the bonus is larger than the task": ([1.0, 0.0], [0.0, 2.0], {0}, False),
    "B the bonus is small": ([1.0, 0.0], [0.0, 0.3], {0}, True),
    "C a tie": ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0], {0, 1}, False),
}


def best(totals: list[float]) -> set[int]:
    return {a for a, total in enumerate(totals) if total >= max(totals) - 1e-9}


def ideal_adops(reward: float, bonus: float, v_ext: float, w: float) -> float:
    """The oracle's values: V_E* and W, the best bonus under an extrinsically optimal policy."""
    shaper = ADOPS(gamma_ext=1.0, gamma_int=1.0, epsilon=1e-6, tie_tolerance=1e-9)
    step = transition([bonus], reward=[reward], value_ext=[v_ext], value_int=[w], terminated=[True])
    return float(shaper.step(step)[0])


@pytest.mark.parametrize("name", BANDITS)
def test_bandits(name: str) -> None:
    rewards, bonuses, optimal, raw_is_harmless = BANDITS[name]
    v_ext = max(rewards)
    w = max(bonuses[a] for a in optimal)

    def totals(shaper: Shaper) -> list[float]:
        return [r + run_episode(shaper, [f])[0] for r, f in zip(rewards, bonuses, strict=True)]

    adops = [r + ideal_adops(r, f, v_ext, w) for r, f in zip(rewards, bonuses, strict=True)]
    assert (best(totals(NoShaping())) == optimal) == raw_is_harmless
    assert best(totals(PBIM(gamma=0.9))) == best(totals(GRM(gamma=0.9))) == optimal
    assert best(adops) == optimal
    if raw_is_harmless:
        assert adops == pytest.approx(totals(NoShaping()))


def test_gamble_needs_expected_q_values() -> None:
    """G: r = +1 or −1.2 at even odds with F = 5, against a safe 0 with F = 0."""
    outcomes = [1.0, -1.2]
    expected_advantage = sum(outcomes) / 2
    shaper = ADOPS(gamma_ext=1.0, gamma_int=1.0, epsilon=1e-6)

    def gamble(**advantage: Any) -> float:
        shaped = [
            float(shaper.step(transition([5.0], reward=[r], terminated=[True], **advantage))[0])
            for r in outcomes
        ]
        return sum(r + f for r, f in zip(outcomes, shaped, strict=True)) / 2

    assert gamble(advantage_ext=[expected_advantage]) < 0.0
    assert gamble() > 0.0
    assert expected_advantage + run_episode(PBIM(), [5.0])[0] < 0.0


def test_bonus_that_looks_into_the_future_breaks_matching_but_not_adops() -> None:
    """J: r = 1 for the first action a; F₀ = 10 if the second action is a, given at once."""
    plans = list(product("ab", "ab"))
    rewards = {plan: [float(plan[0] == "a"), 0.0] for plan in plans}
    bonuses = {plan: [10.0 * (plan[1] == "a"), 0.0] for plan in plans}
    optimal = {plan for plan in plans if plan[0] == "a"}

    def winners(returns: dict[Any, float]) -> set[Any]:
        top = max(returns.values())
        return {plan for plan, value in returns.items() if value >= top - 1e-9}

    for shaper in (PBIM(gamma=0.9), GRM(gamma=0.9, delay=1)):
        returns = {}
        for plan in plans:
            f = run_episode(shaper, bonuses[plan])
            returns[plan] = sum(0.9**t * (rewards[plan][t] + f[t]) for t in range(2))
        assert winners(returns) == optimal  # the sum is constant over the plans ...
        # ... but at step 1 the debt depends on the action still to come, and b looks better.
        after = {a1: run_episode(shaper, bonuses["a", a1])[1] for a1 in "ab"}
        assert after["b"] > after["a"]
    # ADOPS at step 0 with V_E* = 1, W = 10: nothing that ends the task early wins.
    totals = {
        plan: rewards[plan][0] + ideal_adops(rewards[plan][0], bonuses[plan][0], 1.0, 10.0)
        for plan in plans
    }
    assert {plan[0] for plan in winners(totals)} == {"a"}
