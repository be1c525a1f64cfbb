"""ζ_n and the counter n behind it, shared by PIES and ADOPES."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from adops_wrappers import _checks
from adops_wrappers.shaper import Shaper, Transition

UpdateEvery = int | Literal["episode"]


class UpdateCounter:
    """Counts updates: n = steps // update_every, or the number of finished episodes.

    A vector step counts once, however many envs there are, and dummy reset steps count too: with
    `update_every` equal to the rollout length, n is the learner's iteration.
    """

    def __init__(self, update_every: UpdateEvery) -> None:
        self.setting = update_every
        self.per_episode = update_every == "episode"
        if not self.per_episode and isinstance(update_every, str):
            raise ValueError(
                f"update_every must be a whole number of steps or 'episode', got {update_every!r}."
            )
        self.update_every = (
            1 if self.per_episode else _checks.whole("update_every", update_every, least=1)
        )
        self.ticks = 0

    @property
    def updates(self) -> int:
        """n, the number of completed updates."""
        return self.ticks // self.update_every

    def advance(self, transition: Transition) -> None:
        """Count this step, or the episodes that end with it."""
        if self.per_episode:
            ended = (transition.terminated | transition.truncated) & transition.valid
            self.ticks += int(ended.sum())  # a device is waited for here
        else:
            self.ticks += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the counter."""
        return {"ticks": self.ticks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.ticks = int(state["ticks"])


class Scheduled(Shaper):
    """A method whose ζ depends on the number of updates alone."""

    state_depends_on: ClassVar[tuple[str, ...]] = ("update_every",)
    counter: UpdateCounter
    held: float | None = None
    """ζ, where an audit holds it."""

    @abstractmethod
    def zeta_after(self, updates: int) -> float:
        """Return ζ_n."""

    @property
    def zeta(self) -> float:
        """ζ now."""
        return self.zeta_after(self.counter.updates) if self.held is None else self.held

    @property
    def update_every(self) -> UpdateEvery:
        """The number of steps between two updates, or "episode"."""
        return self.counter.setting

    def hold(self, zeta: float) -> None:
        """Keep ζ at this value, for an audit."""
        self.held, self.frozen = zeta, True

    def start_from(self, updates: int) -> None:
        """Continue as if this number of updates had passed."""
        self.counter.ticks = updates * self.counter.update_every

    def count(self, transition: Transition) -> None:
        """Count this step, unless frozen."""
        if not self.frozen:
            self.counter.advance(transition)

    def state_dict(self) -> dict[str, Any]:
        """Return ζ's counter."""
        return {**super().state_dict(), **self.counter.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.counter.load_state_dict(state)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore ζ."""
        super().load_learned(state)
        self.counter.load_state_dict(state)
