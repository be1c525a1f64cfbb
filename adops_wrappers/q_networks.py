"""What `QCritic` learns with: actions as codes, and networks of Q_E and Q_I.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from adops_wrappers.arrays import FloatArray
from adops_wrappers.networks import Encoder, InputNetwork, mlp
from adops_wrappers.packing import ObservationPacker
from adops_wrappers.regression import Array32


class ActionCodes:
    """Actions in the network's form: columns for a Discrete space, a Box scaled to [−1, 1]."""

    def __init__(self, space: gym.Space[Any], count: int, generator: np.random.Generator) -> None:
        self.space = space
        self.discrete = isinstance(space, spaces.Discrete)
        if isinstance(space, spaces.Discrete):
            self.start, self.size = int(space.start), int(space.n)
            self.candidates: npt.NDArray[np.float32] = np.zeros((0, 0), dtype=np.float32)
            return
        if not isinstance(space, spaces.Box) or not space.is_bounded():
            raise TypeError(
                f"QCritic learns for Discrete actions and for bounded Box actions; action_space "
                f"is {space}."
            )
        self.low, self.high = (np.float64(bound).reshape(-1) for bound in (space.low, space.high))
        self.size = len(self.low)
        self.candidates = generator.uniform(-1.0, 1.0, (count, self.size)).astype(np.float32)

    def encode(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return columns of shape (n,), or codes of shape (n, size)."""
        if self.discrete:
            return np.asarray(action.reshape(-1).astype(np.int64) - self.start)
        flat = action.reshape(len(action), self.size)
        return np.asarray((2.0 * (flat - self.low) / (self.high - self.low) - 1.0), np.float32)

    def encode_many(self, actions: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
        """Return the codes of k actions for each of `rows`: shape (rows, k, size)."""
        return self.encode(actions.reshape(-1, self.size)).reshape(rows, -1, self.size)

    def probabilities(self, answer: npt.NDArray[Any], rows: int) -> FloatArray:
        """Return the policy's output as probabilities of shape (rows, actions)."""
        if answer.ndim == 2 and answer.shape == (rows, self.size):
            return np.asarray(answer, dtype=np.float64)
        if answer.size != rows:
            raise ValueError(
                f"policy(obs) must return {rows} actions, or probabilities of shape "
                f"({rows}, {self.size}); got shape {answer.shape}."
            )
        return np.asarray(np.eye(self.size)[self.encode(answer)])


class QTable(InputNetwork):
    """Q_E and Q_I of all `Discrete` actions, by one network."""

    def __init__(self, packer: ObservationPacker, actions: int, hidden: list[int]) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=10.0)
        self.body = mlp([self.encoder.features, *hidden], 2 * actions, starts_at_zero=True)

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return Q_E and Q_I of each action in turn: (rows, 2·actions)."""
        return self.body(self.encoder.embed(inputs))  # type: ignore[no-any-return]

    @staticmethod
    def q_of(outputs: Array32) -> FloatArray:
        """Return Q of shape (2, actions, rows)."""
        pairs = outputs.reshape(len(outputs), -1, 2)
        # Small arrays, and rows last: the sums over actions are then sums of rows.
        return np.ascontiguousarray(pairs.T, dtype=np.float64)

    @staticmethod
    def errors(outputs: Array32, taken: npt.NDArray[Any], targets: Array32) -> Array32:
        """Return by how much the outputs of the actions taken miss targets of shape (rows, 2)."""
        found = np.zeros_like(outputs)
        row, column = np.arange(len(outputs))[:, None], 2 * taken[:, None] + (0, 1)
        found[row, column] = outputs[row, column] - targets
        return found

    def clipped_together(self) -> list[list[nn.Parameter]]:
        """Return the parameters whose gradients are clipped by one norm."""
        return [list(self.parameters())]


class QOfAction(InputNetwork):
    """Q_E and Q_I of given `Box` actions: two networks for Q_E and one for Q_I.

    A maximum over actions, or a policy, finds the actions whose Q_E is too large. The smaller of
    two estimates counters that (Fujimoto et al. 2018). Q_I shares nothing with Q_E that it could
    change: it can be many times as large, and A_E may be as small as one wasted step.
    """

    def __init__(self, packer: ObservationPacker, size: int, hidden: list[int]) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=10.0)
        sizes = [self.encoder.features + size, *hidden]
        self.ext, self.twin, self.int = (mlp(sizes, 1, starts_at_zero=True) for _ in range(3))

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return both estimates of Q_E, and Q_I, of actions (rows, k, size): (rows, k, 3).

        The actions' codes are the last of the inputs.
        """
        *observed, actions = inputs
        features = self.encoder.embed(observed)[:, None].expand(-1, actions.shape[1], -1)
        x = torch.cat([features, actions], dim=2)
        return torch.cat([self.ext(x), self.twin(x), self.int(x.detach())], dim=2)

    @staticmethod
    def q_of(outputs: Array32) -> FloatArray:
        """Return Q of shape (2, actions, rows), Q_E by the smaller estimate."""
        pairs = np.stack([outputs[..., :2].min(axis=2), outputs[..., 2]])
        return np.ascontiguousarray(pairs.swapaxes(1, 2), dtype=np.float64)

    @staticmethod
    def errors(outputs: Array32, taken: npt.NDArray[Any], targets: Array32) -> Array32:
        """Return by how much the outputs miss targets of shape (rows, 2)."""
        return outputs - targets[:, None, [0, 0, 1]]

    def clipped_together(self) -> list[list[nn.Parameter]]:
        """Return the parameters whose gradients are clipped by one norm."""
        task = [w for name, w in self.named_parameters() if not name.startswith("int.")]
        return [task, list(self.int.parameters())]
