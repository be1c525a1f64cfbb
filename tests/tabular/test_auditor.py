from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers import FiniteMDP, audit
from adops_wrappers.shaping import ADOPS, GRM, PBIM
from adops_wrappers.tabular import METHODS, EpisodicCount, FutureBonus, ideal_critic
from benchmarks.evidence import KINDS, random_bonus, random_mdp
from tests.tabular.examples import (
    bandit,
    bandit_bonus,
    chain,
    gamble,
    noisy_tv,
    optimal_policies,
    policy_value,
)

seeds = st.integers(0, 2**32)
kinds = st.sampled_from(KINDS)

SEPARATING = {
    "A": ((bandit([1, 0]), bandit_bonus([0, 2])), (False, True, True, True)),
    "B": ((bandit([1, 0]), bandit_bonus([0, 0.3])), (True, True, True, True)),
    "C": ((bandit([1, 1, 0]), bandit_bonus([0, 1, 0])), (False, True, True, True)),
    "G": (gamble(), (False, True, True, True)),
    "H": (noisy_tv(), (False, False, True, True)),
}


@pytest.mark.parametrize("name", SEPARATING)
def test_separating_table(name):
    (mdp, bonus), expected = SEPARATING[name]
    methods = ("raw", "pbim", "grm", "adops")
    assert tuple(audit(mdp, bonus, method).preserved for method in methods) == expected


def test_small_bonus_comes_back_unchanged():
    (mdp, bonus), _ = SEPARATING["B"]
    assert np.array_equal(audit(mdp, bonus).shaped_bonus, bonus)


def test_gamble_needs_the_exact_advantage():
    mdp, bonus = gamble()
    assert audit(mdp, bonus, form="trajectory").preserved
    broken = audit(mdp, bonus, form="trajectory", sampled_advantage=True)
    assert not broken.preserved
    # The winning half keeps its 5, the losing half is cut to a total of −ε: together above 0.
    assert broken.gained[0].tolist() == [False, True]


def test_the_guarded_scale_is_audited_with_its_scale_held():
    (mdp, bonus), _ = SEPARATING["A"]
    for beta in (0.0, 0.25, 1.0):
        guarded, pies = (audit(mdp, bonus, name, zeta=beta) for name in ("guarded", "pies"))
        assert np.array_equal(guarded.shaped_bonus, beta * bonus)
        assert guarded.preserved == pies.preserved == (beta < 0.5)
        assert (guarded.zeta, guarded.method) == (beta, "guarded")
    assert f"held        β = {beta:g}" in str(guarded)
    with pytest.raises(TypeError, match="guarded does not take the setting 'pause'"):
        audit(mdp, bonus, "guarded", pause=0.5)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("horizon", [None, 3])
def test_an_mdp_without_a_decision_is_refused(name, horizon):
    for mdp in (chain(start=2), FiniteMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), 0.9, [0])):
        more = {"potential": np.zeros(mdp.num_states)} if name == "pbrs" else {}
        bonus = np.zeros((mdp.num_states, 2))
        for kind in (bonus, EpisodicCount(), FutureBonus(lambda s, a, taken: 0.0 * a)):
            with pytest.raises(ValueError, match="Every start state is terminal"):
                audit(mdp, kind, name, horizon, **more)


def test_report_of_a_bandit_by_hand():
    report = audit(bandit([1.0, 0.0]), bandit_bonus([0.0, 2.0]), "raw")
    assert not report.preserved
    assert report.changed_states.tolist() == [0]
    assert report.gained.tolist() == [[False, True], [False, False]]
    assert report.lost.tolist() == [[True, False], [False, False]]
    assert report.regret == 1.0
    (step,) = report.counterexample
    assert step == (0, 1, 1, 0.0, 2.0, 2.0)
    repaired = audit(bandit([1.0, 0.0]), bandit_bonus([0.0, 2.0]))
    # W = 0, so the bad action's total 0 − 1 + F′ is clamped to −ε: F′ = 1 − 1e-7.
    assert repaired.shaped_bonus[0] == pytest.approx([0.0, 1 - 1e-7], abs=1e-15)
    assert (repaired.regret, repaired.counterexample) == (0.0, None)


def test_counterexample_goes_the_shortest_way():
    # F tempts the agent to stay in state 1, one step from the start.
    bonus = np.array([[0.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    report = audit(chain(start=0), bonus, "raw")
    assert [(s.state, s.action) for s in report.counterexample] == [(0, 0), (1, 1)]
    # Staying is worth (1 + 3)/(1 − 1/2) = 8 > 4; extrinsically 2 in place of 4, half at the start.
    assert report.regret == pytest.approx(1.0, abs=1e-12)
    assert "CHANGED" in str(report)
    assert "0 --0--> 1" in str(report)


def test_states_out_of_reach_do_not_count():
    bonus = np.zeros((3, 2))
    bonus[0, 1] = 10.0
    assert not audit(chain(), bonus, "raw").preserved
    assert audit(chain(start=1), bonus, "raw").preserved


@settings(max_examples=60, deadline=None)
@given(seed=seeds, kind=kinds, method=st.sampled_from(["raw", "pies", "adops", "adopes"]))
def test_verdict_and_regret_equal_enumeration(seed, kind, method):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind, max_states=3)
    bonus = random_bonus(rng, mdp, scale=0.5)
    report = audit(mdp, bonus, method, **({"epsilon": 1e-3} if method.startswith("ado") else {}))
    shaped = report.shaped_bonus
    shaped = shaped[:, :, None] if shaped.ndim == 2 else shaped
    before = optimal_policies(mdp, mdp.reward)
    after = optimal_policies(mdp, mdp.reward[:, :, None] + shaped)
    assert report.preserved == (before == after)
    alive = np.flatnonzero(~mdp.terminal)
    best = mdp.solve().v
    worst = np.inf
    for choice in after:
        policy = np.zeros(mdp.num_states, dtype=int)
        policy[alive] = choice
        worst = np.minimum(worst, policy_value(mdp, policy, mdp.reward))
    assert report.regret == pytest.approx((best - worst)[alive].max(), abs=1e-7)


@settings(max_examples=150, deadline=None)
@given(seed=seeds, kind=kinds, form=st.sampled_from(["expected", "trajectory"]))
def test_ideal_adops_keeps_the_set(seed, kind, form):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    bonus = random_bonus(rng, mdp)
    assert audit(mdp, bonus, form=form).preserved


@settings(max_examples=80, deadline=None)
@given(seed=seeds, kind=kinds)
def test_ideal_value_is_the_sum_of_both(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    bonus = random_bonus(rng, mdp)
    shaped = audit(mdp, bonus).shaped_bonus
    total = FiniteMDP(mdp.transition, mdp.reward[:, :, None] + shaped, mdp.gamma, mdp.terminal)
    w = ideal_critic(mdp, bonus, form="expected").value_int
    np.testing.assert_allclose(total.solve().v, mdp.solve().v + w, rtol=0, atol=1e-9)


@settings(max_examples=80, deadline=None)
@given(seed=seeds, kind=kinds)
def test_w_is_the_best_bonus_among_optimal_policies(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind, max_states=3)
    bonus = random_bonus(rng, mdp)
    alive = np.flatnonzero(~mdp.terminal)
    best = np.full(len(alive), -np.inf)
    for choice in optimal_policies(mdp, mdp.reward):
        policy = np.zeros(mdp.num_states, dtype=int)
        policy[alive] = choice
        best = np.maximum(best, policy_value(mdp, policy, bonus)[alive])
    w = ideal_critic(mdp, bonus, form="expected").value_int
    np.testing.assert_allclose(w[alive], best, rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, kind=kinds)
def test_reward_as_bonus_survives_adops_and_not_grm(seed, kind):
    mdp = random_mdp(np.random.default_rng(seed), kind)
    shaped = audit(mdp, mdp.reward).shaped_bonus
    np.testing.assert_allclose(shaped, mdp.reward, rtol=0, atol=1e-9)
    silent = FiniteMDP(mdp.transition, 0 * mdp.reward, mdp.gamma, mdp.terminal)
    assert audit(silent, mdp.reward, "grm").preserved


@settings(max_examples=40, deadline=None)
@given(seed=seeds, kind=kinds, delay=st.integers(0, 2))
def test_grm_keeps_the_set(seed, kind, delay):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind, max_states=3, max_actions=2)
    bonus = random_bonus(rng, mdp)
    # Without a horizon the last `delay` values of F are part of the state.
    if delay < 2 or not kind.stochastic:
        assert audit(mdp, bonus, "grm", delay=delay).preserved
    assert audit(mdp, bonus, "grm", horizon=4, delay=delay).preserved


@settings(max_examples=30, deadline=None)
@given(seed=seeds, kind=kinds)
def test_pbim_keeps_the_set_on_a_horizon(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind, max_states=3, max_actions=2)
    bonus = random_bonus(rng, mdp)
    assert audit(mdp, bonus, "pbim", horizon=4).preserved
    assert audit(mdp, bonus, "pbim-norm", horizon=3).preserved


@settings(max_examples=30, deadline=None)
@given(seed=seeds, kind=kinds)
def test_horizon_verdict_of_adops_and_raw(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    bonus = random_bonus(rng, mdp)
    assert audit(mdp, bonus, horizon=5).preserved
    # The raw verdict by a second route: backward induction on R + F.
    shaped = FiniteMDP(mdp.transition, mdp.reward[:, :, None] + bonus, mdp.gamma, mdp.terminal)
    alive = ~mdp.terminal
    before, after = mdp.solve(5).optimal[:, alive], shaped.solve(5).optimal[:, alive]
    report = audit(mdp, bonus, "raw", horizon=5)
    # Episodes start anywhere, so that at time t some states may be out of reach.
    reached = ~np.isnan(report.shaped_bonus[:, alive, 0])
    assert report.preserved == bool((before == after)[reached].all())


def test_grm_with_the_wrong_discount_breaks():
    mdp, bonus = noisy_tv()
    # Taken back at face value, the TV's 20 leave 20·(1 − 0.9) = 2 > 1 a step.
    assert audit(mdp, 10 * bonus, "grm").preserved
    assert not audit(mdp, 10 * bonus, "grm", gamma=1.0).preserved


def test_adopes_and_pies_at_their_ends():
    mdp, bonus = gamble()
    raw, adops = audit(mdp, bonus, "raw"), audit(mdp, bonus, "adops")
    at = {zeta: audit(mdp, bonus, "adopes", zeta=zeta).shaped_bonus for zeta in (0.0, 0.5, 1.0)}
    assert np.array_equal(at[0.0], raw.shaped_bonus)
    assert np.array_equal(at[1.0], adops.shaped_bonus)
    np.testing.assert_allclose(at[0.5], (at[0.0] + at[1.0]) / 2, rtol=0, atol=1e-15)
    assert np.array_equal(audit(mdp, bonus, "pies", zeta=1.0).shaped_bonus, bonus)
    assert np.array_equal(audit(mdp, bonus, "pies", zeta=0.25).shaped_bonus, 0.25 * bonus)
    half = audit(mdp, bonus, "adopes-half", zeta=0.0).shaped_bonus
    assert np.array_equal(half, 0.5 * bonus)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, kind=kinds)
def test_pbrs_keeps_the_set_where_there_is_no_bonus(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    nothing = np.zeros((mdp.num_states, mdp.num_actions))
    potential = 3 * rng.normal(size=mdp.num_states)
    assert audit(mdp, nothing, "pbrs", potential=potential).preserved

    def clocked(states, times):
        return potential[states] * np.cos(times)

    assert audit(mdp, nothing, "pbrs", horizon=4, potential=clocked).preserved
    assert not audit(bandit([1, 0]), bandit_bonus([0, 2]), "pbrs", potential=[1, 2]).preserved


def test_own_function_and_own_shaper():
    mdp, bonus = bandit([1.0, 0.0]), bandit_bonus([0.0, 2.0])

    def quarter(task, table):
        assert task is mdp
        return 0.25 * table

    report = audit(mdp, bonus, quarter)
    assert (report.preserved, report.method) == (True, "quarter")
    assert np.array_equal(report.shaped_bonus, 0.25 * bonus)
    for own, name in ((PBIM, "pbim"), (GRM, "grm")):
        assert audit(mdp, bonus, own, gamma=0.9).preserved == audit(mdp, bonus, name).preserved
    tolerant = audit(mdp, bonus, ADOPS, gamma_ext=0.9, gamma_int=0.9, tie_tolerance=1e-9)
    assert tolerant.preserved
    assert tolerant.shaped_bonus is None


def test_weights_of_the_two_streams():
    mdp, bonus = bandit([1.0, 0.0]), bandit_bonus([0.0, 2.0])
    assert audit(mdp, bonus, "raw", ext_coef=3.0).preserved
    assert audit(mdp, bonus, ext_coef=1.0, int_coef=5.0).preserved
    # The weighted clamp: 3·(−1) + 2·F′ ≤ −ε.
    shaped = audit(mdp, 5 * bonus, ext_coef=3.0, int_coef=2.0).shaped_bonus
    assert shaped[0, 1] == pytest.approx((3 - 1e-7) / 2, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, kind=kinds)
def test_lower_intrinsic_discount_is_safe(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, kind)
    bonus = random_bonus(rng, mdp)
    assert audit(mdp, bonus, horizon=6, gamma_int=0.7).preserved


def test_higher_intrinsic_discount_needs_insistence_and_can_break():
    rng = np.random.default_rng(0)
    broken = 0
    for i in range(40):
        mdp = random_mdp(rng, KINDS[i % len(KINDS)])
        bonus = random_bonus(rng, mdp)
        with pytest.raises(ValueError, match=r"gamma_int=0.99 is above"):
            audit(mdp, bonus, horizon=6, gamma_int=0.99)
        insisted = {"gamma_int": 0.99, "allow_gamma_int_above_ext": True}
        broken += not audit(mdp, bonus, horizon=6, **insisted).preserved
    assert broken > 0


def test_episodic_counts_by_hand():
    # One lap: staying pays 1, 1/√2, 1/√3 …; with two steps left staying in 0 first is better.
    mdp = bandit([1.0, 0.0])
    assert audit(mdp, EpisodicCount(), "raw", horizon=1).preserved
    stay = chain(gamma=1.0, start=0)
    report = audit(stay, EpisodicCount(scale=10.0), "raw", horizon=2)
    # From 0: moving pays 1 + 10 and then 4 + 10; staying 10 and then 1 + 10 for moving on.
    assert report.preserved
    assert not audit(stay, EpisodicCount(scale=10.0), "raw", horizon=3).preserved
    for method in ("grm", "pbim", "adops"):
        assert audit(stay, EpisodicCount(scale=10.0), method, horizon=3).preserved
    assert audit(stay, EpisodicCount(), "adops", horizon=3).shaped_bonus is None


@settings(max_examples=25, deadline=None)
@given(seed=seeds, kind=kinds, method=st.sampled_from(["grm", "pbim", "adops"]))
def test_episodic_counts_are_repaired(seed, kind, method):
    mdp = random_mdp(np.random.default_rng(seed), kind, max_states=3, max_actions=2)
    assert audit(mdp, EpisodicCount(scale=3.0), method, horizon=4).preserved


@pytest.mark.parametrize("method", METHODS)
def test_every_name_gives_a_report(method):
    extra = {"potential": [0.0, 0.0]} if method == "pbrs" else {}
    report = audit(bandit([1, 0]), bandit_bonus([0, 0.1]), method, **extra)
    assert report.method == method
    assert report.preserved


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"shaping": "adop"}, ValueError, "Did you mean 'adops'"),
        ({"shaping": 3}, ValueError, "no shaping method 3"),
        ({"bonus": np.zeros((3, 3))}, ValueError, r"bonus must have shape \(2, 2\) or \(2, 2, 2\)"),
        ({"bonus": np.full((2, 2), np.nan)}, ValueError, "bonus must be finite"),
        ({"zeta": 0.5}, TypeError, "adops does not take the setting 'zeta'"),
        ({"shaping": "pies", "zeta": 1.5}, ValueError, "zeta must be a number from 0 to 1"),
        ({"shaping": "pbrs"}, ValueError, "pbrs needs potential="),
        ({"shaping": "pbrs", "potential": [1.0]}, ValueError, "potential must hold one finite"),
        (
            {"shaping": "pbrs", "potential": lambda states, times: 1.0},
            ValueError,
            r"potential\(states, times\) must return one finite value",
        ),
        ({"potential": [1.0, 2.0]}, ValueError, "the other methods take none"),
        ({"value_int": [1.0]}, ValueError, "value_int must hold one finite value per state"),
        ({"form": "mean"}, ValueError, "form must be one of"),
        ({"gamma_int": 0.5}, ValueError, "with two discounts the best policy depends on time"),
        ({"horizon": 0}, ValueError, "horizon must be a whole number"),
        ({"max_nodes": 0}, ValueError, "max_nodes must be a whole number"),
        ({"shaping": lambda mdp, bonus: bonus[:1]}, ValueError, "shaped bonus of your function"),
        (
            {"shaping": lambda mdp, bonus: bonus, "bonus": EpisodicCount(), "horizon": 1},
            TypeError,
            "works on tables",
        ),
    ],
)
def test_bad_input(settings, error, message):
    arguments = {"mdp": bandit([1, 0]), "bonus": bandit_bonus([0, 2]), **settings}
    with pytest.raises(error, match=message):
        audit(**arguments)


def test_no_mdp():
    with pytest.raises(TypeError, match="audit takes a FiniteMDP, got str"):
        audit("CliffWalking-v1", np.zeros((2, 2)))


def test_memory_that_never_recurs_asks_for_a_horizon():
    with pytest.raises(ValueError, match=r"max_nodes=500 .*Give a horizon"):
        audit(chain(), np.ones((3, 2)), "pbim", max_nodes=500)
    with pytest.raises(ValueError, match=r"max_nodes=20 .*Choose a shorter horizon"):
        audit(chain(), np.array([[1, 2], [3, 5], [0, 0]]), "pbim", horizon=10, max_nodes=20)


def test_trajectory_form_at_gamma_one():
    transition = np.zeros((2, 1, 2))
    transition[0, 0] = 0.5, 0.5
    mdp = FiniteMDP(transition, np.ones((2, 1)), 1.0, terminal=[1])
    assert audit(mdp, np.ones((2, 1))).preserved
    with pytest.raises(ValueError, match="trajectory form of W may be infinite"):
        audit(mdp, np.ones((2, 1)), form="trajectory")


def test_report_for_machines():
    import json

    report = audit(bandit([1.0, 0.0]), bandit_bonus([0.0, 2.0]), "raw")
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["preserved"] is False
    assert facts["gained"] == {"0": [1]}
    assert facts["lost"] == {"0": [0]}
    assert facts["counterexample"][0]["shaped"] == 2.0
