"""What simulators return instead of what Gymnasium's vector envs do: one env, told in many ways."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Dict
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from tests.toolkit import ScriptedEnv

torch = pytest.importorskip("torch")

ROWS = 3


def same_step(rows: int = ROWS) -> VectorEnv:
    return SyncVectorEnv(
        [lambda: ScriptedEnv(longest=5)] * rows, autoreset_mode=AutoresetMode.SAME_STEP
    )


def tensor(array: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(array))


class Simulator:
    """Steps the scripted env, and keeps what it gives in tensors."""

    def __init__(self, rows: int = ROWS) -> None:
        self.scripted, self.num_envs, self.device = same_step(rows), rows, torch.device("cpu")
        self.single_observation_space: Any = self.scripted.single_observation_space
        self.single_action_space: Any = self.scripted.single_action_space
        self.max_episode_length = 5
        # As simulators do, all steps write into the same memory.
        self.reward = torch.zeros(rows, dtype=torch.float64)
        self.terminated, self.truncated = torch.zeros(2, rows, dtype=torch.bool)

    def restart(self, seed: int | None) -> torch.Tensor:
        return tensor(self.scripted.reset(seed=seed)[0])

    def simulate(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what all rows see now, and saw before the reset of those that have ended."""
        obs, reward, terminated, truncated, info = self.scripted.step(actions.numpy())
        self.reward[:] = tensor(reward)
        self.terminated[:], self.truncated[:] = tensor(terminated), tensor(truncated)
        if "final_obs" not in info:
            return tensor(obs), None
        final = obs.copy()
        for row, last in enumerate(info["final_obs"]):
            final[row] = obs[row] if last is None else last
        return tensor(obs), tensor(final)


class ManiSkillLike(Simulator, VectorEnv):
    """A VectorEnv that declares no mode and has `final_observation`."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata: dict[str, Any] = {}
        self.observation_space = batch_space(self.single_observation_space, ROWS)
        self.action_space = batch_space(self.single_action_space, ROWS)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.restart(seed), {}

    def step(self, actions: Any) -> Any:
        obs, final = self.simulate(actions)
        info: dict[str, Any] = {"elapsed_steps": torch.ones(ROWS)}
        if final is not None:
            ended = self.terminated | self.truncated
            info |= {"final_observation": final, "_final_observation": ended}
            info |= {"final_info": {"elapsed_steps": torch.ones(ROWS)}, "_final_info": ended}
        return obs, self.reward, self.terminated, self.truncated, info


class IsaacLike(Simulator, gym.Env):
    """A batched `gym.Env` with Dict observations, and one dict of extras for all steps.

    Args:
        final_obs: "batch", "rows" (an object array with None where no episode has ended), or None.
        declared: Whether `metadata` has the mode.
    """

    def __init__(
        self, final_obs: str | None = None, declared: bool = True, rows: int = ROWS
    ) -> None:
        super().__init__(rows)
        mode = {"autoreset_mode": AutoresetMode.SAME_STEP} if declared else {}
        self.metadata = {"render_modes": [], **mode}
        self.single_observation_space = Dict({"policy": self.single_observation_space})
        self.observation_space = batch_space(self.single_observation_space, rows)
        self.action_space = batch_space(self.single_action_space, rows)
        self.final_obs, self.extras = final_obs, {"log": {"Episode/reward": 1.0}}
        self.episode_length_buf = torch.zeros(rows, dtype=torch.long)
        self.closed = False

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.policy = self.restart(seed)
        return {"policy": self.policy}, self.extras

    def step(self, actions: Any) -> Any:
        self.policy, final = self.simulate(actions)
        self.extras.pop("final_obs", None)
        ended = self.terminated | self.truncated
        if final is not None and self.final_obs == "batch":
            self.extras["final_obs"] = {"policy": final}
        elif final is not None and self.final_obs == "rows":
            rows = np.full(self.num_envs, None, dtype=object)
            for row in np.flatnonzero(ended):
                rows[row] = {"policy": final[row]}
            self.extras["final_obs"] = rows
        return (
            {"policy": self.policy},
            self.reward,
            self.terminated,
            self.truncated,
            self.extras,
        )

    def close(self) -> None:
        self.closed = True


class RslRlLike(Simulator):
    """What rsl_rl calls a VecEnv: no `gym.Env`, four values, time-outs among the extras.

    Args:
        time_outs: Whether the extras tell time-outs; they are left there until the next ones.
        dtype: The dtype of dones and time-outs.
    """

    def __init__(self, time_outs: bool = True, dtype: torch.dtype = torch.long) -> None:
        super().__init__()
        self.time_outs, self.dtype, self.extras = time_outs, dtype, {}

    def reset(self) -> Any:
        return self.restart(0)

    def step(self, actions: Any) -> Any:
        obs, _ = self.simulate(actions)
        dones = self.terminated | self.truncated
        if self.time_outs and dones.any():
            self.extras["time_outs"] = self.truncated.to(self.dtype, copy=True)
        return obs, self.reward[:, None], dones.to(self.dtype), self.extras
