"""Where episodes begin and end: autoreset modes, dummy reset steps, the true next observation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import Autoreset

from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import (
    BoolArray,
    batch_length,
    copy_observation,
    first_part,
    merge_rows,
    replace_rows,
    select_rows,
    to_numpy,
)
from adops_wrappers.backends import HOST, Backend, all_rows, cleared, is_tensor, kept, may_hold
from adops_wrappers.shaper import restore_array, saved_array
from adops_wrappers.stack import find_layer, layers

FINAL_OBSERVATION = ("final_obs", "final_observation")
"""The keys of `info` under which envs report the last observation of an episode that they have
already reset: Gymnasium's own, and that of ManiSkill and of older versions of Gymnasium."""


@dataclass(frozen=True)
class EnvLayout:
    """What the bookkeeping needs to know about an env; a single env is a batch of one."""

    num_envs: int
    batched: bool
    mode: AutoresetMode
    observation_space: gym.Space[Any]
    """The space of one observation."""
    action_space: gym.Space[Any]
    """The space of one action."""
    mode_is_assumed: bool = False
    """Whether the env does not declare its mode."""

    @staticmethod
    def of_env(env: Any, autoreset_mode: AutoresetMode | str | None = None) -> EnvLayout:
        """Describe a single env; `autoreset_mode` says how it resets itself."""
        if isinstance(env, VectorEnv) or not isinstance(env, gym.Env):
            raise TypeError(
                f"env must be a gymnasium.Env, got {env!r} of type {type(env).__name__}. For a "
                "VectorEnv there is VectorShapingWrapper; a method's own name, such as "
                "ADOPSWrapper, accepts both."
            )
        resets_itself = find_layer(env, Autoreset) is not None
        declared = AutoresetMode.NEXT_STEP if resets_itself else None
        mode = _agreed_mode(autoreset_mode, declared, _tracker_in(env, batched=False))
        if mode is AutoresetMode.SAME_STEP:
            raise ValueError(
                "A single env cannot run autoreset_mode SAME_STEP: there would be no place for the "
                "last observation of an episode. Leave it out for an env that its user resets, or "
                "pass NEXT_STEP for one that resets itself in the step after the last."
            )
        mode = mode or AutoresetMode.DISABLED
        return EnvLayout(1, False, mode, env.observation_space, env.action_space)

    @staticmethod
    def of_vector_env(env: Any, autoreset_mode: AutoresetMode | str | None = None) -> EnvLayout:
        """Describe a vector env, reading its autoreset mode once.

        A wrapper of this package below has settled the mode; otherwise `autoreset_mode` declares
        that of an env which does not do so itself.
        """
        if not isinstance(env, VectorEnv):
            raise TypeError(
                f"env must be a gymnasium.vector.VectorEnv, got {env!r} of type "
                f"{type(env).__name__}. For an Env there is ShapingWrapper; a method's own name, "
                "such as ADOPSWrapper, accepts both."
            )
        batch_size = _batch_size(env.unwrapped)
        if batch_size not in (None, env.num_envs):
            raise ValueError(
                f"The vector env returns batch_size={batch_size} of its num_envs={env.num_envs} "
                "environments at a time, in changing order. Shaping needs every environment at "
                "every step: build it with batch_size equal to num_envs."
            )
        below = _tracker_in(env, batched=True)
        mode = _agreed_mode(autoreset_mode, _declared_mode(env), below)
        if mode is None:
            gym.logger.warn(
                f"{env.unwrapped} does not declare its autoreset mode; NEXT_STEP is assumed. "
                "Declare it with autoreset_mode=AutoresetMode.NEXT_STEP, SAME_STEP or DISABLED of "
                'the innermost wrapper, or in metadata["autoreset_mode"]. See '
                "https://farama.org/Vector-Autoreset-Mode."
            )
        return EnvLayout(
            env.num_envs,
            True,
            mode or AutoresetMode.NEXT_STEP,
            env.single_observation_space,
            env.single_action_space,
            mode_is_assumed=mode is None or (below is not None and below.layout.mode_is_assumed),
        )


def _agreed_mode(
    given: AutoresetMode | str | None,
    declared: AutoresetMode | None,
    below: EpisodeTracker | None,
) -> AutoresetMode | None:
    """Return the mode that a wrapper below has settled, the env declares or the user gives."""
    if below is not None:
        declared = below.layout.mode
    if given is None:
        return declared
    if given not in [*AutoresetMode, *(mode.value for mode in AutoresetMode)]:
        raise ValueError(
            f"autoreset_mode must be a gymnasium.vector.AutoresetMode or one of "
            f"{[mode.value for mode in AutoresetMode]}, got {given!r}."
        )
    mode = AutoresetMode(given)
    if declared not in (None, mode):
        assert declared is not None
        raise ValueError(
            f"autoreset_mode is {mode.name} here, but the env or the wrapper below runs "
            f"{declared.name}. Leave autoreset_mode out where an env declares its mode; where it "
            "does not, pass it to the innermost wrapper, and those above take it from there."
        )
    return mode


def _declared_mode(env: VectorEnv) -> AutoresetMode | None:
    # The instance first: AtariVectorEnv writes into metadata that all vector envs share.
    mode = getattr(env.unwrapped, "autoreset_mode", None)
    if mode is None:
        mode = env.metadata.get("autoreset_mode")
    return None if mode is None else AutoresetMode(mode)


def _batch_size(env: Any) -> int | None:
    config = getattr(env, "config", None)
    if isinstance(config, dict) and "batch_size" in config:
        return int(config["batch_size"])
    return getattr(env, "batch_size", None)


def split_reset_mask(
    options: dict[str, Any] | None, num_envs: int
) -> tuple[BoolArray | None, dict[str, Any] | None]:
    """Return the rows that a reset names (None for all) and a copy of `options` to pass down.

    The copy matters: SyncVectorEnv removes the mask from the dict that it is given.
    """
    if options is None:
        return None, None
    mask = options.get("reset_mask")
    if mask is None:
        return None, dict(options)
    rows = mask if is_tensor(mask) else np.array(mask)
    if str(rows.dtype).rpartition(".")[2] != "bool" or tuple(rows.shape) != (num_envs,):
        raise ValueError(
            f"options['reset_mask'] must be a boolean array of shape ({num_envs},), got dtype "
            f"{rows.dtype} and shape {tuple(rows.shape)}."
        )
    return copy_observation(rows), dict(options)


class EpisodeTracker(KeepsSettings):
    """Follows the episodes of all rows through steps, resets and autoresets.

    The lowest wrapper of a stack advances it; a wrapper directly above sees the same steps and
    only reads it.
    """

    state_depends_on = ("autoreset_mode",)

    def __init__(self, layout: EnvLayout) -> None:
        self.layout = layout
        self.backend = HOST
        """Where the env's rewards are, since the first step."""
        self.same_step = layout.mode is AutoresetMode.SAME_STEP
        self._next_step = layout.mode is AutoresetMode.NEXT_STEP
        self.elapsed: npt.NDArray[np.int64] = np.zeros(layout.num_envs, dtype=np.int64)
        """The number of steps behind the current observation of each row."""
        self.pending_reset: BoolArray = np.zeros(layout.num_envs, dtype=np.bool_)
        """Rows whose next step only resets them (NEXT_STEP)."""
        self.last_obs: Any = None
        """The observation on which the next action is taken; None before a full reset."""
        self.keeps_copies = False
        """Whether `last_obs` is a copy that neither env nor agent can overwrite: true as soon as
        somebody who looks at states after a step has called `keep_observation`."""
        self.steps = self.elapsed
        """`elapsed` before the last step."""
        self.valid = all_rows(layout.num_envs)
        """The rows for which the last step was a real transition."""
        self.ended = self.pending_reset
        """The rows whose episode the last step ended."""
        self.resets_within_step = False
        """Whether `last_obs` begins a new episode in the rows in `ended` (SAME_STEP), if there are
        any: a device is not asked."""
        self.seen_obs: Any = None
        """What the env returned and the agent was given, of which `last_obs` may be a copy."""
        self.knows_final_obs = True
        """Whether the env has said what those rows saw last."""
        self._acted_on: Any = None
        self._unknown_ends: Any = None
        self._warned_unknown = False
        self._info: dict[str, Any] = {}
        self._final_obs: Any = None

    def reset(self, obs: Any, mask: BoolArray | None) -> None:
        """Start new episodes in the rows of `mask`, or in all."""
        space, rows = self.layout.observation_space, self.layout.num_envs
        self.seen_obs = obs
        if mask is not None:
            self.require_reset_done()
            mask = self.backend.masks(mask)
        self.elapsed = cleared(self.elapsed, mask)
        self.pending_reset = cleared(self.pending_reset, mask, False)
        # envpool returns only the rows that it reset.
        if mask is not None and batch_length(space, obs) != rows:
            obs = replace_rows(space, self.last_obs, to_numpy(mask), obs)
        self.last_obs = copy_observation(obs) if self.keeps_copies else obs

    def require_reset_done(self) -> None:
        """Raise unless there is a full observation to act on."""
        if self.last_obs is None:
            raise gym.error.ResetNeeded(
                "Call env.reset() first: there is no episode to continue. After an error in "
                "step() a full reset is needed too."
            )

    def settle(self, backend: Backend) -> None:
        """Keep the position where the rewards are; asked at every step, in case they move."""
        if backend is not self.backend:
            self.backend = backend
            self.elapsed = self.steps = backend.moved(self.elapsed)
            self.pending_reset = backend.moved(self.pending_reset)
            self.valid = self._not_pending()

    def _not_pending(self) -> BoolArray:
        """Return the rows whose next step is a transition."""
        pending = self.pending_reset
        return ~pending if may_hold(pending) else all_rows(len(pending))

    def advance(self, obs: Any, ended: BoolArray, info: dict[str, Any]) -> None:
        """Follow one step."""
        if self.layout.mode_is_assumed and (key := final_observation_key(info)) is not None:
            raise ValueError(
                f"The vector env does not declare its autoreset mode but reports info[{key!r}], "
                "which only envs that reset within the final step do. Declare the mode with "
                "autoreset_mode=AutoresetMode.SAME_STEP of the innermost wrapper, or before "
                'wrapping: env.metadata["autoreset_mode"] = AutoresetMode.SAME_STEP.'
            )
        # The steps before the last: `elapsed` and `pending_reset` are about to be those after it.
        self.steps, self.ended, self._acted_on = self.elapsed, ended, self.last_obs
        if self.same_step:
            self.elapsed = cleared(self.elapsed + 1, ended)
            self.resets_within_step = may_hold(ended)
            self.knows_final_obs = self._reports_final_obs(info)
        elif self._next_step:
            self.valid = self._not_pending()
            self.elapsed = kept(self.elapsed + 1, self.valid)
            self.pending_reset = ended & self.valid
        else:
            self.elapsed = self.elapsed + 1
        self.seen_obs = obs
        if self.keeps_copies:
            obs = obs.copy() if type(obs) is np.ndarray else copy_observation(obs)
        self.last_obs = obs
        self._info, self._final_obs = info, None

    def keep_observation(self) -> None:
        """Let `last_obs` be a copy, from now on, that neither env nor agent can overwrite."""
        if not self.keeps_copies:
            self.keeps_copies, self.last_obs = True, copy_observation(self.last_obs)

    def forget(self) -> None:
        """After an error: only a full reset makes the state of all rows consistent again."""
        self.last_obs = None

    def _reports_final_obs(self, info: dict[str, Any]) -> bool:
        """Whether the env says what the rows saw last that it has reset in this step."""
        if not self.resets_within_step:
            return True
        key = final_observation_key(info)
        reported = info.get(f"_{key}")  # not all envs write the mask
        if self.backend is HOST and reported is not None:
            missing = self.ended & ~to_numpy(reported)
            if missing.any():
                row = int(np.flatnonzero(missing)[0])
                raise ValueError(
                    f"The vector env ended an episode of environment {row} in SAME_STEP mode, "
                    f"but info['_{key}'] says that info[{key!r}] has no last observation of it. "
                    "Let the env report them all, or none."
                )
        return key is not None

    def final_observations(self) -> Any:
        """Return the batch of last observations of the rows in `ended` (SAME_STEP, in NumPy)."""
        if self._final_obs is None:
            final = self._info[final_observation_key(self._info) or ""]
            self._final_obs = select_rows(
                self.layout.observation_space, final, to_numpy(self.ended)
            )
        return self._final_obs

    def note_unknown_ends(self) -> None:
        """Hear that somebody needs what ended rows saw last, which the env does not say."""
        if self.backend is HOST:
            self._warn_of_unknown_ends()
        else:
            before = self._unknown_ends
            self._unknown_ends = self.ended if before is None else before | self.ended

    def report(self) -> None:
        """Say what was noted on a device."""
        if self._unknown_ends is not None and bool(self._unknown_ends.any()):
            self._warn_of_unknown_ends()
        self._unknown_ends = None

    def _warn_of_unknown_ends(self) -> None:
        if not self._warned_unknown:
            self._warned_unknown = True
            warnings.warn(
                "The vector env resets itself within the final step and does not say what it saw "
                "last, as info['final_obs']. At these steps V(s') is taken as 0 where the episode "
                "terminated and as V(s) where it was truncated, as rsl_rl does, and a source pays "
                "nothing. Let the env report it if it can: in IsaacLab, compute_final_obs. (Shown "
                "once.)",
                RuntimeWarning,
                stacklevel=6,
            )

    def next_observations(self) -> Any:
        """Return what each row saw after its action, before any reset within the step.

        Where the env does not say it (`knows_final_obs`), what it saw before the action.
        """
        if not self.resets_within_step:
            return self.last_obs
        if not self.knows_final_obs:
            self.note_unknown_ends()
        space = self.layout.observation_space
        if self.backend is not HOST and is_tensor(first_part(self.last_obs)):
            key = final_observation_key(self._info)
            final = self._acted_on if key is None else self._info[key]
            return merge_rows(self.last_obs, self.ended, final)
        ended = to_numpy(self.ended)
        if not self.knows_final_obs:
            final = select_rows(space, self._acted_on, ended)
        else:
            final = self.final_observations()
        return replace_rows(space, self.last_obs, ended, final)

    @property
    def autoreset_mode(self) -> str:
        """The env's mode by name, which decides what a pending reset means."""
        return self.layout.mode.name

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every row."""
        return {
            **self.settings_state(),
            "elapsed": saved_array(self.elapsed),
            "pending_reset": saved_array(self.pending_reset),
        }

    def load_state_dict(self, state: dict[str, Any], last_obs: Any) -> None:
        """Restore a `state_dict()` and the observation on which the next action is taken."""
        self.require_settings_of(state)
        self.elapsed = restore_array("the episode steps", state["elapsed"], self.elapsed)
        self.pending_reset = restore_array(
            "the pending resets", state["pending_reset"], self.pending_reset
        )
        self.last_obs = self.seen_obs = copy_observation(last_obs)


def final_observation_key(info: dict[str, Any]) -> str | None:
    """Return the key under which `info` holds last observations, or None if it has none."""
    return next((key for key in FINAL_OBSERVATION if info.get(key) is not None), None)


def tracker_below(env: Any) -> EpisodeTracker | None:
    """Return the tracker of `env` if it is a wrapper of this package: it sees the same steps."""
    tracker = getattr(env, "episodes", None)
    return tracker if isinstance(tracker, EpisodeTracker) else None


def _tracker_in(env: Any, *, batched: bool) -> EpisodeTracker | None:
    """Return the tracker of the outermost wrapper of this package in the stack of `env`."""
    trackers = [tracker_below(layer) for layer in layers(env)]
    return next((t for t in trackers if t is not None and t.layout.batched == batched), None)
