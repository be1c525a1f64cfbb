"""Oracle critics: exact values behind the same door as an agent's estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import FloatArray
from adops_wrappers.critic import ValueEstimates
from adops_wrappers.tabular import solver
from adops_wrappers.tabular.ideal import Form, ideal_values
from adops_wrappers.tabular.mdp import FiniteMDP, on_edges

StateOf = Callable[[Any], npt.ArrayLike]


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
        self.settings: dict[str, float] = {
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
                f"{states.dtype}. Give state_of=, a function from observations to states."
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
        >>> round(env.step(0)[4]["intrinsic_reward"], 9)
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
