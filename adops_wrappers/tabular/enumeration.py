"""The finite MDP behind an env without a table: copies of it try every action in every state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from math import ceil
from typing import Any

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.tabular.chance import Branch
from adops_wrappers.tabular.keys import StateKey, is_minigrid
from adops_wrappers.tabular.mdp import FiniteMDP, Origin

_RESETS = 100


class Tries:
    """What followed an action in a state, try by try: the rewards, by the state entered."""

    def __init__(self) -> None:
        self.rewards: dict[int, list[float]] = defaultdict(list)
        self.moved = False
        """Whether a random generator moved."""

    @property
    def number(self) -> int:
        """How often the action was tried."""
        return sum(map(len, self.rewards.values()))

    @property
    def all_rewards(self) -> FloatArray:
        """The rewards of all tries."""
        return np.concatenate([np.asarray(rewards) for rewards in self.rewards.values()])

    @property
    def has_random_reward(self) -> bool:
        """Whether the reward differs among tries that led to the same state."""
        return any(min(rewards) != max(rewards) for rewards in self.rewards.values())

    @property
    def is_random(self) -> bool:
        """Whether the tries differ."""
        return len(self.rewards) > 1 or self.has_random_reward

    def arrivals(self, state: int) -> FloatArray:
        """Return 1 for every try that led to `state` and 0 for every other."""
        hits = len(self.rewards.get(state, ()))
        return np.repeat([1.0, 0.0], [hits, self.number - hits])

    def probability_variance(self) -> float:
        """Return the largest p(1 − p) of a state entered."""
        return max(float(self.arrivals(state).var()) for state in self.rewards)

    def reward_variance(self) -> float:
        """Return the variance of the reward, in units of its squared range."""
        rewards = self.all_rewards
        return float(rewards.var() / (float(np.ptp(rewards)) or 1.0) ** 2)


class Explorer:
    """Finds the states of an env, and what its actions do in them, by stepping copies of it.

    Args:
        env: An env without wrappers; it is left as it is.
        key: What tells its states apart.
        max_states: The number of states at which to give up.
        accuracy: The largest standard error of a probability.
    """

    def __init__(self, env: Any, key: StateKey, max_states: int, accuracy: float) -> None:
        self.env = Branch(env, 0).env
        self.key, self.max_states, self.accuracy = key, max_states, accuracy
        self.first_action, self.num_actions = int(env.action_space.start), int(env.action_space.n)
        self.index: dict[tuple[Hashable, bool], int] = {}
        """The states, by key and by whether the episode is over."""
        self.tries: dict[tuple[int, int], Tries] = {}
        obs, _ = self.env.reset(seed=0)
        self.first = Branch(self.env, 0).env
        """The env in state 0."""
        self.index[key(self.first, obs), False] = 0

    def explore(self) -> None:
        """Try every action in every state that can be reached from state 0."""
        waiting = [(0, self.first)]
        while waiting:
            state, here = waiting.pop()
            for action in range(self.num_actions):
                waiting += self._try(state, here, action)

    def _try(self, state: int, here: Any, action: int) -> list[tuple[int, Any]]:
        """Try an action until its estimate is good enough; return the new states it led to."""
        tries = self.tries[state, action] = Tries()
        found: list[tuple[int, Any]] = []
        # All pairs see the same random numbers, so that actions that are equally good stay tied.
        done, wanted = 0, 2
        while done < wanted:
            for seed in range(done, wanted):
                branch = Branch(here, seed)
                before = branch.numbers() if seed == 0 else b""
                (key, ended), reward, _ = self.step(branch.env, action)
                if seed == 0:
                    tries.moved = branch.numbers() != before
                known = len(self.index)
                arrival = self.index.setdefault((key, ended), known)
                tries.rewards[arrival].append(reward)
                if arrival == known:
                    check_size(known + 1, self.max_states)
                    if not ended:
                        found.append((arrival, branch.env))
            done, wanted = wanted, self._wanted(tries)
        if tries.is_random and not tries.moved:
            raise ValueError(
                f"The env cannot be enumerated: action {action} in state {state} led to two "
                "different outcomes, but none of the env's generators moved. It uses random "
                "numbers that the import cannot control; let it draw them from self.np_random, "
                "or pass arrays to FiniteMDP."
            )
        return found

    def step(self, env: Any, action: int) -> tuple[tuple[Hashable, bool], float, bool]:
        """Step an env; return the key of the state entered, the reward, and `truncated`."""
        if is_minigrid(env):
            # Its reward falls with the clock, which would make every moment a state of its own.
            env.step_count = 0
        obs, reward, terminated, truncated, _ = env.step(self.first_action + action)
        return (self.key(env, obs), bool(terminated)), float(reward), bool(truncated)

    def _wanted(self, tries: Tries) -> int:
        """Return how many tries keep the standard errors as small as promised."""
        if not tries.moved:
            return 2
        variance = max(tries.probability_variance(), tries.reward_variance())
        return max(ceil(10.0 / self.accuracy), ceil(variance / self.accuracy**2))

    def reset(self, seed: int) -> int | None:
        """Reset `self.env`; return its state, or None if it is not among those found."""
        obs, _ = self.env.reset(seed=seed)
        return self.index.get((self.key(self.env, obs), False))

    def start(self) -> FloatArray | None:
        """Return the start distribution over all seeds, or None if some begin elsewhere."""
        states = [self.reset(seed) for seed in range(_RESETS)]
        if len(set(states)) > 1 and None not in states:
            states += map(self.reset, range(_RESETS, ceil(0.25 / self.accuracy**2)))
        found = [state for state in states if state is not None]
        if len(found) < len(states):
            return None
        return np.bincount(found, minlength=len(self.index)) / len(found)

    def mdp(self, gamma: float, start: FloatArray | None, walk_steps: int) -> FiniteMDP:
        """Return the MDP; without a start distribution it begins in state 0."""
        states = len(self.index)
        transition = np.zeros((states, self.num_actions, states))
        varies = any(tries.is_random for tries in self.tries.values())
        reward = np.zeros(transition.shape if varies else transition.shape[:2])
        for (state, action), tries in self.tries.items():
            for target, rewards in tries.rewards.items():
                transition[state, action, target] = len(rewards) / tries.number
                reward[(state, action, target)[: reward.ndim]] = np.mean(rewards)
        terminal = np.array([ended for _, ended in self.index])
        origin = self._origin(start is None, walk_steps)
        first = 0 if start is None else start
        return FiniteMDP(transition, reward, gamma, terminal, first, origin=origin)

    def _origin(self, layout_drawn: bool, walk_steps: int) -> Origin:
        sampled = [tries for tries in self.tries.values() if tries.moved]
        samples = [tries.number for tries in sampled] or [0]
        errors = [
            np.sqrt([tries.probability_variance(), tries.all_rewards.var()]) / tries.number**0.5
            for tries in sampled
        ]
        probability_error, reward_error = np.max(errors or [[0.0, 0.0]], axis=0).tolist()
        return Origin(
            pairs=len(self.tries),
            random_pairs=sum(tries.is_random for tries in sampled),
            fewest_samples=min(samples),
            most_samples=max(samples),
            probability_error=probability_error,
            reward_error=reward_error,
            walk_steps=walk_steps,
            layout_drawn=layout_drawn,
        )


def check_size(num_states: int, max_states: int) -> None:
    """Raise if there are too many states."""
    if num_states > max_states:
        raise ValueError(
            f"The env has more than max_states={max_states} states. Use a smaller variant of "
            "it or a coarser key=, or raise max_states (memory grows with its square)."
        )
