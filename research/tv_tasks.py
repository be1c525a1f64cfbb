"""MiniGrid's tasks with a noisy TV: `--env-id research.tv_tasks:MiniGridTV-v0`.

    python train/ppo_rnd.py --env-id research.tv_tasks:MiniGridTV-v0 --bonus count ... \
        --env-kwargs '{"task": "MiniGrid-MultiRoom-N4-S5-v1", "place": "last room"}'

The TV changes what the agent sees, and nothing else: the maps, the rewards and the ends of the
episodes are those of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from adops_wrappers.envs import NoisyTV

Place = Callable[[Any], bool]

BRIGHTEST = 10
"""The largest number that MiniGrid itself shows: its objects are numbered from 0 to 10."""
STRIP = np.s_[:, 0]
"""The row of the view that is farthest from the agent: the other six rows stay as they are."""


def in_room(number: int, env: Any) -> bool:
    """Whether the agent stands in a room of MultiRoom, its doors included."""
    room = env.rooms[number]
    return all(
        first <= place < first + size
        for first, place, size in zip(room.top, env.agent_pos, room.size, strict=True)
    )


def behind_red_door(env: Any) -> bool:
    """Whether the agent stands in the room behind RedBlueDoors' red door."""
    return bool(env.agent_pos[0] < env.size // 2)


def near_goal(env: Any) -> bool:
    """Whether the goal is at most two cells away, in each direction."""
    goal = getattr(env, "goal_pos", (env.width - 2, env.height - 2))
    return all(abs(a - b) <= 2 for a, b in zip(env.agent_pos, goal, strict=True))


PLACES: dict[str, Place] = {
    "first room": partial(in_room, 0),
    "second room": partial(in_room, 1),
    "third room": partial(in_room, 2),
    "last room": partial(in_room, -1),
    "behind the red door": behind_red_door,
    "near the goal": near_goal,
    "everywhere": lambda env: True,
}
"""Where the TV can be seen from."""


def make(
    task: str,
    place: str = "",
    action: int | None = None,
    screen: str = "strip",
    render_mode: str | None = None,
    **keywords: Any,
) -> gym.Env[Any, Any]:
    """Return a task of MiniGrid with a TV; the observation is the image, divided by ten.

    Args:
        task: The id of the task.
        place: Where the TV can be seen from, one of `PLACES`; none at all if empty.
        action: The action that switches it on for one step; None: it is always on.
        screen: `strip` for the farthest row of the view, `view` for all of it.
        render_mode: As in `gymnasium.make`.
        keywords: Settings of the task, such as `max_steps`.
    """
    from minigrid.wrappers import ImgObsWrapper

    wrap: Any = ImgObsWrapper
    env = wrap(gym.make(task, render_mode=render_mode, **keywords))
    if place not in ("", *PLACES):
        raise ValueError(f"place must be one of {', '.join(PLACES)}; got {place!r}.")
    if place:
        pixels = {"strip": STRIP, "view": None}[screen]
        seen_from = partial(_is_at, PLACES[place], env.unwrapped)
        env = NoisyTV(env, place=seen_from, action=action, screen=pixels, low=0, high=BRIGHTEST)
    # As ppo_rnd.py feeds MiniGrid's own ids to its networks.
    space = gym.spaces.Box(0.0, 25.5, env.observation_space.shape, np.float32)
    return gym.wrappers.TransformObservation(env, _tenth, space)


def _is_at(place: Place, env: Any, obs: Any) -> bool:
    return place(env)


def _tenth(obs: Any) -> Any:
    return obs.astype(np.float32) * np.float32(0.1)


gym.register("MiniGridTV-v0", entry_point=f"{__name__}:make")
