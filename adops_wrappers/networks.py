"""What `TDCritic` and `RND` share: observations of any kind as arrays, and as whitened features.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from adops_wrappers.packing import WORD_BUCKETS, ObservationPacker, Packed


class Whitening(nn.Module):
    """Subtracts a running mean, divides by a running deviation, clips.

    Args:
        shape: The shape of one observation.
        axes: The axes of one observation that share a mean and a deviation.
        clip: The largest value that leaves, in standard deviations.
        dtype: The precision of the subtraction and the division; the moments are float64.
    """

    count: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor
    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        axes: tuple[int, ...] = (),
        clip: float = 5.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.axes = (0, *(axis + 1 for axis in axes))
        self.clip = clip
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(kept, dtype=torch.float64))
        self.register_buffer("deviation", torch.zeros(kept, dtype=torch.float64))
        # Kept, because many batches are whitened between two updates.
        self.register_buffer("shift", torch.zeros(kept, dtype=dtype), persistent=False)
        self.register_buffer("scale", torch.ones(kept, dtype=dtype), persistent=False)
        self.empty = True
        """Whether there was no update yet."""
        self._arrays: tuple[Any, Any] | None = None
        self.register_load_state_dict_post_hook(_after_loading)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def update(self, batch: torch.Tensor, valid: torch.Tensor | None = None) -> None:
        """Update the moments with the `valid` rows of a batch (Chan et al. 1979)."""
        # In place, here and in `forward`: fresh memory costs more than arithmetic on images. So the
        # merge is not that of `training.encoding`, on variances, nor the normaliser's, of numbers.
        values = batch.to(torch.float64, copy=True)
        count: Any = math.prod(values.shape[axis] for axis in self.axes)
        if valid is None:
            values.sub_(mean := values.mean(dim=self.axes, keepdim=True))
        else:
            # To pick out the rows would wait for a device.
            others = ~valid.reshape(-1, *[1] * (values.ndim - 1))
            count = valid.sum() * (count // len(valid))
            sums = values.masked_fill_(others, 0.0).sum(dim=self.axes, keepdim=True)
            mean = sums / count.clip(1)
            values.sub_(mean).masked_fill_(others, 0.0)
        deviation = values.square_().sum(dim=self.axes, keepdim=True)
        gap = mean[0] - self.mean
        total = (self.count + count).clip(1)
        self.deviation += deviation[0] + gap * gap * self.count * count / total
        self.mean += gap * count / total
        self.count += count
        self.empty = False
        self._prepare()

    def _prepare(self) -> None:
        std = (self.deviation / self.count).sqrt()
        self.shift.copy_(self.mean)
        # A coordinate that has never varied is left at 0 rather than divided by 0.
        self.scale.copy_(torch.where(std > 1e-8, std, 1.0))
        self._arrays = None

    def by_numpy(self, batch: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return what `forward` does, of an array: torch takes longer with small ones."""
        if self.empty:
            return batch.astype(np.float32)
        if self._arrays is None:
            self._arrays = self.shift.cpu().numpy(), self.scale.cpu().numpy()
        shift, scale = self._arrays
        values = np.subtract(batch, shift, dtype=shift.dtype)
        values /= scale
        np.minimum(values, self.clip, out=values)
        np.maximum(values, -self.clip, out=values)
        whitened: npt.NDArray[np.float32] = values.astype(np.float32, copy=False)
        return whitened

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the whitened batch in float32; unchanged before the first update."""
        if self.empty:
            return batch.float()
        values = batch.to(self.shift.dtype) - self.shift
        return values.div_(self.scale).clamp_(-self.clip, self.clip).float()


def _after_loading(whitening: Whitening, _: Any) -> None:
    whitening.empty = bool(whitening.count == 0)
    whitening._prepare()


class Encoder(nn.Module):
    """Concatenates the features of all leaves: whitened numbers, images by a CNN, one-hot codes.

    Args:
        packer: The leaves.
        clip: The largest whitened value.
        whiten: "element" whitens every pixel separately, "channel" each channel of an image.
    """

    def __init__(
        self,
        packer: ObservationPacker,
        *,
        clip: float = 5.0,
        whiten: Literal["element", "channel"] = "channel",
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList(_leaf_encoder(space, clip, whiten) for _, space in packer.leaves)
        widths: list[Any] = [part.features for part in self.parts]
        self.features = int(sum(widths))
        self._parts = tuple(self.parts)  # torch looks a module up for longer than it runs
        self.plain = all(part.body is None for part in self.parts)
        """Whether there are no weights in it."""

    def update(self, packed: Sequence[torch.Tensor], valid: torch.Tensor | None = None) -> None:
        """Update the whitening with a batch, or with the rows of it in `valid`."""
        for part, values in zip(self.parts, packed, strict=True):
            if isinstance(part, _BoxEncoder):
                part.whitening.update(values, valid)

    def whiten_like(self, other: Encoder) -> None:
        """Share the moments of another encoder of the same leaves."""
        for part, its in zip(self.parts, other.parts, strict=True):
            if isinstance(part, _BoxEncoder) and isinstance(its, _BoxEncoder):
                part.whitening = its.whitening

    def inputs(self, packed: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return what `embed` takes: all that comes before the weights."""
        parts: Any = self.parts
        return [part.inputs(x) for part, x in zip(parts, packed, strict=True)]

    def features_of(self, packed: Packed) -> npt.NDArray[np.float32]:
        """Return what `forward` does, of arrays, if there are no weights in it."""
        parts: Any = self._parts
        if len(parts) == 1:
            return parts[0].by_numpy(packed[0])  # type: ignore[no-any-return]
        found = [part.by_numpy(values) for part, values in zip(parts, packed, strict=True)]
        return np.concatenate(found, axis=1)

    def embed(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return features of shape (rows, self.features)."""
        parts: Any = self.parts
        features = [
            x if part.body is None else part.body(x) for part, x in zip(parts, inputs, strict=True)
        ]
        return features[0] if len(features) == 1 else torch.cat(features, dim=1)

    def forward(self, packed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return features of shape (rows, self.features)."""
        return self.embed(self.inputs(packed))


class _Layers(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Not layer(x): small layers take no longer than torch's search for hooks.
        for layer in self:
            x = layer.forward(x)
        return x


def mlp(
    sizes: Sequence[int], output: int | None = None, *, starts_at_zero: bool = False
) -> nn.Sequential:
    """Build layers of `sizes` with ReLU between them, and a linear one to `output`, if given.

    With `starts_at_zero` that one has weights of 0, so that all outputs are 0 at first.
    """
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
    if output is not None:
        last = nn.Linear(sizes[-1], output)
        if starts_at_zero:
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
        layers.append(last)
    return _Layers(*layers)


class InputNetwork(nn.Module):
    """A network on top of an `encoder`: it takes what `encoder.inputs` returns."""

    encoder: Encoder


class ValueNetwork(InputNetwork):
    """An encoder and an MLP; all values start at 0."""

    def __init__(self, packer: ObservationPacker, hidden: list[int], outputs: int) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=10.0)
        self.body = mlp([self.encoder.features, *hidden], outputs, starts_at_zero=True)

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return `outputs` values for each row."""
        return self.body(self.encoder.embed(inputs))  # type: ignore[no-any-return]


class _BoxEncoder(nn.Module):
    def __init__(self, space: spaces.Box, clip: float, whiten: str) -> None:
        super().__init__()
        self.channel_axis = _channel_axis(space)
        shape = space.shape
        dtype = torch.float32 if np.can_cast(space.dtype, np.float32) else torch.float64
        if self.channel_axis is None:
            self.whitening = Whitening(shape, clip=clip, dtype=dtype)
            self.body: nn.Module | None = None
            self.features = math.prod(shape)
            return
        shared: tuple[int, ...] = ()
        if whiten == "channel":
            shared = tuple(
                a for a in range(len(shape)) if len(shape) == 2 or a != self.channel_axis
            )
        self.whitening = Whitening(shape, shared, clip, dtype)
        sides = [s for a, s in enumerate(shape) if len(shape) == 2 or a != self.channel_axis]
        channels = 1 if len(shape) == 2 else shape[self.channel_axis]
        self.body = body = _cnn(channels, min(sides))
        with torch.no_grad():
            self.features = body(torch.zeros(1, channels, *sides)).shape[1]

    def inputs(self, values: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.whitening(values)
        if self.channel_axis is None:
            return x if x.ndim == 2 else x.reshape(len(x), -1)
        if x.ndim == 3:
            return x[:, None]
        return x.movedim(-1, 1) if self.channel_axis == 2 else x

    def by_numpy(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        x = self.whitening.by_numpy(values)
        return x if x.ndim == 2 else x.reshape(len(x), -1)


class _OneHotEncoder(nn.Module):
    def __init__(self, sizes: list[int], starts: list[int]) -> None:
        super().__init__()
        self.sizes, self.starts = sizes, starts
        self.firsts = np.cumsum([0, *sizes[:-1]])
        self.features = sum(sizes)
        self.body = None

    def inputs(self, values: torch.Tensor) -> torch.Tensor:
        columns = values.reshape(len(values), -1).long().unbind(dim=1)
        return torch.cat(
            [
                nn.functional.one_hot(column - start, size).float()
                for column, size, start in zip(columns, self.sizes, self.starts, strict=True)
            ],
            dim=1,
        )

    def by_numpy(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        columns = values.reshape(len(values), -1).astype(np.int64)
        codes = np.zeros((len(values), self.features), np.float32)
        codes[np.arange(len(values))[:, None], columns - self.starts + self.firsts] = 1.0
        return codes


class _BitsEncoder(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.body = None

    def inputs(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(len(values), -1).float()

    def by_numpy(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        return values.reshape(len(values), -1).astype(np.float32)


def _leaf_encoder(space: gym.Space[Any], clip: float, whiten: str) -> nn.Module:
    if isinstance(space, spaces.Box):
        return _BoxEncoder(space, clip, whiten)
    if isinstance(space, spaces.Discrete):
        return _OneHotEncoder([int(space.n)], [int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        sizes = [int(n) for n in space.nvec.ravel()]
        starts = [int(n) for n in np.broadcast_to(space.start, space.nvec.shape).ravel()]
        return _OneHotEncoder(sizes, starts)
    if isinstance(space, spaces.MultiBinary):
        return _BitsEncoder(math.prod(space.shape))
    return _BitsEncoder(WORD_BUCKETS)


def _cnn(channels: int, side: int) -> nn.Sequential:
    # Half as wide as Burda's, which the training scripts show, and for small images too.
    if side >= 36:
        convolutions = [
            nn.Conv2d(channels, 16, 8, stride=4),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.Conv2d(32, 32, 3),
        ]
    else:
        convolutions = [
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
        ]
    layers: list[nn.Module] = []
    for convolution in convolutions:
        layers += [convolution, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten())


def _channel_axis(space: spaces.Box) -> int | None:
    """Return the axis of an image's channels (0 of a grey one without), or None: no image."""
    shape = space.shape
    if len(shape) == 3:
        axis = 0 if shape[0] < shape[2] else 2
        sides = shape[1:] if axis == 0 else shape[:2]
        return axis if min(sides) >= 3 else None
    if len(shape) == 2 and space.dtype == np.uint8 and min(shape) >= 8:
        return 0
    return None
