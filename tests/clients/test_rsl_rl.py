"""rsl_rl's own runner trains on a stack around a batched env that follows IsaacLab's contract."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from adops_wrappers import (  # noqa: E402
    ADOPSWrapper,
    BatchedEnv,
    GRMWrapper,
    TDCritic,
    load_stack_state_dict,
    stack_state_dict,
)
from adops_wrappers.intrinsic.rnd import RND  # noqa: E402
from tests.clients.guide import defined_in_guide  # noqa: E402
from tests.vector.conventions import IsaacLike, RslRlLike  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, ROLLOUT = 4, 8
MODEL = {"class_name": "rsl_rl.models:MLPModel", "hidden_dims": [8]}
GAUSSIAN = {"class_name": "rsl_rl.modules:GaussianDistribution", "init_std": 1.0}
CONFIG: dict[str, Any] = {
    "num_steps_per_env": ROLLOUT,
    "save_interval": 100,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": {**MODEL, "distribution_cfg": GAUSSIAN},
    "critic": MODEL,
    "algorithm": {
        "class_name": "rsl_rl.algorithms:PPO",
        "num_learning_epochs": 2,
        "num_mini_batches": 2,
        "gamma": 0.97,
    },
}


class Continuous(IsaacLike):
    """Actions in [−1, 1], as rsl_rl gives them."""

    def __init__(self, final_obs: str | None = "batch") -> None:
        super().__init__(final_obs, rows=ROWS)
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (2,))
        self.reward = self.reward.float()

    def simulate(self, actions: torch.Tensor) -> Any:
        obs, final = super().simulate((actions[:, 0] > 0).long())
        return obs.float(), None if final is None else final.float()

    def reset(self, **settings: Any) -> Any:
        obs, extras = super().reset(**settings)
        return {"policy": obs["policy"].float()}, extras


def stack(method: str, final_obs: str | None = "batch") -> Any:
    env: Any = BatchedEnv(Continuous(final_obs))
    space = env.single_observation_space
    bonus = RND(space, seed=0, batch_size=16)
    if method == "grm":
        return GRMWrapper(env, bonus=bonus, gamma=0.97)
    return ADOPSWrapper(env, TDCritic(space, seed=0, batch_size=16), bonus=bonus, gamma=0.97)


def train(env: Any, iterations: int = 3) -> list[torch.Tensor]:
    """Train, and return the rewards that the runner got."""
    from rsl_rl.runners import OnPolicyRunner

    torch.manual_seed(0)
    outer = defined_in_guide("ForRslRl")(env, 5, "cpu")
    rewards, step = [], outer.step

    def noted(actions: torch.Tensor) -> Any:
        answer = step(actions)
        assert answer[3]["time_outs"].dtype == torch.bool
        rewards.append(answer[1].clone())
        return answer

    outer.step = noted
    runner = OnPolicyRunner(outer, {**CONFIG}, device="cpu")
    before = [weight.clone() for weight in runner.alg.actor.parameters()]
    runner.learn(iterations)
    assert any(
        not torch.equal(a, b) for a, b in zip(before, runner.alg.actor.parameters(), strict=True)
    )
    assert len(rewards) == iterations * ROLLOUT
    return rewards


@pytest.mark.parametrize("method", ["adops", "grm"])
@pytest.mark.parametrize("final_obs", ["batch", "rows", None])
def test_the_runner_trains_on_a_stack(method: str, final_obs: str | None) -> None:
    rewards = train(stack(method, final_obs))
    assert all(reward.dtype == torch.float32 for reward in rewards)
    assert torch.stack(rewards).isfinite().all()


@pytest.mark.parametrize("method", ["adops", "grm"])
def test_sources_and_critics_learn_inside_the_runners_inference_mode(method: str) -> None:
    """And a stack that has been stepped there goes on outside, and loads a saved state."""
    env = stack(method)
    source = env.env.runner.source
    weights = [weight.clone() for weight in source.predictor.parameters()]
    train(env)
    changed = zip(weights, source.predictor.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in changed)
    state = stack_state_dict(env)
    other = stack(method)
    load_stack_state_dict(other, state)
    for one in (env, other):
        one.reset(seed=1)
    torch.manual_seed(3)
    actions = torch.rand(20, ROWS, 2) - 0.5
    for action in actions:
        ours, theirs = env.step(action), other.step(action)
        assert torch.equal(ours[1], theirs[1])
    assert float(torch.stack([env.step(a)[1] for a in actions]).abs().sum()) > 0


def test_a_vec_env_of_rsl_rl_becomes_one_again_around_the_stack() -> None:
    class Plain(RslRlLike):
        def reset(self) -> Any:
            return {"policy": super().reset().float()}

        def step(self, actions: Any) -> Any:
            obs, reward, dones, extras = super().step((actions[:, 0] > 0).long())
            return {"policy": obs.float()}, reward.float(), dones, extras

    box = gym.spaces.Box(-np.inf, np.inf, (3,))
    env: Any = BatchedEnv(
        Plain(),
        AutoresetMode.SAME_STEP,
        single_observation_space=gym.spaces.Dict({"policy": box}),
        single_action_space=gym.spaces.Box(-1.0, 1.0, (2,)),
    )
    rewards = train(GRMWrapper(env, bonus=lambda s, a, after: after["policy"][:, 0], gamma=0.97))
    assert torch.stack(rewards).std() > 0
