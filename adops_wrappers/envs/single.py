"""One env of the gallery as a `gymnasium.Env`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete

from adops_wrappers.arrays import FloatArray
from adops_wrappers.envs.crowd import Crowd
from adops_wrappers.envs.render import Image, draw
from adops_wrappers.envs.world import IMAGE_BITS, IntArray, World, get_world
from adops_wrappers.tabular import FiniteMDP

if TYPE_CHECKING:
    AnyEnv = gym.Env[npt.NDArray[np.float32], np.int64]
else:
    AnyEnv = gym.Env

_ONE_ROW = np.ones(1, dtype=np.bool_)


class GalleryEnv(AnyEnv):
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

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, layout: str, horizon: int | None = None, render_mode: str | None = None
    ) -> None:
        self.world = get_world(layout)
        self.crowd = Crowd(self.world, 1, horizon)
        self.render_mode = check_render_mode(render_mode)
        self.observation_space, self.action_space = spaces_of(self.world)
        self._picture = np.zeros(IMAGE_BITS, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Go back to the start."""
        super().reset(seed=seed)
        self.crowd.generators[0] = self.np_random
        self.crowd.restart(_ONE_ROW)
        return self._seen(self.crowd.observe()[0]), {}

    def step(
        self, action: Any
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move, or use what is near."""
        if self.crowd.generators[0] is None:
            raise gym.error.ResetNeeded("Call env.reset() before the first step.")
        moved = self.crowd.move(check_actions(np.array([action]), self.world.num_actions), _ONE_ROW)
        return (
            self._seen(moved.obs[0]),
            float(moved.reward[0]),
            bool(moved.terminated[0]),
            bool(moved.truncated[0]),
            {},
        )

    def render(self) -> Image | None:
        """Return the picture of the world."""
        if self.render_mode is None:
            return None
        return draw(self.world, int(self.crowd.state[0]), self._picture)

    def to_mdp(self, gamma: float) -> FiniteMDP:
        """Return the MDP behind this env, with the goal worth 1; see `World.to_mdp`."""
        return self.world.to_mdp(gamma)

    def state_of(self, obs: Any) -> IntArray:
        """Return the MDP's state behind an observation or a batch of them."""
        return self.world.state_of(obs)

    def tempting_bonus(self, scale: float = 1.0) -> FloatArray:
        """Return the bonus that tempts in this env, shape (S, A, S)."""
        return self.world.tempting_bonus(scale)

    def _seen(self, obs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        self._picture = obs[-IMAGE_BITS:].copy()
        return obs


def spaces_of(world: World) -> tuple[Any, Any]:
    """Return the spaces of one observation and one action."""
    box = Box(-1.0, 1.0, (world.observation_size,), np.float32)
    return box, Discrete(world.num_actions)


def check_render_mode(render_mode: str | None) -> str | None:
    """Raise unless the render mode is known."""
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}.")
    return render_mode


def check_actions(actions: Any, num_actions: int) -> IntArray:
    """Return actions as integers, or raise if one is outside the action space."""
    array = np.asarray(actions)
    if (
        not np.issubdtype(array.dtype, np.integer)
        or not ((array >= 0) & (array < num_actions)).all()
    ):
        raise gym.error.InvalidAction(
            f"Actions are whole numbers in 0 … {num_actions - 1}, got {array.tolist()}."
        )
    return array.astype(np.int64)
