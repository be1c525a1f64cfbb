"""What `TDCritic` regresses on: λ-returns, and the squared distance to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray


class Squares(NamedTuple):
    """The squared errors of V_E, V_I and Q_E of the action taken, summed, for valid rows."""

    targets: FloatArray
    action: npt.NDArray[np.int64]
    valid: BoolArray

    def gradient(self, outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the gradient of their mean with respect to the outputs."""
        slope = np.zeros_like(outputs)
        slope[:, :2] = outputs[:, :2] - self.targets
        if outputs.shape[1] > 2:
            row, column = np.arange(len(outputs)), 2 + self.action
            slope[row, column] = outputs[row, column] - self.targets[:, 0]
        slope *= (2.0 / max(1, int(np.count_nonzero(self.valid)))) * self.valid[:, None]
        return slope


def lambda_returns(
    reward: FloatArray,
    next_value: FloatArray,
    follows: BoolArray,
    gamma: float | FloatArray,
    lam: float,
) -> FloatArray:
    """Return the λ-returns along the last axis.

        G_t = r_t + γ·((1 − λ)·V(s_{t+1}) + λ·G_{t+1})

    Where the next column is not the step that follows (`follows` is False), and at the last
    column:

        G_t = r_t + γ·V(s_{t+1})
    """
    weight = lam * follows
    weight[..., -1] = 0.0
    returns = reward + gamma * (1.0 - weight) * next_value
    # Time first: one step of all rows is then a stretch of memory.
    column, weight = (np.ascontiguousarray(x.swapaxes(0, -1)) for x in (returns, gamma * weight))
    for t in range(len(column) - 2, -1, -1):
        column[t] += weight[t] * column[t + 1]
    found: FloatArray = column.swapaxes(0, -1)
    return found


def discrete(space: gym.Space[Any] | None) -> gym.spaces.Discrete | None:
    """Return the space of actions for Q_E, or None for no Q_E."""
    if space is None or isinstance(space, gym.spaces.Discrete):
        return space
    raise TypeError(
        f"Q_E is learned for Discrete actions; action_space is {space}. Leave it out: V_E and V_I "
        "need no actions."
    )
