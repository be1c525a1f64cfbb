"""The map of MiniZuma, compiled into tables that are indexed with cells."""

from __future__ import annotations

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.envs.base import IntArray

PLAN = (
    "#####################",
    "#S...#....#b...#...1#",
    "#....#....#....#....#",
    "#....#....#~~~~#....#",
    "#.........#.........#",
    "#########!##!########",
    "#....#....R....#...g#",
    "#....#....#....#....#",
    "#....#....#....#....#",
    "#.........#....#....#",
    "#!##########B####!###",
    "#....#...3#....#....#",
    "#....#~~~~#~~~~#~~~~#",
    "#....G....#.........#",
    "#...r#....#....#...2#",
    "#####################",
)
"""`S` start, `r b g` keys, `R B G` doors, `1 2 3` the jewels behind them, `!` a doorway with a
laser, `~` the row that a skull patrols, `#` wall, `.` floor."""
ROOM_SIZE = 4
ROOM_ROWS, ROOM_COLUMNS = 3, 4
NUM_ROOMS = ROOM_ROWS * ROOM_COLUMNS
HEIGHT, WIDTH = len(PLAN), len(PLAN[0])

ACTIONS = ("wait", "up", "right", "down", "left")
MOVES = (0, -WIDTH, 1, WIDTH, -1)
DOOR_REWARD, JEWEL_REWARD = 300.0, 1000.0
_STAGE_SYMBOLS = "rbgRBG123"
NUM_STAGES = len(_STAGE_SYMBOLS)
"""Three keys, three doors and three jewels, one bit each of a row's progress, in this order."""
ALL_JEWELS = 0b111_000_000
TURN_ODDS, REST_ODDS = 8, 4
"""A skull turns round in one step of 8 and rests in one of 4."""
LASER_PERIOD, LASER_ON = 8, 4
"""A laser burns during the first 4 of every 8 ticks of its clock."""

_SYMBOLS = "".join(PLAN)
_STRIDE = ROOM_SIZE + 1


def _bits(symbols: str) -> IntArray:
    """Return 1, 2, 4 … on the cells of the first, second, third … symbol, 0 elsewhere."""
    return np.array([1 << symbols.index(at) if at in symbols else 0 for at in _SYMBOLS])


def _rooms_with(symbol: str) -> list[int]:
    return sorted({int(ROOM[cell]) for cell, at in enumerate(_SYMBOLS) if at == symbol})


_row, _column = np.divmod(np.arange(len(_SYMBOLS)), WIDTH)
START = _SYMBOLS.index("S")
ROOM: IntArray = np.minimum(_row // _STRIDE, ROOM_ROWS - 1) * ROOM_COLUMNS + np.minimum(
    _column // _STRIDE, ROOM_COLUMNS - 1
)
"""The room of a cell; a doorway belongs to the room below it or to the right of it."""
ROOM_ROW: IntArray = _row % _STRIDE
ROOM_COLUMN: IntArray = _column % _STRIDE
"""The place within the room, 1 … 4; 0 in the doorways above and to the left."""
INSIDE: BoolArray = (ROOM_ROW > 0) & (ROOM_COLUMN > 0)
"""Whether a cell lies within a room, doorways and walls excluded."""
WALL: BoolArray = np.array([at == "#" for at in _SYMBOLS])
GIVES: IntArray = _bits(_STAGE_SYMBOLS)
"""The stage that a cell's first visit completes."""
NEEDS: IntArray = _bits("RBG")
"""The key without which a cell cannot be entered."""
PAYS: FloatArray = np.select([NEEDS > 0, GIVES > 0b111_111], [DOOR_REWARD, JEWEL_REWARD], 0.0)
"""The reward of a cell's first visit."""

_neighbour = np.arange(len(_SYMBOLS))[:, None] + np.array(MOVES)
NEXT_CELL: IntArray = np.where(
    WALL[_neighbour % len(_SYMBOLS)], np.arange(len(_SYMBOLS))[:, None], _neighbour
)
"""Where an action leads, walls considered and doors not."""

SKULL_ROOMS = _rooms_with("~")
NUM_SKULLS = len(SKULL_ROOMS)
SKULL: IntArray = np.array(
    [SKULL_ROOMS.index(room) if room in SKULL_ROOMS else NUM_SKULLS for room in ROOM]
)
"""The skull of a cell's room; `NUM_SKULLS` in rooms without."""
SKULL_CELL: IntArray = np.full((NUM_SKULLS + 1, ROOM_SIZE + 1), -1)
"""The cells that each skull patrols, from left to right; no cell for no skull."""
for _index, _room in enumerate(SKULL_ROOMS):
    SKULL_CELL[_index, :-1] = [
        cell for cell, at in enumerate(_SYMBOLS) if at == "~" and ROOM[cell] == _room
    ]
NO_SKULL = 2 * ROOM_SIZE
"""The state of the skull that is not there; others are 2 · place + 1 if it goes right."""

_lasers = [cell for cell, at in enumerate(_SYMBOLS) if at == "!"]
NUM_LASERS = len(_lasers)
LASER_CELL: BoolArray = np.array([at == "!" for at in _SYMBOLS])
_laser_of_room = {
    int(ROOM[cell + side]): index for index, cell in enumerate(_lasers) for side in (-WIDTH, WIDTH)
}
LASER: IntArray = np.array([_laser_of_room.get(int(room), NUM_LASERS) for room in ROOM])
"""The laser in a doorway of a cell's room; `NUM_LASERS` in rooms without."""
