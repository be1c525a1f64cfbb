"""Where episodes begin and end: autoreset modes, dummy reset steps, the true next observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import Autoreset

from adops_wrappers.arrays import BoolArray, replace_rows, select_rows
from adops_wrappers.shaping.base import restore_array


@dataclass(frozen=True)
class EnvLayout:
    """What the bookkeeping needs to know of an env; a single env is a batch of one."""

    num_envs: int
    batched: bool
    mode: AutoresetMode
    observation_space: gym.Space[Any]
    """The space of one observation."""
    action_space: gym.Space[Any]
    """The space of one action."""

    @staticmethod
    def of_env(env: Any) -> EnvLayout:
        """Describe a single env."""
        if isinstance(env, VectorEnv) or not isinstance(env, gym.Env):
            raise TypeError(
                f"env must be a gymnasium.Env, got {env!r} of type {type(env).__name__}. For a "
                "VectorEnv take the class of the same name in adops_wrappers.vector, or the "
                "name in adops_wrappers, which accepts both."
            )
        mode = AutoresetMode.NEXT_STEP if _resets_itself(env) else AutoresetMode.DISABLED
        return EnvLayout(1, False, mode, env.observation_space, env.action_space)

    @staticmethod
    def of_vector_env(env: Any) -> EnvLayout:
        """Describe a vector env, reading its autoreset mode once."""
        if not isinstance(env, VectorEnv):
            raise TypeError(
                f"env must be a gymnasium.vector.VectorEnv, got {env!r} of type "
                f"{type(env).__name__}. For an Env take the class of the same name in "
                "adops_wrappers.wrappers, or the name in adops_wrappers, which accepts both."
            )
        batch_size = _batch_size(env.unwrapped)
        if batch_size not in (None, env.num_envs):
            raise ValueError(
                f"The vector env returns batch_size={batch_size} of its num_envs={env.num_envs} "
                "environments at a time, in changing order. Shaping needs every environment at "
                "every step: build it with batch_size equal to num_envs."
            )
        return EnvLayout(
            env.num_envs,
            True,
            _autoreset_mode(env),
            env.single_observation_space,
            env.single_action_space,
        )


def _resets_itself(env: Any) -> bool:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, Autoreset):
            return True
        env = env.env
    return False


def _autoreset_mode(env: VectorEnv) -> AutoresetMode:
    # The instance first: AtariVectorEnv writes into metadata that all vector envs share.
    mode = getattr(env.unwrapped, "autoreset_mode", None)
    if mode is None:
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return AutoresetMode(mode)


def _batch_size(env: Any) -> int | None:
    config = getattr(env, "config", None)
    if isinstance(config, dict) and "batch_size" in config:
        return int(config["batch_size"])
    return getattr(env, "batch_size", None)


def split_reset_mask(
    options: dict[str, Any] | None, num_envs: int
) -> tuple[BoolArray | None, dict[str, Any] | None]:
    """Return the rows that a reset names (None for all) and a copy of `options` to hand down.

    The copy matters: SyncVectorEnv takes the mask out of the dict that it is given.
    """
    if options is None:
        return None, None
    mask = options.get("reset_mask")
    if mask is None:
        return None, dict(options)
    rows = np.asarray(mask)
    if rows.dtype != np.bool_ or rows.shape != (num_envs,):
        raise ValueError(
            f"options['reset_mask'] must be a boolean array of shape ({num_envs},), got dtype "
            f"{rows.dtype} and shape {rows.shape}."
        )
    return rows.copy(), dict(options)


class EpisodeTracker:
    """Follows the episodes of all rows through steps, resets and autoresets."""

    def __init__(self, layout: EnvLayout) -> None:
        self.layout = layout
        self.same_step = layout.mode is AutoresetMode.SAME_STEP
        self._next_step = layout.mode is AutoresetMode.NEXT_STEP
        self.elapsed: npt.NDArray[np.int64] = np.zeros(layout.num_envs, dtype=np.int64)
        """The number of steps behind the current observation of each row."""
        self.pending_reset: BoolArray = np.zeros(layout.num_envs, dtype=np.bool_)
        """Rows whose next step only resets them (NEXT_STEP)."""
        self.last_obs: Any = None
        """The observation on which the next action is taken; None before a full reset."""

    def reset(self, obs: Any, mask: BoolArray | None) -> None:
        """Start new episodes in the rows of `mask`, or in all."""
        if mask is None:
            self.elapsed[:] = 0
            self.pending_reset[:] = False
            self.last_obs = obs
            return
        self.require_reset_done()
        self.elapsed[mask] = 0
        self.pending_reset[mask] = False
        if _batch_length(obs) == self.layout.num_envs:
            self.last_obs = obs
        else:  # envpool returns only the rows that it reset
            self.last_obs = replace_rows(self.layout.observation_space, self.last_obs, mask, obs)

    def require_reset_done(self) -> None:
        """Raise unless there is a full observation to act on."""
        if self.last_obs is None:
            raise gym.error.ResetNeeded(
                "Call env.reset() first: there is no episode to continue. After an error in "
                "step() a full reset is needed too."
            )

    def advance(self, obs: Any, ended: BoolArray) -> BoolArray:
        """Take in one step; return the mask of the rows for which it was a real transition."""
        valid = ~self.pending_reset
        if self.same_step:
            self.elapsed = np.where(ended, 0, self.elapsed + 1)
        else:
            self.elapsed = np.where(valid, self.elapsed + 1, 0)
            if self._next_step:
                self.pending_reset = ended & valid
        self.last_obs = obs
        return valid

    def final_observations(self, info: dict[str, Any], ended: BoolArray) -> Any:
        """Return the batch of true last observations of the rows in `ended` (SAME_STEP)."""
        final = info.get("final_obs")
        if final is None:
            raise ValueError(
                "The vector env ended an episode in SAME_STEP mode without info['final_obs'], so "
                "the true next observation is unknown. Let the env report it, or use NEXT_STEP."
            )
        return select_rows(self.layout.observation_space, final, ended)

    def true_next_observations(self, obs: Any, info: dict[str, Any], ended: BoolArray) -> Any:
        """Return what each row saw after its action, before any reset within the step."""
        if not (self.same_step and ended.any()):
            return obs
        final = self.final_observations(info, ended)
        return replace_rows(self.layout.observation_space, obs, ended, final)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every row; the last observation is added by its owner."""
        return {"elapsed": self.elapsed.copy(), "pending_reset": self.pending_reset.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.elapsed = restore_array("the episode steps", state["elapsed"], self.elapsed)
        self.pending_reset = restore_array(
            "the pending resets", state["pending_reset"], self.pending_reset
        )


def _batch_length(batch: Any) -> int:
    if isinstance(batch, dict):
        return _batch_length(next(iter(batch.values())))
    if isinstance(batch, tuple) and isinstance(batch[0], np.ndarray | dict | tuple):
        return _batch_length(batch[0])
    return len(batch)
