"""The gallery's grid worlds as a `gymnasium.Env` and as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
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
from adops_wrappers.envs.gridworld import IMAGE_BITS, World, get_world

if TYPE_CHECKING:
    from adops_wrappers.tabular import FiniteMDP

_CELL = 16
# The Okabe–Ito palette, which colour-blind readers can tell apart.
_COLOURS = {
    "#": (60, 60, 60),
    ".": (235, 235, 235),
    "S": (235, 235, 235),
    "G": (0, 158, 115),
    "K": (240, 228, 66),
    "D": (213, 94, 0),
    "T": (86, 180, 233),
    "C": (230, 159, 0),
    "B": (204, 121, 167),
    "~": (86, 180, 233),
    "X": (0, 0, 0),
}
_AGENT = (0, 114, 178)


class GridDynamics:
    """The states, clocks and random generators of n agents side by side in one world.

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
        """Return nothing: the reward says it all."""
        return {}

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the floor plan with the agent, and on a noisy cell the picture it sees."""
        return _draw(self.world, int(self.state[row]), obs[-IMAGE_BITS:])


class _Export:
    """What the audit needs of a gallery env."""

    world: World

    def to_mdp(self, gamma: float) -> FiniteMDP:
        """Return the MDP behind every row, with the goal worth 1; see `World.to_mdp`."""
        return self.world.to_mdp(gamma)

    def state_of(self, obs: Any) -> IntArray:
        """Return the MDP's state behind an observation or a batch of them."""
        return self.world.state_of(obs)

    def tempting_bonus(self, scale: float = 1.0) -> FloatArray:
        """Return the bonus that tempts in this env, shape (S, A, S)."""
        return self.world.tempting_bonus(scale)


class GalleryEnv(_Export, DynamicsEnv):
    """A grid world in which a persistent bonus leads away from the goal.

    Reaching the goal after t steps ends the episode with reward 1 − 0.9·t/H. After H steps it
    is truncated, not terminated: the clock is not part of the observation.

    Args:
        layout: A name in `adops_wrappers.envs.LAYOUTS`.
        horizon: H; None for the layout's own.
        render_mode: None or "rgb_array".

    Example:
        >>> import gymnasium as gym
        >>> import adops_wrappers
        >>> env = gym.make("adops/TVCorridor-v0")
        >>> _ = env.reset(seed=0)
        >>> for _ in range(13):
        ...     obs, reward, terminated, truncated, info = env.step(1)
        >>> round(reward, 3), terminated  # 1 − 0.9·13/100
        (0.883, True)
    """

    def __init__(
        self, layout: str, horizon: int | None = None, render_mode: str | None = None
    ) -> None:
        self.world = get_world(layout)
        super().__init__(GridDynamics(self.world, 1, horizon), render_mode)


class GalleryVectorEnv(_Export, DynamicsVectorEnv):
    """`num_envs` gallery envs of one layout; row i seeded s + i is the single env seeded s + i.

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
        super().__init__(GridDynamics(self.world, num_envs, horizon), autoreset_mode, render_mode)


def _draw(world: World, state: int, picture: Observations) -> Image:
    place = world.places[state]
    plan = world.plan
    image = np.zeros((len(plan) * _CELL, len(plan[0]) * _CELL, 3), dtype=np.uint8)
    for row, line in enumerate(plan):
        for column, symbol in enumerate(line):
            gone = (
                (symbol == "K" and place.key)
                or (symbol == "D" and place.door)
                or (symbol == "C" and place.coin)
            )
            block = _block(image, row, column)
            block[:] = _COLOURS["." if gone else symbol]
    block = _block(image, place.row, place.column)
    if picture.any():
        side = int(IMAGE_BITS**0.5)
        dark = picture.reshape(side, side) < 0
        block[np.kron(dark, np.ones((_CELL // side, _CELL // side), dtype=np.bool_))] = 40
    block[4:12, 4:12] = _AGENT
    return image


def _block(image: Image, row: int, column: int) -> Image:
    return image[row * _CELL : (row + 1) * _CELL, column * _CELL : (column + 1) * _CELL]
