"""Stacks for Stable-Baselines3: an adapter to its `VecEnv`, a logger, a clamp, a replay buffer.

Needs Stable-Baselines3 (`pip install adops-wrappers[sb3]`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from adops_wrappers.arrays import (
    copy_observation,
    same_observation,
    to_float64,
    to_host,
    to_numpy,
)
from adops_wrappers.episodes import FINAL_OBSERVATION, EnvLayout, final_observation_key
from adops_wrappers.sb3_advantage import AdvantageClampCallback
from adops_wrappers.sb3_replay import ShapedReplayBuffer, refuse_hindsight
from adops_wrappers.stack import find_layer, layers
from adops_wrappers.wrappers.shaping import ComposesShaper

__all__ = ["AdvantageClampCallback", "SB3VecEnv", "ShapedReplayBuffer", "ShapingCallback"]

_KEYS = ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward", "shaping_correction")


class SB3VecEnv(VecEnv):
    """Shows a SAME_STEP Gymnasium vector stack to Stable-Baselines3 as a `VecEnv`.

    At an episode's end `infos[i]` holds `terminal_observation`, the true last observation, and
    `TimeLimit.truncated`, which tells SB3 to bootstrap there. All per-row values of the stack's
    `info` are passed on, F and F′ among them.

    It does what SB3's `Monitor` does, and answers so when SB3 asks: `infos[i]["episode"]` holds
    the length and the extrinsic return. `rollout/ep_rew_mean`, `evaluate_policy` and
    `EvalCallback` therefore report the task and not the bonus. A `VecMonitor` above would
    overwrite them with sums of R + F′.

    `get_attr`, `env_method` and `set_attr` reach the stack and, for what it has not, the envs
    that a `SyncVectorEnv` or an `AsyncVectorEnv` steps: `action_masks`, for instance.

    Args:
        env: A vector stack whose env runs `AutoresetMode.SAME_STEP`.

    Raises:
        ValueError: The env runs another autoreset mode.

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> from gymnasium.vector import AutoresetMode
        >>> from adops_wrappers import CountBonus, GRMWrapper, IntrinsicRewardWrapper
        >>> from adops_wrappers.sb3 import SB3VecEnv
        >>> env = gym.make_vec(
        ...     "CliffWalking-v1",
        ...     num_envs=2,
        ...     vectorization_mode="sync",
        ...     vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        ... )
        >>> env = SB3VecEnv(GRMWrapper(IntrinsicRewardWrapper(env, CountBonus())))
        >>> env.seed(0)
        [0, 1]
        >>> env.reset()
        array([36, 36])
        >>> rewards = env.step(np.array([0, 0]))[1]
        >>> rewards.round(3)
        array([ 0.   , -0.293], dtype=float32)
    """

    def __init__(self, env: VectorEnv) -> None:
        layout = EnvLayout.of_vector_env(env)
        if layout.mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"Stable-Baselines3 resets an environment within the step that ends its episode; "
                f"this vector env runs {layout.mode.name}. Build it with "
                "autoreset_mode=AutoresetMode.SAME_STEP."
            )
        self.env = env
        self._actions: Any = None
        self._seed: int | None = None
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, dtype=np.int64)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        """Reset all environments, with the seeds and options set for this reset."""
        obs, info = self.env.reset(seed=self._seed, options=self._options[0] or None)
        self._seed = None
        self._reset_options()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self.reset_infos = _rows(info, self.num_envs)
        return copy_observation(to_host(obs))

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], Any]:
        """Step all environments."""
        obs, reward, terminated, truncated, info = self.env.step(self._actions)
        terminated, truncated = to_numpy(terminated), to_numpy(truncated)
        done = terminated | truncated
        infos = _rows(info, self.num_envs)
        reward = to_float64(reward)
        # By rows: where each sub-env has its own wrappers, those that ended say it in `final_info`.
        pairs = zip(infos, reward.tolist(), strict=True)
        self._returns += [row.get("extrinsic_reward", paid) for row, paid in pairs]
        self._lengths += 1
        for row in np.flatnonzero(done).tolist():
            infos[row]["terminal_observation"] = to_host(_final_observation(info, row))
            # SB3 bootstraps where this is set: not where the task itself ended at the limit.
            infos[row]["TimeLimit.truncated"] = bool(truncated[row] and not terminated[row])
            infos[row]["episode"] = {
                "r": float(self._returns[row]),
                "l": int(self._lengths[row]),
            }
        self._returns[done] = 0.0
        self._lengths[done] = 0
        # A copy: SB3 keeps the last observation, which an env with copy=False overwrites.
        return copy_observation(to_host(obs)), reward.astype(np.float32), done, infos

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next reset: environment i gets `seed + i`."""
        self._seed = seed
        return [None if seed is None else seed + row for row in range(self.num_envs)]

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Keep `options` for the next reset; a vector env takes the same for all environments."""
        if isinstance(options, list) and not all(
            same_observation(options[0], other) for other in options
        ):
            raise ValueError(
                "A vector stack is reset with one set of options for all its environments, got "
                f"{options}. Pass one dict, or the same for every environment."
            )
        super().set_options(options)

    def close(self) -> None:
        """Close the stack."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the stack's attribute for each of `indices`, or those of the sub-envs."""
        rows, layer = list(self._get_indices(indices)), self._layer_with(attr_name)
        if layer is not None:
            return [getattr(layer, attr_name)] * len(rows)
        self._require_in_sub_envs(attr_name)
        base: Any = self.env.unwrapped
        if hasattr(base, "envs"):
            return [base.envs[row].get_wrapper_attr(attr_name) for row in rows]
        values = base.get_attr(attr_name)
        return [values[row] for row in rows]

    def has_attr(self, attr_name: str) -> bool:
        """Say whether the stack has the attribute, or each of its sub-envs."""
        return self._layer_with(attr_name) is not None or self._in_sub_envs(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the sub-envs; those of the stack are not set here."""
        base: Any = self.env.unwrapped
        if self._layer_with(attr_name) is not None or not hasattr(base, "set_attr"):
            raise NotImplementedError(
                f"{attr_name!r} cannot be set for single environments: the stack has it, or its "
                "vector env gives no access to them. Set it on the stack itself, SB3VecEnv.env."
            )
        rows = list(self._get_indices(indices))
        values = [value] * self.num_envs
        if set(rows) != set(range(self.num_envs)):
            values = self.get_attr(attr_name)
            for row in rows:
                values[row] = value
        base.set_attr(attr_name, values)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call the stack's method once, for all of `indices`, or those of the sub-envs."""
        rows, layer = list(self._get_indices(indices)), self._layer_with(method_name)
        if layer is not None:
            answer = getattr(layer, method_name)(*method_args, **method_kwargs)
            return [answer] * len(rows)
        if method_name == "compute_reward":
            refuse_hindsight(self.env)
        base: Any = self.env.unwrapped
        if hasattr(base, "envs"):
            methods = self.get_attr(method_name, rows)
            return [method(*method_args, **method_kwargs) for method in methods]
        self._require_in_sub_envs(method_name)
        if rows != list(range(self.num_envs)):
            raise NotImplementedError(
                f"{type(base).__name__} calls {method_name!r} of all its environments at once, "
                f"not of {rows} alone. Leave indices out, or build a SyncVectorEnv."
            )
        return list(base.call(method_name, *method_args, **method_kwargs))

    def _layer_with(self, name: str) -> Any:
        return next((layer for layer in layers(self.env) if hasattr(layer, name)), None)

    def _in_sub_envs(self, name: str) -> bool:
        # Asked first: an AttributeError in a worker would end an AsyncVectorEnv.
        call = getattr(self.env.unwrapped, "call", None)
        return call is not None and all(call("has_wrapper_attr", name))

    def _require_in_sub_envs(self, name: str) -> None:
        if not self._in_sub_envs(name):
            raise AttributeError(f"Neither the stack nor each of its sub-envs has {name!r}.")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Say whether a wrapper of this class is in the stack or, within this process, below it.

        True for SB3's `Monitor`: this adapter reports episodes as that would.
        """
        everywhere = wrapper_class is Monitor or find_layer(self.env, wrapper_class) is not None
        subs = getattr(self.env.unwrapped, "envs", [None] * self.num_envs)
        return [
            everywhere or find_layer(subs[row], wrapper_class) is not None
            for row in self._get_indices(indices)
        ]

    def get_images(self) -> Sequence[Any]:
        """Return the environments' frames, where the vector env renders."""
        frames: Any = None if self.env.render_mode is None else self.env.render()
        return [None] * self.num_envs if frames is None else list(frames)


class ShapingCallback(BaseCallback):
    """Logs what shaping does, under `shaping/`, whenever SB3 writes its log.

    Means since the last log entry: `extrinsic_reward`, `raw_intrinsic_reward` (F),
    `intrinsic_reward` (F′), `shaping_correction`, `corrected_share` (of the steps on which
    F′ ≠ F) and `extrinsic_return` of the episodes that it saw from start to end; and `zeta`, the
    outermost method's ζ, which is 1 without a schedule. Works with `SB3VecEnv` and with SB3's
    own vector envs of wrapped single envs.

    Args:
        log_every: The number of vector steps between two entries; SB3's own dump decides when
            they are written.
        at_rollout_end: Whether to make an entry at the end of each rollout, too. This suits PPO;
            DQN's rollouts are only a few steps long.
        verbose: SB3's verbosity.
    """

    def __init__(
        self, log_every: int = 256, *, at_rollout_end: bool = True, verbose: int = 0
    ) -> None:
        super().__init__(verbose)
        self.log_every = log_every
        self.at_rollout_end = at_rollout_end
        self.history: list[dict[str, float]] = []
        """All entries so far, each with `timesteps`."""
        self._sums = dict.fromkeys((*_KEYS, "corrected_share"), 0.0)
        self._steps = 0
        self._finished: list[float] = []
        self._running: dict[int, float] = {}
        self._left_at: Any = None

    def _on_training_start(self) -> None:
        if self.model.num_timesteps == 0:  # SB3 has reset the env, in mid-episode or not
            self._running = dict.fromkeys(range(self.training_env.num_envs), 0.0)
        elif self.model._last_obs is not self._left_at:
            self._running = {}  # joined in mid-episode: the returns so far are unknown

    def _on_training_end(self) -> None:
        self._left_at = self.model._last_obs

    def _on_step(self) -> bool:
        for row, info in enumerate(self.locals["infos"]):
            if "shaping_correction" not in info:
                continue
            for key in _KEYS:
                self._sums[key] += float(info[key])
            self._sums["corrected_share"] += float(info["shaping_correction"] != 0.0)
            self._steps += 1
            if row in self._running:
                self._running[row] += float(info["extrinsic_reward"])
            if self.locals["dones"][row]:
                if row in self._running:
                    self._finished.append(self._running[row])
                self._running[row] = 0.0
        if self.n_calls % self.log_every == 0:
            self._record()
        return True

    def _on_rollout_end(self) -> None:
        if self.at_rollout_end:
            self._record()

    def _record(self) -> None:
        if not self._steps:
            return
        entry = {key: total / self._steps for key, total in self._sums.items()}
        if self._finished:
            entry["extrinsic_return"] = float(np.mean(self._finished))
        zeta = _zeta(self.training_env)
        if zeta is not None:
            entry["zeta"] = zeta
        for key, value in entry.items():
            self.logger.record(f"shaping/{key}", value)
        self.history.append({"timesteps": float(self.num_timesteps), **entry})
        self._sums = dict.fromkeys(self._sums, 0.0)
        self._steps = 0
        self._finished = []


def _rows(info: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Split a vector env's info by rows; the last info of an ended row is in `final_info`."""
    rows: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    final = info.get("final_info")
    for part in (info, final) if isinstance(final, dict) else (info,):
        for key, values in part.items():
            if key.startswith("_") or key in ("final_info", *FINAL_OBSERVATION):
                continue
            mask = part.get(f"_{key}")
            for row in range(num_envs):
                if mask is None or mask[row]:
                    value = _pick(values, row, num_envs)
                    if value is not None and (part is info or key not in rows[row]):
                        rows[row][key] = value
    return rows


def _pick(values: Any, row: int, num_envs: int) -> Any:
    if isinstance(values, dict):
        return {
            key: _pick(part, row, num_envs)
            for key, part in values.items()
            if not key.startswith("_")
        }
    if isinstance(values, np.ndarray | list | tuple) and len(values) == num_envs:
        value = values[row]
        return value.item() if isinstance(value, np.generic) else value
    return None


def _final_observation(info: dict[str, Any], row: int) -> Any:
    final = info[final_observation_key(info) or FINAL_OBSERVATION[0]]
    if isinstance(final, dict):  # a vector env that batches its Dict observations
        return {key: part[row] for key, part in final.items()}
    return final[row]


def _zeta(env: VecEnv) -> float | None:
    """Return ζ of the outermost shaping wrapper, of the first env where each has its own stack."""
    base = list(layers(env))[-1]
    stack = base.envs[0] if isinstance(base, DummyVecEnv) else env
    shaping: Any = find_layer(stack, ComposesShaper)
    return None if shaping is None else shaping.shaper.zeta
