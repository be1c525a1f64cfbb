"""The example of PPO whose tensors stay on the GPU: the same numbers there, and no copies."""

from __future__ import annotations

import runpy
from argparse import Namespace
from typing import Any

import pytest
import torch

from adops_wrappers import CriticHandle
from tests.device.commands import ROOT
from tests.device.simulated_gpu import Counts, counting


@pytest.fixture(scope="module")
def example() -> Any:
    return Namespace(**runpy.run_path(str(ROOT / "examples" / "ppo_on_device.py")))


@pytest.mark.parametrize("shaping", ["adops", "none"])
def test_no_step_and_no_update_copies_or_waits(example: Any, shaping: str) -> None:
    args = Namespace(device="cuda", shaping=shaping)
    critic = CriticHandle()
    env = example.make_env(args, critic)
    space = env.single_observation_space
    agent = example.Agent(space.shape[0], int(env.single_action_space.n)).cuda()
    optimizer = torch.optim.Adam(agent.parameters())
    critic.register(agent)
    obs, _ = env.reset(seed=0)
    for _ in range(2):  # what is made once is made in the first
        rollout, obs = example.collect(env, critic, obs)
        example.learn(agent, optimizer, rollout)
        critic.updated()
    with counting() as counts:
        rollout, obs = example.collect(env, critic, obs)
        example.learn(agent, optimizer, rollout)
    assert counts.launches > 1000
    quiet = Counts(launches=counts.launches)
    assert counts == quiet, counts.lines


def test_the_gpu_gives_what_the_cpu_gives(example: Any) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        args = Namespace(device=device, shaping="adops", seed=0, steps=3 * 2048 * 16)
        found[device] = list(example.train(args))
    assert [step for step, _ in found["cuda"]] == [step for step, _ in found["cpu"]]
    assert len(found["cuda"]) == 3
    assert all(0.0 <= mean <= 1.0 for _, mean in found["cuda"])
    # Its own random numbers, unless they are drawn as the CPU draws them.
    assert found["cuda"][0][1] == pytest.approx(found["cpu"][0][1], abs=0.2)
