"""Bonuses and the normaliser on a GPU: no observation is downloaded, and no step waits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    ADOPSWrapper,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    PredictionKnowledge,
    SimHashCount,
    TDCritic,
)
from adops_wrappers.intrinsic.rnd import RND
from tests.device.simulated_gpu import Counts, counting
from tests.tensors import TensorWalk, as_arrays, play

SPACE_OF_WALK = TensorWalk("cpu").single_observation_space
SPACE = gym.spaces.Box(-1.0, 1.0, (3,))
SOURCES: dict[str, tuple[Callable[[], Any], int]] = {
    "RND, learning at each step": (lambda: RND(SPACE, seed=0, batch_size=4), 78),
    "RND, scoring": (lambda: RND(SPACE, seed=0, batch_size=10**6), 49),
    "SimHash": (lambda: SimHashCount(bits=16, seed=0), 27),
    "SimHash, hashed again": (lambda: SimHashCount(bits=32, seed=0), 29),
}
"""Sources, and the most kernels that one may start for a step."""
NORMALIZERS = {("step", "std"): 32, ("step", "rms"): 33, ("manual", "std"): 23}


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def first_number(obs: Any, action: Any, next_obs: Any) -> Any:
    return next_obs[:, 0]


def work_of(call: Callable[[], Any]) -> Counts:
    """What one call asks of the device, after some that set it up."""
    for _ in range(3):
        call()
    with counting() as counts:
        call()
    return counts


def assert_launches_only(counts: Counts, most: int) -> None:
    assert counts == Counts(launches=counts.launches), counts.lines
    assert 0 < counts.launches <= most, counts.lines


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_starts_kernels_and_waits_for_none(name: str) -> None:
    make, most = SOURCES[name]
    source = make()
    obs = random(4, 3).cuda()
    valid = torch.tensor([True, True, False, True]).cuda()
    assert_launches_only(work_of(lambda: source(None, None, obs, valid=valid)), most)


@pytest.mark.parametrize(("update", "rule"), NORMALIZERS)
def test_the_normaliser_starts_kernels_and_waits_for_none(update: Any, rule: Any) -> None:
    normalizer = IntrinsicReturnNormalizer(4, update=update, rule=rule, warm_up=2)
    intrinsic, valid = random(4).cuda(), torch.ones(4, dtype=torch.bool).cuda()
    counts = work_of(lambda: normalizer(intrinsic, valid))
    assert_launches_only(counts, NORMALIZERS[update, rule])


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", SOURCES)
def test_no_step_of_a_stack_waits_and_what_it_pays_is_what_the_cpu_pays(
    name: str, mode: AutoresetMode
) -> None:
    found = {}
    for device in ("cuda", "cpu"):
        env = TensorWalk(device, mode)
        stack = IntrinsicRewardWrapper(
            env, SOURCES[name][0](), normalizer=IntrinsicReturnNormalizer(4, warm_up=3)
        )
        stack.reset(seed=0)
        play(stack, 2)
        with counting() as counts:
            columns = play(stack, 40)
        assert (counts.launches > 0) == (device == "cuda")
        assert counts == Counts(launches=counts.launches), counts.lines
        assert {column.device.type for column in columns} == {device}
        found[device] = as_arrays(columns)
    assert (found["cpu"] != 0.0).mean() > 0.7
    np.testing.assert_array_equal(found["cuda"], found["cpu"])


def test_rnd_follows_the_observations_unless_its_device_is_said() -> None:
    obs = random(4, 3)
    source, other = (RND(SPACE, seed=0, batch_size=6) for _ in range(2))
    for device in ("cpu", "cuda", "cuda", "cpu"):  # with a batch that is half full
        found = source(None, None, obs.to(device))
        assert (found.device.type, source.device.type) == (device, device)
        assert torch.equal(found.cpu(), other(None, None, obs))
    with pytest.raises(TypeError, match="on cpu, and RND was made for cuda:0"):
        RND(SPACE, device="cuda")(None, None, obs)
    pinned = RND(SPACE, seed=0, batch_size=6, device="cuda:1")
    pinned.load_state_dict(source.state_dict())
    with pytest.raises(
        TypeError, match=r"on cuda:0, and RND was made for cuda:1\. .* device='cuda:0'"
    ):
        pinned(None, None, obs.cuda())
    found = pinned(None, None, obs.to("cuda:1"))
    assert torch.equal(found.cpu(), other(None, None, obs))
    assert type(pinned(None, None, obs.numpy())) is np.ndarray


def test_states_load_from_one_device_to_another() -> None:
    obs, valid = random(9, 4, 3), torch.tensor([True, False, True, True])
    for make in (lambda: RND(SPACE, seed=0, batch_size=12), lambda: SimHashCount(bits=4, seed=0)):
        first, second = make(), make()
        for batch in obs[:5]:
            first(None, None, batch.cuda(), valid=valid.cuda())
            second(None, None, batch.neg(), valid=valid)
        second.load_state_dict(first.state_dict())
        for batch in obs[5:]:
            on_gpu = first(None, None, batch.cuda(), valid=valid.cuda())
            assert torch.equal(on_gpu.cpu(), second(None, None, batch, valid=valid))


def test_knowledge_is_measured_where_the_observations_are() -> None:
    """Its probes follow the networks, before and after all of them are taken."""
    moving, staying = (
        PredictionKnowledge(RND(SPACE, seed=0, batch_size=8), probes=20) for _ in range(2)
    )
    valid = torch.tensor([True, False, True, True])
    found = []
    for step, batch in enumerate(random(60, 4, 3)):
        device = "cuda" if 3 < step < 30 else "cpu"
        answers = [
            knowledge(None, None, batch.to(place), valid=valid.to(place))
            for knowledge, place in ((moving, device), (staying, "cpu"))
        ]
        np.testing.assert_array_equal(*answers)
        found.append(answers[0][0])
    assert found[0] == 0.0
    assert found[-1] > 0.2


@pytest.mark.parametrize("critic_on", ["cuda", "cpu"])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_learning_critic_works_through_copies(mode: AutoresetMode, critic_on: str) -> None:
    """It keeps its transitions on the host; the columns of a step are copied there together."""
    found = {}
    for device in ("cuda", None):
        env = TensorWalk(device, mode)
        critic = TDCritic(SPACE_OF_WALK, batch_size=128, seed=0, device=critic_on)
        stack = ADOPSWrapper(IntrinsicRewardWrapper(env, first_number), critic, gamma=0.99)
        stack.reset(seed=0)
        columns = play(stack, 2)
        marks: list[Counts] = []
        with counting() as counts:
            columns += play(stack, 100, after_step=lambda: marks.append(counts.copy()))  # noqa: B023
        assert critic.updates > 3
        found[device] = as_arrays(columns)
        if device is None:
            continue
        steps = [after - before for before, after in pairwise(marks)]
        without_learning = sorted(step.downloads for step in steps)[len(steps) // 4]
        assert 0 < without_learning <= 11, (without_learning, steps[0].lines)
        assert sum(step.syncs for step in steps) == 0
    np.testing.assert_allclose(found["cuda"], found[None], rtol=1e-5)
