"""The values behind ideal ADOPS (eq. f_2_strong): V_E*, Q_E* and W."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaping import Shaper, Transition
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import Graph

Form = Literal["expected", "trajectory"]


class IdealValues(NamedTuple):
    """What an oracle knows of every node."""

    value_ext: FloatArray
    """V_E*."""
    q_ext: FloatArray
    """Q_E*, shape (N, A)."""
    optimal: BoolArray
    """The extrinsically optimal actions, shape (N, A)."""
    value_int: FloatArray
    """W, the most intrinsic return that an extrinsically optimal policy can have."""


def check_form(form: str) -> None:
    """Raise unless `form` is one of the two forms of W."""
    if form not in get_args(Form):
        raise ValueError(f"form must be one of {get_args(Form)}, got {form!r}.")


def ideal_values(
    graph: Graph,
    bonus: FloatArray,
    gamma: float,
    *,
    gamma_int: float | None = None,
    form: Form = "expected",
    tie_tolerance: float = solver.TIE_TOLERANCE,
    value_int: FloatArray | None = None,
) -> IdealValues:
    """Return V_E*, Q_E*, the optimal actions and W for a `bonus` F per edge.

    With `form="expected"`, W(s) = max over extrinsically optimal a of E[F + γ_I·W(s′)]. With
    "trajectory" the maximum is also over s′: what F₂ needs when it is computed from one sampled
    s′, as a wrapper does. A given `value_int` stands in place of W.
    """
    check_form(form)
    gamma_int = gamma if gamma_int is None else gamma_int
    value_ext, q_ext = solver.best_values(graph, gamma)
    optimal = solver.optimal_actions(q_ext, tie_tolerance)
    if value_int is not None:
        return IdealValues(value_ext, q_ext, optimal, value_int)
    if form == "expected":
        value_int, _ = solver.maximise(graph, bonus, gamma_int, optimal)
    else:
        if gamma_int == 1.0 and graph.layers is None and (graph.probability < 1.0).any():
            raise ValueError(
                "The trajectory form of W may be infinite at gamma=1 where chance can prolong an "
                "episode. Choose a discount below 1, give a horizon, or take form='expected'."
            )
        value_int = solver.best_trajectory_values(graph, bonus, gamma_int, optimal)
    return IdealValues(value_ext, q_ext, optimal, value_int)


def edge_transitions(
    graph: Graph, bonus: FloatArray, values: IdealValues, sampled_advantage: bool = False
) -> Transition:
    """Return one row per edge: what a wrapper sees when this transition is sampled.

    Args:
        graph: The problem.
        bonus: F per edge.
        values: The oracle's values.
        sampled_advantage: Leave A_E to the one-step estimate in place of Q_E* − V_E*.
    """
    advantage = (values.q_ext - values.value_ext[:, None])[graph.source, graph.action]
    return Transition(
        reward=graph.reward,
        intrinsic=bonus,
        value_ext=values.value_ext[graph.source],
        value_int=values.value_int[graph.source],
        next_value_ext=graph.next_value(values.value_ext),
        next_value_int=graph.next_value(values.value_int),
        advantage_ext=None if sampled_advantage else advantage,
        terminated=graph.ended,
        truncated=np.zeros_like(graph.ended),
        valid=np.ones_like(graph.ended),
    )


def expected_correction(
    graph: Graph, bonus: FloatArray, values: IdealValues, shaper: Shaper
) -> FloatArray:
    """Return F′ − F per edge with the Ω of eq. o_eq in expectation over s′.

    The shaper sees one row per (node, action), the mean of its edges.
    """
    pairs = graph.num_nodes * graph.num_actions
    edges = edge_transitions(graph, bonus, values)
    transition = Transition(
        reward=graph.expected(edges.reward).reshape(pairs),
        intrinsic=graph.expected(bonus).reshape(pairs),
        value_ext=np.repeat(values.value_ext, graph.num_actions),
        value_int=np.repeat(values.value_int, graph.num_actions),
        next_value_ext=graph.expected(edges.next_value_ext).reshape(pairs),
        next_value_int=graph.expected(edges.next_value_int).reshape(pairs),
        advantage_ext=(values.q_ext - values.value_ext[:, None]).reshape(pairs),
        terminated=np.zeros(pairs, dtype=np.bool_),
        truncated=np.zeros(pairs, dtype=np.bool_),
        valid=np.ones(pairs, dtype=np.bool_),
    )
    correction: FloatArray = (shaper.step(transition) - transition.intrinsic)[graph.pair]
    return correction
