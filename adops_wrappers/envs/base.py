"""What all envs of this package share: one set of rules, stepped for one row or for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.episodes import split_reset_mask

if TYPE_CHECKING:
    AnyEnv = gym.Env[npt.NDArray[np.float32], np.int64]
else:
    AnyEnv = gym.Env

Image = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Observations = npt.NDArray[np.float32]

_ONE_ROW = np.ones(1, dtype=np.bool_)


class Moved(NamedTuple):
    """What one step of all rows gave."""

    obs: Observations
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray


class Dynamics(Protocol):
    """The states of n rows and the rules that move them; a row's stream depends on no other."""

    num_rows: int
    observation_size: int

    @property
    def actions(self) -> int | tuple[int, ...]:
        """The number of actions to choose from, or the shape of an action in [−1, 1]."""
        ...

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Use this generator for everything random in a row."""

    def restart(self, rows: BoolArray) -> None:
        """Begin new episodes in the given rows."""

    def observe(self, rows: BoolArray) -> Observations:
        """Return the observations of all rows; only those of `rows` are used."""
        ...

    def move(self, actions: Any, rows: BoolArray) -> Moved:
        """Step the given rows; the others stay where they are and get no reward."""
        ...

    def progress(self) -> dict[str, IntArray]:
        """Return what `info` says about the running episodes, one entry per row."""
        ...

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the picture of a row that has just shown `obs`."""
        ...


class DynamicsEnv(AnyEnv):
    """One row as a `gymnasium.Env`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, dynamics: Dynamics, render_mode: str | None) -> None:
        self.dynamics = dynamics
        self.render_mode = _check_render_mode(render_mode)
        self.observation_space, self.action_space = _spaces_of(dynamics)
        self._generator: np.random.Generator | None = None
        self._obs: Observations | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Go back to the start."""
        super().reset(seed=seed)
        if self._generator is not self.np_random:
            self._generator = self.np_random
            self.dynamics.seed(0, self._generator)
        self.dynamics.restart(_ONE_ROW)
        self._obs = self.dynamics.observe(_ONE_ROW)[0]
        return self._obs.copy(), self._info()

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Do one of the actions."""
        if self._obs is None:
            raise gym.error.ResetNeeded("Call env.reset() before the first step.")
        chosen = _check_actions(np.asarray(action)[None], self.dynamics)
        obs, reward, terminated, truncated = self.dynamics.move(chosen, _ONE_ROW)
        self._obs = obs[0]
        return (
            self._obs.copy(),
            float(reward[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            self._info(),
        )

    def render(self) -> Image | None:
        """Return the picture of the env."""
        if self.render_mode is None or self._obs is None:
            return None
        return self.dynamics.draw(0, self._obs)

    def _info(self) -> dict[str, Any]:
        return {key: int(values[0]) for key, values in self.dynamics.progress().items()}


class DynamicsVectorEnv(VectorEnv):  # type: ignore[type-arg,unused-ignore]
    """All rows as a `gymnasium.vector.VectorEnv`; row i seeded s is the single env seeded s.

    The whole state is in plain attributes, so that `pickle` and `copy.deepcopy` save a run.
    """

    def __init__(
        self, dynamics: Dynamics, autoreset_mode: AutoresetMode | str, render_mode: str | None
    ) -> None:
        self.dynamics = dynamics
        self.num_envs = num_envs = dynamics.num_rows
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.render_mode = _check_render_mode(render_mode)
        self.metadata = {**DynamicsEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = _spaces_of(dynamics)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs: Observations = np.zeros((num_envs, dynamics.observation_size), np.float32)
        self._ended: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self._seeded: BoolArray = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observations, dict[str, Any]]:
        """Reset all rows, or those of `options["reset_mask"]`; row i gets seed + i."""
        mask, _ = split_reset_mask(options, self.num_envs)
        rows = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask
        seeds = self._row_seeds(seed)
        for row in np.flatnonzero(rows).tolist():
            if seeds[row] is not None or not self._seeded[row]:
                self.dynamics.seed(row, seeding.np_random(seeds[row])[0])
        self._seeded |= rows
        self._restart(rows)
        return self._obs.copy(), self._info(rows)

    def step(
        self, actions: Any
    ) -> tuple[Observations, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Step all rows; the autoreset mode decides what happens to those that have ended."""
        self._require_reset()
        chosen = _check_actions(np.asarray(actions), self.dynamics)
        resetting = self._ended
        self._obs, reward, terminated, truncated = self.dynamics.move(chosen, ~resetting)
        self._ended = terminated | truncated
        final: dict[str, Any] = {}
        if resetting.any():
            self._restart(resetting)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            final = self._final_info()
            self._restart(self._ended)
        info = {**final, **self._info(np.ones(self.num_envs, dtype=np.bool_))}
        return self._obs.copy(), reward, terminated, truncated, info

    def render(self) -> tuple[Image, ...] | None:
        """Return one picture per row."""
        if self.render_mode is None:
            return None
        return tuple(self.dynamics.draw(row, obs) for row, obs in enumerate(self._obs))

    def _restart(self, rows: BoolArray) -> None:
        self.dynamics.restart(rows)
        self._obs = np.where(rows[:, None], self.dynamics.observe(rows), self._obs)
        self._ended = self._ended & ~rows

    def _info(self, rows: BoolArray) -> dict[str, Any]:
        info: dict[str, Any] = {}
        for key, values in self.dynamics.progress().items():
            info[key], info[f"_{key}"] = np.where(rows, values, 0), rows.copy()
        return info

    def _final_info(self) -> dict[str, Any]:
        final_obs: npt.NDArray[Any] = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(self._ended).tolist():
            final_obs[row] = self._obs[row].copy()
        return {
            "final_obs": final_obs,
            "_final_obs": self._ended.copy(),
            "final_info": self._info(self._ended),
            "_final_info": self._ended.copy(),
        }

    def _require_reset(self) -> None:
        if not self._seeded.all():
            raise gym.error.ResetNeeded("Call reset() on all rows before the first step.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise gym.error.ResetNeeded(
                f"The episodes of rows {np.flatnonzero(self._ended).tolist()} have ended. With "
                "autoreset DISABLED reset them with options={'reset_mask': mask}."
            )

    def _row_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{self.num_envs} seeds are needed, one per row, got {len(seed)}.")
        return list(seed)


def _spaces_of(dynamics: Dynamics) -> tuple[Any, Any]:
    box = Box(-1.0, 1.0, (dynamics.observation_size,), np.float32)
    if isinstance(dynamics.actions, int):
        return box, Discrete(dynamics.actions)
    return box, Box(-1.0, 1.0, dynamics.actions, np.float32)


def _check_render_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}.")
    return render_mode


def _check_actions(actions: npt.NDArray[Any], dynamics: Dynamics) -> npt.NDArray[Any]:
    number = dynamics.actions
    shape = (dynamics.num_rows, *(() if isinstance(number, int) else number))
    if actions.shape != shape:
        raise gym.error.InvalidAction(
            f"Actions for {dynamics.num_rows} rows must have shape {shape}, got shape "
            f"{actions.shape}."
        )
    if not isinstance(number, int):
        if not np.isfinite(actions.astype(np.float64)).all():
            raise gym.error.InvalidAction(f"Actions must be finite, got {actions.tolist()}.")
        return np.clip(actions.astype(np.float64), -1.0, 1.0)
    whole = np.issubdtype(actions.dtype, np.integer)
    if not whole or not ((actions >= 0) & (actions < number)).all():
        raise gym.error.InvalidAction(
            f"Actions are whole numbers in 0 … {number - 1}, got {actions.tolist()}."
        )
    return actions.astype(np.int64)
