"""Against rllte itself where it is installed, and against a double of its documented interface."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

torch = pytest.importorskip("torch")

from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper, evaluation_mode  # noqa: E402
from adops_wrappers.intrinsic.rllte import RLLTESource  # noqa: E402
from tests import toolkit as tk  # noqa: E402
from tests.tensors import TensorWalk, as_arrays, play  # noqa: E402

RLLTE = importlib.util.find_spec("rllte") is not None
SAMPLES = {"observations", "actions", "rewards", "terminateds", "truncateds", "next_observations"}


class Double:
    """Counts and sums, by the interface of rllte's BaseReward: `watch`, then `compute`."""

    def __init__(self, n_envs: int) -> None:
        self.n_envs = n_envs
        self.watched: list[Any] = []
        self.calls = 0

    def watch(self, **step: Any) -> None:
        assert set(step) == SAMPLES
        assert all(len(value) == self.n_envs for value in step.values())
        self.watched.append(step)

    def compute(self, samples: Any, sync: bool = True) -> Any:
        assert set(samples) == SAMPLES
        assert sync
        self.calls += 1
        assert samples["observations"].shape == (1, self.n_envs, 3)
        assert samples["rewards"].shape == (1, self.n_envs)
        return samples["next_observations"].sum(-1) - samples["observations"].sum(-1)


def test_tensors_of_an_env_are_handed_on_as_arrays_are() -> None:
    found = []
    for device in ("cpu", None):
        env = IntrinsicRewardWrapper(TensorWalk(device, num_envs=3), RLLTESource(Double(3)))
        env.reset(seed=0)
        found.append(as_arrays(play(env, 12)))
    assert found[1].std() > 0.0
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("copy", [True, False])
def test_double_sees_true_transitions_and_ends(copy: bool) -> None:
    mode = AutoresetMode.SAME_STEP

    def make() -> Any:
        return gym.vector.SyncVectorEnv([tk.ScriptedEnv] * 3, copy=copy, autoreset_mode=mode)

    acts = np.random.default_rng(0).integers(0, 3, (30, 3))
    double = Double(3)
    env = IntrinsicRewardWrapper(make(), RLLTESource(double))
    env.reset(seed=5)
    given = [env.step(action)[4]["intrinsic_reward"].copy() for action in acts]
    for i, steps in enumerate(tk.record(make(), acts, 5, mode)):
        for step in steps:
            seen = double.watched[step.time]
            np.testing.assert_allclose(seen["observations"][i], step.obs, rtol=1e-6)
            np.testing.assert_allclose(seen["next_observations"][i], step.next_obs, rtol=1e-6)
            assert seen["actions"][i] == step.action
            assert bool(seen["terminateds"][i]) == step.ended
            expected = step.next_obs.sum() - step.obs.sum()
            assert given[step.time][i] == pytest.approx(expected, abs=1e-5)


def test_frozen_module_stands_still_and_goes_on_afterwards() -> None:
    double = Double(1)
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(longest=1000), RLLTESource(double))
    env.reset(seed=0)
    env.step(0)
    with evaluation_mode(env):
        env.step(0)
        env.step(0)
        assert double.calls == 1
    env.step(0)
    assert double.calls == 2


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"with compute\(\) and watch\(\)"):
        RLLTESource(object())
    env = IntrinsicRewardWrapper(
        tk.make_vector("sync", AutoresetMode.NEXT_STEP, longest=1), RLLTESource(Double(3))
    )
    env.reset(seed=0)
    env.step(np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match=r"AutoresetMode\.SAME_STEP"):
        env.step(np.zeros(3, dtype=np.int64))
    env = IntrinsicRewardWrapper(tk.ScriptedEnv("dict"), RLLTESource(Double(1)))
    env.reset(seed=0)
    with pytest.raises(TypeError, match="not Dict or Tuple"):
        env.step(0)


@pytest.mark.skipif(not RLLTE, reason="rllte is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["RND", "ICM", "E3B", "Disagreement"])
def test_real_modules_give_what_they_give_alone(name: str) -> None:
    import rllte.xplore.reward as modules

    def make() -> Any:
        env = tk.make_vector("sync", AutoresetMode.SAME_STEP)
        torch.manual_seed(0)
        return env, getattr(modules, name)(env, obs_norm_type="none", latent_dim=16)

    torch.set_num_threads(1)
    acts = np.random.default_rng(0).integers(0, 3, (12, 3))
    env, module = make()
    stack = GRMWrapper(IntrinsicRewardWrapper(env, RLLTESource(module)))
    stack.reset(seed=0)
    found = [stack.step(action)[4]["raw_intrinsic_reward"] for action in acts]
    bare, alone = make()
    rows = tk.record(bare, acts, 0, AutoresetMode.SAME_STEP)
    expected = []
    for t in range(len(acts)):
        steps = [row[t] for row in rows]
        ended = torch.tensor([[float(step.ended) for step in steps]])
        samples = {
            "observations": torch.tensor(np.stack([s.obs for s in steps])[None]).float(),
            "actions": torch.tensor(acts[t][None]).float(),
            "rewards": torch.zeros(1, 3),
            "terminateds": ended,
            "truncateds": torch.zeros(1, 3),
            "next_observations": torch.tensor(np.stack([s.next_obs for s in steps])[None]).float(),
        }
        expected.append(alone.compute(samples).detach().numpy()[0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
