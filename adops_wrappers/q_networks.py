"""What `QCritic` learns with: actions as codes, and networks of Q_E and Q_I.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from adops_wrappers.arrays import FloatArray
from adops_wrappers.networks import Encoder, ObservationPacker, mlp


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


class QTable(nn.Module):
    """Q_E and Q_I of all `Discrete` actions, by one network."""

    targets = (0, 1)
    """Which of the targets for Q_E and Q_I each column of `chosen` has."""

    def __init__(self, packer: ObservationPacker, actions: int, hidden: list[int]) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=10.0)
        self.actions = actions
        self.body = mlp([self.encoder.features, *hidden], 2 * actions, starts_at_zero=True)

    def forward(self, inputs: list[torch.Tensor], actions: torch.Tensor | None) -> torch.Tensor:
        """Return Q_E and Q_I of all actions: (rows, actions, 2)."""
        features = self.encoder.embed(inputs)
        return self.body(features).view(len(features), self.actions, 2)  # type: ignore[no-any-return]

    def chosen(self, inputs: list[torch.Tensor], action: torch.Tensor) -> torch.Tensor:
        """Return what is learned of one action for each row: (rows, 2)."""
        return self(inputs, None).gather(1, action[:, None, None].expand(-1, -1, 2))[:, 0]  # type: ignore[no-any-return]

    def clipped_together(self) -> list[list[nn.Parameter]]:
        """Return the parameters whose gradients are clipped by one norm."""
        return [list(self.parameters())]


class QOfAction(nn.Module):
    """Q_E and Q_I of given `Box` actions: two networks for Q_E and one for Q_I.

    A maximum over actions, or a policy, finds the actions whose Q_E is too large. The smaller of
    two estimates counters that (Fujimoto et al. 2018). Q_I shares nothing with Q_E that it could
    change: it can be many times as large, and A_E may be as small as one wasted step.
    """

    targets = (0, 0, 1)
    """Which of the targets for Q_E and Q_I each column of `chosen` has."""

    def __init__(self, packer: ObservationPacker, size: int, hidden: list[int]) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=10.0)
        sizes = [self.encoder.features + size, *hidden]
        self.ext, self.twin, self.int = (mlp(sizes, 1, starts_at_zero=True) for _ in range(3))

    def forward(self, inputs: list[torch.Tensor], actions: torch.Tensor) -> torch.Tensor:
        """Return Q_E and Q_I of the given codes (rows, k, size): (rows, k, 2)."""
        ext, twin, intrinsic = self._all(inputs, actions)
        return torch.cat([torch.minimum(ext, twin), intrinsic], dim=2)

    def chosen(self, inputs: list[torch.Tensor], action: torch.Tensor) -> torch.Tensor:
        """Return what is learned of one action for each row: (rows, 3)."""
        return torch.cat(self._all(inputs, action[:, None]), dim=2)[:, 0]

    def _all(self, inputs: list[torch.Tensor], actions: torch.Tensor) -> list[torch.Tensor]:
        features = self.encoder.embed(inputs)[:, None].expand(-1, actions.shape[1], -1)
        x = torch.cat([features, actions], dim=2)
        return [self.ext(x), self.twin(x), self.int(x.detach())]

    def clipped_together(self) -> list[list[nn.Parameter]]:
        """Return the parameters whose gradients are clipped by one norm."""
        task = [w for name, w in self.named_parameters() if not name.startswith("int.")]
        return [task, list(self.int.parameters())]
