"""n agents in one grid world, side by side: the dynamics behind the single and the vector env."""

from __future__ import annotations

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray
from adops_wrappers.envs.base import Image, IntArray, Moved, Observations
from adops_wrappers.envs.gridworld import IMAGE_BITS, World
from adops_wrappers.envs.render import draw


class GridDynamics:
    """The rows' states, clocks and random generators.

    Row i draws from its own generator, and only where its state is noisy or dangerous, so that
    its stream does not depend on the other rows.
    """

    def __init__(self, world: World, num_rows: int, horizon: int | None) -> None:
        self.world = world
        self.num_rows = _checks.whole("num_envs", num_rows, least=1)
        default = world.layout.horizon
        self.horizon = _checks.whole("horizon", default if horizon is None else horizon, least=1)
        self.actions, self.observation_size = world.num_actions, world.observation_size
        self.state: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.time: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.generators: dict[int, np.random.Generator] = {}

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Give a row a generator of its own."""
        self.generators[row] = generator

    def restart(self, rows: BoolArray) -> None:
        """Begin new episodes in the given rows."""
        self.state[rows] = 0
        self.time[rows] = 0

    def observe(self, rows: BoolArray) -> Observations:
        """Return the observations of all rows, drawing new pictures for `rows` alone."""
        obs = self.world.observations[self.state]
        for row in np.flatnonzero(self.world.noisy[self.state] & rows).tolist():
            obs[row, -IMAGE_BITS:] = 2 * self.generators[row].integers(0, 2, IMAGE_BITS) - 1
        return obs

    def move(self, actions: IntArray, rows: BoolArray) -> Moved:
        """Step the given rows; the others stay where they are and get no reward."""
        world = self.world
        before = self.state
        arrival = np.where(rows, world.next_state[before, actions], before)
        for row in np.flatnonzero((world.catch_probability[arrival] > 0) & rows).tolist():
            if self.generators[row].random() < world.catch_probability[arrival[row]]:
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

    def progress(self) -> dict[str, IntArray]:
        """Return nothing: the reward says all."""
        return {}

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the floor plan with the agent, and on a noisy cell the picture it sees."""
        return draw(self.world, int(self.state[row]), obs[-IMAGE_BITS:])
