from __future__ import annotations

import numpy as np
import pytest

from adops_wrappers.tabular import FiniteMDP, audit
from benchmarks import evidence

ALWAYS = (
    "ideal ADOPS keeps the set",
    "ideal ADOPS: V′ = V_E + W",
    "GRM(1) keeps the set",
    "the guarded scale at β = 0.1 loses no more than its bound",
    "sampled s′: ADOPS with trajectory-wise W keeps the set",
    "F = R comes back unchanged from ideal ADOPS",
    "F = R after GRM(1) rewards no action",
    "natural gradient step with ADOPS lowers no V_E",
    "natural gradient step with ADOPS on the advantage lowers no V_E",
    "BAMPF, settled φ: keeps the set with φ = 0 at termination",
    "BAMPF, settled φ: keeps the set of a task without termination",
    "BAMPF, settled φ: loses at most φ with φ going on after termination",
    "BAMPF, φ forgets, a critic of state and φ: keeps the set",
    f"BAMPF over a life of {evidence.LIFE} steps, φ = 0 at its end: keeps the set",
    f"BAMPF over a life of {evidence.LIFE} steps, φ kept at its end: loses at most "
    f"γ^{evidence.LIFE} times its range",
    "BSRS, Φ = η·V*, without a bonus keeps the set",
    f"PBIM keeps the set (horizon {evidence.PBIM_HORIZON})",
    "bonus that looks ahead: ideal ADOPS keeps the set",
)


@pytest.fixture(scope="module")
def counts():
    return evidence.sweep(1000, seed=1)


@pytest.mark.parametrize("claim", ALWAYS)
def test_what_always_holds(counts, claim):
    held, tried, _ = counts
    assert tried[claim] >= 250
    assert held[claim] == tried[claim]


@pytest.mark.parametrize(
    ("claim", "at_most"),
    [
        ("raw F keeps the set", 0.25),
        ("ADOPS with W of one arbitrary optimal policy keeps the set", 0.95),
        ("ADOPS with W = 0 keeps the set", 0.7),
        ("sampled s′: ADOPS with the expected W keeps the set", 0.95),
        ("sampled s′: ADOPS with one-step Q_E keeps the set", 0.6),
        ("ADOPES at ζ = 0.5 keeps the set", 0.3),
        ("PIES at ζ = 0.5 keeps the set", 0.4),
        ("natural gradient step with raw F lowers no V_E", 0.7),
        (
            f"natural gradient step with ADOPS, then GAE (λ = {evidence.LAMBDA}), lowers no V_E",
            0.99,
        ),
        ("BAMPF, settled φ: keeps the set with φ going on after termination", 0.95),
        ("BAMPF, φ forgets, a critic of the state alone: keeps the set", 0.3),
        (f"BAMPF over a life of {evidence.LIFE} steps, φ kept at its end: keeps the set", 0.75),
        ("bonus that looks ahead: GRM(1) keeps the set", 0.4),
        ("bonus that looks ahead: PBIM keeps the set", 0.4),
    ],
)
def test_what_often_fails(counts, claim, at_most):
    held, tried, _ = counts
    assert 0 < held[claim] < at_most * tried[claim]


def test_the_bound_of_the_guarded_scale_can_be_reached():
    """One state: an action that pays β, and one that pays a bonus of 1 and a little more."""
    beta, gamma = 0.1, 0.9
    mdp = FiniteMDP(np.ones((1, 2, 1)), np.array([[beta, 1e-9]]), gamma)
    bonus = np.array([[0.0, 1.0]])[:, :, None]
    assert evidence.loss_is_bounded(mdp, bonus, beta)
    regret = audit(mdp, bonus, "guarded", zeta=beta).regret
    assert regret == pytest.approx(beta / (1 - gamma), rel=1e-6)


def test_every_kind_of_mdp_is_drawn(counts):
    per_kind = counts[2]
    assert len(per_kind) == 8
    assert {kind["MDPs"] for kind in per_kind.values()} == {125}


def test_the_command_prints_the_counts(capsys):
    assert evidence.main(["--mdps", "16", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "| ideal ADOPS keeps the set | 16 of 16 |" in out
    assert "| stochastic, terminating, ties |" in out
    with pytest.raises(SystemExit):
        evidence.main(["--mdps", "0"])


def test_natural_gradient_by_hand():
    """A bandit in which the bonus outweighs the reward: the raw step goes the wrong way."""
    from tests.tabular.examples import bandit

    bonus = np.zeros((2, 2, 2))
    bonus[0, 1] = 30.0
    lowered = [
        evidence.npg_lowers_value(bandit([1.0, 0.0]), bonus, np.random.default_rng(seed))
        for seed in range(10)
    ]
    assert lowered == [(False, False, True, False)] * 10
