"""Pictures of MiniZuma: the whole temple, dark where the agent has not been, and a status line."""

from __future__ import annotations

from functools import cache

import numpy as np

from adops_wrappers.arrays import BoolArray
from adops_wrappers.envs.base import Image
from adops_wrappers.envs.minizuma import floorplan as plan

_SCALE = 3
_CELL = 8 * _SCALE
_INK = {
    "k": (24, 20, 32),
    "w": (248, 244, 232),
    "s": (240, 188, 140),
    "h": (120, 72, 40),
    "c": (0, 158, 115),
    "b": (60, 90, 170),
    "p": (204, 60, 80),
    "y": (255, 214, 90),
    "l": (86, 220, 255),
    "g": (110, 100, 110),
}
# Reds, blues and greens of the Okabe–Ito palette, which colour-blind readers can tell apart.
_COLOURS = ((230, 110, 30), (60, 150, 235), (20, 190, 130))
_SPRITES = {
    "agent": "..hhhh.. .hhhhhh. ..sksk.. ..ssss.. .cccccc. .scccccs ..bbbb.. ..b..b..",
    "skull": "..wwww.. .wwwwww. .wkwwkw. .wkwwkw. .wwkkww. ..wwww.. ..wkkw.. ........",
    "key": "........ .XXX.... X...X... X...XXXX X...X.XX .XXX..X. ........ ........",
    "jewel": "........ ..wXXX.. .wXXXXX. .XXXXXX. ..XXXX.. ...XX... ........ ........",
    "door": "XXXXXXXX XkXkXkXX XkXkXkXX XkXkXkXX XkXkXyXX XkXkXkXX XkXkXkXX XXXXXXXX",
    "open door": "XX....XX XX....XX X......X X......X X......X X......X XX....XX XX....XX",
    "burning": "gg....gg gllllllg gg....gg gllllllg gg....gg gllllllg gg....gg gllllllg",
    "quiet": "gg....gg gg....gg gg....gg gg....gg gg....gg gg....gg gg....gg gg....gg",
    "life": "........ .pp..pp. pwpppppp pppppppp .pppppp. ..pppp.. ...pp... ........",
}
_BRICKS = "aaaaaaad aaaaaaad aaaaaaad dddddddd aaadaaaa aaadaaaa aaadaaaa dddddddd"
_STONE = ((128, 92, 60), (112, 72, 84), (72, 80, 116))
"""The walls' colour, from the top of the temple to its bottom."""
_FLOOR = (44, 38, 52)
_BACKGROUND = (16, 14, 22)
_DARKNESS = 0.55


def draw(
    cell: int, progress: int, visited: int, lives: int, time: float, skulls: list[int],
    burning: list[bool],
) -> Image:  # fmt: skip
    """Return the temple with everything in it; `time` is the elapsed part of the time limit."""
    image = _temple().copy()
    for index, symbol in enumerate("".join(plan.PLAN)):
        block = _block(image, index)
        if symbol in "rbg" and not progress & plan.GIVES[index]:
            _paint(block, "key", _COLOURS["rbg".index(symbol)])
        elif symbol in "RBG":
            is_open = bool(progress & plan.GIVES[index])
            _paint(block, "open door" if is_open else "door", _COLOURS["RBG".index(symbol)])
        elif symbol in "123" and not progress & plan.GIVES[index]:
            _paint(block, "jewel", _INK["l"])
        elif symbol == "!":
            _paint(block, "burning" if burning[plan.LASER[index]] else "quiet")
    for row, place in enumerate(skulls):
        _paint(_block(image, int(plan.SKULL_CELL[row, place])), "skull")
    for room in range(plan.NUM_ROOMS):
        if not visited >> room & 1:
            dark = _inside(room)
            image[dark] = (image[dark] * _DARKNESS).astype(np.uint8)
    _paint(_block(image, cell), "agent")
    return np.concatenate([_status(progress, lives, time), image])


def _status(progress: int, lives: int, time: float) -> Image:
    line = np.full((_CELL, plan.WIDTH * _CELL, 3), _BACKGROUND, dtype=np.uint8)
    for slot in range(min(lives, 9)):
        _paint(_block(line, slot), "life")
    held = [progress >> i & 1 and not progress >> (3 + i) & 1 for i in range(3)]
    for slot, (has, colour) in enumerate(zip(held, _COLOURS, strict=True), start=10):
        if has:
            _paint(_block(line, slot), "key", colour)
    for slot in range(bin(progress & plan.ALL_JEWELS).count("1")):
        _paint(_block(line, 14 + slot), "jewel", _INK["l"])
    bar = line[_CELL // 2 - _SCALE : _CELL // 2 + _SCALE, 18 * _CELL : -_CELL // 2]
    bar[:] = _INK["g"]
    bar[:, : round((1.0 - time) * bar.shape[1])] = _INK["y"]
    return line


@cache
def _temple() -> Image:
    """Return walls and floors."""
    image = np.full((plan.HEIGHT * _CELL, plan.WIDTH * _CELL, 3), _FLOOR, dtype=np.uint8)
    bricks = np.kron(
        np.array([[1.0 if ink == "a" else 0.7 for ink in line] for line in _BRICKS.split()]),
        np.ones((_SCALE, _SCALE)),
    )
    for index in np.flatnonzero(plan.WALL).tolist():
        stone = np.array(_STONE[min(index // plan.WIDTH // 5, 2)])
        _block(image, index)[:] = (bricks[:, :, None] * stone).astype(np.uint8)
    return image


@cache
def _inside(room: int) -> BoolArray:
    mask = ((room == plan.ROOM) & plan.INSIDE).reshape(plan.HEIGHT, plan.WIDTH)
    return np.kron(mask, np.ones((_CELL, _CELL))).astype(np.bool_)


@cache
def _pixels(sprite: str, colour: tuple[int, int, int]) -> tuple[BoolArray, Image]:
    """Return which of a sprite's pixels are drawn, and their colours."""
    inks = [list(line) for line in _SPRITES[sprite].split()]
    drawn = np.array([[ink != "." for ink in line] for line in inks])
    palette = {**_INK, "X": colour, ".": (0, 0, 0)}
    colours = np.array([[palette[ink] for ink in line] for line in inks], dtype=np.uint8)
    size = (_SCALE, _SCALE)
    large = np.repeat(np.repeat(colours, _SCALE, axis=0), _SCALE, axis=1)
    return np.kron(drawn, np.ones(size)).astype(np.bool_), large


def _paint(block: Image, sprite: str, colour: tuple[int, int, int] = (0, 0, 0)) -> None:
    drawn, colours = _pixels(sprite, colour)
    block[drawn] = colours[drawn]


def _block(image: Image, cell: int) -> Image:
    row, column = divmod(cell, plan.WIDTH)
    return image[row * _CELL : (row + 1) * _CELL, column * _CELL : (column + 1) * _CELL]
