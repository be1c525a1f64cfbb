"""DeepSea as bsuite defines it, single and vector: a chain that dithering does not get through."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.envs.base import (
    DynamicsEnv,
    DynamicsVectorEnv,
    Image,
    IntArray,
    Moved,
    Observations,
)

SIZE = 10
MAPPING_SEED = 42
"""The seed of the action mapping in bsuite's experiment."""
MOVE_COST = 0.01
"""What N moves to the right cost together."""
EPISODES = 10_000
"""bsuite's budget."""
BAD_SHARE = 0.9
"""bsuite's rule: solved at the first episode after which less than this share was bad."""


class DeepSeaDynamics:
    """The cells of n divers, who sink by one row at each step; nothing is random.

    Args:
        num_rows: The number of divers.
        size: N: the sea has N × N cells, and an episode N steps.
        mapping_seed: Draws, for every cell, which of the two actions moves right.
    """

    actions = 2

    def __init__(self, num_rows: int, size: int, mapping_seed: int) -> None:
        self.num_rows = _checks.whole("num_envs", num_rows, least=1)
        self.size = _checks.whole("size", size, least=1)
        self.observation_size = self.size**2
        # The legacy generator: bsuite draws its mapping with it.
        generator = np.random.RandomState(mapping_seed)
        self.moves_right: IntArray = generator.binomial(1, 0.5, (self.size, self.size))
        self.depth: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.column: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.bad: BoolArray = np.zeros(num_rows, dtype=np.bool_)

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Do nothing: nothing here is random."""

    def restart(self, rows: BoolArray) -> None:
        """Put the given divers back to the surface, at the left."""
        self.depth[rows] = self.column[rows] = 0
        self.bad[rows] = False

    def observe(self, rows: BoolArray) -> Observations:
        """Return the sea with a 1 at the diver; all zeros at the end of an episode."""
        obs = np.zeros((self.num_rows, self.observation_size), np.float32)
        diving = np.flatnonzero(self.depth < self.size)
        obs[diving, self.depth[diving] * self.size + self.column[diving]] = 1.0
        return obs

    def move(self, actions: Any, rows: BoolArray) -> Moved:
        """Sink by one row, to the left or to the right."""
        depth, column = self.depth, self.column
        # Rows that do not move may stand at the end of their episode.
        right = actions == self.moves_right[np.minimum(depth, self.size - 1), column]
        treasure = rows & right & (column == self.size - 1)
        reward = treasure - MOVE_COST / self.size * (rows & right)
        self.bad = self.bad | (rows & ~right & (depth == column))
        moved = np.clip(np.where(right, column + 1, column - 1), 0, self.size - 1)
        self.column, self.depth = np.where(rows, moved, column), depth + rows
        terminated = rows & (self.depth == self.size)
        return Moved(self.observe(rows), reward, terminated, np.zeros_like(terminated))

    def progress(self) -> dict[str, IntArray]:
        """Return whether the diver has left the only way to the treasure, as bsuite counts it."""
        return {"bad": self.bad.astype(np.int64)}

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the sea, with the treasure in its corner and the diver in white."""
        sea = np.full((self.size, self.size, 3), (20, 60, 110), np.uint8)
        sea[-1, -1] = (230, 190, 60)
        sea[obs.reshape(self.size, self.size) == 1.0] = 255
        zoom = max(1, 320 // self.size)
        return sea.repeat(zoom, axis=0).repeat(zoom, axis=1)


class DeepSeaEnv(DynamicsEnv):
    """A sea of N × N cells, in which one of 2^N ways leads to the treasure.

    The diver starts at the top left and sinks by one row at each step, one column to the left or
    to the right. Which of the two actions moves right is drawn for every cell and stays. Moving
    right costs 0.01/N; moving right in the last cell of the last row pays 1. An episode has N
    steps and ends by termination. The observation holds a 1 at the diver's cell, row by row, and
    zeros at the end. `info["bad"]` says whether the diver has left the diagonal: bsuite counts
    such episodes, and calls N solved once less than 90 % of all episodes so far were bad, within
    10,000 episodes (`solved_after`).

    Args:
        size: N; bsuite's experiment has 10, 12, … 50.
        mapping_seed: Draws the mapping of actions; bsuite's experiment has 42.
        render_mode: None or "rgb_array".

    Example:
        >>> import gymnasium as gym
        >>> import adops_wrappers
        >>> env = gym.make("adops/DeepSea-v0", size=4)
        >>> _ = env.reset(seed=0)
        >>> right = env.unwrapped.dynamics.moves_right.diagonal()
        >>> [round(float(env.step(action)[1]), 4) for action in right]
        [-0.0025, -0.0025, -0.0025, 0.9975]
    """

    def __init__(
        self, size: int = SIZE, mapping_seed: int = MAPPING_SEED, render_mode: str | None = None
    ) -> None:
        super().__init__(DeepSeaDynamics(1, size, mapping_seed), render_mode)


class DeepSeaVectorEnv(DynamicsVectorEnv):
    """`num_envs` divers in equal seas; see `DeepSeaEnv`.

    Args:
        num_envs: The number of rows.
        size: N.
        mapping_seed: Draws the mapping of actions, the same for all rows.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED (reset rows with
            `options={"reset_mask": mask}`).
        render_mode: None or "rgb_array".
    """

    def __init__(
        self,
        num_envs: int,
        size: int = SIZE,
        mapping_seed: int = MAPPING_SEED,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(DeepSeaDynamics(num_envs, size, mapping_seed), autoreset_mode, render_mode)


def solved_after(bad: npt.ArrayLike) -> int | None:
    """Return the number of episodes after which DeepSea counts as solved; None if never.

    Args:
        bad: For each episode of a run, in order, whether it was bad.
    """
    counted = np.asarray(bad, dtype=np.float64)[:EPISODES]
    share: FloatArray = np.cumsum(counted) / np.arange(1, len(counted) + 1)
    solved = np.flatnonzero(share < BAD_SHARE)
    return int(solved[0]) + 1 if len(solved) else None
