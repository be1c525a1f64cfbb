"""A floor plan compiled into tables: one lookup per step, for one agent or for thousands."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.envs.base import IntArray
from adops_wrappers.envs.layouts import CATCH_PROBABILITY, COIN_REWARD, LAYOUTS

if TYPE_CHECKING:
    from adops_wrappers.tabular import FiniteMDP, GridView

IMAGE_BITS = 16
ACTIONS = ("up", "right", "down", "left", "use")
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))


class Place(NamedTuple):
    """A state of a world."""

    row: int
    column: int
    key: bool = False
    door: bool = False
    """Whether the door is open."""
    coin: bool = False
    """Whether the coin has been taken."""


class World:
    """States, transitions and observations of one layout.

    An observation is the one-hot cell, whether the key is held, whether the door is open,
    whether the coin is taken (in worlds with a coin), and 16 image bits: zero, but random ±1 at
    every step on a noisy cell.
    """

    def __init__(self, name: str) -> None:
        if name not in LAYOUTS:
            raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {name!r}.")
        self.name, self.layout = name, LAYOUTS[name]
        self.plan = self.layout.plan
        self.num_actions = 5 if self.layout.has_use else 4
        self.cells = [
            (row, column)
            for row, line in enumerate(self.plan)
            for column, symbol in enumerate(line)
            if symbol != "#"
        ]
        self.has_coin = any("C" in line for line in self.plan)
        self.places, self.next_state = self._explore()
        symbols = np.array([self.symbol(place) for place in self.places])
        self.goal: BoolArray = symbols == "G"
        self.deadly: BoolArray = symbols == "X"
        self.terminal: BoolArray = self.goal | self.deadly
        self.noisy: BoolArray = np.isin(symbols, ("T", "~"))
        self.catch_probability: FloatArray = np.where(symbols == "~", CATCH_PROBABILITY, 0.0)
        self.skull = int(np.argmax(self.deadly))
        taken = np.array([place.coin for place in self.places])
        fresh_coin = taken[self.next_state] & ~taken[:, None]
        self.coin_reward: FloatArray = np.where(fresh_coin, COIN_REWARD, 0.0)
        moved = self.next_state != np.arange(len(self.places))[:, None]
        tempting = (symbols == self.layout.tempting)[self.next_state]
        self.tempts: BoolArray = tempting & (moved | (self.layout.tempting != "B"))
        """Which (state, action) leads to a tempting cell; a bell must be left first."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles of an env share the one compiled world.
        return get_world, (self.name,)

    @property
    def num_states(self) -> int:
        """The number of states, terminal ones included."""
        return len(self.places)

    def symbol(self, place: Place) -> str:
        """Return the floor plan's symbol under the agent."""
        return self.plan[place.row][place.column]

    @cached_property
    def observations(self) -> npt.NDArray[np.float32]:
        """The observation of every state with all image bits 0."""
        table = np.zeros((self.num_states, self.observation_size), dtype=np.float32)
        for state, place in enumerate(self.places):
            table[state, self.cells.index((place.row, place.column))] = 1.0
            bits = (place.key, place.door, place.coin)[: self._num_flags]
            table[state, len(self.cells) : -IMAGE_BITS] = bits
        return table

    @property
    def observation_size(self) -> int:
        """The length of an observation."""
        return len(self.cells) + self._num_flags + IMAGE_BITS

    def state_of(self, obs: Any) -> IntArray:
        """Return the state behind one observation (shape ()) or a batch of n (shape (n,))."""
        array = np.asarray(obs)
        known = self.observations[:, :-IMAGE_BITS]
        matches = (array[..., None, :-IMAGE_BITS] == known).all(axis=-1)
        if array.shape[-1] != self.observation_size or not matches.any(axis=-1).all():
            raise ValueError(
                f"This is not an observation of {self.name}: it must have {self.observation_size} "
                f"entries, as its observation_space says; got shape {array.shape}."
            )
        return np.asarray(matches.argmax(axis=-1), dtype=np.int64)

    def tempting_bonus(self, scale: float = 1.0) -> FloatArray:
        """Return a persistent bonus F of shape (S, A, S): `scale` for each tempting arrival."""
        bonus = np.zeros((self.num_states, self.num_actions, self.num_states))
        state, action = np.nonzero(self.tempts)
        bonus[state, action, self.next_state[state, action]] = scale
        return bonus

    def to_mdp(self, gamma: float) -> FiniteMDP:
        """Return the MDP of this world with the goal worth 1 at any time.

        The env's goal reward falls with the clock, which is not part of the observation; both
        make the shortest way to the goal the best one. The time limit is left out.
        """
        from adops_wrappers.tabular import FiniteMDP

        shape = (self.num_states, self.num_actions, self.num_states)
        state, action = np.indices(shape[:2])
        arrival = self.next_state
        caught = self.catch_probability[arrival]
        transition = np.zeros(shape)
        transition[state, action, arrival] = 1.0 - caught
        transition[state, action, self.skull] += caught
        reward = np.zeros(shape)
        reward[state, action, arrival] = self.coin_reward + self.goal[arrival]
        return FiniteMDP(
            transition,
            reward,
            gamma,
            self.terminal,
            start=0,
            action_names=ACTIONS[: self.num_actions],
            grid=self._grid(),
        )

    @property
    def _num_flags(self) -> int:
        return 3 if self.has_coin else 2

    def _grid(self) -> GridView:
        from adops_wrappers.tabular import GridView

        flags = [(place.key, place.door, place.coin) for place in self.places]
        kinds = sorted(set(flags))
        names = tuple(_flag_names(*kind) for kind in kinds)
        row, column = (np.array([place[i] for place in self.places]) for i in (0, 1))
        panel = np.array([kinds.index(flag) for flag in flags])
        return GridView(row, column, panel, names)

    def _explore(self) -> tuple[list[Place], IntArray]:
        start = next(cell for cell in self.cells if self.plan[cell[0]][cell[1]] == "S")
        places = [Place(*start)]
        index = {places[0]: 0}
        rows: list[list[int]] = []
        for place in places:  # the list grows while it is read
            row = []
            for action in range(self.num_actions):
                after = place if self.symbol(place) in "GX" else self._after(place, action)
                if after not in index:
                    index[after] = len(places)
                    places.append(after)
                row.append(index[after])
            rows.append(row)
        return places, np.array(rows, dtype=np.int64)

    def _after(self, place: Place, action: int) -> Place:
        if ACTIONS[action] == "use":
            if self.symbol(place) == "K":
                return place._replace(key=True)
            if place.key and any(self._around(place, move) == "D" for move in _MOVES[:4]):
                return place._replace(door=True)
            return place
        symbol = self._around(place, _MOVES[action])
        if symbol == "#" or (symbol == "D" and not place.door):
            return place
        row, column = place.row + _MOVES[action][0], place.column + _MOVES[action][1]
        return place._replace(row=row, column=column, coin=place.coin or symbol == "C")

    def _around(self, place: Place, move: tuple[int, int]) -> str:
        return self.plan[place.row + move[0]][place.column + move[1]]


def _flag_names(key: bool, door: bool, coin: bool) -> str:
    name = "door open" if door else "key held" if key else "no key"
    return f"{name}, coin taken" if coin else name


@lru_cache
def get_world(name: str) -> World:
    """Return the compiled world of a layout; all envs of the same layout share it."""
    return World(name)
