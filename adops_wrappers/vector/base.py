"""The vector-env base classes: the shared rules for n rows, with masks in `info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from adops_wrappers.arrays import (
    BoolArray,
    FloatArray,
    copy_observation,
    one_per_row,
    to_numpy,
)
from adops_wrappers.episodes import EnvLayout, split_reset_mask
from adops_wrappers.wrappers.twins import INTRINSIC_MISSING, ShapingTwin, Twin

if TYPE_CHECKING:
    AnyVectorWrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:
    AnyVectorWrapper = VectorWrapper


class VectorEnvWrapper(Twin[VectorEnv], AnyVectorWrapper):
    """A wrapper of this package for a vector env."""

    autoreset_mode: AutoresetMode
    """When the env resets itself, as it declares or as the user says."""

    def _layout(self, env: VectorEnv, autoreset_mode: AutoresetMode | str | None) -> EnvLayout:
        return EnvLayout.of_vector_env(env, autoreset_mode)

    def _wrap(self, env: VectorEnv, layout: EnvLayout) -> None:
        VectorWrapper.__init__(self, env)
        # For wrappers and learners above that ask either: Gymnasium's do, and TorchRL.
        self.autoreset_mode = layout.mode
        if not layout.mode_is_assumed:
            self.metadata = {**env.metadata, "autoreset_mode": layout.mode}


class ShapingWrapper(ShapingTwin[VectorEnv], VectorEnvWrapper):
    """Base of all vector shaping wrappers: rewrites F in `info` into F′ for every row.

    It reads F from `info["intrinsic_reward"]` and writes float64 arrays of shape (n,), each
    with its `_key` mask: `extrinsic_reward` (R), `raw_intrinsic_reward` (F), `intrinsic_reward`
    (F′) and `shaping_correction` (F′ − intrinsic_scale·F). The mask is False on the dummy reset
    steps of NEXT_STEP. Under SAME_STEP the values of a terminal step are at the top level.
    With a critic, SAME_STEP ends also carry `final_value_ext` and `final_value_int`, the
    critic's values of the final observations; with a potential, `potential_time` is t of Φ(s, t).
    The reward becomes R + F′, or stays R with `add_to_reward=False`.
    """

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env, or the rows in `options["reset_mask"]`, and drop what they owe."""
        mask, options = split_reset_mask(options, self.num_envs)
        obs, info = self.env.reset(seed=seed, options=options)
        self.core.reset(obs, mask)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Step the env and rewrite F into F′."""
        self.core.before_step()
        try:
            below = self.env.step(actions)
            obs, reward, terminated, truncated, info = below
            reward, info = self._shape(
                actions,
                obs,
                _rewards(reward, self.num_envs),
                np.array(to_numpy(terminated), dtype=np.bool_),
                np.array(to_numpy(truncated), dtype=np.bool_),
                info,
            )
        except BaseException:
            self.core.forget_episodes()
            raise
        if self.passes_through:
            return below
        # Copies: the env may write its next answer into the same arrays.
        return obs, reward, copy_observation(terminated), copy_observation(truncated), info

    def _shape(
        self,
        actions: Any,
        obs: Any,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> tuple[FloatArray, dict[str, Any]]:
        ended = terminated | truncated
        valid = self.core.advance(obs, ended, info)
        intrinsic = self._intrinsic(info, valid)
        raw = np.where(valid, self._below(info, "raw_intrinsic_reward", intrinsic), 0.0)
        # An inner shaping wrapper has already separated R.
        if _read(info, "shaping_correction", self.num_envs) is not None:
            reward = self._below(info, "extrinsic_reward", reward)
        shaped, final_values = self.core.shape(
            actions, reward, intrinsic, raw, terminated, truncated
        )
        info = dict(info)
        self._write(info, "extrinsic_reward", reward, valid)
        self._write(info, "raw_intrinsic_reward", raw, valid)
        self._write(info, "intrinsic_reward", shaped, valid)
        self._write(info, "shaping_correction", shaped - self.core.intrinsic_scale * raw, valid)
        if self.core.potential is not None:
            self._write(info, "potential_time", self.episodes.steps.copy(), valid)
        if final_values is not None:
            self._write(info, "final_value_ext", final_values[0], ended)
            self._write(info, "final_value_int", final_values[1], ended)
        return (reward + shaped if self.add_to_reward else reward.copy()), info

    def _intrinsic(self, info: dict[str, Any], valid: BoolArray) -> FloatArray:
        steps = self.episodes.steps
        try:
            found = _read(info, "intrinsic_reward", self.num_envs)
        except ValueError as error:
            raise ValueError(f"{str(error)[:-1]} at step {steps[0]} of environment 0.") from error
        if found is None:
            if self.needs_intrinsic and valid.any():
                raise ValueError(INTRINSIC_MISSING)
            return np.zeros(self.num_envs)
        values, present = found
        if present is None or present.tobytes() == valid.tobytes():  # the fastest comparison
            return values
        missing = valid & ~present
        if missing.any():
            if self.needs_intrinsic:
                row = int(np.flatnonzero(missing)[0])
                raise ValueError(
                    f"Environment {row} wrote no 'intrinsic_reward' at step {steps[row]} of its "
                    f"episode. {INTRINSIC_MISSING}"
                )
            values = np.where(present, values, 0.0)
        return values

    def _below(self, info: dict[str, Any], key: str, otherwise: FloatArray) -> FloatArray:
        found = _read(info, key, self.num_envs)
        if found is None:
            return otherwise
        return found[0] if found[1] is None else np.where(found[1], found[0], otherwise)

    @staticmethod
    def _write(info: dict[str, Any], key: str, values: Any, mask: BoolArray) -> None:
        # Copies: what the shaper and the observers have must not change under an agent's hands.
        info[key] = values.copy()
        info[f"_{key}"] = mask.copy()


def _rewards(reward: Any, num_envs: int) -> FloatArray:
    if isinstance(reward, np.ndarray) and reward.shape == (num_envs,):
        return np.array(reward, dtype=np.float64)
    return one_per_row("The reward", reward, num_envs, "environments")


_Column = tuple[FloatArray, BoolArray | None]
"""Values, and the mask of the rows that have one; None for all rows."""


def _read(info: dict[str, Any], key: str, num_envs: int) -> _Column | None:
    """Return a key's values and the mask of the rows that have it, or None if no row has.

    Under SAME_STEP, what a sub-env wrote at the last step of an episode is in `final_info`.
    """
    if key not in info and "final_info" not in info:
        return None
    found = _column(info, key, num_envs)
    final_info = info.get("final_info")
    if not isinstance(final_info, dict):
        return found
    final = _column(final_info, key, num_envs)
    if found is None or final is None:
        return found or final
    if found[1] is None:
        return found
    take_final = ~found[1] if final[1] is None else final[1] & ~found[1]
    return np.where(take_final, final[0], found[0]), found[1] | take_final


def _column(info: dict[str, Any], key: str, num_envs: int) -> _Column | None:
    if key not in info:
        return None
    values = one_per_row(f"info[{key!r}]", info[key], num_envs, "environments")
    present = info.get(f"_{key}")
    return values, None if present is None else to_numpy(present)
