"""The rules of MiniZuma for n rows at once: table lookups, and one random word per row and step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray
from adops_wrappers.envs.base import Image, IntArray, Moved, Observations
from adops_wrappers.envs.minizuma import floorplan as plan
from adops_wrappers.envs.minizuma import observation
from adops_wrappers.envs.minizuma.render import draw

Words = npt.NDArray[np.uint64]


class State(NamedTuple):
    """The state of all rows."""

    cell: IntArray
    entrance: IntArray
    """The first cell that the agent entered in its room, where it comes back to life."""
    progress: IntArray
    """One bit per stage."""
    visited: IntArray
    """One bit per room."""
    lives: IntArray
    time: IntArray
    skulls: IntArray
    """Twice a skull's place plus 1 if it goes right; shape (n, skulls + 1), the last is none."""
    phases: IntArray
    """What a laser's clock showed at the start; shape (n, lasers + 1), the last is none."""
    key: Words
    """The source of all randomness in this episode."""


class MiniZumaDynamics:
    """The states of n rows and the rules that move them.

    All randomness in a row comes from its key: the random word of step t is a hash of key and t,
    so that the rows are independent streams, drawn without a loop over them.
    """

    actions = len(plan.ACTIONS)
    observation_size = observation.SIZE

    def __init__(self, num_rows: int, horizon: int, lives: int) -> None:
        self.num_rows = _checks.whole("num_envs", num_rows, least=1)
        self.horizon = _checks.whole("horizon", horizon, least=1)
        self.max_lives = _checks.whole("lives", lives, least=1)
        self.state = self._start(np.zeros(num_rows, dtype=np.uint64))
        self._rows = np.arange(num_rows)

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Give a row the key from which the keys of its episodes are derived."""
        self.state.key[row] = generator.integers(2**64, dtype=np.uint64)

    def restart(self, rows: BoolArray) -> None:
        """Begin new episodes in the given rows."""
        self.state = _choose(rows, self._start(_random_words(self.state.key, 0)), self.state)

    def move(self, actions: IntArray, rows: BoolArray) -> Moved:
        """Step the given rows; the others stay where they are and get no reward."""
        before = self.state
        target = plan.NEXT_CELL[before.cell, actions]
        needed = plan.NEEDS[target]
        cell = np.where(before.progress & needed == needed, target, before.cell)
        gained = plan.GIVES[cell] & ~before.progress
        reward = np.where(gained, plan.PAYS[cell], 0.0)
        time = before.time + 1
        chance = _random_words(before.key, time + 1)[:, None] >> _SKULL_BITS & np.uint64(31)
        skulls = _SKULL_MOVE[before.skulls, chance.astype(np.int64)]
        killed = self._killed(before, cell, time, skulls)
        changed_room = plan.INSIDE[cell] & (plan.ROOM[cell] != plan.ROOM[before.entrance])
        entrance = np.where(changed_room & ~killed, cell, before.entrance)
        after = State(
            cell=np.where(killed, entrance, cell),
            entrance=entrance,
            progress=before.progress | gained,
            visited=before.visited | 1 << plan.ROOM[entrance],
            lives=before.lives - killed,
            time=time,
            skulls=skulls,
            phases=before.phases,
            key=before.key,
        )
        if not rows.all():
            after, reward = _choose(rows, after, before), np.where(rows, reward, 0.0)
        self.state = after
        all_jewels = after.progress & plan.ALL_JEWELS == plan.ALL_JEWELS
        terminated = ((after.lives == 0) | all_jewels) & rows
        truncated = (after.time >= self.horizon) & rows & ~terminated
        return Moved(self.observe(rows), reward, terminated, truncated)

    def observe(self, rows: BoolArray) -> Observations:
        """Return the observations of all rows."""
        state = self.state
        skull = state.skulls[self._rows, plan.SKULL[state.cell]]
        lives = state.lives / self.max_lives
        clock = self._laser_clock(state.cell, state.time)
        return observation.encode(state.cell, state.progress, skull, clock, lives)

    def progress(self) -> dict[str, IntArray]:
        """Return the stages reached and the rooms visited in the running episodes."""
        return {"stages": _ONES[self.state.progress], "rooms": _ONES[self.state.visited]}

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the picture of a row."""
        cell, _, progress, visited, lives, time, skulls, phases, _ = (a[row] for a in self.state)
        return draw(
            int(cell),
            int(progress),
            int(visited),
            int(lives),
            float(time / self.horizon),
            (skulls[: plan.NUM_SKULLS] >> 1).tolist(),
            ((phases + time) % plan.LASER_PERIOD < plan.LASER_ON).tolist(),
        )

    def _start(self, key: Words) -> State:
        n = len(key)
        word = _random_words(key, 1)[:, None]
        skulls = np.full((n, plan.NUM_SKULLS + 1), plan.NO_SKULL)
        skulls[:, :-1] = word >> _fields(plan.NUM_SKULLS, 3) & np.uint64(7)
        phases = word >> np.uint64(32) >> _fields(plan.NUM_LASERS + 1, 3) & np.uint64(7)
        return State(
            cell=np.full(n, plan.START),
            entrance=np.full(n, plan.START),
            progress=np.zeros(n, dtype=np.int64),
            visited=np.full(n, 1 << plan.ROOM[plan.START]),
            lives=np.full(n, self.max_lives),
            time=np.zeros(n, dtype=np.int64),
            skulls=skulls,
            phases=phases.astype(np.int64),
            key=key,
        )

    def _killed(self, before: State, cell: IntArray, time: IntArray, skulls: IntArray) -> BoolArray:
        skull = plan.SKULL[cell]
        was = plan.SKULL_CELL[skull, before.skulls[self._rows, skull] >> 1]
        now = plan.SKULL_CELL[skull, skulls[self._rows, skull] >> 1]
        swapped = (cell == was) & (before.cell == now)
        burning = self._laser_clock(cell, time) < plan.LASER_ON
        killed: BoolArray = (cell == now) | swapped | burning & plan.LASER_CELL[cell]
        return killed

    def _laser_clock(self, cell: IntArray, time: IntArray) -> IntArray:
        """Return the clock of the laser in each row's room, `LASER_PERIOD` where there is none."""
        laser = plan.LASER[cell]
        clock = (self.state.phases[self._rows, laser] + time) % plan.LASER_PERIOD
        return np.where(laser == plan.NUM_LASERS, plan.LASER_PERIOD, clock)


def _choose(rows: BoolArray, one: State, other: State) -> State:
    pairs = zip(one, other, strict=True)
    return State(*(np.where(rows if a.ndim == 1 else rows[:, None], a, b) for a, b in pairs))


def _random_words(key: Words, count: IntArray | int) -> Words:
    """Return 64 random bits per row: SplitMix64's output at position `count` from `key`."""
    word: Words = key + np.asarray(count).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    word = word ^ word >> np.uint64(31)
    return word


def _fields(count: int, width: int) -> Words:
    """Return the shifts that bring the first, second … field of a word to its lowest bits."""
    return np.arange(0, count * width, width, dtype=np.uint64)


def _skull_moves() -> IntArray:
    """Return where a skull goes, by its place and direction and five random bits."""
    moves = np.full((plan.NO_SKULL + 1, 32), plan.NO_SKULL)
    for skull in range(plan.NO_SKULL):
        for chance in range(32):
            place, right = divmod(skull, 2)
            if chance % plan.TURN_ODDS == 0:
                right = 1 - right
            ahead = place + (1 if right else -1)
            if chance // plan.TURN_ODDS % plan.REST_ODDS == 0:
                ahead = place
            elif not 0 <= ahead < plan.ROOM_SIZE:
                ahead, right = place, 1 - right
            moves[skull, chance] = 2 * ahead + right
    return moves


_SKULL_MOVE = _skull_moves()
_SKULL_BITS = _fields(plan.NUM_SKULLS + 1, 5)
_ONES: IntArray = np.array([bin(bits).count("1") for bits in range(1 << plan.NUM_ROOMS)])
