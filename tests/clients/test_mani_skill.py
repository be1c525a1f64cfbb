"""ManiSkill's own vector env, around a stub of its base env: the simulator itself needs a GPU."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space

torch = pytest.importorskip("torch")
pytest.importorskip("mani_skill.vector.wrappers.gymnasium", exc_type=ImportError)

from tests import toolkit as tk  # noqa: E402
from tests.vector.conventions import ROWS, same_step  # noqa: E402
from tests.vector.test_conventions import assert_same, play, stack  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class BaseEnv(gym.Env):
    """Steps the scripted envs one by one, and restarts those that it is told to."""

    def __init__(self) -> None:
        self.num_envs, self.device = ROWS, torch.device("cpu")
        self.reconfiguration_freq = 0
        self.metadata = {"render_modes": []}
        self.envs = [tk.ScriptedEnv(longest=5) for _ in range(ROWS)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, ROWS)
        self.action_space = batch_space(self.single_action_space, ROWS)
        self.obs = np.zeros((ROWS, 3))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        rows = range(ROWS) if not options else options["env_idx"].tolist()
        for row in rows:
            self.obs[row] = self.envs[row].reset(seed=None if seed is None else seed + row)[0]
        return torch.tensor(self.obs), {"elapsed_steps": torch.zeros(ROWS)}

    def step(self, actions: Any) -> Any:
        steps = [env.step(int(a)) for env, a in zip(self.envs, actions, strict=True)]
        obs, reward, terminated, truncated, _ = zip(*steps, strict=True)
        self.obs = np.stack(obs)
        return (
            torch.tensor(self.obs),
            torch.tensor(reward, dtype=torch.float64),
            torch.tensor(terminated),
            torch.tensor(truncated),
            {"success": torch.tensor(terminated), "elapsed_steps": torch.ones(ROWS)},
        )


@pytest.mark.parametrize("record_metrics", [False, True])
def test_maniskills_vector_env_is_shaped_as_the_numpy_env(record_metrics: bool) -> None:
    from mani_skill.vector.wrappers.gymnasium import ManiSkillVectorEnv

    base = BaseEnv()
    base.elapsed_steps = torch.ones(ROWS)
    env = stack(ManiSkillVectorEnv(base, record_metrics=record_metrics))
    assert env.autoreset_mode is gym.vector.AutoresetMode.SAME_STEP
    assert env.unwrapped is base
    assert_same(play(env), play(stack(same_step())))
