"""What an agent sees of MiniZuma: its place, its belongings, and the dangers of its own room."""

from __future__ import annotations

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.envs.base import IntArray, Observations
from adops_wrappers.envs.minizuma import floorplan as plan

PARTS = {
    "room": plan.NUM_ROOMS,
    "row": plan.ROOM_SIZE + 1,
    "column": plan.ROOM_SIZE + 1,
    "keys held": 3,
    "doors open": 3,
    "jewels taken": 3,
    "skull": plan.ROOM_SIZE,
    "direction": 1,
    "laser": 1,
    "lives": 1,
}
"""The parts of an observation with their lengths, in this order."""
SIZE = sum(PARTS.values())


def _one_hot(index: IntArray, size: int) -> Observations:
    return np.eye(size, dtype=np.float32)[index]


_PLACE = np.concatenate(
    [
        _one_hot(plan.ROOM, plan.NUM_ROOMS),
        _one_hot(plan.ROOM_ROW, plan.ROOM_SIZE + 1),
        _one_hot(plan.ROOM_COLUMN, plan.ROOM_SIZE + 1),
    ],
    axis=1,
)
_reached = np.arange(1 << plan.NUM_STAGES)[:, None] >> np.arange(plan.NUM_STAGES) & 1
_PROGRESS = _reached.astype(np.float32)
_PROGRESS[:, :3] -= _PROGRESS[:, :3] * _PROGRESS[:, 3:6]  # a key that opened its door is gone
_SKULL = np.zeros((plan.NO_SKULL + 1, plan.ROOM_SIZE + 1), dtype=np.float32)
_SKULL[:-1, :-1] = _one_hot(np.arange(plan.NO_SKULL) >> 1, plan.ROOM_SIZE)
_SKULL[:-1, -1] = np.arange(plan.NO_SKULL) % 2 * 2 - 1
_clock = np.arange(plan.LASER_PERIOD)
_LASER = np.append(
    np.where(_clock < plan.LASER_ON, plan.LASER_ON - _clock, _clock - plan.LASER_PERIOD), 0
) / max(plan.LASER_ON, plan.LASER_PERIOD - plan.LASER_ON)

_STAGES = slice(_PLACE.shape[1], _PLACE.shape[1] + plan.NUM_STAGES)


def encode(
    cell: IntArray, progress: IntArray, skull: IntArray, clock: IntArray, lives: FloatArray
) -> Observations:
    """Return the observations; `skull` and `clock` are those of each row's room."""
    obs = np.empty((len(cell), SIZE), dtype=np.float32)
    obs[:, : _STAGES.start] = _PLACE[cell]
    obs[:, _STAGES] = _PROGRESS[progress]
    obs[:, _STAGES.stop : -2] = _SKULL[skull]
    obs[:, -2] = _LASER[clock]
    obs[:, -1] = lives
    return obs
