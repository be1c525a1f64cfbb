"""The gallery's grid worlds as a `gymnasium.Env` and as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from adops_wrappers.arrays import FloatArray
from adops_wrappers.envs.base import DynamicsEnv, DynamicsVectorEnv, IntArray
from adops_wrappers.envs.dynamics import GridDynamics
from adops_wrappers.envs.gridworld import World, get_world

if TYPE_CHECKING:
    from adops_wrappers.tabular import FiniteMDP


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
    is truncated, not terminated: the clock is no part of the observation.

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
        super().__init__(GridDynamics(self.world, num_envs, horizon), autoreset_mode, render_mode)
