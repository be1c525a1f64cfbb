"""The counter n behind ζ_n, shared by PIES and ADOPES."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.shaping.base import Transition

UpdateEvery = int | Literal["episode"]


class UpdateCounter:
    """Counts updates: n = steps // update_every, or the number of finished episodes.

    A vector step counts once whatever the number of envs, and dummy reset steps count, so
    that with `update_every` equal to the rollout length n is the learner's iteration.
    """

    def __init__(self, update_every: UpdateEvery) -> None:
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
            self.ticks += int(np.count_nonzero(ended))
        else:
            self.ticks += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the counter."""
        return {"ticks": self.ticks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.ticks = int(state["ticks"])
