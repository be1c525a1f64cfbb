"""Observations as tensors: storage, the networks' inputs, and RND's whitening."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from adops_wrappers.training.distributed import Ranks
from adops_wrappers.training.exit import fail


class Encoder:
    """Turns observations into the tensors that are stored and fed to the networks.

    Images are stored as uint8 with channels last, the fastest layout for convolutions; everything
    else as flat float32 rows. It has no weights: the networks are the script's own.
    (`adops_wrappers.networks.Encoder`, of `TDCritic` and `RND`, is a network, for any space.)

    Args:
        space: The space of one observation, Box or Discrete.
        kind: The kind of env, from `envs.env_kind`.
        device: Where the tensors go.
        pin: Whether to copy to a GPU through pinned memory.
        count_key: What counts count of an observation; None is all of it.
    """

    shape: tuple[int, ...]
    """The shape of one stored observation and of the agent's input."""
    rnd_shape: tuple[int, ...]
    """The shape of RND's input."""

    def __init__(
        self,
        space: gym.Space[Any],
        kind: str,
        device: torch.device,
        pin: bool = False,
        count_key: Callable[[Any], Hashable] | None = None,
    ) -> None:
        self.kind, self.device, self.pin, self.count_key = kind, device, pin, count_key
        self.one_hot = self.image = self.channels_first = False
        self.scale = 1.0
        self.newest = slice(None)
        if isinstance(space, gym.spaces.Discrete):
            self.one_hot = True
            self.start, self.shape = int(space.start), (int(space.n),)
        elif isinstance(space, gym.spaces.Box):
            self._follow_box(space, kind)
        else:
            fail(
                f"observations of {space} are not supported, only Box and Discrete. Wrap the env "
                "with gymnasium.wrappers.FlattenObservation and register it under a new id."
            )
        self.dtype = torch.uint8 if self.image else torch.float32
        self.rnd_shape = (*self.shape[:2], 1) if self.newest.start else self.shape

    def _follow_box(self, space: gym.spaces.Box, kind: str) -> None:
        shape, is_bytes = space.shape, space.dtype == np.uint8
        self.image = is_bytes and len(shape) == 3 and min(sorted(shape)[1:]) > 35
        if self.image:
            self.channels_first = shape[0] == min(shape)
            self.shape = (*shape[1:], shape[0]) if self.channels_first else shape
            # RND sees only the newest frame of a stack.
            self.newest = slice(-1, None) if kind == "atari" else slice(None)
            return
        self.shape = (int(np.prod(shape)),)
        if is_bytes:
            self.scale = 0.1 if kind == "minigrid" else 1 / 255

    def encode(self, obs: npt.NDArray[Any]) -> torch.Tensor:
        """Return a batch of observations in the layout of storage."""
        if self.image:
            # Shares the memory of `obs` on a CPU: nothing here writes into it, storage copies it.
            images = self._upload(torch.from_numpy(obs))
            return images.permute(0, 2, 3, 1).contiguous() if self.channels_first else images
        if self.one_hot:
            rows = torch.from_numpy(np.asarray(obs, dtype=np.int64) - self.start)
            return self._upload(F.one_hot(rows, self.shape[0]).float())
        flat = np.asarray(obs).reshape(len(obs), -1)
        tensor = torch.from_numpy(flat.astype(np.float32))
        if self.scale != 1.0:
            tensor *= self.scale
        return self._upload(tensor)

    def _upload(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.pin and self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def features(self, stored: torch.Tensor) -> torch.Tensor:
        """Return the agent's input."""
        return stored.float().mul_(1 / 255) if self.image else stored

    def novelty(self, stored: torch.Tensor) -> torch.Tensor:
        """Return RND's input before whitening: the newest frame, or the whole observation."""
        return stored[..., self.newest].float()


class Whitening:
    """Running mean and variance of RND's inputs, updated only between iterations.

    Inputs are summed up until `update`, so that the scale is constant within a rollout and ranks
    can combine their sums first. (`adops_wrappers.networks.Whitening` has other moments, for
    sources without a learner: it follows every batch, with no prior count.)
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        # float64: E[x²] − E[x]² over a rollout of bytes loses most digits of a float32.
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = 1e-4
        self.sum, self.squares = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.rows = 0
        self._refresh()

    def observe(self, x: torch.Tensor) -> None:
        """Collect a batch, which takes effect at the next `update`."""
        x = x.double()
        self.sum += x.sum(0)
        self.squares += x.square_().sum(0)
        self.rows += len(x)

    def update(self, ranks: Ranks) -> None:
        """Merge the inputs collected by all ranks into the moments (Chan et al. 1979)."""
        if self.rows == 0:
            return
        rows = self.rows * ranks.world
        mean = ranks.sum(self.sum) / rows
        var = (ranks.sum(self.squares) / rows - mean.square()).clamp_min_(0.0)
        total = self.count + rows
        gap = mean - self.mean
        weighted = self.var * self.count + var * rows
        self.var = (weighted + gap.square() * (self.count * rows / total)) / total
        self.mean = self.mean + gap * (rows / total)
        self.count = total
        self.sum.zero_()
        self.squares.zero_()
        self.rows = 0
        self._refresh()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return (x - mean)/std, clipped to +-5."""
        return ((x - self._shift) * self._scale).clamp_(-5.0, 5.0)

    def _refresh(self) -> None:
        self._shift = self.mean.float()
        self._scale = (1.0 / (self.var.sqrt() + 1e-6)).float()

    def state_dict(self) -> dict[str, Any]:
        """Return the moments."""
        return {"mean": self.mean.cpu(), "var": self.var.cpu(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.mean = state["mean"].to(self.mean.device)
        self.var = state["var"].to(self.var.device)
        self.count = state["count"]
        self._refresh()
