"""Count-based bonuses: 1/√n for the observation reached, counted over training or per episode."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray, to_numpy
from adops_wrappers.backends import is_tensor

_LONGEST_KEY = 32
"""Keys of more bytes are replaced by a 16-byte digest, so that memory does not follow the
observation's size."""


class CountBonus(KeepsSettings):
    """F = scale/√n where s′ is reached for the n-th time.

    Counts are shared by all environments; within one vector step the rows count in order.
    A source for `IntrinsicRewardWrapper`, for single and vector envs alike. The counts are kept in
    Python, so tensors on a device are copied to the host; `SimHashCount` counts there.

    Args:
        scale: The bonus of a first visit.
        key: Maps one observation to what is counted, for instance a coarser cell. By default
            the observation's bytes, which fits discrete and symbolic observations.

    Example:
        >>> from adops_wrappers import CountBonus
        >>> bonus = CountBonus()
        >>> [round(bonus(0, 0, state, valid=True), 3) for state in (5, 5, 7)]
        [1.0, 0.707, 1.0]
    """

    state_depends_on: ClassVar[tuple[str, ...]] = ("has_key",)

    def __init__(self, *, scale: float = 1.0, key: Callable[[Any], Hashable] | None = None) -> None:
        if key is not None and not callable(key):
            raise TypeError(f"key must be a function of one observation, got {key!r}.")
        self.scale = _checks.positive("scale", scale)
        self.key = key
        self.counts: dict[Hashable, int] = {}
        self.frozen = False
        """While True visits are rewarded like the next visit, but not counted."""

    @property
    def has_key(self) -> bool:
        """Whether observations are counted by a function of the user, which cannot be compared."""
        return self.key is not None

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return the bonus of one observation, or of a batch where `valid` is a mask."""
        if not isinstance(valid, np.ndarray) and is_tensor(valid):
            valid = to_numpy(valid)
        if isinstance(valid, np.ndarray):
            visits = self._visits(self._batch_keys(next_obs, len(valid)), valid.tolist())
            return np.where(valid, self.scale / np.sqrt(visits), 0.0)
        if not valid:
            return 0.0
        key = self.key(next_obs) if self.key else _digests(_batch_bytes(next_obs, None))[0]
        return float(self.scale / np.sqrt(self._visits([key], [True])[0]))

    def _visits(self, keys: Sequence[Hashable], valid: Sequence[bool]) -> list[int]:
        """Count one visit of each row's key, and return its number; 1 in rows not `valid`."""
        visits, counts = [1] * len(keys), self.counts
        for row, key in enumerate(keys):
            if valid[row]:
                visits[row] = number = counts.get(key, 0) + 1
                if not self.frozen:
                    counts[key] = number
        return visits

    def _batch_keys(self, batch: Any, rows: int) -> Sequence[Hashable]:
        if self.key is None:
            return _digests(_batch_bytes(batch, rows))
        if isinstance(batch, np.ndarray):
            return [self.key(row) for row in batch]
        return [self.key(_row(batch, i)) for i in range(rows)]

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {**self.settings_state(), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        self.counts = dict(state["counts"])


class EpisodicCountBonus(CountBonus):
    """F = scale/√n where s′ is reached for the n-th time in the running episode of its row.

    Every environment has counts of its own, which an episode's end or a reset clears. The
    bonus never fades for good, so it tempts as long as training lasts. The counts belong to the
    running episode and continue in `evaluation_mode`.

    Args:
        scale: The bonus of an episode's first visit.
        key: As for `CountBonus`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import EpisodicCountBonus, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), EpisodicCountBonus())
        >>> for _ in range(2):
        ...     _ = env.reset(seed=0)
        ...     print([round(float(env.step(a)[4]["intrinsic_reward"]), 3) for a in (0, 0, 2)])
        [1.0, 1.0, 0.707]
        [1.0, 1.0, 0.707]
    """

    def __init__(self, *, scale: float = 1.0, key: Callable[[Any], Hashable] | None = None) -> None:
        super().__init__(scale=scale, key=key)
        self.episodes: dict[int, dict[Hashable, int]] = {}
        """The counts of each row's running episode."""

    def _visits(self, keys: Sequence[Hashable], valid: Sequence[bool]) -> list[int]:
        visits = [1] * len(keys)
        for row, key in enumerate(keys):
            if valid[row]:
                counts = self.episodes.setdefault(row, {})
                visits[row] = counts[key] = counts.get(key, 0) + 1
        return visits

    def reset_episodes(self, mask: BoolArray) -> None:
        """Forget the counts of the rows in `mask`."""
        for row in np.flatnonzero(to_numpy(mask)).tolist():
            self.episodes.pop(row, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of the running episodes."""
        episodes = {row: dict(counts) for row, counts in self.episodes.items()}
        return {**self.settings_state(), "episodes": episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        self.episodes = {row: dict(counts) for row, counts in state["episodes"].items()}


def _digests(rows: np.ndarray[Any, np.dtype[np.uint8]]) -> list[bytes]:
    """Return the bytes of each row, or their digest where they are many."""
    data, width = rows.tobytes(), rows.shape[1]
    starts = range(0, len(data), width) if width else [0] * len(rows)
    keys = [data[start : start + width] for start in starts]
    if width > _LONGEST_KEY:
        keys = [blake2b(key, digest_size=16).digest() for key in keys]
    return keys


def _batch_bytes(batch: Any, rows: int | None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the observations as an array of shape (rows, bytes); `rows=None` is one of them."""
    if isinstance(batch, dict):
        parts = [_batch_bytes(batch[name], rows) for name in sorted(batch)]
        return np.concatenate(parts, axis=1)
    if isinstance(batch, str):
        return _text_bytes([batch])
    if isinstance(batch, tuple):
        if rows is not None and all(isinstance(part, str) for part in batch):
            return _text_bytes(batch)  # a batch of texts is a tuple of strings
        return np.concatenate([_batch_bytes(part, rows) for part in batch], axis=1)
    array = to_numpy(batch)
    if array.dtype == object or array.dtype.kind in "US":
        raise TypeError(
            f"CountBonus cannot turn an observation of type {type(batch).__name__} into bytes. "
            "Pass key=, a function from one observation to a hashable value."
        )
    if array.dtype.kind in "fc":
        array = array + 0.0  # -0.0 becomes 0.0: equal numbers are the same state
    flat = np.ascontiguousarray(array).reshape(1 if rows is None else rows, -1)
    return flat.view(np.uint8)


def _text_bytes(texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    digests = [blake2b(text.encode(), digest_size=16).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(texts), -1)


def _row(batch: Any, row: int) -> Any:
    if isinstance(batch, dict):
        return {name: _row(part, row) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_row(part, row) for part in batch)
    return batch[row]
