"""Montezuma's Revenge in miniature: `adops/MiniZuma-v0`."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from adops_wrappers.envs.base import DynamicsEnv, DynamicsVectorEnv
from adops_wrappers.envs.minizuma.dynamics import MiniZumaDynamics

__all__ = ["MiniZumaEnv", "MiniZumaVectorEnv"]


class MiniZumaEnv(DynamicsEnv):
    """Montezuma's Revenge in miniature: 12 rooms of 4 × 4 cells, and a first reward far away.

    ```
    #####################
    #S...#....#b...#...1#
    #....#....#....#....#
    #....#....#~~~~#....#
    #.........#.........#
    #########!##!########
    #....#....R....#...g#
    #....#....#....#....#
    #....#....#....#....#
    #.........#....#....#
    #!##########B####!###
    #....#...3#....#....#
    #....#~~~~#~~~~#~~~~#
    #....G....#.........#
    #...r#....#....#...2#
    #####################
    ```

    Each key (`r b g`) opens the door of its colour (`R B G`), and behind each door lies a jewel
    (`1 2 3`). A skull patrols each row `~`, and a laser bars each doorway `!`.

    - **Actions**: wait, up, right, down, left. Walls and locked doors stop a move. Walking onto
      a key or a jewel takes it; walking into a door with its key opens it and uses the key up.
    - **Reward**: 300 for a door, 1,000 for a jewel, 0 for a key: 3,900 in all.
    - **Skulls** turn round in 1 step of 8, rest in 1 of 4, and turn at walls. Being in a skull's
      cell, or swapping places with it, costs a life.
    - **Lasers** burn during 4 of every 8 steps, which costs a life in the doorway.
    - **A lost life** puts the agent back to the first cell that it entered in its room.
    - **End**: terminated with the third jewel or the last life, truncated after `horizon` steps.
    - **Observation** (38 floats): one-hot room (12), row and column within the room (5 each, 0 is
      the doorway above or to the left), keys held (3), doors open (3), jewels taken (3), place
      (one-hot, 4) and direction (±1) of the room's skull, the room's laser (steps until it
      switches, divided by 4; negative while it is off), and the share of lives left.
    - **info**: `stages`, the keys taken, doors opened and jewels taken in this episode (0 to 9),
      and `rooms`, the rooms visited in it (1 to 12).

    Args:
        horizon: The number of steps after which an episode is truncated.
        lives: How often the agent can be killed before the episode ends.
        render_mode: None or "rgb_array".

    Example:
        >>> import gymnasium as gym
        >>> import adops_wrappers
        >>> env = gym.make("adops/MiniZuma-v0")
        >>> obs, info = env.reset(seed=0)
        >>> obs.shape, info
        ((38,), {'stages': 0, 'rooms': 1})
    """

    def __init__(self, horizon: int = 1000, lives: int = 5, render_mode: str | None = None) -> None:
        super().__init__(MiniZumaDynamics(1, horizon, lives), render_mode)


class MiniZumaVectorEnv(DynamicsVectorEnv):
    """`num_envs` temples; row i seeded s + i is the single env seeded s + i. See `MiniZumaEnv`.

    `info["stages"]` and `info["rooms"]` are arrays. Under SAME_STEP those of an episode that
    has just ended are in `info["final_info"]`, at the rows of `info["_final_info"]`.

    Args:
        num_envs: The number of rows.
        horizon: The number of steps after which an episode is truncated.
        lives: How often the agent can be killed before the episode ends.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED (reset rows with
            `options={"reset_mask": mask}`).
        render_mode: None or "rgb_array".

    Example:
        >>> import gymnasium as gym
        >>> import numpy as np
        >>> import adops_wrappers
        >>> envs = gym.make_vec("adops/MiniZuma-v0", num_envs=3)
        >>> obs, info = envs.reset(seed=0)
        >>> envs.step(np.array([0, 3, 3]))[4]["rooms"]
        array([1, 1, 1])
    """

    def __init__(
        self,
        num_envs: int,
        horizon: int = 1000,
        lives: int = 5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(MiniZumaDynamics(num_envs, horizon, lives), autoreset_mode, render_mode)
