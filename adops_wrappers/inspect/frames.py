"""Small pictures of what the agent saw: from a renderer or from image observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Frame = npt.NDArray[np.uint8]


def as_image(array: Any) -> npt.NDArray[Any]:
    """Return an observation as (H, W) or (H, W, 3): the last picture of a stack of grey ones."""
    image: npt.NDArray[Any] = np.asarray(array)
    if image.ndim == 3 and image.shape[-1] == 3:
        return image
    if image.ndim == 3 and image.shape[-1] <= 4:
        return np.asarray(image[..., -1])
    if image.ndim == 3 and image.shape[0] <= 4:
        return np.asarray(image[-1])
    if image.ndim == 2:
        return image
    raise ValueError(
        f"An array of shape {image.shape} is no picture: expected (H, W), (H, W, 3), or a stack of "
        "at most 4 grey pictures. Give frames='render', or a function (env, obs) -> pictures."
    )


def downscale(image: npt.NDArray[Any], largest: int) -> Frame:
    """Return an RGB copy whose longer side has at most `largest` pixels, by means over blocks."""
    if image.ndim == 2:
        image = np.repeat(image[..., None], 3, axis=-1)
    factor = -(-max(image.shape[:2]) // largest)
    if factor > 1:
        padding = [(0, -side % factor) for side in image.shape[:2]]
        image = np.pad(image, [*padding, (0, 0)], mode="edge")
        height, width = image.shape[0] // factor, image.shape[1] // factor
        blocks = image.reshape(height, factor, width, factor, 3)
        image = np.rint(blocks.mean(axis=(1, 3), dtype=np.float32))
    return np.array(image, dtype=np.uint8)
