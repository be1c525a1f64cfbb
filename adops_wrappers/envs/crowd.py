"""n agents in one world, side by side: the dynamics behind the single and the vector env."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.envs.world import IMAGE_BITS, IntArray, World

Observations = npt.NDArray[np.float32]


class Moved(NamedTuple):
    """What one step of all rows gave."""

    obs: Observations
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray


class Crowd:
    """The rows' states, clocks and random generators.

    Row i draws from its own generator, and only where its state is noisy or dangerous, so that
    its stream does not depend on the other rows.
    """

    def __init__(self, world: World, num_rows: int, horizon: int | None) -> None:
        self.world = world
        self.num_rows = _checks.whole("num_envs", num_rows, least=1)
        default = world.layout.horizon
        self.horizon = _checks.whole("horizon", default if horizon is None else horizon, least=1)
        self.state: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.time: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.generators: list[np.random.Generator | None] = [None] * num_rows

    def seed(self, row: int, seed: int | None) -> None:
        """Give a row a generator of its own, unless it has one and no seed is named."""
        if seed is not None or self.generators[row] is None:
            self.generators[row] = seeding.np_random(seed)[0]

    def restart(self, rows: BoolArray) -> None:
        """Begin new episodes in the given rows."""
        self.state[rows] = 0
        self.time[rows] = 0

    def observe(self, rows: BoolArray | None = None) -> Observations:
        """Return the observations of all rows, drawing new pictures for `rows` alone."""
        obs = self.world.observations[self.state]
        watching = self.world.noisy[self.state]
        for row in np.flatnonzero(watching if rows is None else watching & rows).tolist():
            obs[row, -IMAGE_BITS:] = 2 * self._draw(row).integers(0, 2, IMAGE_BITS) - 1
        return obs

    def move(self, actions: IntArray, rows: BoolArray) -> Moved:
        """Step the given rows; the others stay where they are and get no reward."""
        world = self.world
        before = self.state
        arrival = np.where(rows, world.next_state[before, actions], before)
        for row in np.flatnonzero((world.catch_probability[arrival] > 0) & rows).tolist():
            if self._draw(row).random() < world.catch_probability[arrival[row]]:
                arrival[row] = world.skull
        self.state = arrival
        self.time = self.time + rows
        at_goal = world.goal[arrival]
        reward = world.coin_reward[before, actions] + at_goal * (
            1.0 - 0.9 * self.time / self.horizon
        )
        terminated = world.terminal[arrival] & rows
        truncated = (self.time >= self.horizon) & rows & ~terminated
        return Moved(self.observe(rows), np.where(rows, reward, 0.0), terminated, truncated)

    def _draw(self, row: int) -> np.random.Generator:
        generator = self.generators[row]
        assert generator is not None
        return generator
