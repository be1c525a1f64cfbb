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
from adops_wrappers.arrays import BoolArray, FloatArray, to_numpy
from adops_wrappers.backends import kept, mean_over
from adops_wrappers.networks import Encoder, mlp
from adops_wrappers.packing import ObservationPacker, Packed


class RND(KeepsSettings):
    """F = mean over features of (predictor(s′) − target(s′))², learned from the states it scores.

    The target network is random and fixed; the predictor learns to copy it on the observations
    that it is shown, so that familiar ones earn little. Observations are whitened element by
    element with running moments and clipped, and both networks follow the space: a CNN for
    images, an MLP for the rest, Dict and Tuple observations part by part.

    A source for `IntrinsicRewardWrapper`, for single and vector envs alike. F is not scaled:
    give the wrapper an `IntrinsicReturnNormalizer` for RND's usual scale. It learns by itself from
    what it scores; the RND of the training scripts is Burda's, which PPO's update trains.

    Observations that are torch tensors are scored and learned from on their device, without a
    wait for it, and F is a tensor there. Rows that are not `valid` are then not taken out: they
    count toward `batch_size` and weigh nothing.

    Args:
        observation_space: The space of one observation (`single_observation_space` of a
            `VectorEnv`).
        features: The width of both networks' outputs.
        hidden: The widths of the hidden layers of the target; the predictor has one more.
        learning_rate: The step size of the predictor's Adam.
        batch_size: The number of observations for each gradient step of the predictor.
        clip: The largest whitened value.
        seed: Seeds both networks.
        device: Where the networks live. None: where the observations are, the CPU for NumPy's.

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
        device: str | torch.device | None = None,
    ) -> None:
        features = _checks.whole("features", features, least=1)
        widths = [_checks.whole("hidden", width, least=1) for width in hidden]
        self.clip = clip = _checks.positive("clip", clip)
        self.learning_rate = _checks.positive("learning_rate", learning_rate)
        self.batch_size = _checks.whole("batch_size", batch_size, least=1)
        self._follows = device is None
        self.packer = ObservationPacker(observation_space)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            self.target = _Network(self.packer, widths, features, clip)
            self.predictor = _Network(
                self.packer, [*widths, widths[-1] if widths else features], features, clip
            )
        self.target.requires_grad_(False)
        self.predictor.encoder.whiten_like(self.target.encoder)
        for network in (self.target, self.predictor):
            network.to(device or "cpu")
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=self.learning_rate)
        self.frozen = False
        """While True the predictor and the whitening do not change (`evaluation_mode` sets it)."""
        self.updates = 0
        """The number of gradient steps here so far."""
        self._waiting: list[list[torch.Tensor]] = []
        self._waiting_valid: list[torch.Tensor | None] = []

    @property
    def device(self) -> torch.device:
        """Where the networks live."""
        return next(self.predictor.parameters()).device

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return F of one observation, or of a batch; rows not `valid` leave no trace."""
        packed, batched = self.packer.pack(next_obs, _tensors_as_they_are)
        # It learns while an agent acts, often under torch.no_grad() or torch.inference_mode().
        with torch.inference_mode(False):
            if any(map(torch.is_tensor, packed)):
                bonus = self._of_tensors(packed, valid)
            else:
                bonus = self._of_arrays(packed, valid)
        return bonus if batched else float(bonus[0])

    def _of_arrays(self, packed: Packed, valid: Any) -> FloatArray:
        mask = np.broadcast_to(to_numpy(valid), len(packed[0]))
        bonus = np.zeros(len(mask))
        if mask.any():
            tensors = [torch.as_tensor(part[mask], device=self.device) for part in packed]
            bonus[mask] = self._scored(tensors, None).cpu().numpy()
        return bonus

    def _of_tensors(self, packed: list[Any], valid: Any) -> Any:
        self._meet({part.device for part in packed if torch.is_tensor(part)})
        tensors = [torch.as_tensor(part, device=self.device).detach() for part in packed]
        # Nothing can be learned from tensors that were made in inference mode.
        tensors = [part.clone() if part.is_inference() else part for part in tensors]
        rows: torch.Tensor | None
        if torch.is_tensor(valid):
            rows = valid.to(self.device)
        else:
            mask = np.broadcast_to(valid, len(packed[0]))
            if not mask.any():
                return torch.zeros(len(mask), dtype=torch.float64, device=self.device)
            rows = None if mask.all() else torch.tensor(mask, device=self.device)
        scores = self._scored(tensors, rows)
        return scores if rows is None else kept(scores, rows)

    def _meet(self, devices: set[torch.device]) -> None:
        """Move to the device of the observations, or raise if that is not allowed."""
        if devices == {self.device}:
            return
        if len(devices) > 1:
            names = " and ".join(sorted(map(str, devices)))
            raise TypeError(
                f"The parts of an observation are on {names}; RND needs all of them on one device."
            )
        (device,) = devices
        if not self._follows:
            raise TypeError(
                f"The observations are on {device}, and RND was made for {self.device}. Leave "
                f"device= out, and it follows the observations; or say device={str(device)!r}."
            )
        self.target.to(device)
        self.predictor.to(device)
        self.optimizer.load_state_dict(self.optimizer.state_dict())  # moves it to its weights
        self._waiting = [[part.to(device) for part in parts] for parts in self._waiting]
        self._waiting_valid = [
            None if rows is None else rows.to(device) for rows in self._waiting_valid
        ]

    def _scored(self, tensors: list[torch.Tensor], rows: torch.Tensor | None) -> torch.Tensor:
        """Return F of these observations and learn from them, or from those in `rows`."""
        if self.frozen:
            with torch.no_grad():
                return self._error(tensors).double()
        self.target.encoder.update(tensors, rows)
        # A full batch needs to be looked at only once.
        at_once = not self._waiting and len(tensors[0]) >= self.batch_size
        with torch.set_grad_enabled(at_once):
            error = self._error(tensors)
        if at_once:
            self._learn(error, rows)
        else:
            self._wait(tensors, rows)
        return error.detach().double()

    def _error(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        inputs = self.target.encoder.inputs(tensors)
        with torch.no_grad():
            target = self.target(inputs)
        return ((self.predictor(inputs) - target) ** 2).mean(dim=1)  # type: ignore[no-any-return]

    def _wait(self, tensors: list[torch.Tensor], rows: torch.Tensor | None) -> None:
        # Cloned: an env with copy=False overwrites the observation that a tensor looks at.
        self._waiting.append([part.clone() for part in tensors])
        self._waiting_valid.append(rows)
        if sum(len(parts[0]) for parts in self._waiting) < self.batch_size:
            return
        batch = [torch.cat(column) for column in zip(*self._waiting, strict=True)]
        masks = [
            torch.ones(len(parts[0]), dtype=torch.bool, device=self.device) if m is None else m
            for parts, m in zip(self._waiting, self._waiting_valid, strict=True)
        ]
        rows = None if all(m is None for m in self._waiting_valid) else torch.cat(masks)
        self._waiting, self._waiting_valid = [], []
        with torch.enable_grad():
            self._learn(self._error(batch), rows)

    def _learn(self, error: torch.Tensor, rows: torch.Tensor | None) -> None:
        loss = error.mean() if rows is None else mean_over(error, rows)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """Return networks, whitening, optimiser and the observations not yet learned from."""
        masks = any(mask is not None for mask in self._waiting_valid)
        return deepcopy(
            {
                **self.settings_state(),
                "target": self.target.state_dict(),
                "predictor": self.predictor.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "waiting": self._waiting,
                **({"waiting_valid": self._waiting_valid} if masks else {}),
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
        self._waiting_valid = [
            None if mask is None else mask.to(self.device, copy=True)
            for mask in state.get("waiting_valid", [None] * len(self._waiting))
        ]


def _tensors_as_they_are(part: Any) -> Any:
    return part if torch.is_tensor(part) else to_numpy(part)


class _Network(nn.Module):
    def __init__(
        self, packer: ObservationPacker, hidden: list[int], features: int, clip: float
    ) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=clip, whiten="element")
        self.body = mlp([self.encoder.features, *hidden], features)

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return self.body(self.encoder.embed(inputs))  # type: ignore[no-any-return]
