"""Adds an intrinsic reward F to the `info` of one env."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from adops_wrappers.episodes import EnvLayout
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer
from adops_wrappers.intrinsic.source import SourceRunner
from adops_wrappers.wrappers.base import AnyWrapper
from adops_wrappers.wrappers.spec import RecordsSettings, from_spec


class IntrinsicRewardWrapper(RecordsSettings, AnyWrapper):
    """Writes F = source(obs, action, next_obs) into `info["intrinsic_reward"]`.

    `next_obs` is the true next observation. The reward is left as it is; a shaping wrapper
    above turns F into F′ and adds it.

    Args:
        env: The env.
        source: A function of (obs, action, next_obs), or an object with such a method `reward`.
            It may take `valid`, which is False on the dummy step of an `Autoreset` below, and
            `ended`, which is True at an episode's last step; `reset_episodes(mask)`, if it has
            such a method, is called when an episode is over.
        normalizer: Divides F by the running scale of intrinsic returns.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> _ = env.reset(seed=0)
        >>> [round(env.step(action)[4]["intrinsic_reward"], 3) for action in (0, 0, 0, 0)]
        [1.0, 1.0, 1.0, 0.707]
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        source: Any,
        *,
        normalizer: IntrinsicReturnNormalizer | None = None,
    ) -> None:
        self.runner = SourceRunner(from_spec(source), EnvLayout.of_env(env), from_spec(normalizer))
        gym.Wrapper.__init__(self, env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env and keep its first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.runner.reset(obs, None)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and ask the source for F."""
        self.runner.before_step()
        obs, reward, terminated, truncated, info = self.env.step(action)
        ended = np.array([terminated or truncated], dtype=np.bool_)
        intrinsic, valid = self.runner.after_step(action, obs, ended, info)
        if valid[0]:
            info = {**info, "intrinsic_reward": float(intrinsic[0])}
        return obs, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return self.runner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.runner.load_state_dict(state)
