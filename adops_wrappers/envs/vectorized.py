"""Many copies of one gallery env as a `gymnasium.vector.VectorEnv`, stepped by table lookups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.envs.crowd import Crowd, Observations
from adops_wrappers.envs.render import Image, draw
from adops_wrappers.envs.single import check_actions, check_render_mode, spaces_of
from adops_wrappers.envs.world import IMAGE_BITS, IntArray, get_world
from adops_wrappers.episodes import split_reset_mask
from adops_wrappers.tabular import FiniteMDP


class GalleryVectorEnv(VectorEnv):  # type: ignore[type-arg,unused-ignore]
    """`num_envs` gallery envs of one layout; row i seeded s + i is the single env seeded s + i.

    The whole state is in plain attributes, so that `pickle` and `copy.deepcopy` save a run.

    Args:
        num_envs: The number of rows.
        layout: A name in `adops_wrappers.envs.LAYOUTS`.
        horizon: H; None for the layout's own.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED (reset rows with
            `options={"reset_mask": mask}`).
        render_mode: None or "rgb_array".

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> import adops_wrappers
        >>> envs = gym.make_vec("adops/TVCorridor-v0", num_envs=3)
        >>> obs, info = envs.reset(seed=0)
        >>> obs.shape
        (3, 36)
        >>> envs.step(np.array([1, 1, 3]))[1]
        array([0., 0., 0.])
    """

    def __init__(
        self,
        num_envs: int,
        layout: str,
        horizon: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self.world = get_world(layout)
        self.crowd = Crowd(self.world, num_envs, horizon)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.render_mode = check_render_mode(render_mode)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 10,
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space, self.single_action_space = spaces_of(self.world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs: Observations = np.zeros((num_envs, self.world.observation_size), np.float32)
        self._ended: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self._was_reset: BoolArray = np.zeros(num_envs, dtype=np.bool_)

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
            self.crowd.seed(row, seeds[row])
        self._restart(rows)
        return self._obs.copy(), {}

    def step(
        self, actions: Any
    ) -> tuple[Observations, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Step all rows; what happens to rows that have ended is the autoreset mode's affair."""
        self._require_reset()
        chosen = check_actions(actions, self.world.num_actions)
        if chosen.shape != (self.num_envs,):
            raise gym.error.InvalidAction(
                f"One action for each of {self.num_envs} rows is needed, got shape {chosen.shape}."
            )
        resetting = self._ended
        moved = self.crowd.move(chosen, ~resetting)
        self._obs, info = moved.obs, {}
        self._ended = moved.terminated | moved.truncated
        if resetting.any():
            self._restart(resetting)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            info = self._final_info()
            self._restart(self._ended.copy())
        return self._obs.copy(), moved.reward, moved.terminated, moved.truncated, info

    def render(self) -> tuple[Image, ...] | None:
        """Return one picture per row."""
        if self.render_mode is None:
            return None
        pictures = self._obs[:, -IMAGE_BITS:]
        rows = zip(self.crowd.state.tolist(), pictures, strict=True)
        return tuple(draw(self.world, state, picture) for state, picture in rows)

    def to_mdp(self, gamma: float) -> FiniteMDP:
        """Return the MDP behind every row, with the goal worth 1; see `World.to_mdp`."""
        return self.world.to_mdp(gamma)

    def state_of(self, obs: Any) -> IntArray:
        """Return the MDP's state behind an observation or a batch of them."""
        return self.world.state_of(obs)

    def tempting_bonus(self, scale: float = 1.0) -> FloatArray:
        """Return the bonus that tempts in this env, shape (S, A, S)."""
        return self.world.tempting_bonus(scale)

    def _restart(self, rows: BoolArray) -> None:
        self.crowd.restart(rows)
        self._obs = np.where(rows[:, None], self.crowd.observe(rows), self._obs)
        self._ended = self._ended & ~rows
        self._was_reset = self._was_reset | rows

    def _final_info(self) -> dict[str, Any]:
        final_obs: npt.NDArray[Any] = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(self._ended).tolist():
            final_obs[row] = self._obs[row].copy()
        ended = self._ended.copy()
        return {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": {},
            "_final_info": ended.copy(),
        }

    def _require_reset(self) -> None:
        if not self._was_reset.all():
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
