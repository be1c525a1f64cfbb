"""`audit`: does a shaped bonus keep the optimal policies of a finite MDP? Answered exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.bonuses import FutureBonus, HistoryBonus
from adops_wrappers.tabular.graph import Graph, IntArray
from adops_wrappers.tabular.ideal import (
    IdealValues,
    edge_transitions,
    expected_correction,
    ideal_values,
)
from adops_wrappers.tabular.mdp import FiniteMDP, on_edges
from adops_wrappers.tabular.memory import with_bonus, with_shaper
from adops_wrappers.tabular.methods import ADOPS_FAMILY
from adops_wrappers.tabular.report import AuditReport, Step
from adops_wrappers.tabular.settings import AuditSettings, Shaping, parse_settings
from adops_wrappers.tabular.verdict import compare

Bonus = npt.ArrayLike | HistoryBonus | FutureBonus


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
        shaping: A name (`raw`, `adops`, `adopes`, `adopes-half`, `pies`, `pbim`, `pbim-norm`,
            `grm`, `grm-norm`, `pbrs`), a function `(mdp, bonus) -> F′` of tables, or a `Shaper`
            class.
        horizon: The number of steps after which the task ends, as if terminated. PBIM and
            counts need one unless every episode is short.
        **settings: `zeta` of ADOPES and PIES (0.5); `epsilon` (1e-7), `form` ("expected", or
            "trajectory" for an F₂ from the sampled s′), `value_int` (V_I of shape (S,) in place
            of W), `sampled_advantage` (A_E from the sampled s′) of ADOPS and ADOPES; `gamma`,
            `delay`, `matching`, `alpha` of GRM and PBIM; `potential` of PBRS, a table of shape
            (S,) or a function (states, times); for all methods `ext_coef`, `int_coef`,
            `gamma_int` (other than mdp.gamma only with a horizon), `tie_tolerance` (1e-9) and
            `max_nodes` (200,000).

    Returns:
        The verdict, with the states, actions, regret and a counterexample where it failed.

    Raises:
        ValueError: If the bonus does not fit the MDP, a setting is out of range, or the problem
            with its memory is too large.

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
    if not isinstance(mdp, FiniteMDP):
        raise TypeError(
            f"audit takes a FiniteMDP, got {type(mdp).__name__}. Build one with "
            "FiniteMDP(transition, reward, gamma) or mdp_from_env(env, gamma)."
        )
    mdp.require_finite_values(horizon)
    if isinstance(bonus, FutureBonus):
        from adops_wrappers.tabular.trajectories import audit_future

        return audit_future(mdp, bonus, shaping, horizon, settings)
    own_table = None
    if callable(shaping) and not isinstance(shaping, type):
        own_table = _own_table(mdp, bonus, shaping)
    options = parse_settings(shaping, mdp.gamma, horizon, settings)
    problem = _problem(mdp, bonus, options, horizon)
    return _report(mdp, problem, options, horizon, own_table)


class _Problem(NamedTuple):
    """A graph whose nodes and edges know what they are in the MDP."""

    graph: Graph
    state: IntArray
    """The MDP's state of each node."""
    next_state: IntArray
    """The MDP's next state of each edge, also where the episode ends."""
    bonus: FloatArray
    """F of each edge."""
    table: FloatArray | None
    """F as a table, where a node is no more than a state, or a state and a time."""


def _problem(
    mdp: FiniteMDP,
    bonus: npt.ArrayLike | HistoryBonus,
    options: AuditSettings,
    horizon: int | None,
) -> _Problem:
    scale = options.method.bonus_scale
    table = bonus if isinstance(bonus, HistoryBonus) else mdp.table("bonus", bonus)
    graph = mdp.graph
    if horizon is None and not isinstance(table, HistoryBonus):
        per_edge = scale * on_edges(table, graph.source, graph.action, graph.target)
        states = np.arange(mdp.num_states)
        return _Problem(graph, states, graph.target, per_edge, scale * table)
    unfolded = with_bonus(mdp, table, horizon, options.max_nodes)
    return _Problem(
        unfolded.graph,
        unfolded.node,
        graph.target[unfolded.edge],
        scale * unfolded.output,
        None if isinstance(table, HistoryBonus) else scale * table,
    )


def _report(
    mdp: FiniteMDP,
    problem: _Problem,
    options: AuditSettings,
    horizon: int | None,
    own_table: FloatArray | None,
) -> AuditReport:
    gamma, method = mdp.gamma, options.method
    value_int = None if method.consults_critic else np.zeros(problem.graph.num_nodes)
    if options.value_int is not None:
        value_int = _state_values(mdp, options.value_int)[problem.state]
    values = ideal_values(
        problem.graph,
        problem.bonus,
        gamma,
        gamma_int=options.gamma_int,
        form=options.form,
        tie_tolerance=options.tie_tolerance,
        value_int=value_int,
    )
    before = values.optimal
    if method.remembers and not _never_settles(method.name, problem.graph):
        rows = edge_transitions(problem.graph, problem.bonus, values, options.sampled_advantage)
        unfolded = with_shaper(problem.graph, rows, method.make_shaper, options.max_nodes)
        problem = _Problem(
            unfolded.graph,
            problem.state[unfolded.node],
            problem.next_state[unfolded.edge],
            problem.bonus[unfolded.edge],
            None,
        )
        before, shaped = before[unfolded.node], unfolded.output
    elif own_table is not None:
        shaped = _own_edges(problem, own_table)
    else:
        shaped = _shape(mdp, problem, values, options)
    graph = problem.graph
    # γ_I may differ from γ only with a horizon, where the time of each node is known.
    weight = options.int_coef * (options.gamma_int / gamma) ** graph.time[graph.source]
    _, q = solver.maximise(graph, options.ext_coef * graph.reward + weight * shaped, gamma)
    after = solver.optimal_actions(q, options.tie_tolerance)
    verdict = compare(graph, gamma, before, after, any_start=mdp.start is None)
    gained, lost, optimal_before, optimal_after = (
        _per_state(mdp, problem.state, table)
        for table in (verdict.gained, verdict.lost, before, after)
    )
    return AuditReport(
        preserved=verdict.preserved,
        changed_states=np.flatnonzero((gained | lost).any(axis=1)),
        gained=gained,
        lost=lost,
        regret=verdict.regret,
        counterexample=tuple(_step(problem, shaped, edge) for edge in verdict.path) or None,
        shaped_bonus=None
        if problem.table is None
        else _shaped_bonus(mdp, problem, shaped, horizon),
        method=method.name,
        nodes=int(np.count_nonzero(graph.decides)),
        horizon=horizon,
        optimal_before=optimal_before,
        optimal_after=optimal_after,
        mdp=mdp,
    )


def _shape(
    mdp: FiniteMDP, problem: _Problem, values: IdealValues, options: AuditSettings
) -> FloatArray:
    """Return F′ per edge for a method without memory."""
    graph, bonus = problem.graph, problem.bonus
    make_shaper = options.method.make_shaper
    if (
        options.method.name in ADOPS_FAMILY
        and options.form == "expected"
        and not options.sampled_advantage
    ):
        shaper = make_shaper(graph.num_nodes * graph.num_actions)
        return bonus + expected_correction(graph, bonus, values, shaper)
    rows = edge_transitions(graph, bonus, values, options.sampled_advantage)
    if options.potential is not None:
        time = graph.time[graph.source]
        potential = options.potential
        if not callable(potential):
            table = _state_values(mdp, potential, "potential")
            potential = lambda states, times: table[states]  # noqa: E731
        rows = rows._replace(
            potential=np.asarray(potential(problem.state[graph.source], time), np.float64),
            next_potential=np.asarray(potential(problem.next_state, time + 1), np.float64),
        )
    return make_shaper(len(bonus)).step(rows)


def _never_settles(name: str, graph: Graph) -> bool:
    # Where no episode ever ends PBIM takes nothing back: it is the raw bonus.
    return name == "pbim" and not graph.ended.any()


def _own_table(
    mdp: FiniteMDP, bonus: Any, shaping: Callable[[FiniteMDP, FloatArray], npt.ArrayLike]
) -> FloatArray:
    if isinstance(bonus, HistoryBonus):
        raise TypeError(
            "A function (mdp, bonus) -> shaped bonus works on tables; give a Shaper class to "
            "shape a bonus that has a memory."
        )
    return mdp.table("The shaped bonus of your function", shaping(mdp, mdp.table("bonus", bonus)))


def _own_edges(problem: _Problem, table: FloatArray) -> FloatArray:
    graph = problem.graph
    return on_edges(table, problem.state[graph.source], graph.action, problem.next_state)


def _state_values(mdp: FiniteMDP, values: Any, name: str = "value_int") -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (mdp.num_states,) or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must hold one finite value per state, shape ({mdp.num_states},), got shape "
            f"{array.shape}."
        )
    return np.where(mdp.terminal, 0.0, array) if name == "value_int" else array


def _per_state(mdp: FiniteMDP, state: IntArray, table: BoolArray) -> BoolArray:
    """Return which (state, action) is True in some node."""
    pairs = (state[:, None] * mdp.num_actions + np.arange(mdp.num_actions))[table]
    flat = np.zeros(mdp.num_states * mdp.num_actions, dtype=np.bool_)
    flat[pairs] = True
    return flat.reshape(mdp.num_states, mdp.num_actions)


def _step(problem: _Problem, shaped: FloatArray, edge: int) -> Step:
    graph = problem.graph
    return Step(
        state=int(problem.state[graph.source[edge]]),
        action=int(graph.action[edge]),
        next_state=int(problem.next_state[edge]),
        reward=float(graph.reward[edge]),
        bonus=float(problem.bonus[edge]),
        shaped=float(shaped[edge]),
    )


def _shaped_bonus(
    mdp: FiniteMDP, problem: _Problem, shaped: FloatArray, horizon: int | None
) -> FloatArray:
    graph, bonus = problem.graph, problem.table
    assert bonus is not None
    if horizon is not None:
        table = np.full((horizon, mdp.num_states, mdp.num_actions), np.nan)
        table[graph.time, problem.state] = graph.expected(shaped)
        return table
    # F stays what it was where nothing happens: in terminal states, on impossible transitions.
    short = np.array(bonus, dtype=np.float64)
    if bonus.ndim == 2:
        short[graph.source, graph.action] = shaped
        if np.array_equal(short[graph.source, graph.action], shaped):
            return short
    table = np.array(np.broadcast_to(bonus.reshape(*bonus.shape[:2], -1), mdp.transition.shape))
    table[graph.source, graph.action, graph.target] = shaped
    return table
