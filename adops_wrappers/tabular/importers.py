"""`FiniteMDP` from an env: from its table `P`, from its own export, or by enumeration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import FloatArray
from adops_wrappers.tabular.chance import check_copies, seeded_globals
from adops_wrappers.tabular.enumeration import Explorer, check_size
from adops_wrappers.tabular.keys import StateKey, default_key
from adops_wrappers.tabular.mdp import FiniteMDP, GridView
from adops_wrappers.tabular.replay import Replay

MAX_STATES = 2000
_MOVES = {
    "CliffWalkingEnv": ("up", "right", "down", "left"),
    "FrozenLakeEnv": ("left", "down", "right", "up"),
    "TaxiEnv": ("south", "north", "east", "west", "pickup", "dropoff"),
}
ACCURACY = 0.01


def mdp_from_env(
    env: gym.Env[Any, Any],
    gamma: float,
    *,
    key: StateKey | None = None,
    max_states: int = MAX_STATES,
    accuracy: float = ACCURACY,
) -> FiniteMDP:
    """Return the MDP behind an env.

    An env with a method `to_mdp(gamma)` exports itself; a table `env.unwrapped.P` is read as in
    the toy-text envs. Any other env, or one with a `key`, is enumerated from a reset with seed
    0, by stepping copies of it, and the result is replayed on random walks. Where a step moves
    a random generator, copies with other random numbers are stepped, at least 10 / `accuracy`
    of them: an outcome of probability `accuracy` is missed with probability e^−10, or 5e-5. Time
    limits and wrappers are left out.

    Args:
        env: The env, with a `Discrete` action space.
        gamma: The discount.
        key: For enumeration: `key(env, obs)` returns something hashable that is equal for two
            moments if and only if they are the same state. None takes grid, position,
            direction and what is carried from a MiniGrid env, and the observation elsewhere.
        max_states: The number of states at which to give up.
        accuracy: For enumeration: the largest standard error of a probability, and of a random
            reward in units of its range. It takes up to 0.25 / accuracy² tries of an action.

    Returns:
        The MDP; its `origin` says how much of it is estimated.

    Raises:
        ValueError: If the env has too many states, its copies do not carry its state, or the
            result does not describe it, because the key is not the whole state or because the
            env uses random numbers from elsewhere than its generators and the global ones.
        TypeError: If its actions are not Discrete.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers.tabular import mdp_from_env
        >>> mdp_from_env(gym.make("CliffWalking-v1"), gamma=0.99)
        FiniteMDP(48 states, 4 actions, gamma=0.99, 1 terminal)
    """
    _checks.discount("gamma", gamma)
    _checks.whole("max_states", max_states, least=1)
    _checks.fraction("accuracy", _checks.positive("accuracy", accuracy))
    if not isinstance(env, gym.Env):
        raise TypeError(
            f"mdp_from_env takes a gymnasium.Env, got {type(env).__name__}. Make one with "
            "gymnasium.make."
        )
    base = env.unwrapped
    if not isinstance(base.action_space, gym.spaces.Discrete):
        raise TypeError(
            f"Only envs with a Discrete action space are finite MDPs; this one has "
            f"{base.action_space}."
        )
    if hasattr(base, "to_mdp") and key is None:
        exported = base.to_mdp(gamma)
        assert isinstance(exported, FiniteMDP)
        return exported
    if hasattr(base, "P") and key is None:
        return _from_table(base, gamma, max_states)
    check_copies(base)
    with seeded_globals():
        explorer = Explorer(base, key or default_key(base), max_states, accuracy)
        explorer.explore()
        start = explorer.start()
        return explorer.mdp(gamma, start, Replay(explorer).run())


def _from_table(env: Any, gamma: float, max_states: int) -> FiniteMDP:
    num_states, num_actions = len(env.P), int(env.action_space.n)
    check_size(num_states, max_states)
    transition = np.zeros((num_states, num_actions, num_states))
    reward_sum = np.zeros_like(transition)
    entered_to_end, entered_to_go_on = np.zeros((2, *transition.shape), dtype=np.bool_)
    for state, actions in env.P.items():
        for action, outcomes in actions.items():
            for probability, next_state, reward, terminated in outcomes:
                where = (state, action, next_state)
                transition[where] += probability
                reward_sum[where] += probability * reward
                (entered_to_end if terminated else entered_to_go_on)[where] |= probability > 0
    start = np.asarray(env.initial_state_distrib, dtype=np.float64)
    alive = _alive_states(start > 0, entered_to_go_on)
    terminal = entered_to_end[alive].any(axis=(0, 1))
    both = np.flatnonzero(terminal & (alive | entered_to_go_on[alive].any(axis=(0, 1))))
    if len(both):
        raise ValueError(
            f"State {both[0]} is entered both with and without termination, so the state alone "
            "does not tell whether the episode is over. Give each case a state of its own, or "
            "pass arrays to FiniteMDP."
        )
    reward = np.divide(reward_sum, transition, out=np.zeros_like(transition), where=transition > 0)
    return FiniteMDP(
        transition,
        reward,
        gamma,
        terminal,
        start / start.sum(),
        action_names=_MOVES.get(type(env).__name__),
        grid=_table_grid(env, num_states),
    )


def _alive_states(start: Any, onward: Any) -> Any:
    """Return the states in which an episode can be going on."""
    alive = start
    while True:
        larger = alive | onward[alive].any(axis=(0, 1))
        if (larger == alive).all():
            return alive
        alive = larger


def _table_grid(env: Any, num_states: int) -> GridView | None:
    shape = getattr(env, "shape", None)
    if shape is None and hasattr(env, "nrow"):
        shape = (env.nrow, env.ncol)
    if shape is None or int(np.prod(shape)) != num_states:
        return None
    row, column = np.unravel_index(np.arange(num_states), shape)
    return GridView(row, column, np.zeros(num_states, dtype=np.int64))


def bonus_table(mdp: FiniteMDP, source: Callable[[int, int, int], float]) -> FloatArray:
    """Return F of shape (S, A, S) of a function (s, a, s′) -> F, asked where P > 0.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers.tabular import bonus_table, mdp_from_env
        >>> mdp = mdp_from_env(gym.make("CliffWalking-v1"), gamma=0.99)
        >>> bonus = bonus_table(mdp, lambda s, a, next_s: float(next_s == 0))
        >>> bonus.shape, float(bonus[12, 0, 0])
        ((48, 4, 48), 1.0)
    """
    graph = mdp.graph
    table = np.zeros(mdp.transition.shape)
    edges = zip(graph.source.tolist(), graph.action.tolist(), graph.target.tolist(), strict=True)
    table[graph.source, graph.action, graph.target] = [source(*edge) for edge in edges]
    return mdp.table("The bonus function's table", table)
