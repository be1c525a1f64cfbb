"""`audit`: does a shaped bonus keep the optimal policies of a finite MDP? Answered exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import FloatArray
from adops_wrappers.shaping import PBIM
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.bonuses import FutureBonus, HistoryBonus
from adops_wrappers.tabular.graph import Graph
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.oracle import (
    IdealValues,
    edge_transitions,
    expected_correction,
    ideal_values,
)
from adops_wrappers.tabular.report import AuditReport, compare
from adops_wrappers.tabular.settings import AuditSettings, Shaping, parse_settings
from adops_wrappers.tabular.unfold import Problem, build_problem, with_shaper

Bonus = npt.ArrayLike | HistoryBonus | FutureBonus

TABLE_HORIZON = 8
"""The horizon that `--all` gives to PBIM, which has too many debts without one."""


def audit(
    mdp: FiniteMDP,
    bonus: Bonus,
    shaping: Shaping = "adops",
    horizon: int | None = None,
    **settings: Any,
) -> AuditReport:
    """Compare the optimal policies of R with those of c_E·R + c_I·F′, exactly.

    The shaped bonus F′ comes from the shapers of the wrappers, fed with every transition of the
    MDP; ADOPS and ADOPES with the values of an oracle (eq. f_2_strong). A method or bonus with
    a memory is unfolded: time and history become part of the state. Only states that a policy
    can reach from the start count.

    Args:
        mdp: The task.
        bonus: F as a table of shape (S, A) or (S, A, S), or a `HistoryBonus` such as
            `EpisodicCount`, or a `FutureBonus`.
        shaping: A name of `SHAPINGS`, a function `(mdp, bonus) -> F′` of tables, or a `Shaper`
            class.
        horizon: The number of steps after which the task ends, as if terminated. PBIM and
            counts need one unless every episode is short.
        **settings: `zeta` (0.5), at which ζ of ADOPES and PIES and β of the guarded scale are
            held: the verdict is about a bonus that stays there, not about how it moves in
            training; `epsilon` (1e-7), `form` ("expected", or "trajectory" for an F₂ from the
            sampled s′), `value_int` (V_I of shape (S,) instead of W), `sampled_advantage` (A_E
            from the sampled s′) of ADOPS and ADOPES; `gamma` of GRM and PBIM, `delay` and
            `matching` of GRM, `alpha` of the normalised forms; `potential` of PBRS, a table of
            shape (S,) or a function (states, times); `eta` of BSRS; `gamma`, `episodic` and
            `initial` of BAMPF, whose φ(h′) is given as the bonus; for all methods `ext_coef`,
            `int_coef`, `gamma_int` (other than mdp.gamma only with a horizon), `tie_tolerance`
            (1e-9) and `max_nodes` (200,000).

    Returns:
        The verdict, with the states, actions, regret and a counterexample where it failed.

    Raises:
        ValueError: If the bonus does not fit the MDP, a setting is out of range, no start state
            has a decision to make, or the problem with its memory is too large.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import FiniteMDP, audit
        >>> transition = np.zeros((2, 2, 2))
        >>> transition[:, :, 1] = 1.0
        >>> bandit = FiniteMDP(transition, [[1.0, 0.0], [0.0, 0.0]], gamma=0.9, terminal=[1])
        >>> bonus = [[0.0, 2.0], [0.0, 0.0]]
        >>> audit(bandit, bonus, "raw").preserved, audit(bandit, bonus, "adops").preserved
        (False, True)
        >>> audit(bandit, bonus, "raw").regret
        1.0
    """
    _check_task(mdp, horizon)
    if isinstance(bonus, FutureBonus):
        from adops_wrappers.tabular.trajectories import audit_future

        return audit_future(mdp, bonus, shaping, horizon, settings)
    return _audit(mdp, bonus, shaping, horizon, settings)


def _check_task(mdp: FiniteMDP, horizon: int | None) -> None:
    if not isinstance(mdp, FiniteMDP):
        raise TypeError(
            f"audit takes a FiniteMDP, got {type(mdp).__name__}. Build one with "
            "FiniteMDP(transition, reward, gamma) or mdp_from_env(env, gamma)."
        )
    mdp.require_finite_values(horizon)
    if not ((mdp.graph.start > 0) & mdp.graph.decides).any():
        raise ValueError(
            f"Every start state is terminal ({int(mdp.terminal.sum())} of {mdp.num_states} states "
            "are), so no policy has anything to decide. Give FiniteMDP another start=, or "
            "fewer terminal= states."
        )


def _audit(
    mdp: FiniteMDP,
    bonus: npt.ArrayLike | HistoryBonus,
    shaping: Shaping,
    horizon: int | None,
    settings: dict[str, Any],
) -> AuditReport:
    own_table = None
    if callable(shaping) and not isinstance(shaping, type):
        own_table = _own_table(mdp, bonus, shaping)
    options = parse_settings(shaping, mdp.gamma, horizon, settings)
    method = options.method
    problem = build_problem(
        mdp, bonus, horizon, bonus_scale=method.intrinsic_scale, max_nodes=options.max_nodes
    )
    values = _values(mdp, problem, options)
    before = values.optimal
    if method.remembers_episode and not _never_settles(options, problem.graph):
        rows = edge_transitions(problem.graph, problem.bonus, values, options.sampled_advantage)
        unfolded = with_shaper(problem.graph, rows, options.make_shaper, options.max_nodes)
        problem, before = problem.unfolded(unfolded), before[unfolded.node]
        shaped = unfolded.output
    elif own_table is not None:
        shaped = problem.on_edges(own_table)
    else:
        shaped = _shape(mdp, problem, values, options)
    graph = problem.graph
    # γ_I may differ from γ only with a horizon, where the time of each node is known.
    weight = options.int_coef * (options.gamma_int / mdp.gamma) ** graph.time[graph.source]
    _, q = solver.maximise(graph, options.ext_coef * graph.reward + weight * shaped, mdp.gamma)
    after = solver.optimal_actions(q, options.tie_tolerance)
    return compare(
        mdp,
        graph,
        problem.state,
        before,
        after,
        describe=lambda path: (problem.step(e, problem.bonus[e], shaped[e]) for e in path),
        shaped_bonus=problem.shaped_table(mdp, shaped, horizon),
        method=method.name,
        zeta=options.zeta,
        horizon=horizon,
    )


def _values(mdp: FiniteMDP, problem: Problem, options: AuditSettings) -> IdealValues:
    value_int = None if options.method.needs_critic else np.zeros(problem.graph.num_nodes)
    if options.value_int is not None:
        given = _state_values(mdp, "value_int", options.value_int)
        value_int = np.where(mdp.terminal, 0.0, given)[problem.state]
    return ideal_values(
        problem.graph,
        problem.bonus,
        mdp.gamma,
        gamma_int=options.gamma_int,
        form=options.form,
        tie_tolerance=options.tie_tolerance,
        value_int=value_int,
    )


def _shape(
    mdp: FiniteMDP, problem: Problem, values: IdealValues, options: AuditSettings
) -> FloatArray:
    """Return F′ per edge for a method without memory."""
    graph, bonus = problem.graph, problem.bonus
    make_shaper = options.make_shaper
    expected = options.form == "expected" and not options.sampled_advantage
    if options.method.clamps and expected:
        shaper = make_shaper(graph.num_nodes * graph.num_actions)
        return bonus + expected_correction(graph, bonus, values, shaper)
    rows = edge_transitions(graph, bonus, values, options.sampled_advantage)
    if options.potential is not None:
        now, later = _potentials(mdp, problem, options.potential)
        rows = rows._replace(potential=now, next_potential=later)
    return make_shaper(len(bonus)).step(rows)


def _potentials(mdp: FiniteMDP, problem: Problem, potential: Any) -> tuple[FloatArray, FloatArray]:
    """Return Φ(s, t) and Φ(s′, t + 1) per edge; without a horizon the time stays 0."""
    graph = problem.graph
    state = problem.state[graph.source]
    if not callable(potential):
        table = _state_values(mdp, "potential", potential)
        return table[state], table[problem.next_state]
    time = graph.time[graph.source]
    now = np.asarray(potential(state, time), np.float64)
    later = np.asarray(potential(problem.next_state, time + (graph.layers is not None)), np.float64)
    for values in (now, later):
        if values.shape != state.shape or not np.isfinite(values).all():
            raise ValueError(
                f"potential(states, times) must return one finite value for each of {len(state)} "
                f"states, got shape {values.shape}."
            )
    return now, later


def _never_settles(options: AuditSettings, graph: Graph) -> bool:
    # Where no episode ever ends, PBIM takes nothing back: it is the raw bonus.
    shaper = options.make_shaper(1)
    return isinstance(shaper, PBIM) and not shaper.normalize and not graph.ended.any()


def _own_table(
    mdp: FiniteMDP, bonus: Any, shaping: Callable[[FiniteMDP, FloatArray], npt.ArrayLike]
) -> FloatArray:
    if isinstance(bonus, HistoryBonus):
        raise TypeError(
            "A function (mdp, bonus) -> shaped bonus works on tables; to shape a bonus that has a "
            "memory, pass a Shaper class."
        )
    return mdp.table("The shaped bonus of your function", shaping(mdp, mdp.table("bonus", bonus)))


def _state_values(mdp: FiniteMDP, name: str, values: Any) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (mdp.num_states,) or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must hold one finite value per state, shape ({mdp.num_states},), got shape "
            f"{array.shape}."
        )
    return array


def verdicts(
    mdp: FiniteMDP,
    bonus: Any,
    horizon: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> dict[str, AuditReport | str]:
    """Audit every method; where one cannot be audited, return the reason in its place.

    Args:
        mdp: The task.
        bonus: As for `audit`.
        horizon: As for `audit`; PBIM gets one of 8 if there is none.
        progress: Called with each line of progress.
        **settings: `zeta`, `delay`, `epsilon`, `form` and `max_nodes`, for the methods that take
            them; PIES at 0 and ADOPES at 1 are audited in any case.
    """
    clamp: dict[str, Any] = {n: settings[n] for n in ("epsilon", "form") if n in settings}
    size: dict[str, Any] = {n: settings[n] for n in ("max_nodes",) if n in settings}
    zeta, delay = settings.get("zeta", 0.5), settings.get("delay", 1)
    sampled = ", sampled s′" if settings.get("form") == "trajectory" else ""
    rows: dict[str, tuple[str, int | None, dict[str, Any]]] = {
        "raw": ("raw", horizon, {}),
        f"PIES, ζ = {zeta:g}": ("pies", horizon, {"zeta": zeta}),
        "PIES, ζ = 0": ("pies", horizon, {"zeta": 0.0}),
        f"guarded scale, β = {zeta:g}": ("guarded", horizon, {"zeta": zeta}),
        "PBRS, Φ = V*, added to F": ("pbrs", horizon, {"potential": mdp.solve().v}),
        f"ADOPES, ζ = {zeta:g}{sampled}": ("adopes", horizon, {"zeta": zeta, **clamp}),
        f"ADOPES, ζ = 1{sampled}": ("adopes", horizon, {"zeta": 1.0, **clamp}),
        f"ADOPS{sampled}": ("adops", horizon, clamp),
        "ADOPS, sampled s′": ("adops", horizon, {**clamp, "form": "trajectory"}),
        f"GRM({delay})": ("grm", horizon, {"delay": delay}),
        f"PBIM, horizon {horizon or TABLE_HORIZON}": ("pbim", horizon or TABLE_HORIZON, {}),
    }
    if "form" in settings and not sampled:
        del rows["ADOPS, sampled s′"]
    answers: dict[str, AuditReport | str] = {}
    for label, (method, limit, own) in rows.items():
        progress(f"Auditing {label} …")
        try:
            answers[label] = audit(mdp, bonus, method, limit, **own, **size)
        except ValueError as error:
            answers[label] = str(error)
    return answers
