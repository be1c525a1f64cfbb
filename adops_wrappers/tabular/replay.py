"""An enumerated MDP is played against its env: random walks that must find no difference."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.tabular.chance import Branch
from adops_wrappers.tabular.enumeration import Explorer, Tries

_WALKS, _WALK_LENGTH, _STEPS = 1000, 1000, 10_000
_SHOWN_ACTIONS, _SHOWN_OUTCOMES = 20, 3
_LOG_DOUBT = 18.0
"""A right estimate is doubted with probability e^−18, about 2e-8, per comparison."""


class Replay:
    """Random walks from independent resets, compared with what an `Explorer` found.

    Half of the actions repeat the one before, which leads far; of the others one half is drawn,
    one half are those tried least so far. A walk from a reset whose state is not in the model,
    another layout, begins in state 0 instead.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.rng = np.random.default_rng(0)
        self.counts = np.zeros((len(explorer.index), explorer.num_actions), dtype=np.int64)
        self.seen: dict[tuple[int, int], Tries] = defaultdict(Tries)

    def run(self) -> int:
        """Walk; return the number of steps, or raise ValueError at a difference."""
        for seed in range(1, _WALKS + 1):
            self._walk(seed)
            if self.counts.sum() >= _STEPS:
                break
        for pair, walked in self.seen.items():
            self._compare(pair, walked)
        return int(self.counts.sum())

    def _walk(self, seed: int) -> None:
        explorer = self.explorer
        env, place, state = explorer.env, f"reset(seed={seed})", explorer.reset(seed)
        if state is None:
            env, place, state = Branch(explorer.first, seed).env, "reset(seed=0)", 0
        actions: list[int] = []
        while len(actions) < _WALK_LENGTH:
            repeats = actions and self.rng.random() < 0.5
            action = actions[-1] if repeats else self._choose(state)
            actions.append(action)
            self.counts[state, action] += 1
            (key, ended), reward, truncated = explorer.step(env, action)
            arrival = explorer.index.get((key, ended))
            tries = explorer.tries[state, action]
            if arrival is None or not _expects(tries, arrival, reward):
                raise self._mismatch(place, actions, state, arrival, reward, ended)
            if tries.is_random:
                self.seen[state, action].rewards[arrival].append(reward)
            if ended or truncated:
                return
            state = arrival

    def _choose(self, state: int) -> int:
        if self.rng.random() < 0.5:
            return int(self.rng.integers(self.explorer.num_actions))
        return int(self.counts[state].argmin())

    def _compare(self, pair: tuple[int, int], walked: Tries) -> None:
        """Raise if the walks had other frequencies or rewards than the model."""
        tries = self.explorer.tries[pair]
        subject = f"action {pair[1]} in state {pair[0]}"
        for state in tries.rewards:
            share, expected = walked.arrivals(state), tries.arrivals(state)
            if _differ(share, expected):
                raise ValueError(
                    f"The model does not describe the env: {subject} led to state {state} in "
                    f"{share.mean():.1%} of {len(share)} steps of random walks, but in "
                    f"{expected.mean():.1%} of {len(expected)} tries of the import. {_CAUSES}"
                )
        rewards, expected = walked.all_rewards, tries.all_rewards
        if _differ(rewards, expected):
            raise ValueError(
                f"The model does not describe the env: {subject} gave a reward of "
                f"{rewards.mean():g} in the mean of {len(rewards)} steps of random walks, but of "
                f"{expected.mean():g} in {len(expected)} tries of the import. {_CAUSES}"
            )

    def _mismatch(
        self,
        place: str,
        actions: list[int],
        state: int,
        arrival: int | None,
        reward: float,
        ended: bool,
    ) -> ValueError:
        tries = self.explorer.tries[state, actions[-1]]
        outcomes = sorted(tries.rewards.items(), key=lambda item: -len(item[1]))
        known = "; ".join(
            f"{self._outcome(target, float(np.mean(rewards)))} in {len(rewards)}"
            for target, rewards in outcomes[:_SHOWN_OUTCOMES]
        )
        before = actions[:-1][-_SHOWN_ACTIONS:]
        after = f" after {len(actions) - 1} actions, the last {before}," if before else ""
        rare = (
            f" Or this is rarer than accuracy={self.explorer.accuracy:g} shows: lower it."
            if tries.moved
            else ""
        )
        return ValueError(
            f"The model does not describe the env: on a random walk from {place},{after} action "
            f"{actions[-1]} in state {state} gave {self._outcome(arrival, reward, ended)}. Of "
            f"{tries.number} tries of the import it gave {known}. {_CAUSES}{rare}"
        )

    def _outcome(self, state: int | None, reward: float, ended: bool = False) -> str:
        if state is None:
            place = "an end" if ended else "a state"
            return f"reward {reward:g} and {place} that the model does not have"
        terminal = list(self.explorer.index)[state][1]
        return f"reward {reward:g} and state {state}{' (the end)' if terminal else ''}"


_CAUSES = (
    "Either the key takes different states for one, such as with and without something that the "
    "observation does not show: give key= (--key on the command line) the whole state. Or the env "
    "uses random numbers that the import cannot control: let it draw them from self.np_random."
)


def _expects(tries: Tries, arrival: int, reward: float) -> bool:
    rewards = tries.rewards.get(arrival)
    return rewards is not None and (tries.has_random_reward or rewards[0] == reward)


def _differ(one: FloatArray, other: FloatArray) -> bool:
    """Return whether two samples have different means, by Bernstein's inequality."""
    both = np.concatenate([one, other])
    weight = _LOG_DOUBT * (1.0 / len(one) + 1.0 / len(other))
    bound = np.sqrt(2.0 * both.var() * weight) + np.ptp(both) * weight
    return bool(abs(one.mean() - other.mean()) > bound)
