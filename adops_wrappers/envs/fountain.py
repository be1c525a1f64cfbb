"""A lawn with a fountain: the gallery's env with continuous actions, single and vector."""

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

if TYPE_CHECKING:
    from adops_wrappers.tabular import FiniteMDP

START = np.array([-0.8, 0.0])
GOAL, GOAL_RADIUS = np.array([0.8, 0.0]), 0.25
FOUNTAIN, FOUNTAIN_RADIUS = np.array([0.0, 0.6]), 0.25
STRIDE = 0.2
"""How far an action of 1 goes along its axis."""
HORIZON = 100

_SIDE = int(2 / STRIDE) + 1
_MOVES = [(x, y) for y in (1, 0, -1) for x in (-1, 0, 1)]


class FountainDynamics:
    """The positions and clocks of n rows; nothing is random."""

    actions = (2,)
    observation_size = 2

    def __init__(self, num_rows: int, horizon: int | None) -> None:
        self.num_rows = _checks.whole("num_envs", num_rows, least=1)
        self.horizon = _checks.whole("horizon", HORIZON if horizon is None else horizon, least=1)
        self.position: FloatArray = np.tile(START, (num_rows, 1))
        self.time: IntArray = np.zeros(num_rows, dtype=np.int64)

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Do nothing: nothing here is random."""

    def restart(self, rows: BoolArray) -> None:
        """Put the given rows back to the start."""
        self.position[rows] = START
        self.time[rows] = 0

    def observe(self, rows: BoolArray) -> Observations:
        """Return the positions."""
        return self.position.astype(np.float32)

    def move(self, actions: Any, rows: BoolArray) -> Moved:
        """Walk; the edge of the lawn stops a step."""
        walked = np.clip(self.position + STRIDE * actions, -1.0, 1.0)
        self.position = np.where(rows[:, None], walked, self.position)
        self.time = self.time + rows
        terminated = _within(self.position, GOAL, GOAL_RADIUS) & rows
        truncated = (self.time >= self.horizon) & rows & ~terminated
        reward = terminated * (1.0 - 0.9 * self.time / self.horizon)
        return Moved(self.observe(rows), reward, terminated, truncated)

    def progress(self) -> dict[str, IntArray]:
        """Return nothing: the reward says it all."""
        return {}

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the lawn from above: fountain blue, goal green, agent dark."""
        return _draw(self.position[row])


class _Export:
    """What a bonus and the audit need."""

    def tempting_source(self, scale: float = 1.0) -> Any:
        """Return a source of F: `scale` for each step that ends within the fountain."""
        return lambda obs, action, next_obs: scale * in_fountain(next_obs)

    def to_mdp(self, gamma: float) -> FiniteMDP:
        """Return the MDP of the lattice of full strides, with the goal worth 1 at any time.

        The nine actions are the corners and edges of the Box and standing still. They lead from
        one point of the lattice to another, so that the MDP is the env itself with nine of its
        actions, not an approximation. The time limit is left out.
        """
        from adops_wrappers.tabular import FiniteMDP, GridView

        points, arrival = _lattice()
        goal = _within(points, GOAL, GOAL_RADIUS)
        shape = (len(points), len(_MOVES), len(points))
        state, action = np.indices(shape[:2])
        transition, reward = np.zeros(shape), np.zeros(shape)
        transition[state, action, arrival] = 1.0
        reward[state, action, arrival] = goal[arrival]
        row, column = np.divmod(np.arange(len(points)), _SIDE)
        names = tuple(f"({x:+d}, {y:+d})" for x, y in _MOVES)
        panel = np.zeros(len(points), dtype=np.int64)
        return FiniteMDP(
            transition,
            reward,
            gamma,
            goal,
            start=int(self.state_of(START)),
            action_names=names,
            grid=GridView(_SIDE - 1 - row, column, panel, ("",)),
        )

    def tempting_bonus(self, scale: float = 1.0) -> FloatArray:
        """Return the bonus of `tempting_source` on the lattice, shape (S, A, S)."""
        points, arrival = _lattice()
        bonus = np.zeros((len(points), len(_MOVES), len(points)))
        state, action = np.indices(arrival.shape)
        bonus[state, action, arrival] = scale * in_fountain(points)[arrival]
        return bonus

    def state_of(self, obs: Any) -> IntArray:
        """Return the point of the lattice that is nearest to each observation."""
        column, row = np.moveaxis(np.rint((np.asarray(obs) + 1.0) / STRIDE), -1, 0)
        return np.asarray(row * _SIDE + column, dtype=np.int64)


class FountainEnv(_Export, DynamicsEnv):
    """A lawn, the square [−1, 1]², with a fountain beside the way to the goal.

    The action, a Box of two numbers in [−1, 1], is a stride of at most 0.2 along each axis. The
    observation is the position. Coming within 0.25 of the goal (0.8, 0) after t steps ends the
    episode with reward 1 − 0.9·t/H. After H = 100 steps it is truncated, not terminated.

    The temptation is the fountain at (0, 0.6): `env.unwrapped.tempting_source(scale)` pays
    `scale` for every step that ends within 0.25 of it.

    Args:
        horizon: H; None for 100.
        render_mode: None or "rgb_array".

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> import adops_wrappers
        >>> env = gym.make("adops/Fountain-v0")
        >>> _ = env.reset(seed=0)
        >>> for _ in range(7):
        ...     obs, reward, terminated, truncated, info = env.step(np.array([1.0, 0.0]))
        >>> round(reward, 3), terminated  # 1 − 0.9·7/100
        (0.937, True)
    """

    def __init__(self, horizon: int | None = None, render_mode: str | None = None) -> None:
        super().__init__(FountainDynamics(1, horizon), render_mode)


class FountainVectorEnv(_Export, DynamicsVectorEnv):
    """`num_envs` lawns side by side; see `FountainEnv`.

    Args:
        num_envs: The number of rows.
        horizon: H; None for 100.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED (reset rows with
            `options={"reset_mask": mask}`).
        render_mode: None or "rgb_array".
    """

    def __init__(
        self,
        num_envs: int,
        horizon: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(FountainDynamics(num_envs, horizon), autoreset_mode, render_mode)


def in_fountain(obs: Any) -> Any:
    """Return whether each position lies within the fountain."""
    return _within(np.asarray(obs, dtype=np.float64), FOUNTAIN, FOUNTAIN_RADIUS)


def _within(position: FloatArray, centre: FloatArray, radius: float) -> Any:
    return np.square(position - centre).sum(axis=-1) <= radius**2


def _lattice() -> tuple[Any, Any]:
    """Return the points of the lattice (S, 2), and where each of nine moves leads (S, 9)."""
    axis = np.arange(_SIDE)
    row, column = (part.ravel() for part in np.meshgrid(axis, axis, indexing="ij"))
    moves = np.array(_MOVES)
    columns = np.clip(column[:, None] + moves[:, 0], 0, _SIDE - 1)
    rows = np.clip(row[:, None] + moves[:, 1], 0, _SIDE - 1)
    return np.stack([column, row], axis=1) * STRIDE - 1.0, rows * _SIDE + columns


def _draw(position: FloatArray, side: int = 128) -> Image:
    x, y = np.meshgrid(np.linspace(-1, 1, side), np.linspace(1, -1, side))
    pixels = np.stack([x, y], axis=-1)
    image: Image = np.full((side, side, 3), 235, dtype=np.uint8)
    image[_within(pixels, FOUNTAIN, FOUNTAIN_RADIUS)] = (86, 180, 233)
    image[_within(pixels, GOAL, GOAL_RADIUS)] = (0, 158, 115)
    image[_within(pixels, position, 0.06)] = (60, 60, 60)
    return image
