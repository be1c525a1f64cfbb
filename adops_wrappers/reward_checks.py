"""Whether rewards are finite and of a useful size: checked at once, or on a device later."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from adops_wrappers.backends import HOST, namespace, with_entry
from adops_wrappers.episodes import EpisodeTracker
from adops_wrappers.shaper import FloatArray

LARGE_REWARD = 1e8
"""Beyond this a float32 learner no longer sees an extrinsic reward of order 1 next to F′."""
STEPS_BETWEEN_REPORTS = 128
_REMEDY = "Use a shorter episode, a larger gamma, or GRM with a small delay."


class RewardChecks:
    """Refuses values that are not finite, and warns of an F′ that hides R.

    In NumPy each step is checked at once. On a device that would wait for it: there the largest
    sizes of each step are kept, and looked at by `report`, which `critic.updated()`,
    `state_dict()`, `reset()` and `close()` call, and so does every 128th step.

    Args:
        describe: Names the method.
        episodes: The position within the episodes.
    """

    def __init__(self, describe: Callable[[], str], episodes: EpisodeTracker) -> None:
        self._describe, self._episodes = describe, episodes
        self.warned_large = False
        self._sizes: Any = None
        self._steps = self._reported = 0

    def refuse_what_is_not_finite(self, reward: FloatArray, intrinsic: FloatArray) -> None:
        """Raise if a real transition has such a value, and name it."""
        for name, values, advice in (
            ("intrinsic reward", intrinsic, "check the source"),
            ("extrinsic reward", reward, "check the env and the wrappers below"),
        ):
            bad = ~np.isfinite(values) & self._episodes.valid
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise ValueError(
                    f"The {name} of environment {row} is {values[row]} at step "
                    f"{self._episodes.steps[row]} of its episode. Shaping needs finite values: "
                    f"{advice}."
                )

    def judge_size(self, shaped: FloatArray) -> None:
        """Raise or warn if F′ is too large in some row."""
        size = np.abs(shaped)
        row = int(np.argmax(size))  # NaN counts as the largest
        if size[row] <= LARGE_REWARD:
            return
        steps = int(self._episodes.steps[row]) + 1
        self._judge_size(
            float(shaped[row]), f"for environment {row}, {steps} steps into its episode"
        )

    def _judge_size(self, shaped: float, where: str) -> None:
        facts = f"{self._describe()} emitted F' = {shaped:.3g} {where}"
        if not np.isfinite(shaped):
            raise OverflowError(
                f"{facts}: the debt of an episode grows like gamma**-length and has left float64. "
                f"{_REMEDY}"
            )
        if not self.warned_large:
            self.warned_large = True
            warnings.warn(
                f"{facts}. Beyond {LARGE_REWARD:g} a float32 learner loses the extrinsic reward; "
                "debts grow like gamma**-length. Consider a shorter episode, a larger gamma, or "
                "GRM with a small delay. (Shown once.)",
                RuntimeWarning,
                stacklevel=5,
            )

    def record(self, columns: Any) -> None:
        """Keep the sizes of one step on a device: `columns` begins with rows for R, F and F′."""
        xp = namespace(columns)
        sizes = xp.linalg.norm(columns[:3], math.inf, 1)
        if self._sizes is None:
            self._sizes = xp.stack([sizes] * STEPS_BETWEEN_REPORTS)
        self._sizes = with_entry(self._sizes, self._steps % STEPS_BETWEEN_REPORTS, sizes)
        self._steps += 1
        if self._steps - self._reported == STEPS_BETWEEN_REPORTS:
            self.report()

    def report(self) -> None:
        """Look at the sizes of all steps since the last time."""
        self._episodes.report()
        first, self._reported = self._reported, self._steps
        if first == self._steps:
            return
        sizes = HOST.moved(self._sizes)
        for step in range(first, self._steps):
            self._judge_step(step + 1, *sizes[step % STEPS_BETWEEN_REPORTS].tolist())

    def _judge_step(self, step: int, reward: float, intrinsic: float, shaped: float) -> None:
        for name, size, advice in (
            ("intrinsic reward", intrinsic, "Check the source."),
            ("extrinsic reward", reward, "Check the env and the wrappers below."),
        ):
            if not np.isfinite(size):
                raise ValueError(
                    f"An {name} was {size} at step {step} of this wrapper. Shaping needs finite "
                    f"values. {advice}"
                )
        if np.isnan(shaped):
            raise ValueError(
                f"{self._describe()} emitted an F' that is not a number at step {step} of this "
                "wrapper, though R and F are finite. Check the critic's values, the potential, and "
                "that the actions lie in the action space."
            )
        if shaped > LARGE_REWARD:
            self._judge_size(shaped, f"in size at step {step} of this wrapper")
