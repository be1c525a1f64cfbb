"""The last vector steps that a learning critic has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray

if TYPE_CHECKING:
    from adops_wrappers.packing import Packed


class Step(NamedTuple):
    """One vector step, or a batch of drawn steps, with packed observations.

    Drawn steps have fields of shape (segments, length) and observations of shape
    (segments·length, ...).
    """

    obs: Packed
    next_obs: Packed
    action: npt.NDArray[np.int64]
    reward: FloatArray
    bonus: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray


class Replay:
    """The last vector steps in a ring, and whether each is followed by the next."""

    def __init__(self, length: int, like: Step) -> None:
        self.length, self.rows = length, len(like.reward)
        self.columns = [
            [np.zeros((length, *part.shape), part.dtype) for part in field]
            if isinstance(field, list)
            else [np.zeros((length, *field.shape), field.dtype)]
            for field in like
        ]
        self.follows = np.zeros((length, self.rows), dtype=np.bool_)
        self.head = 0
        self.stored = 0

    def add(self, step: Step) -> None:
        """Append a step, over the oldest one if the ring is full."""
        head = self.head
        if self.stored:
            last = (head - 1) % self.length
            # By content: a reset in mid-episode is not announced, and a step that begins where
            # the last one ended continues it, whatever happened in between.
            same = step.valid & self._goes_on(last)
            for storage, part in zip(self.columns[1], step.obs, strict=True):
                equal = storage[last] == part
                same &= equal.reshape(self.rows, -1).all(axis=1) if equal.ndim > 1 else equal
            self.follows[last] = same
        for column, field in zip(self.columns, step, strict=True):
            if isinstance(field, list):
                for storage, part in zip(column, field, strict=True):
                    storage[head] = part
            else:
                column[0][head] = field
        self.follows[head] = False
        self.head = (head + 1) % self.length
        self.stored = min(self.stored + 1, self.length)

    def _goes_on(self, index: int) -> BoolArray:
        """Return the rows in which the episode did not end with the step at `index`."""
        terminated, truncated, valid = (column[0][index] for column in self.columns[-3:])
        return np.asarray(valid & ~(terminated | truncated))

    def take(self, age: Any, row: Any) -> tuple[Step, BoolArray]:
        """Return the steps of `row` that are `age` steps younger than the oldest.

        The second result says where the next step in time continues the episode.
        """
        index = (self.head - self.stored + age) % self.length
        obs, next_obs = (
            [part[index, row].reshape(-1, *part.shape[2:]) for part in column]
            for column in self.columns[:2]
        )
        scalars: list[Any] = [column[0][index, row] for column in self.columns[2:]]
        return Step(obs, next_obs, *scalars), self.follows[index, row]

    def observations(self, age: Any, row: Any) -> tuple[Packed, BoolArray]:
        """Return the observations alone, and the mask of the valid ones."""
        index = (self.head - self.stored + age) % self.length
        obs = [part[index, row].reshape(-1, *part.shape[2:]) for part in self.columns[0]]
        return obs, self.columns[-1][0][index, row].ravel()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all stored steps."""
        return {
            "columns": [[part.copy() for part in column] for column in self.columns],
            "follows": self.follows.copy(),
            "head": self.head,
            "stored": self.stored,
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Replay:
        """Build a replay from a `state_dict()`."""
        replay = cls.__new__(cls)
        replay.columns = [[part.copy() for part in column] for column in state["columns"]]
        replay.follows = state["follows"].copy()
        replay.length, replay.rows = replay.follows.shape
        replay.head, replay.stored = int(state["head"]), int(state["stored"])
        return replay
