"""Exact values: what an oracle knows about an MDP, and critics that answer with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.critic import ValueEstimates
from adops_wrappers.shaping import Shaper, Transition
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.graph import Graph
from adops_wrappers.tabular.mdp import FiniteMDP, on_edges

Form = Literal["expected", "trajectory"]
StateOf = Callable[[Any], npt.ArrayLike]


class IdealValues(NamedTuple):
    """What an oracle knows about every node."""

    value_ext: FloatArray
    """V_E*."""
    q_ext: FloatArray
    """Q_E*, shape (N, A)."""
    optimal: BoolArray
    """The extrinsically optimal actions, shape (N, A)."""
    value_int: FloatArray
    """W, the highest intrinsic return of any extrinsically optimal policy."""


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
    "trajectory" the maximum is also over s′, which F₂ needs when it is computed from one sampled
    s′, as in a wrapper. A given `value_int` replaces W.
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
                "episode. Choose a discount below 1, give a horizon, or use form='expected'."
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
        sampled_advantage: Use the one-step estimate of A_E instead of Q_E* − V_E*.
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


class OracleCritic:
    """A critic that knows V_E, V_I and Q_E of every state.

    Pass it where a wrapper takes a critic, with the settings that belong to it:
    `ADOPSWrapper(env, oracle, **oracle.settings)`.

    Args:
        mdp: The MDP behind the env.
        value_ext: V_E of shape (S,).
        value_int: V_I of shape (S,).
        q_ext: Q_E of shape (S, A), or None.
        gamma_int: γ_I; None for mdp.gamma.
        state_of: Turns an observation, or a batch of them, into states; None where the
            observation is the state, as in the toy-text envs.
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        value_ext: FloatArray,
        value_int: FloatArray,
        q_ext: FloatArray | None = None,
        *,
        gamma_int: float | None = None,
        state_of: StateOf | None = None,
    ) -> None:
        self.value_ext, self.value_int, self.q_ext = value_ext, value_int, q_ext
        self.settings: dict[str, Any] = {
            "add_to_reward": True,
            "gamma_ext": mdp.gamma,
            "gamma_int": mdp.gamma if gamma_int is None else gamma_int,
            "tie_tolerance": solver.TIE_TOLERANCE,
        }
        """The discounts of these values, and the tie tolerance that exact values need."""
        self._state_of = state_of

    def __call__(self, obs: Any) -> ValueEstimates:
        """Return the exact values of one observation or of a batch."""
        states = np.asarray(obs if self._state_of is None else self._state_of(obs))
        if not np.issubdtype(states.dtype, np.integer):
            raise TypeError(
                f"An oracle looks values up by state, and the observation has dtype "
                f"{states.dtype}. Pass state_of=, a function from observations to states."
            )
        states = np.atleast_1d(states)
        if states.ndim != 1 or ((states < 0) | (states >= len(self.value_ext))).any():
            raise ValueError(
                f"Unknown state {states.tolist()}: the oracle knows the states 0 … "
                f"{len(self.value_ext) - 1}."
            )
        q_ext = None if self.q_ext is None else self.q_ext[states]
        return ValueEstimates(self.value_ext[states], self.value_int[states], q_ext)


def ideal_critic(
    mdp: FiniteMDP,
    bonus: npt.ArrayLike,
    *,
    form: Form = "trajectory",
    gamma_int: float | None = None,
    state_of: StateOf | None = None,
) -> OracleCritic:
    """Return the oracle of ideal ADOPS (eq. f_2_strong): V_E*, Q_E* and W of the bonus.

    Args:
        mdp: The MDP behind the env.
        bonus: F, of shape (S, A) or (S, A, S).
        form: A wrapper sees one sampled s′, for which W must be the "trajectory" maximum;
            "expected" is the same in deterministic MDPs only.
        gamma_int: γ_I; None for mdp.gamma.
        state_of: See `OracleCritic`.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
        >>> from adops_wrappers.tabular import ideal_critic, mdp_from_env
        >>> env = gym.make("CliffWalking-v1")
        >>> mdp = mdp_from_env(env, gamma=0.99)
        >>> bonus = np.zeros((48, 4, 48))
        >>> bonus[:, :, 24] = 5.0  # above the start: F pays for the way that is best anyway
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: bonus[s, a, next_s])
        >>> oracle = ideal_critic(mdp, bonus)
        >>> env = ADOPSWrapper(env, oracle, **oracle.settings)
        >>> _ = env.reset(seed=0)
        >>> print(round(env.step(0)[4]["intrinsic_reward"], 9))
        5.0
    """
    mdp.require_finite_values(None)
    graph = mdp.graph
    table = mdp.table("bonus", bonus)
    values = ideal_values(
        graph,
        on_edges(table, graph.source, graph.action, graph.target),
        mdp.gamma,
        gamma_int=None if gamma_int is None else _checks.discount("gamma_int", gamma_int),
        form=form,
    )
    return OracleCritic(
        mdp,
        values.value_ext,
        values.value_int,
        values.q_ext,
        gamma_int=gamma_int,
        state_of=state_of,
    )


def policy_critic(
    mdp: FiniteMDP,
    policy: npt.ArrayLike,
    bonus: npt.ArrayLike,
    *,
    state_of: StateOf | None = None,
) -> OracleCritic:
    """Return the oracle of one policy: V_E^π, Q_E^π, and V_I^π of the bonus (eq. f_2_weak).

    Args:
        mdp: The MDP behind the env.
        policy: Probabilities of shape (S, A), or one action per state.
        bonus: The intrinsic stream, of shape (S, A) or (S, A, S): F′ for the V_I that an agent
            learns, or F.
        state_of: See `OracleCritic`.
    """
    extrinsic = mdp.evaluate(policy)
    intrinsic = mdp.evaluate(policy, mdp.table("bonus", bonus))
    return OracleCritic(mdp, extrinsic.v, intrinsic.v, extrinsic.q, state_of=state_of)
