"""Random network distillation (Burda et al. 2019) as a source for any stack.

Needs torch (`pip install adops-wrappers[torch]`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.networks import Encoder, mlp
from adops_wrappers.packing import ObservationPacker


class RND(KeepsSettings):
    """F = mean over features of (predictor(s′) − target(s′))², learned from the states it scores.

    The target network is random and fixed; the predictor learns to copy it on the observations
    that it is shown, so that familiar ones earn little. Observations are whitened element by
    element with running moments and clipped, and both networks follow the space: a CNN for
    images, an MLP for the rest, Dict and Tuple observations part by part.

    A source for `IntrinsicRewardWrapper`, for single and vector envs alike. F is not scaled:
    give the wrapper an `IntrinsicReturnNormalizer` for RND's usual scale. It learns by itself from
    what it scores; the RND of the training scripts is Burda's, which PPO's update trains.

    Args:
        observation_space: The space of one observation (`single_observation_space` of a
            `VectorEnv`).
        features: The width of both networks' outputs.
        hidden: The widths of the hidden layers of the target; the predictor has one more.
        learning_rate: The step size of the predictor's Adam.
        batch_size: The number of observations for each gradient step of the predictor.
        clip: The largest whitened value.
        seed: Seeds both networks.
        device: Where the networks live.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper
        >>> from adops_wrappers.intrinsic.rnd import RND
        >>> env = gym.make("CartPole-v1")
        >>> env = IntrinsicRewardWrapper(env, RND(env.observation_space, seed=0))
        >>> _ = env.reset(seed=0)
        >>> bool(env.step(0)[4]["intrinsic_reward"] > 0)
        True
    """

    state_depends_on = ("clip", "learning_rate")

    def __init__(
        self,
        observation_space: gym.Space[Any],
        *,
        features: int = 64,
        hidden: Sequence[int] = (64,),
        learning_rate: float = 1e-3,
        batch_size: int = 64,
        clip: float = 5.0,
        seed: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        features = _checks.whole("features", features, least=1)
        widths = [_checks.whole("hidden", width, least=1) for width in hidden]
        self.clip = clip = _checks.positive("clip", clip)
        self.learning_rate = _checks.positive("learning_rate", learning_rate)
        self.batch_size = _checks.whole("batch_size", batch_size, least=1)
        self.device = torch.device(device)
        self.packer = ObservationPacker(observation_space)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            self.target = _Network(self.packer, widths, features, clip).to(self.device)
            self.predictor = _Network(
                self.packer, [*widths, widths[-1] if widths else features], features, clip
            ).to(self.device)
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=self.learning_rate)
        self.frozen = False
        """While True the predictor and the whitening do not change (`evaluation_mode` sets it)."""
        self._waiting: list[list[torch.Tensor]] = []

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return F of one observation, or of a batch; rows not `valid` leave no trace."""
        packed, batched = self.packer.pack(next_obs)
        mask = np.broadcast_to(valid, len(packed[0]))
        tensors = [torch.as_tensor(part[mask], device=self.device) for part in packed]
        bonus = np.zeros(len(mask))
        if mask.any():
            if not self.frozen:
                self.target.encoder.update(tensors)
                self.predictor.encoder.update(tensors)
            with torch.no_grad():
                bonus[mask] = self._error(tensors).double().cpu().numpy()
            if not self.frozen:
                self._learn(tensors)
        return bonus if batched else float(bonus[0])

    def _error(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            target = self.target(tensors)
        return ((self.predictor(tensors) - target) ** 2).mean(dim=1)  # type: ignore[no-any-return]

    def _learn(self, tensors: list[torch.Tensor]) -> None:
        # Cloned: an env with copy=False overwrites the observation that a tensor looks at.
        self._waiting.append([part.clone() for part in tensors])
        if sum(len(parts[0]) for parts in self._waiting) < self.batch_size:
            return
        batch = [torch.cat(column) for column in zip(*self._waiting, strict=True)]
        self._waiting = []
        loss = self._error(batch).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return networks, whitening, optimiser and the observations not yet learned from."""
        return deepcopy(
            {
                **self.settings_state(),
                "target": self.target.state_dict(),
                "predictor": self.predictor.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "waiting": self._waiting,
            }
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        self.target.load_state_dict(state["target"])
        self.predictor.load_state_dict(state["predictor"])
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))  # torch would share it
        self._waiting = [
            [part.to(self.device, copy=True) for part in parts] for parts in state["waiting"]
        ]


class _Network(nn.Module):
    def __init__(
        self, packer: ObservationPacker, hidden: list[int], features: int, clip: float
    ) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=clip, whiten="element")
        self.body = mlp([self.encoder.features, *hidden], features)

    def forward(self, packed: list[torch.Tensor]) -> torch.Tensor:
        return self.body(self.encoder(packed))  # type: ignore[no-any-return]
