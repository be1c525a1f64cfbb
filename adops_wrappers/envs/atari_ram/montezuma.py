"""What the RAM of Montezuma's Revenge says: room, position, items, lives, enemies."""

from __future__ import annotations

from typing import Any

import numpy as np

from adops_wrappers.arrays import BoolArray
from adops_wrappers.envs.atari_ram.emulators import RAM_SIZE, AtariRamDynamics, Ram
from adops_wrappers.envs.base import IntArray, Moved, Observations

ROOM, X, Y, ITEMS = 3, 42, 43, 65
NUM_ROOMS = 24
BITS = (ROOM, X, Y, 44, 45, 46, 47, 52, 58, 61, 62, ITEMS, 66)
CELL = 8
PARTS = {"room": NUM_ROOMS, "bits": 8 * len(BITS), "position": 4, "bytes": RAM_SIZE}
SIZE = sum(PARTS.values())

_ONE_HOT = np.eye(NUM_ROOMS, dtype=np.float32)[np.minimum(np.arange(256), NUM_ROOMS - 1)]
_KEY = [SIZE - RAM_SIZE + byte for byte in (ROOM, X, Y, ITEMS)]


def montezuma_key(obs: Observations) -> bytes:
    """Return room, column and row in eights, and items of an observation, for `CountBonus`."""
    room, x, y, items = (round(255 * obs.item(column)) for column in _KEY)  # fast: once per step
    return bytes((room, x // CELL, y // CELL, items))


class MontezumaRamDynamics(AtariRamDynamics):
    """n emulators of Montezuma's Revenge, with features that are named."""

    observation_size = SIZE
    count_key = staticmethod(montezuma_key)

    def __init__(self, num_rows: int, *settings: Any) -> None:
        super().__init__(num_rows, *settings)
        self.visited: BoolArray = np.zeros((num_rows, NUM_ROOMS), dtype=np.bool_)

    def encode(self, ram: Ram) -> Observations:
        """Return the features of these bytes."""
        place = ram[:, (X, Y)]
        parts = (
            _ONE_HOT[ram[:, ROOM]],
            np.unpackbits(ram[:, BITS], axis=1),
            place / np.float32(255),
            place % 16 / np.float32(16),
            ram / np.float32(255),
        )
        return np.concatenate(parts, axis=1)

    def restart(self, rows: BoolArray) -> None:
        """Begin new episodes in the given rows."""
        super().restart(rows)
        self.visited[rows] = False
        self._visit()

    def move(self, actions: Any, rows: BoolArray) -> Moved:
        """Step the given rows."""
        moved = super().move(actions, rows)
        self._visit()
        return moved

    def _visit(self) -> None:
        self.visited |= _ONE_HOT[self.ram[:, ROOM]] > 0

    def progress(self) -> dict[str, IntArray]:
        """Return what `info` says about the running episodes."""
        named = {"room": ROOM, "x": X, "y": Y, "items": ITEMS}
        return {
            **super().progress(),
            **{name: self.ram[:, byte].astype(np.int64) for name, byte in named.items()},
            "rooms": self.visited.sum(1),
        }
