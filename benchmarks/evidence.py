"""The counts behind the claims: `python benchmarks/evidence.py --mdps 4000`.

Every number is from exact solutions of random finite MDPs; nothing is trained or sampled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaping import ADOPS, Transition
from adops_wrappers.shaping.advantage import clamp_advantage
from adops_wrappers.tabular import DistinctStates, FiniteMDP, FutureBonus, audit
from adops_wrappers.tabular.graph import IntArray

Checks = Iterator[tuple[str, bool]]
PBIM_HORIZON = 3
LAMBDA = 0.95
LIFE = 4
"""The steps of a life of several episodes."""
_SMALL_EVERY = 4
"""Checks over whole histories run on every fourth MDP, drawn with at most 3 states."""


class Kind(NamedTuple):
    """What a random MDP is like."""

    stochastic: bool
    terminating: bool
    ties: bool
    """Rewards from {0, 1}, so that several actions are often optimal."""

    @property
    def label(self) -> str:
        """The kind in words."""
        return ", ".join(
            (
                "stochastic" if self.stochastic else "deterministic",
                "terminating" if self.terminating else "continuing",
                "ties" if self.ties else "no ties",
            )
        )


KINDS = tuple(
    Kind(stochastic, terminating, ties)
    for stochastic in (False, True)
    for terminating in (False, True)
    for ties in (False, True)
)


def random_mdp(
    rng: np.random.Generator, kind: Kind, *, max_states: int = 6, max_actions: int = 3
) -> FiniteMDP:
    """Return an MDP with 2 … max_states states, one of them terminal if it terminates, γ = 0.9.

    A stochastic transition has up to three outcomes. Episodes may start in any state.
    """
    states = int(rng.integers(2, max_states + 1))
    actions = int(rng.integers(2, max_actions + 1))
    transition = np.zeros((states, actions, states))
    for state, action in np.ndindex(states, actions):
        outcomes = rng.permutation(states)[: 3 if kind.stochastic else 1]
        transition[state, action, outcomes] = rng.dirichlet(np.ones(len(outcomes)))
    shape = (states, actions)
    reward = rng.integers(0, 2, shape).astype(np.float64) if kind.ties else rng.normal(size=shape)
    terminal = np.arange(states) == states - 1
    return FiniteMDP(transition, reward, 0.9, terminal if kind.terminating else None)


def random_bonus(rng: np.random.Generator, mdp: FiniteMDP, scale: float = 2.0) -> FloatArray:
    """Return a normal bonus F(s, a, s′), independent of everything."""
    return scale * rng.normal(size=mdp.transition.shape)


def markov_checks(mdp: FiniteMDP, kind: Kind, bonus: FloatArray, rng: Any) -> Checks:
    """Yield claim and outcome for one MDP and a bonus without memory."""
    policy = mdp.solve().q.argmax(axis=1)
    one_policy = mdp.evaluate(policy, bonus).v
    zero = np.zeros(mdp.num_states)
    ideal = audit(mdp, bonus)
    yield "raw F keeps the set", audit(mdp, bonus, "raw").preserved
    yield "ideal ADOPS keeps the set", ideal.preserved
    yield "ideal ADOPS: V′ = V_E + W", _value_identity(mdp, bonus, ideal.shaped_bonus)
    yield (
        "ADOPS with W of one arbitrary optimal policy keeps the set",
        audit(mdp, bonus, value_int=one_policy).preserved,
    )
    yield "ADOPS with W = 0 keeps the set", audit(mdp, bonus, value_int=zero).preserved
    yield "ADOPES at ζ = 0.5 keeps the set", audit(mdp, bonus, "adopes").preserved
    yield "PIES at ζ = 0.5 keeps the set", audit(mdp, bonus, "pies").preserved
    yield "the guarded scale at β = 0.1 loses no more than its bound", loss_is_bounded(mdp, bonus)
    yield "GRM(1) keeps the set", audit(mdp, bonus, "grm").preserved
    if kind.stochastic:
        sampled: dict[str, Any] = {"form": "trajectory"}
        yield (
            "sampled s′: ADOPS with trajectory-wise W keeps the set",
            audit(mdp, bonus, **sampled).preserved,
        )
        yield (
            "sampled s′: ADOPS with the expected W keeps the set",
            audit(mdp, bonus, form="trajectory", value_int=_expected_w(mdp, bonus)).preserved,
        )
        yield (
            "sampled s′: ADOPS with one-step Q_E keeps the set",
            audit(mdp, bonus, sampled_advantage=True, **sampled).preserved,
        )
    yield from knowledge_checks(mdp, kind, bonus)
    yield "BSRS, Φ = η·V*, without a bonus keeps the set", audit(mdp, 0 * bonus, "bsrs").preserved
    reward = mdp.reward
    unchanged = audit(mdp, reward).shaped_bonus
    assert unchanged is not None
    alive = ~mdp.terminal
    yield (
        "F = R comes back unchanged from ideal ADOPS",
        bool(np.allclose(unchanged[alive], reward[alive], rtol=0.0, atol=1e-9)),
    )
    yield "F = R after GRM(1) rewards no action", grm_is_blind(mdp, reward)
    lowered = npg_lowers_value(mdp, bonus, rng)
    yield "natural gradient step with ADOPS lowers no V_E", not lowered.adops
    yield "natural gradient step with ADOPS on the advantage lowers no V_E", not lowered.clamped
    yield (
        f"natural gradient step with ADOPS, then GAE (λ = {LAMBDA}), lowers no V_E",
        not lowered.adops_then_gae,
    )
    yield "natural gradient step with raw F lowers no V_E", not lowered.raw


def history_checks(mdp: FiniteMDP, bonus: FloatArray, rng: Any) -> Checks:
    """Yield claim and outcome for methods and bonuses with a memory, on a short horizon."""
    yield (
        f"PBIM keeps the set (horizon {PBIM_HORIZON})",
        audit(mdp, bonus, "pbim", PBIM_HORIZON).preserved,
    )
    yield from life_checks(mdp)
    ahead = look_ahead(rng.normal(size=mdp.num_actions) * 4.0)
    for name, shaping in (("GRM(1)", "grm"), ("PBIM", "pbim"), ("ideal ADOPS", "adops")):
        kept = audit(mdp, ahead, shaping, PBIM_HORIZON).preserved
        yield f"bonus that looks ahead: {name} keeps the set", kept


def knowledge_checks(mdp: FiniteMDP, kind: Kind, bonus: FloatArray) -> Checks:
    """Yield what holds of BAMPF for a φ that has settled, and for one of the last step alone.

    The second is the φ of a learner that forgets all but its last step.
    """
    settled, phi = np.full_like(bonus, 2.0), {"gamma": mdp.gamma, "initial": 2.0}
    yield (
        "BAMPF, settled φ: keeps the set with φ = 0 at termination",
        audit(mdp, settled, "bampf", episodic=True, **phi).preserved,
    )
    continued = audit(mdp, settled, "bampf", **phi)
    if kind.terminating:
        yield (
            "BAMPF, settled φ: keeps the set with φ going on after termination",
            continued.preserved,
        )
        yield (
            "BAMPF, settled φ: loses at most φ with φ going on after termination",
            continued.regret <= 2.0 + 1e-9,
        )
    else:
        yield "BAMPF, settled φ: keeps the set of a task without termination", continued.preserved
    yield (
        "BAMPF, φ forgets, a critic of state and φ: keeps the set",
        audit(mdp, bonus, "bampf", gamma=mdp.gamma, episodic=True).preserved,
    )
    # A one-step critic of the state alone takes −φ(h) for a constant of the state.
    yield (
        "BAMPF, φ forgets, a critic of the state alone: keeps the set",
        audit(mdp, mdp.gamma * bonus, "raw").preserved,
    )


def life_checks(mdp: FiniteMDP) -> Checks:
    """Yield what holds of BAMPF over a life in which every end is followed by a new episode."""
    life, seen = life_of(mdp), DistinctStates()
    ended = audit(life, seen, "bampf", LIFE, gamma=life.gamma, episodic=True)
    yield f"BAMPF over a life of {LIFE} steps, φ = 0 at its end: keeps the set", ended.preserved
    cut = audit(life, seen, "bampf", LIFE, gamma=life.gamma)
    yield f"BAMPF over a life of {LIFE} steps, φ kept at its end: keeps the set", cut.preserved
    # φ lies between 1 and the number of states.
    most = life.gamma**LIFE * (life.num_states - 1)
    yield (
        f"BAMPF over a life of {LIFE} steps, φ kept at its end: loses at most γ^{LIFE} times its "
        "range",
        cut.regret <= most + 1e-9,
    )


def life_of(mdp: FiniteMDP) -> FiniteMDP:
    """Return the task of a learner whose next episode begins where one terminates."""
    alive = ~mdp.terminal
    to_the_end = mdp.transition[:, :, ~alive].sum(axis=2)[alive]
    transition = mdp.transition[alive][:, :, alive].copy()
    transition += to_the_end[:, :, None] / alive.sum()  # episodes start anywhere
    return FiniteMDP(transition, mdp.reward[alive], mdp.gamma)


def look_ahead(worth: FloatArray) -> FutureBonus:
    """Return a bonus for step t that depends on the action taken at t + 1."""

    def function(states: IntArray, actions: IntArray, taken: BoolArray) -> FloatArray:
        bonus = np.zeros(actions.shape)
        bonus[:, :-1] = np.where(taken[:, 1:], worth[actions[:, 1:]], 0.0)
        return bonus

    return FutureBonus(function)


def loss_is_bounded(mdp: FiniteMDP, bonus: FloatArray, beta: float = 0.1) -> bool:
    """Return whether every optimal policy of R + β·F loses at most β·(max F − min F) / (1 − γ).

    F = 0 counts among the values of F: that is what follows an episode's end.
    """
    span = max(bonus.max(), 0.0) - min(bonus.min(), 0.0)
    regret = audit(mdp, bonus, "guarded", zeta=beta).regret
    return bool(regret <= beta * span / (1.0 - mdp.gamma) + 1e-9)


def grm_is_blind(mdp: FiniteMDP, bonus: FloatArray) -> bool:
    """Return whether GRM(1) leaves nothing to gain: with R = 0 every action is optimal."""
    silent = FiniteMDP(mdp.transition, np.zeros_like(mdp.reward), mdp.gamma, mdp.terminal)
    return audit(silent, bonus, "grm").preserved


class Lowered(NamedTuple):
    """Whether a natural gradient step lowered V_E in some state, for each way to shape."""

    adops: bool
    clamped: bool
    """With ADOPS on the advantage: raw F, and A_E and A_I summed by `clamp_advantage`."""
    raw: bool
    adops_then_gae: bool
    """With what GAE makes of the one-step totals that ADOPS has clamped."""


def npg_lowers_value(
    mdp: FiniteMDP, bonus: FloatArray, rng: np.random.Generator, step_size: float = 1.0
) -> Lowered:
    """Return whether one step π ∝ π·exp(η·A) lowers V_E anywhere.

    A_E is exact for a random policy; V_I is arbitrary noise.
    """
    policy = rng.dirichlet(np.ones(mdp.num_actions), mdp.num_states)
    value = mdp.evaluate(policy)
    value_int = np.where(mdp.terminal, 0.0, 5.0 * rng.normal(size=mdp.num_states))
    graph = mdp.graph
    intrinsic = graph.expected(bonus[graph.source, graph.action, graph.target])
    next_int = graph.expected(graph.next_value(value_int))
    advantage = value.q - value.v[:, None]
    flat = [x.reshape(-1) for x in (intrinsic, next_int, advantage)]
    repeated = np.repeat(value_int, mdp.num_actions)
    no = np.zeros(len(repeated), dtype=np.bool_)
    zeros = np.zeros(len(repeated))
    rows = Transition(zeros, flat[0], zeros, repeated, zeros, flat[1], flat[2], no, no, ~no)
    shaper = ADOPS(len(repeated), gamma_ext=mdp.gamma, gamma_int=mdp.gamma)
    adops, raw = (s + mdp.gamma * flat[1] - repeated for s in (shaper.step(rows), flat[0]))
    answers = []
    clamped = (flat[2] + adops).reshape(policy.shape)
    later = FiniteMDP(mdp.transition, clamped, LAMBDA * mdp.gamma, mdp.terminal)
    then_gae = later.evaluate(policy).q  # the expectation of Σ (γλ)^l of the clamped totals
    for total in (clamped, clamp_advantage(flat[2], raw), flat[2] + raw, then_gae):
        total = total.reshape(policy.shape)
        total = total - total.max(axis=1, keepdims=True)
        stepped = policy * np.exp(step_size * total)
        stepped /= stepped.sum(axis=1, keepdims=True)
        answers.append(bool((mdp.evaluate(stepped).v < value.v - 1e-9).any()))
    return Lowered(*answers)


def _expected_w(mdp: FiniteMDP, bonus: FloatArray) -> FloatArray:
    from adops_wrappers.tabular.oracle import ideal_critic

    return ideal_critic(mdp, bonus, form="expected").value_int


def _value_identity(mdp: FiniteMDP, bonus: FloatArray, shaped: FloatArray | None) -> bool:
    assert shaped is not None
    reward = mdp.reward[:, :, None] + (shaped if shaped.ndim == 3 else shaped[:, :, None])
    total = FiniteMDP(mdp.transition, reward, mdp.gamma, mdp.terminal).solve().v
    expected = mdp.solve().v + _expected_w(mdp, bonus)
    return bool(np.allclose(total, expected, rtol=0.0, atol=1e-8))


def sweep(
    mdps: int, seed: int, progress: Callable[[int], None] | None = None
) -> tuple[Counter[str], Counter[str], dict[str, Counter[str]]]:
    """Return how often each claim held, how often it was tried, and what held per kind."""
    rng = np.random.default_rng(seed)
    held: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    per_kind: dict[str, Counter[str]] = {kind.label: Counter() for kind in KINDS}
    for i in range(mdps):
        kind = KINDS[i % len(KINDS)]
        mdp = random_mdp(rng, kind)
        outcomes = list(markov_checks(mdp, kind, random_bonus(rng, mdp), rng))
        if i // len(KINDS) % _SMALL_EVERY == 0:
            small = random_mdp(rng, kind, max_states=3, max_actions=2)
            outcomes += history_checks(small, random_bonus(rng, small), rng)
        per_kind[kind.label]["MDPs"] += 1
        for claim, holds in outcomes:
            tried[claim] += 1
            held[claim] += holds
            per_kind[kind.label][claim] += holds
        if progress is not None:
            progress(i + 1)
    return held, tried, per_kind


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of counts."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/evidence.py",
        description="Count on random finite MDPs, solved exactly, which method keeps the set of "
        "optimal policies.",
    )
    parser.add_argument("--mdps", type=int, default=4000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    args = parser.parse_args(argv)
    if args.mdps < 1:
        parser.error(f"--mdps must be at least 1, got {args.mdps}")
    began = time.perf_counter()

    def progress(done: int) -> None:
        if done % 500 == 0:
            seconds = time.perf_counter() - began
            print(f"{done} of {args.mdps} MDPs, {seconds:.0f} s", file=sys.stderr)

    held, tried, per_kind = sweep(args.mdps, args.seed, progress)
    print("| claim | held |\n| --- | --- |")
    for claim in sorted(tried, key=list(tried).index):
        print(f"| {claim} | {held[claim]} of {tried[claim]} |")
    columns = ("raw F keeps the set", "ideal ADOPS keeps the set", "GRM(1) keeps the set")
    print("\n| kind of MDP | " + " | ".join(columns) + " |\n| --- | --- | --- | --- |")
    for label, counts in per_kind.items():
        cells = " | ".join(f"{counts[claim]} of {counts['MDPs']}" for claim in columns)
        print(f"| {label} | {cells} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
