"""Bonuses and the normaliser where observations and rewards are tensors of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    SimHashCount,
)
from adops_wrappers.intrinsic.rnd import RND  # noqa: E402
from tests.tensors import TensorWalk, as_arrays, nobody_looks, play  # noqa: E402

MODES = list(AutoresetMode)
BOX = spaces.Box(-10.0, 10.0, (3,), np.float64)
SPACES: dict[str, gym.Space[Any]] = {
    "box": BOX,
    "discrete": spaces.Discrete(5, start=1),
    "bits": spaces.MultiBinary(4),
    "image": spaces.Box(0, 255, (3, 12, 12), np.uint8),
    "dict": spaces.Dict({"b": spaces.MultiDiscrete([3, 2]), "a": spaces.Box(-1.0, 1.0, (2,))}),
    "tuple": spaces.Tuple((spaces.Box(-1.0, 1.0, (2,)), spaces.Box(-1.0, 1.0, (1,)))),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors(values: Any) -> Any:
    """Return an observation, a mask or a batch with its arrays as tensors."""
    if isinstance(values, dict):
        return {key: tensors(part) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(tensors, values))
    return torch.tensor(np.asarray(values))


def batches(space: gym.Space[Any], steps: int, rows: int = 4) -> list[Any]:
    batch = batch_space(space, rows)
    batch.seed(0)
    return [batch.sample() for _ in range(steps)]


def rnd(space: gym.Space[Any] = BOX, **settings: Any) -> RND:
    return RND(space, seed=0, **{"batch_size": 8, **settings})


SOURCES: dict[str, Callable[[gym.Space[Any]], Any]] = {
    "RND, a batch of several steps": lambda space: rnd(space),
    "RND, a batch each step": lambda space: rnd(space, batch_size=4),
    "SimHash": lambda space: SimHashCount(bits=5, seed=0),
    "SimHash, hashed again": lambda space: SimHashCount(bits=12, table_bits=4, seed=0),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("mode", MODES)
def test_in_a_stack_nobody_looks_at_a_tensor(mode: AutoresetMode, source: str) -> None:
    """The bonus of tensors is that of arrays: counts to the last bit of √n, RND to rounding."""
    found = {}
    for device in ("cpu", None):
        env = TensorWalk(device, mode)
        make = SOURCES[source]
        if mode is AutoresetMode.NEXT_STEP and "RND" in source:
            # Where rows are not counted, dummy ones fill its batches: it learns at other times.
            make = lambda space: rnd(space, batch_size=10**6)  # noqa: E731
        normalizer = IntrinsicReturnNormalizer(4, rule="rms", warm_up=5)
        stack = IntrinsicRewardWrapper(
            env, make(env.single_observation_space), normalizer=normalizer
        )
        stack.reset(seed=0)
        if device is None:
            found["arrays"] = as_arrays(play(stack, 60))
        else:
            with nobody_looks():
                columns = play(stack, 60)
            assert {(column.dtype, column.device.type) for column in columns} == {
                (torch.float32, "cpu")  # that of the env's rewards
            }
            found["tensors"] = as_arrays(columns)
    assert (found["arrays"] > 0.0).any()
    assert (found["arrays"][5:] == 0.0).any() == (mode is AutoresetMode.NEXT_STEP)
    np.testing.assert_allclose(found["tensors"], found["arrays"], rtol=1e-6)


# RND


@pytest.mark.parametrize("name", SPACES)
def test_rnd_of_tensors_is_rnd_of_arrays(name: str) -> None:
    """To the last bit, where all rows are real."""
    space = SPACES[name]
    for valid in (True, np.ones(4, dtype=np.bool_)):
        of_arrays, of_tensors = rnd(space), rnd(space)
        for step, batch in enumerate(batches(space, 12)):
            of_arrays.frozen = of_tensors.frozen = step % 5 == 4
            found = of_tensors(None, None, tensors(batch), valid=valid)
            assert (found.dtype, found.requires_grad) == (torch.float64, False)
            np.testing.assert_array_equal(found.numpy(), of_arrays(None, None, batch, valid=valid))


@pytest.mark.parametrize("name", ["box", "image", "dict"])
def test_rows_that_are_not_valid_leave_no_trace(name: str) -> None:
    """Whatever they hold, though they fill a batch: of eight rows here, six of them valid."""
    space = SPACES[name]
    of_arrays = rnd(space, batch_size=6)
    one, other = rnd(space, batch_size=8), rnd(space, batch_size=8)
    all_batches = batches(space, 24)
    for step in range(12):
        batch, noise = all_batches[step], all_batches[12 + step]
        valid = np.roll([True, True, False, True], step)
        changed = replaced(batch, noise, ~valid)
        expected = of_arrays(None, None, batch, valid=valid)
        found = one(None, None, tensors(batch), valid=torch.tensor(valid))
        assert torch.equal(found, other(None, None, tensors(changed), valid=torch.tensor(valid)))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)
        assert (found.numpy()[~valid] == 0.0).all()
    before = {k: v.clone() for k, v in one.predictor.state_dict().items()}
    for nothing in (False, np.zeros(4, dtype=np.bool_)):
        assert one(None, None, tensors(batch), valid=nothing).tolist() == [0.0] * 4
    assert all(torch.equal(v, before[k]) for k, v in one.predictor.state_dict().items())


def replaced(batch: Any, others: Any, rows: Any) -> Any:
    if isinstance(batch, dict):
        return {key: replaced(part, others[key], rows) for key, part in batch.items()}
    return np.where(rows.reshape(-1, *[1] * (batch.ndim - 1)), others, batch)


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize("batch_size", [4, 8])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_an_agent_collects_a_rollout(
    context: Any, batch_size: int, as_tensors: bool
) -> None:
    plain, other = rnd(batch_size=batch_size), rnd(batch_size=batch_size)
    for step, batch in enumerate(batches(BOX, 12)):
        expected = plain(None, None, batch)
        with context():
            found = other(None, None, tensors(batch) if as_tensors else batch)
        np.testing.assert_array_equal(np.asarray(found), expected)
        if step == 7:
            other.load_state_dict(other.state_dict())


def test_an_observation_that_is_overwritten_later_is_learned_from_as_it_was() -> None:
    fresh, reused = rnd(), rnd()
    buffer = torch.empty((4, 3), dtype=torch.float64)
    for batch in batches(BOX, 12):
        buffer[:] = torch.tensor(batch)
        assert torch.equal(fresh(None, None, tensors(batch)), reused(None, None, buffer))


def test_one_observation_gives_a_number() -> None:
    single, batch = rnd(batch_size=4), rnd(batch_size=4)
    for obs in batches(BOX, 12, rows=1):
        one = single(None, None, tensors(obs[0]), valid=True)
        assert type(one) is float
        assert one == batch(None, None, obs)[0]


def test_a_state_goes_on_from_a_batch_that_is_half_full() -> None:
    """With and without dummy rows in it; arrays and states of old versions have no mask there."""
    valid = torch.tensor([True, False, True, True])
    first, arrays = rnd(batch_size=12), rnd(batch_size=12)
    all_batches = batches(BOX, 30)
    for batch in all_batches[:8]:
        first(None, None, tensors(batch), valid=valid)
        arrays(None, None, batch)
    assert len(first.state_dict()["waiting_valid"]) == 2
    assert "waiting_valid" not in arrays.state_dict()
    for saved in (first, arrays):
        second = rnd(batch_size=12, device="cpu")
        second.load_state_dict(saved.state_dict())
        for batch in all_batches[8:]:
            answers = [s(None, None, tensors(batch), valid=valid) for s in (saved, second)]
            assert torch.equal(*answers)


def test_a_device_that_is_said_must_be_that_of_the_observations() -> None:
    """The meta device, whose tensors hold nothing, stands for another one."""
    batch = torch.zeros(2, 3, device="meta")
    with pytest.raises(TypeError, match=r"on meta, and RND was made for cpu\. Leave device= out"):
        rnd(device="cpu")(None, None, batch)
    pair = {"a": torch.zeros(2, 2, device="meta"), "b": torch.zeros(2, 2)}
    space = spaces.Dict({name: spaces.Box(-1.0, 1.0, (2,)) for name in "ab"})
    with pytest.raises(TypeError, match="are on cpu and meta; RND needs all of them on one"):
        rnd(space)(None, None, pair)
    with pytest.raises(TypeError, match="are in torch on cpu and torch on meta; SimHashCount"):
        SimHashCount()(None, None, pair, valid=np.ones(2, dtype=np.bool_))
    assert rnd().device.type == "cpu"


# SimHashCount


@pytest.mark.parametrize(("bits", "table_bits"), [(5, 20), (30, 4)])
def test_simhash_counts_tensors_as_arrays(bits: int, table_bits: int) -> None:
    """Also where state goes from one to the other."""
    rng = np.random.default_rng(0)
    of_tensors, of_arrays, mixed = (
        SimHashCount(bits=bits, table_bits=table_bits, seed=0) for _ in range(3)
    )
    for step in range(60):
        batch, valid = rng.normal(size=(9, 4)).astype(np.float32), rng.random(9) > 0.2
        for bonus in (of_tensors, of_arrays, mixed):
            bonus.frozen = step % 5 == 4
        expected = of_arrays(None, None, batch, valid=valid)
        with nobody_looks(), torch.inference_mode(step % 3 == 0):
            found = of_tensors(None, None, torch.tensor(batch), valid=torch.tensor(valid))
        # torch's √n differs from NumPy's in the last place of some n.
        np.testing.assert_array_max_ulp(found.numpy(), expected, 2)
        np.testing.assert_array_equal(of_tensors.counts.numpy(), of_arrays.counts)
        mixed.load_state_dict((of_arrays if step % 2 else of_tensors).state_dict())
        assert [type(v) for v in mixed.state_dict().values()] == [
            type(v) for v in of_arrays.state_dict().values()
        ]
    counts = of_tensors.counts
    with torch.inference_mode():
        single = of_tensors(None, None, torch.tensor(batch[0]))
    assert type(single) is float
    assert (of_tensors.counts is counts) or counts.is_inference()


# The normaliser


@pytest.mark.parametrize("rule", ["std", "rms"])
@pytest.mark.parametrize("update", ["step", "manual"])
@pytest.mark.parametrize("warm_up", [1, 3, 20])
def test_the_normaliser_of_tensors_is_that_of_arrays(update: Any, rule: Any, warm_up: int) -> None:
    rng = np.random.default_rng(0)
    of_tensors, of_arrays, loaded = (
        IntrinsicReturnNormalizer(3, gamma=0.9, update=update, rule=rule, warm_up=warm_up)
        for _ in range(3)
    )
    for step in range(60):
        values = rng.exponential(size=3) * (1.0 + step / 10)
        mask = rng.random(3) > (1.0 if step % 11 == 5 else 0.3)  # at times no row is real
        valid = None if step % 7 == 6 else mask
        for normalizer in (of_tensors, of_arrays):
            normalizer.frozen = step % 9 == 8
        expected = of_arrays(values, valid)
        with nobody_looks():
            given = torch.tensor(values), None if valid is None else torch.tensor(valid)
            found = of_tensors(*given)
        assert (found.dtype, tuple(found.shape)) == (torch.float64, (3,))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
        assert (expected == 0.0).all() == (of_arrays.scale == 0.0)
        if update == "manual" and step % 10 == 9:
            of_arrays.update()
            with nobody_looks():
                of_tensors.update()
        if step % 13 == 12:  # what it saves, the other kind can load
            loaded.load_state_dict(of_tensors.state_dict())
            of_arrays.load_state_dict(loaded.state_dict())
            of_tensors.load_state_dict(of_arrays.state_dict())
    assert of_arrays.scale > 0.0
    np.testing.assert_allclose(float(of_tensors.scale), of_arrays.scale, rtol=1e-12)
    np.testing.assert_allclose(of_tensors.collected, of_arrays.collected, rtol=1e-12)


def test_processes_share_what_they_collected_as_tensors() -> None:
    together, apart = (IntrinsicReturnNormalizer(2, update="manual") for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(9):
        values = torch.tensor(rng.random(2))
        together(values)
        apart(values)
    together.update()
    apart.update([apart.collected])
    assert float(together.scale) == pytest.approx(float(apart.scale), rel=1e-14)


@pytest.mark.parametrize("restart", [1, 6])  # before the warm-up ends and after
def test_a_restart_keeps_the_scale_until_there_are_returns(restart: int) -> None:
    found = []
    for convert in (torch.tensor, np.asarray):
        normalizer = IntrinsicReturnNormalizer(2, rule="rms", warm_up=4)
        rng = np.random.default_rng(0)
        for step in range(12):
            if step == restart:
                normalizer.restart()
            values = convert(rng.random(2) * (100.0 if step < restart else 1.0))
            with nobody_looks():
                found.append(normalizer(values))
    np.testing.assert_allclose(as_arrays(found[:12]), as_arrays(found[12:]), rtol=1e-12)


@pytest.mark.parametrize("rule", ["std", "rms"])
def test_a_return_that_leaves_float64_is_not_paid_as_nothing(rule: Any) -> None:
    """NumPy raises at once; a device is not asked, so the checks of the stack must find it."""
    huge = np.array([1e200, -1e200])
    with pytest.raises(OverflowError, match="brought to unit size"):
        IntrinsicReturnNormalizer(2, rule=rule, warm_up=1)(huge)
    normalizer = IntrinsicReturnNormalizer(2, rule=rule, warm_up=1)
    assert normalizer(torch.tensor(huge)).isnan().all()
    assert normalizer(torch.ones(2)).isnan().all()
