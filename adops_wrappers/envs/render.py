"""Pictures of a world as RGB arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from adops_wrappers.envs.base import Image
from adops_wrappers.envs.gridworld import IMAGE_BITS, World

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


def draw(world: World, state: int, picture: npt.NDArray[np.float32]) -> Image:
    """Return the floor plan with the agent, and on a noisy cell the picture it sees."""
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
