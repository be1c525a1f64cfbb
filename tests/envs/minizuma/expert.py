"""A player that knows the map of MiniZuma and sees nothing but observations."""

from __future__ import annotations

from collections import deque
from functools import cache

import numpy as np

from adops_wrappers.envs.minizuma.floorplan import PLAN

MOVES = {"wait": (0, 0), "up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
ORDER = "rR1bB2gG3"
BITS = "rbgRBG123"


def expert(obs: np.ndarray) -> int:
    """Return the next action on the safe way to the next key, door or jewel."""
    row, column = divmod(int(obs[:12].argmax()), 4)
    here = 5 * row + int(obs[12:17].argmax()), 5 * column + int(obs[17:22].argmax())
    reached = {symbol for symbol, on in zip(BITS, obs[22:31], strict=True) if on}
    reached |= {door.lower() for door in reached & set("RGB")}
    goal = next((symbol for symbol in ORDER if symbol not in reached), None)
    if goal is None:
        return 0
    keys = "".join(sorted(reached & set("rbg")))
    action, ahead = way_to(goal, keys)[here]
    danger = PLAN[ahead[0]][ahead[1]]
    if danger == "!" and round(4 * obs[36]) not in (1, -4, -3, -2):
        return 0  # it would burn when I get there
    if danger == "~" and abs(int(obs[31:35].argmax()) - (ahead[1] % 5 - 1)) < 2:
        return 0  # the skull is too near to cross its row
    return action


@cache
def way_to(goal: str, keys: str) -> dict[tuple[int, int], tuple[int, tuple[int, int]]]:
    """Return the action and the next cell on the way from every cell, never along a skull row."""
    cells = {(y, x): at for y, line in enumerate(PLAN) for x, at in enumerate(line)}
    passable = {
        cell for cell, at in cells.items() if at != "#" and (at not in "RBG" or at.lower() in keys)
    }
    target = next(cell for cell, at in cells.items() if at == goal)
    way: dict[tuple[int, int], tuple[int, tuple[int, int]]] = {}
    queue = deque([target])
    while queue:
        cell = queue.popleft()
        for action, (dy, dx) in enumerate(MOVES.values()):
            origin = cell[0] - dy, cell[1] - dx
            along = cells.get(origin) == "~" == cells[cell]
            if origin in passable and origin not in way and origin != target and not along:
                way[origin] = action, cell
                queue.append(origin)
    return way
