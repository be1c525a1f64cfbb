"""TorchRL around a stack in torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper  # noqa: E402
from adops_wrappers.envs import GalleryTensorEnv  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def stack() -> Any:
    env: Any = GalleryTensorEnv(8, "LoopFarm", horizon=7)
    env = IntrinsicRewardWrapper(env, lambda obs, action, next_obs: 1.0 + next_obs[:, 0])
    return GRMWrapper(env, gamma=0.9)


def test_torchrl_collects_what_the_stack_gives() -> None:
    from torchrl.envs.libs.gym import GymWrapper

    torch.manual_seed(0)
    env = GymWrapper(stack(), device="cpu")
    rollout = env.rollout(140, break_when_any_done=False)
    actions = rollout["action"].argmax(-1).T
    done = rollout["next", "done"].squeeze(-1).T
    plain = stack()
    plain.reset(seed=0)
    found = rollout["next", "reward"].squeeze(-1).T
    for t, action in enumerate(actions):
        _, reward, terminated, truncated, _ = plain.step(action)
        torch.testing.assert_close(found[t], reward)
        assert torch.equal(done[t], terminated | truncated)
    assert found.abs().sum() > 0
    assert done.sum() >= 8 * 19
