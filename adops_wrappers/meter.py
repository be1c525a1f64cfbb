"""How good is my critic? Its signs of A_E and its V_E beside the returns that followed."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.core import ShapingCore
from adops_wrappers.critic import AnyCritic
from adops_wrappers.shaper import Transition
from adops_wrappers.shaping.conflict import advantages
from adops_wrappers.stack import find_layer
from adops_wrappers.wrappers.shaping import ComposesShaper

_NORMAL_95 = 1.959963984540054
_SUMS = ("steps", "decided", "agreed", "earned", "value", "earned²", "error", "error²")


class Reading(NamedTuple):
    """What a meter has found; None where no finished episode can tell."""

    episodes: int
    """The finished episodes that count."""
    agreement: float | None
    """Where A_E has a sign, the share of steps where G_t − V_E(s_t) has the same."""
    low: float | None
    """The lower end of its 95 % interval, which takes episodes for independent, not steps."""
    high: float | None
    """The upper end."""
    decided: float | None
    """The share of steps where both have a sign."""
    value_ext: float | None
    """The mean of V_E(s_t)."""
    earned: float | None
    """The mean of G_t."""
    explained: float | None
    """1 − Var(G − V_E)/Var(G)."""


class CriticMeter:
    """Compares a critic with the Monte-Carlo returns of the episodes that have finished.

    ADOPS is as right as the sign of A_E. Where an episode has ended, its discounted extrinsic
    return from step t on, G_t = R_t + γ_E·R_{t+1} + …, is a sample of Q_E(s_t, a_t) under the
    policy that acted. The meter says how often A_E had the sign of G_t − V_E(s_t), with the V_E of
    the time, and how V_E compares with G. Where an episode was cut off, V_E of its last observation
    stands for what would have followed.

    One return is one draw. Even an exact critic agrees with chance outcomes only in part: read the
    agreement against one half, which is what a coin has, and against earlier readings of the same
    task. For a critic of another policy than the acting one, as `QCritic` without `policy`, G is
    not what it values.

    `probes` steps of each running episode are followed, drawn with equal chances, and weighted by
    the number of steps that they stand for; the sums of the last `episodes` episodes are kept.
    Memory therefore does not grow, however long an episode is.

    Args:
        num_envs: The number of rows.
        gamma_ext: γ_E.
        tie_tolerance: An |A_E| up to this has no sign.
        probes: The number of steps followed in each row. An episode no longer than this counts
            with all its steps.
        episodes: The number of episodes that a reading is made of.
        seed: Seeds the draw of the probes.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPSWrapper, CountBonus, IntrinsicRewardWrapper
        >>> from adops_wrappers.meter import CriticMeter
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=9)
        >>> env = IntrinsicRewardWrapper(env, CountBonus())
        >>> env = ADOPSWrapper(env, lambda obs: (0.0, 0.0), gamma=0.9)
        >>> meter = CriticMeter.joined(env)
        >>> _ = env.reset(seed=0)
        >>> for _ in range(9):
        ...     _ = env.step(0)  # up, which costs 1: A_E = −1, and G < 0 = V_E
        >>> meter.reading().agreement
        1.0
    """

    needs_observations = False

    def __init__(
        self,
        num_envs: int,
        *,
        gamma_ext: float,
        tie_tolerance: float = 0.0,
        probes: int = 64,
        episodes: int = 256,
        seed: int = 0,
    ) -> None:
        self.gamma_ext = _checks.discount("gamma_ext", gamma_ext)
        self.tie_tolerance = _checks.non_negative("tie_tolerance", tie_tolerance)
        rows = _checks.whole("num_envs", num_envs, least=1)
        self.probes = _checks.whole("probes", probes, least=1)
        self.generator = np.random.default_rng(seed)
        self.length = np.zeros(rows, dtype=np.int64)
        # Of the steps followed: A_E and V_E, the reward since, and what the next one is worth.
        shape = self.probes, rows
        self.advantage, self.value, self.gain, self.worth = (np.zeros(shape) for _ in range(4))
        self.sums = np.zeros((_checks.whole("episodes", episodes, least=1), len(_SUMS)))
        self.finished = 0

    @classmethod
    def joined(
        cls,
        env: Any,
        critic: AnyCritic | None = None,
        *,
        gamma_ext: float | None = None,
        **settings: Any,
    ) -> CriticMeter:
        """Return a meter that watches a stack from now on.

        Args:
            env: A stack with a shaping wrapper, around an env or a vector env.
            critic: The critic to measure, for methods that consult none themselves.
            gamma_ext: γ_E; None takes the method's.
            **settings: As for the constructor.
        """
        shaping: Any = find_layer(env, ComposesShaper)
        if shaping is None:
            raise ValueError(
                "CriticMeter.joined needs a stack with a shaping wrapper. make_shaping('none', "
                "env) is one that changes nothing."
            )
        core: ShapingCore = shaping.core
        core.consult(critic)
        if not core.consults_critic:
            raise ValueError(
                f"{core.shaper.name} consults no critic. Pass the one to measure: "
                "CriticMeter.joined(env, critic)."
            )
        if gamma_ext is None and core.shaper.discounts is None:
            raise ValueError(f"{core.shaper.name} has no gamma_ext. Pass gamma_ext.")
        if gamma_ext is None:
            gamma_ext = core.shaper.discounts[0]  # type: ignore[index]
        settings.setdefault("tie_tolerance", getattr(core.shaper, "tie_tolerance", 0.0))
        meter = cls(core.layout.num_envs, gamma_ext=gamma_ext, **settings)
        core.join(meter)
        return meter

    def reset(self, mask: BoolArray | None = None) -> None:
        """Forget the running episodes of the rows in `mask`, or of all."""
        rows = slice(None) if mask is None else mask
        self.length[rows] = 0
        self.worth[:, rows] = 0.0

    def observe(self, transition: Transition) -> None:
        """See one step of a stack."""
        t = transition
        advantage = advantages(t, gamma_ext=self.gamma_ext, gamma_int=1.0).ext
        self.step(
            advantage, t.value_ext, t.reward, t.next_value_ext, t.terminated, t.truncated, t.valid
        )

    def step(
        self,
        advantage_ext: FloatArray,
        value_ext: FloatArray,
        reward: FloatArray,
        next_value_ext: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        valid: BoolArray | None = None,
    ) -> None:
        """See one step of all rows.

        Args:
            advantage_ext: A_E(s, a), as the method used it.
            value_ext: V_E(s).
            reward: R.
            next_value_ext: V_E(s′), with s′ the final observation where the episode ended.
            terminated: Whether the episode ended by the task's own rules.
            truncated: Whether it was cut off.
            valid: Whether this was a step at all; None if it was in all rows.
        """
        valid = np.ones(len(reward), dtype=np.bool_) if valid is None else valid
        place = self.length.copy()
        long = place >= self.probes
        if long.any():
            # Reservoir sampling: every step of the episode stays with the same chance.
            place[long] = self.generator.random(int(long.sum())) * (self.length[long] + 1)
        (row,) = np.nonzero(valid & (place < self.probes))
        at = place[row], row
        self.advantage[at], self.value[at] = advantage_ext[row], value_ext[row]
        self.gain[at], self.worth[at] = 0.0, 1.0
        self.gain += self.worth * np.where(valid, reward, 0.0)
        self.worth *= np.where(valid, self.gamma_ext, 1.0)
        self.length += valid
        ended = (terminated | truncated) & valid
        if ended.any():
            self._finish(ended, np.where(terminated, 0.0, next_value_ext)[ended])
            self.reset(ended)

    def rollout(self, *steps: FloatArray | BoolArray) -> None:
        """See many steps: the arguments of `step`, each with a leading axis of time."""
        for step in zip(*steps, strict=True):
            self.step(*step)

    def _finish(self, ended: BoolArray, after: FloatArray) -> None:
        length = self.length[ended]
        followed = np.minimum(length, self.probes)
        used = np.arange(self.probes)[:, None] < followed
        earned = self.gain[:, ended] + self.worth[:, ended] * after
        terms = terms_of(self.advantage[:, ended], self.value[:, ended], earned, self.tie_tolerance)
        found = np.where(used[..., None], terms, 0.0).sum(axis=0)
        newest = (found * (length / followed)[:, None])[-len(self.sums) :]
        self.sums[(self.finished + np.arange(len(newest))) % len(self.sums)] = newest
        self.finished += len(newest)

    def reading(self) -> Reading:
        """Return what the last episodes say."""
        return reading_of(self.sums[: self.finished])

    def metrics(self) -> dict[str, float | None]:
        """Return a reading under the names of a log."""
        names = ("agreement", "low", "high", "decided", "value_ext", "earned", "explained")
        found = self.reading()
        return {f"critic/{name}": getattr(found, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        arrays = {name: getattr(self, name).copy() for name in _ARRAYS}
        return {
            **arrays,
            "finished": self.finished,
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()` of a meter with as many rows, probes and episodes."""
        for name in _ARRAYS:
            mine, saved = getattr(self, name), np.asarray(state[name])
            if mine.shape != saved.shape:
                raise ValueError(
                    f"Cannot load this state into a CriticMeter: its {name} has shape "
                    f"{saved.shape}, here it is {mine.shape}. Build it with the num_envs, probes "
                    "and episodes that it had."
                )
        for name in _ARRAYS:
            getattr(self, name)[...] = np.asarray(state[name])
        self.finished = int(state["finished"])
        self.generator.bit_generator.state = state["generator"]


_ARRAYS = ("length", "advantage", "value", "gain", "worth", "sums")


def terms_of(
    advantage_ext: FloatArray, value_ext: FloatArray, earned: FloatArray, tie_tolerance: float
) -> FloatArray:
    """Return what each step adds to the sums of its episode, along a last axis."""
    error = earned - value_ext
    decided = (np.abs(advantage_ext) > tie_tolerance) & (error != 0.0)
    agreed = decided & ((advantage_ext > 0.0) == (error > 0.0))
    one = np.ones(error.shape)
    parts = (one, decided, agreed, earned, value_ext, earned**2, error, error**2)
    return np.stack(parts, axis=-1, dtype=np.float64)


def reading_of(sums: FloatArray) -> Reading:
    """Return the reading of some episodes, given the sums of each: an array (episodes, 8)."""
    episodes = len(sums)
    if not episodes:
        return Reading(0, *[None] * 7)
    total = dict(zip(_SUMS, sums.sum(axis=0).tolist(), strict=True))
    steps = total["steps"]
    earned, error = total["earned"] / steps, total["error"] / steps
    variance = total["earned²"] / steps - earned**2
    explained = None
    if variance > 1e-12 * max(1.0, earned**2):
        explained = 1.0 - (total["error²"] / steps - error**2) / variance
    agreement = low = high = None
    if total["decided"] > 0.0:
        agreement = total["agreed"] / total["decided"]
        low, high = _interval(agreement, sums[:, 1], sums[:, 2])
    return Reading(
        episodes,
        agreement,
        low,
        high,
        total["decided"] / steps,
        total["value"] / steps,
        earned,
        explained,
    )


def _interval(
    agreement: float, decided: FloatArray, agreed: FloatArray
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of Σ agreed / Σ decided, one pair for each episode.

    The variance is that of a ratio of sums over independent episodes (Cochran 1977, 6.3). Wilson's
    interval for as many steps as would have that variance stays within [0, 1].
    """
    count = int(np.count_nonzero(decided))
    if count < 2:
        return None, None
    spread = float(((agreed - agreement * decided) ** 2).sum()) * count / (count - 1)
    variance = spread / float(decided.sum()) ** 2
    even = agreement * (1.0 - agreement)
    size = even / variance if variance > 0.0 and even > 0.0 else float(count)
    z = _NORMAL_95**2 / size
    centre = (agreement + z / 2.0) / (1.0 + z)
    half = math.sqrt(even * z + z * z / 4.0) / (1.0 + z)
    return max(0.0, centre - half), min(1.0, centre + half)
