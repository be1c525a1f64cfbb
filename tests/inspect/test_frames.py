from __future__ import annotations

import numpy as np
import pytest

from adops_wrappers.inspect.frames import as_image, downscale


@pytest.mark.parametrize(
    ("shape", "newest", "result"),
    [
        ((8, 6), ..., (8, 6)),
        ((8, 6, 3), ..., (8, 6, 3)),
        ((8, 6, 1), (..., -1), (8, 6)),
        ((8, 6, 4), (..., -1), (8, 6)),
        ((4, 84, 84), -1, (84, 84)),
    ],
)
def test_the_newest_picture_of_a_stack_is_taken(shape, newest, result) -> None:
    array = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    image = as_image(array)
    assert image.shape == result
    np.testing.assert_array_equal(image, array[newest])


def test_what_is_no_picture_is_refused() -> None:
    for shape in ((5,), (7, 8, 9), (2, 3, 4, 5)):
        with pytest.raises(ValueError, match="is no picture"):
            as_image(np.zeros(shape))


def test_downscaling_is_the_mean_over_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 255, (9, 6, 3), dtype=np.uint8)
    small = downscale(image, 5)
    assert small.shape == (5, 3, 3)
    assert small.dtype == np.uint8
    block = image[2:4, 4:6].reshape(4, 3).mean(axis=0)
    np.testing.assert_array_equal(small[1, 2], np.rint(block))
    np.testing.assert_array_equal(small[4, 0], np.rint(image[8, 0:2].mean(axis=0)))
    same = downscale(image, 9)
    np.testing.assert_array_equal(same, image)
    assert not np.shares_memory(same, image)  # envs with copy=False overwrite theirs
    assert downscale(image[..., 0], 9).shape == (9, 6, 3)
