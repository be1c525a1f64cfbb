"""What the RAM of Montezuma's Revenge says: room, position, items, lives, enemies.

The bytes were found by playing: the tests walk through three rooms and see them change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adops_wrappers.arrays import BoolArray
from adops_wrappers.envs.atari_ram.emulators import RAM_SIZE, AtariRamDynamics, Ram
from adops_wrappers.envs.base import IntArray, Moved, Observations

ROOM, X, Y, ITEMS = 3, 42, 43, 65
NUM_ROOMS = 24
BYTES = {
    "room": ROOM,
    "x, to the right": X,
    "y, upwards": Y,
    "x of the room's object: key, jewel, sword, torch, or two jumping skulls": 44,
    "y of it": 45,
    "y of the rolling skull": 46,
    "x of it": 47,
    "pose: facing left or right, up or down": 52,
    "lives left": 58,
    "clock, highest bit (8): it flips when the lower four have wrapped": 61,
    "clock, one up every two steps, 0 to 15": 62,
    "items: a key is 2, the sword 32": ITEMS,
    "what is left in the room: bit 0 its object, bits 2 and 3 closed doors in the first room": 66,
}
"""The bytes that are shown bit by bit, in this order."""
CELL = 8
PARTS = {
    "room": NUM_ROOMS,
    "bits": 8 * len(BYTES),
    "position": 4,
    "bytes": RAM_SIZE,
}
"""The parts of an observation with their lengths, in this order: one-hot room; the bits of `BYTES`,
highest first; x and y, divided by 255, then their remainders by 16, divided by 16; all bytes,
divided by 255."""
SIZE = sum(PARTS.values())

_ONE_HOT = np.eye(NUM_ROOMS, dtype=np.float32)[np.minimum(np.arange(256), NUM_ROOMS - 1)]
_BITS = list(BYTES.values())
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
            np.unpackbits(ram[:, _BITS], axis=1),
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
