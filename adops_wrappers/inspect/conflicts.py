"""The moments at which the raw bonus fights the task."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray
from adops_wrappers.inspect.recording import Recording


class Conflict(NamedTuple):
    """One step at which the raw bonus flips the sign of the extrinsic advantage."""

    time: int
    """The recorded step, an index into the recording's arrays."""
    row: int
    """The environment."""
    episode: int
    """The number of the episode within its row, counted from 0."""
    step: int
    """The step t within the episode."""
    kind: Literal["tempts", "deters"]
    """`tempts`: a bad action (A_E < 0) looks good; `deters`: a good one looks bad."""
    severity: float
    """How far the total advantage must move for its sign to be right again: |c_I·F₂|."""
    reward: float
    """R, the extrinsic reward."""
    intrinsic: float
    """F as the method got it, `intrinsic_scale` included."""
    shaped: float
    """F′, as it was recorded."""
    advantage_ext: float
    """A_E, the extrinsic advantage."""
    total_raw: float
    """c_E·A_E + c_I·δ_I with the raw F."""
    total_shaped: float
    """The same with the recorded F′."""
    action: Any
    """The action that was taken; None if the recording holds no actions."""


def conflict_mask(recording: Recording) -> BoolArray:
    """True where A_E and the total advantage under raw F disagree in sign, shape (T, n)."""
    return recording.contradicts(recording.total_raw)


def conflicts(recording: Recording, top: int | None = None) -> list[Conflict]:
    """Return the steps at which raw F flips the sign of the extrinsic advantage, worst first.

    Args:
        recording: A recording with critic values.
        top: Return only this many.

    Example:
        >>> import tempfile, gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper
        >>> from adops_wrappers.inspect import ShapingRecorder, conflicts
        >>> folder = tempfile.TemporaryDirectory()
        >>> bonuses = iter([0.5, 3.0])
        >>> env = gym.make("CliffWalking-v1")  # R = -1
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: next(bonuses))
        >>> env = ShapingRecorder(env, f"{folder.name}/cliff.npz", lambda obs: (0.0, 0.0))
        >>> _ = env.reset(seed=0)
        >>> _ = env.step(0), env.step(0)
        >>> worst = conflicts(env.finish(), top=1)[0]
        >>> worst.time, worst.kind, worst.advantage_ext, worst.total_raw
        (1, 'tempts', -1.0, 2.0)
        >>> folder.cleanup()
    """
    found = conflict_mask(recording)
    time, row = np.nonzero(found)
    severity = np.abs(recording.meta["int_coef"] * recording.f2[found])
    order = np.argsort(-severity, kind="stable")
    if top is not None:
        order = order[: _checks.whole("top", top, least=0)]
    total_raw, total_shaped = recording.total_raw, recording.total()

    def at(index: int) -> Conflict:
        place = (int(time[index]), int(row[index]))
        return Conflict(
            time=place[0],
            row=place[1],
            episode=int(recording.episode[place]),
            step=int(recording.episode_step[place]),
            kind="deters" if total_raw[place] < 0.0 else "tempts",
            severity=float(severity[index]),
            reward=float(recording.reward[place]),
            intrinsic=recording.scale * float(recording.intrinsic[place]),
            shaped=float(recording.shaped[place]),
            advantage_ext=float(recording.advantage_ext[place]),
            total_raw=float(total_raw[place]),
            total_shaped=float(total_shaped[place]),
            action=None if recording.action is None else recording.action[place].tolist(),
        )

    return [at(int(index)) for index in order]
