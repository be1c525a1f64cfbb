"""Shapes transitions when they are sampled from a replay buffer, with the current critic.

A buffer that stores R + F′ preserves the opinion of a critic that knew nothing yet. A buffer that
stores R and F, and shapes what it samples, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from adops_wrappers.arrays import BoolArray, FloatArray, select_rows, to_float64, to_numpy
from adops_wrappers.backends import HOST
from adops_wrappers.bootstrap import next_value_int
from adops_wrappers.core import ShapingCore
from adops_wrappers.critic import CriticHandle, as_handle, value_estimates
from adops_wrappers.estimates import Estimates, Potential, chosen_advantage, potential_values
from adops_wrappers.methods import method_of
from adops_wrappers.recurrent import RecurrentCritic
from adops_wrappers.shaper import Shaper, Transition
from adops_wrappers.stack import layers
from adops_wrappers.wrappers.shaping import ComposesShaper


class ReplayBatch(NamedTuple):
    """B transitions from a replay buffer, in any order; arrays or tensors of length B."""

    observation: Any
    """The observation before the action."""
    action: Any
    """The action that was taken."""
    next_observation: Any
    """The observation after the action; the true final observation where the episode ended."""
    reward: Any
    """R, `info["extrinsic_reward"]`."""
    intrinsic: Any
    """F, `info["raw_intrinsic_reward"]`: before shaping and before `intrinsic_scale`."""
    terminated: Any
    """Whether the episode ended by the task's own rules."""
    truncated: Any
    """Whether it was cut off, by a time limit for instance."""
    shaped: Any = None
    """F′, `info["intrinsic_reward"]`: needed if `ReplayShaper.keeps_stored`."""
    elapsed: Any = None
    """The number of steps taken in the episode before `observation`, for a potential Φ(s, t):
    `info["potential_time"]`."""
    reset_observation: Any = None
    """The first observation of the next episode, read only where this one ended; needed for
    `int_bootstrap="reset"`."""
    valid: Any = None
    """False in rows that hold no transition; their F′ is 0."""


class ReplayShaper:
    """Returns the F′ that a wrapper would emit now for transitions from a replay buffer.

    It uses the wrapper's own shaper and critic. The schedules (ζ, β) are those of the live wrapper
    at the time of sampling. Sampling does not advance them, because they count env steps. If F′
    depends on the episode and not on the critic (PBIM, GRM), the F′ that the wrapper emitted
    remains correct: `keeps_stored` is True, and `shape` returns `batch.shaped`.

    Args:
        env: A stack with one shaping wrapper, built with `add_to_reward=False`: the reward that
            the buffer stores is then R.
        critic: The critic to use instead of the wrapper's own. Even if the wrapper is around a
            single env, it is called with batches here.
        potential: Φ(obs, t) of a batch, instead of the wrapper's own.

    Raises:
        ValueError: The stack has no shaping wrapper, or more than one, or adds F′ to the reward.
        TypeError: The critic has a hidden state.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, PIESWrapper
        >>> from adops_wrappers.replay import ReplayBatch, ReplayShaper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> env = PIESWrapper(env, decay_updates=4, update_every=1, add_to_reward=False)
        >>> shaper = ReplayShaper(env)
        >>> obs, _ = env.reset(seed=0)
        >>> next_obs, reward, terminated, truncated, info = env.step(0)
        >>> row = (obs, 0, next_obs, reward, info["raw_intrinsic_reward"], terminated, truncated)
        >>> batch = ReplayBatch(*(np.array([field]) for field in row))
        >>> print(info["intrinsic_reward"], shaper.shape(batch)[0])  # ζ was 1, and is 3/4 now
        1.0 0.75
    """

    def __init__(
        self,
        env: Any,
        *,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        potential: Potential | None = None,
    ) -> None:
        wrapper = _shaping_wrapper(env)
        if wrapper.add_to_reward:
            raise ValueError(
                f"{wrapper.shaper.name} adds F' to the reward, so a replay buffer would store "
                "R + F' and shaping at sampling would count F' twice. Build the wrapper with "
                "add_to_reward=False."
            )
        self.core: ShapingCore = wrapper.core
        consulted = wrapper.core.consults_critic or critic is not None
        self.critic = as_handle(critic or wrapper.core.critic) if consulted else None
        if isinstance(self.critic, RecurrentCritic):
            raise TypeError(
                "A RecurrentCritic cannot value sampled transitions, whose hidden states are not "
                "known. Give ReplayShaper a critic of the observation alone, such as QCritic."
            )
        self.potential = potential or wrapper.core.potential
        method = method_of(self.core.shaper)
        self.keeps_stored = method is None or method.remembers_episode
        """Whether F′ remains correct as the wrapper emitted it. True for PBIM, for GRM, and for a
        method of your own unless its declaration says that it depends on one transition only."""

    def __reduce__(self) -> Any:
        # A model that is saved with its settings must not take the live stack along.
        return (_no_shaper, ())

    @property
    def shaper(self) -> Shaper:
        """The live wrapper's method, with its schedule."""
        return self.core.shaper

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The space of one observation, as the wrapper and its critic see it."""
        return self.core.layout.observation_space

    @property
    def learns(self) -> bool:
        """Whether the critic learns from replayed transitions, as `QCritic` does unless frozen."""
        return hasattr(self.critic, "learn") and not getattr(self.critic, "frozen", False)

    def learn(self, batch: ReplayBatch) -> None:
        """Show a batch to the critic, if it learns from replayed transitions."""
        if self.learns:
            critic: Any = self.critic
            intrinsic = _finite("intrinsic", batch.intrinsic, _valid(batch))
            critic.learn(batch._replace(intrinsic=self.core.intrinsic_scale * intrinsic))

    def shape(self, batch: ReplayBatch) -> FloatArray:
        """Return F′ of every row in float64, of shape (B,); 0 in rows that are not valid."""
        if not self.keeps_stored:
            transition = self.transition(batch)
            # A frozen view: sampling must not count as steps of the env.
            return self.shaper.frozen_view(len(transition.valid)).step(transition)
        if batch.shaped is None:
            raise ValueError(
                f"{self.shaper.name}'s F' depends on the episode, so it cannot be computed anew "
                "for a sampled transition. Store info['intrinsic_reward'] with every step and "
                "give it as ReplayBatch.shaped."
            )
        valid = _valid(batch)
        return np.where(valid, _finite("shaped", batch.shaped, valid), 0.0)

    def transition(self, batch: ReplayBatch) -> Transition:
        """Return the `Transition` that the wrapper's shaper receives for these rows."""
        valid = _valid(batch)
        rows = len(valid)
        terminated = _column("terminated", batch.terminated, rows).astype(np.bool_)
        truncated = _column("truncated", batch.truncated, rows).astype(np.bool_)
        intrinsic = _finite("intrinsic", batch.intrinsic, valid)
        _check_observation(self.observation_space, batch.observation, rows)
        _check_observation(self.observation_space, batch.next_observation, rows)
        now, after = self._estimates(batch, valid)
        space = self.core.layout.action_space
        return Transition(
            reward=_finite("reward", batch.reward, valid),
            intrinsic=self.core.intrinsic_scale * intrinsic,
            value_ext=now.value_ext,
            value_int=now.value_int,
            next_value_ext=after.value_ext,
            next_value_int=self._next_value_int(batch, after.value_int, terminated, truncated),
            advantage_ext=chosen_advantage(
                now, self.critic, batch.observation, batch.action, valid, space, HOST
            ),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            potential=now.potential,
            next_potential=after.potential,
        )

    def _estimates(self, batch: ReplayBatch, valid: BoolArray) -> tuple[Estimates, Estimates]:
        rows = len(valid)
        potential = next_potential = None
        if self.potential is not None:
            layout = replace(self.core.layout, batched=True)
            elapsed = self._elapsed(batch, valid)
            potential = potential_values(self.potential, layout, batch.observation, elapsed)
            next_potential = potential_values(
                self.potential, layout, batch.next_observation, elapsed + 1
            )
        if self.critic is None:
            zeros = np.zeros(rows)
            return (
                Estimates(zeros, zeros, None, potential),
                Estimates(zeros, zeros, None, next_potential),
            )
        # One pass of the critic for both: small batches are mostly overhead.
        both = _concatenate(batch.observation, batch.next_observation)
        v_ext, v_int, q_ext = value_estimates(self.critic.evaluate(both), 2 * rows)
        q_ext = None if q_ext is None else q_ext[:rows]
        return (
            Estimates(v_ext[:rows], v_int[:rows], q_ext, potential),
            Estimates(v_ext[rows:], v_int[rows:], None, next_potential),
        )

    def _next_value_int(
        self, batch: ReplayBatch, values: FloatArray, terminated: BoolArray, truncated: BoolArray
    ) -> FloatArray:
        # Where no episode ended `fresh` is not read, and without a critic all values are 0.
        mode, fresh, ended = self.core.int_bootstrap, values, terminated | truncated
        if mode == "reset" and self.critic is not None and ended.any():
            fresh = self._fresh_value_int(batch, values, ended)
        return next_value_int(mode, values, fresh, terminated, truncated)

    def _fresh_value_int(
        self, batch: ReplayBatch, values: FloatArray, ended: BoolArray
    ) -> FloatArray:
        """Return V_I of the next episode's first observation in the rows that ended."""
        assert self.critic is not None
        if batch.reset_observation is None:
            raise ValueError(
                "int_bootstrap='reset' looks at the observation with which the next episode "
                "begins. Store it where an episode ends and give it as "
                "ReplayBatch.reset_observation, or build the wrapper with int_bootstrap='none' or "
                "'final'."
            )
        obs = select_rows(self.observation_space, batch.reset_observation, ended)
        fresh: FloatArray = values.copy()
        fresh[ended] = value_estimates(self.critic.evaluate(obs), int(ended.sum())).value_int
        return fresh

    def _elapsed(self, batch: ReplayBatch, valid: BoolArray) -> Any:
        advice = (
            "The potential is a function of the observation and of the time t. Store "
            "info['potential_time'], the number of steps behind every observation, and give it as "
            "ReplayBatch.elapsed (zeros, if the potential ignores t)."
        )
        if batch.elapsed is None:
            raise ValueError(advice)
        elapsed = _column("elapsed", batch.elapsed, len(valid)).astype(np.int64)
        if (elapsed[valid] < 0).any():
            raise ValueError(f"These steps were stored without their time. {advice}")
        return np.where(valid, elapsed, 0)


_MISSING = {
    "reward": "Store R, info['extrinsic_reward'], with every step.",
    "intrinsic": (
        "These steps carry no F: they were stored before the source of F was in the stack. Store "
        "info['raw_intrinsic_reward'] with every step, or fill the buffer again."
    ),
    "shaped": "Store F', info['intrinsic_reward'], with every step.",
}


def _no_shaper() -> None:
    """Replace a saved shaper: without a live stack there is nothing to shape with."""


def _shaping_wrapper(env: Any) -> Any:
    found = [layer for layer in layers(env) if isinstance(layer, ComposesShaper)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(
            "The stack has no shaping wrapper, so there is nothing to shape a batch with. Build "
            "it with make_shaping(name, env, critic, add_to_reward=False); name='none' gives the "
            "raw bonus."
        )
    names = " over ".join(wrapper.shaper.name for wrapper in found)
    raise ValueError(
        f"The stack has {len(found)} shaping wrappers, {names}: a sampled step would have to go "
        "through all of them. Use one."
    )


def _valid(batch: ReplayBatch) -> BoolArray:
    rows = to_numpy(batch.reward).size
    if batch.valid is None:
        return np.ones(rows, dtype=np.bool_)
    valid: BoolArray = _column("valid", batch.valid, rows).astype(np.bool_)
    return valid


def _finite(name: str, values: Any, valid: BoolArray) -> FloatArray:
    if values is None:
        raise ValueError(_MISSING[name])
    column = to_float64(_column(name, values, len(valid)))
    finite = np.isfinite(column)
    if finite.all():
        return column
    if not finite[valid].all():
        row = int(np.argmax(valid & ~finite))
        raise ValueError(
            f"ReplayBatch.{name} is {column[row]} in row {row} of the batch. {_MISSING[name]}"
        )
    # Rows without a transition may hold anything, which must not spread.
    return np.where(finite, column, 0.0)


def _column(name: str, values: Any, rows: int) -> Any:
    array = to_numpy(values)
    if array.shape not in ((rows,), (rows, 1)):
        raise ValueError(
            f"ReplayBatch.{name} must hold one value for each of {rows} transitions, of shape "
            f"({rows},) or ({rows}, 1); got shape {array.shape}."
        )
    return array.reshape(rows)


def _concatenate(first: Any, second: Any) -> Any:
    if isinstance(first, Mapping):
        return {key: _concatenate(part, second[key]) for key, part in first.items()}
    if isinstance(first, tuple):
        return tuple(map(_concatenate, first, second))
    return np.concatenate([to_numpy(first), to_numpy(second)])


def _check_observation(space: gym.Space[Any], obs: Any, rows: int) -> None:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            _check_observation(part, obs[key], rows)
    elif isinstance(space, spaces.Tuple):
        for part, column in zip(space.spaces, obs, strict=True):
            _check_observation(part, column, rows)
    elif space.shape is not None and tuple(np.shape(obs)) != (rows, *space.shape):
        raise ValueError(
            f"The batch's observations have shape {tuple(np.shape(obs))}; the wrapper and its "
            f"critic work on {space}, so {rows} of them have shape {(rows, *space.shape)}. Give "
            "the observations as the wrapper sees them, without the transforms of layers above."
        )
