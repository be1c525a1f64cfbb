from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

torch = pytest.importorskip("torch")

from adops_wrappers.networks import Encoder, Whitening  # noqa: E402
from adops_wrappers.packing import ObservationPacker  # noqa: E402

SPACES: dict[str, gym.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,)),
    "matrix of floats": spaces.Box(-1.0, 1.0, (3, 2)),
    "number": spaces.Box(-1.0, 1.0, ()),
    "discrete": spaces.Discrete(4, start=2),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(4),
    "text": spaces.Text(12),
    "Atari": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "channels last": spaces.Box(0, 255, (40, 36, 3), np.uint8),
    "grey": spaces.Box(0, 255, (10, 12), np.uint8),
    "MiniGrid image": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "dict": spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Discrete(3)}),
    "nested": spaces.Tuple(
        (spaces.Dict({"t": spaces.Text(8), "x": spaces.Discrete(2)}), spaces.Box(-1.0, 1.0, (1,)))
    ),
}


def batch_of(space: gym.Space[Any], rows: list[Any]) -> Any:
    return concatenate(space, rows, create_empty_array(space, n=len(rows)))


def features(encoder: Encoder, packed: list[Any]) -> Any:
    with torch.no_grad():
        return encoder([torch.as_tensor(part) for part in packed]).numpy()


@pytest.mark.parametrize("name", SPACES)
def test_a_batch_is_encoded_as_its_rows_are(name: str) -> None:
    space = SPACES[name]
    space.seed(0)
    torch.manual_seed(0)
    samples = (space.sample() for _ in range(100))
    rows = list({str(sample): sample for sample in samples}.values())[:3]
    packer = ObservationPacker(space)
    encoder = Encoder(packer)
    packed, batched = packer.pack(batch_of(space, rows))
    assert batched
    together = features(encoder, packed)
    assert together.shape == (3, encoder.features)
    for row, expected in zip(rows, together, strict=True):
        alone, was_batch = packer.pack(row)
        assert not was_batch
        np.testing.assert_allclose(features(encoder, alone)[0], expected, rtol=1e-4, atol=1e-4)
    assert len({row.tobytes() for row in together}) == 3  # different observations differ


def test_one_hot_codes_and_words() -> None:
    packer = ObservationPacker(spaces.MultiDiscrete([2, 3], start=[1, 0]))
    packed, _ = packer.pack(np.array([[1, 2], [2, 0]]))
    code = features(Encoder(packer), packed)
    assert code.tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
    packer = ObservationPacker(spaces.Text(20))
    packed, _ = packer.pack(("open the door", "the door OPEN", "key"))
    code = features(Encoder(packer), packed)
    assert (code[0] == code[1]).all()
    assert code.sum(axis=1).tolist() == [3, 3, 1]


def test_every_part_of_a_dict_matters() -> None:
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1.0, 1.0, (2,))})
    packer = ObservationPacker(space)
    encoder = Encoder(packer)
    base = {"a": np.int64(0), "b": np.zeros(2, np.float32)}
    others = [{**base, "a": np.int64(1)}, {**base, "b": np.ones(2, np.float32)}]
    first = features(encoder, packer.pack(base)[0])
    for other in others:
        assert not np.array_equal(first, features(encoder, packer.pack(other)[0]))


def test_whitening_by_numpy() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(3.0, 2.0, (50, 4)) * [1.0, 10.0, 1e-3, 0.0]
    whitening = Whitening((4,), clip=1.5)
    np.testing.assert_array_equal(whitening(torch.as_tensor(data)), data.astype(np.float32))
    for part in np.split(data, [1, 20, 21]):
        whitening.update(torch.as_tensor(part))
    std = np.where(data.std(axis=0) > 0, data.std(axis=0), 1.0)
    expected = np.clip((data - data.mean(axis=0)) / std, -1.5, 1.5)
    np.testing.assert_allclose(whitening(torch.as_tensor(data)), expected, rtol=1e-5, atol=1e-6)
    assert (np.abs(expected) == 1.5).any()
    images = rng.integers(0, 255, (9, 3, 5, 6))
    whitening = Whitening((3, 5, 6), axes=(1, 2))
    whitening.update(torch.as_tensor(images))
    mean = images.mean(axis=(0, 2, 3), keepdims=True)
    expected = (images - mean) / images.std(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(whitening(torch.as_tensor(images)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axes"), [((4,), ()), ((3, 5, 6), (1, 2))])
def test_rows_under_a_mask_are_whitened_as_if_they_were_alone(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    masked, picked = Whitening(shape, axes), Whitening(shape, axes)
    for chance in (1.0, 0.0, 0.3, 0.8):
        batch, rows = rng.normal(3.0, 2.0, (9, *shape)), rng.random(9) > chance
        polluted = np.where(rows.reshape(-1, *[1] * len(shape)), batch, np.nan)
        masked.update(torch.as_tensor(polluted), torch.as_tensor(rows))
        if rows.any():
            picked.update(torch.as_tensor(batch[rows]))
        for name, values in picked.named_buffers():
            torch.testing.assert_close(masked.get_buffer(name), values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_boxes_are_whitened_in_the_precision_that_holds_them(dtype: Any) -> None:
    encoder = Encoder(ObservationPacker(spaces.Box(0, 255, (4,), dtype)))
    whitening = encoder.parts[0].whitening
    double = dtype in (np.float64, np.int64)
    assert whitening.shift.dtype == (torch.float64 if double else torch.float32)
    data = np.random.default_rng(0).integers(0, 255, (50, 4)).astype(dtype)
    batch = torch.as_tensor(data.copy())
    encoder.update([batch])
    expected = (data - data.mean(axis=0)) / data.std(axis=0)
    np.testing.assert_allclose(encoder([batch]), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(batch, data)


def test_whitening_survives_copies_and_state_dicts() -> None:
    data = torch.as_tensor(np.random.default_rng(0).normal(3.0, 2.0, (50, 4)))
    whitening, fresh = Whitening((4,)), Whitening((4,))
    empty = whitening.state_dict()
    assert list(empty) == ["count", "mean", "deviation"]
    empty = deepcopy(empty)
    whitening.update(data)
    fresh.load_state_dict(whitening.state_dict())
    for other in (fresh, deepcopy(whitening), pickle.loads(pickle.dumps(whitening))):
        assert torch.equal(other(data), whitening(data))
        other.update(2 * data)
        assert not torch.equal(other(data), whitening(data))
        other.load_state_dict(empty)
        assert torch.equal(other(data), data.float())


def test_errors() -> None:
    with pytest.raises(TypeError, match="no encoder for Sequence observations"):
        ObservationPacker(spaces.Sequence(spaces.Discrete(2)))
    with pytest.raises(ValueError, match="holds nothing to learn from"):
        ObservationPacker(spaces.Dict({}))
    with pytest.raises(ValueError, match=r"env\.single_observation_space of a VectorEnv"):
        ObservationPacker(spaces.Box(-1, 1, (3,))).pack(np.zeros((2, 4), np.float32))
    with pytest.raises(TypeError, match="no encoder for observations of type object"):
        ObservationPacker(spaces.Text(3)).pack((object(), object()))
