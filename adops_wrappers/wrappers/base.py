"""The single-env base classes: the shared rules at n = 1, with scalars at the edges."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers.arrays import BoolArray, FloatArray, one_per_row, to_float64
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.wrappers.spec import RecordsSettings
from adops_wrappers.wrappers.twins import INTRINSIC_MISSING, ShapingTwin, Twin

if TYPE_CHECKING:
    AnyWrapper = gym.Wrapper[Any, Any, Any, Any]
else:
    AnyWrapper = gym.Wrapper


NO_HINDSIGHT = (
    "hindsight replay (HER) rewrites goals, and the rewards that the env computes for another goal "
    "hold no F': four in five sampled steps, by default. Shape without HER, or use HER without a "
    "bonus."
)


class SingleEnvWrapper(Twin[gym.Env[Any, Any]], RecordsSettings, AnyWrapper):
    """A wrapper of this package for one env."""

    def _layout(
        self, env: gym.Env[Any, Any], autoreset_mode: AutoresetMode | str | None
    ) -> EnvLayout:
        return EnvLayout.of_env(env, autoreset_mode)

    def _wrap(self, env: gym.Env[Any, Any], layout: EnvLayout) -> None:
        gym.Wrapper.__init__(self, env)


class ShapingWrapper(ShapingTwin[gym.Env[Any, Any]], SingleEnvWrapper):
    """Base of all single-env shaping wrappers: rewrites F in `info` into F′.

    It reads F from `info["intrinsic_reward"]` and writes `extrinsic_reward` (R),
    `raw_intrinsic_reward` (F), `intrinsic_reward` (F′) and `shaping_correction`
    (F′ − intrinsic_scale·F) as `np.float64`: floats with the dtype that readers of `info` ask for;
    with a potential also `potential_time`, t of Φ(s, t), as `np.int64`. The reward becomes R + F′,
    or stays R with `add_to_reward=False`.
    """

    _unfinished_steps = 0
    _last_cut = 0
    _warned_cut = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env and drop what the running episode owes."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._look_for_a_hidden_time_limit()
        self.core.reset(obs, None)
        return obs, info

    @property
    def compute_reward(self) -> Any:
        """The reward function of a goal env, unless F′ is added: it would not return R + F′."""
        function = self.env.get_wrapper_attr("compute_reward")
        if self.add_to_reward:
            raise ValueError(f"compute_reward: {NO_HINDSIGHT}")
        return function

    def _look_for_a_hidden_time_limit(self) -> None:
        cut, self._unfinished_steps = self._unfinished_steps, 0
        if self.shaper.settles_debt and cut > 1 and cut == self._last_cut and not self._warned_cut:
            self._warned_cut = True
            warnings.warn(
                f"Two episodes in a row were reset after exactly {cut} steps without having ended. "
                f"If a TimeLimit is outside this wrapper, {self.shaper.name} never sees the "
                "end and never settles its debt: put the TimeLimit below. (Shown once.)",
                RuntimeWarning,
                stacklevel=3,
            )
        self._last_cut = cut

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the env and rewrite F into F′."""
        self.core.before_step()
        try:
            below = self.env.step(action)
            obs, reward, terminated, truncated, info = below
            reward, info = self._shape(action, obs, reward, terminated, truncated, info)
        except BaseException:
            self.core.forget_episodes()
            raise
        self._unfinished_steps = 0 if terminated or truncated else self._unfinished_steps + 1
        if self.passes_through:
            return below  # type: ignore[return-value]
        return obs, reward, bool(terminated), bool(truncated), info

    def _shape(
        self, action: Any, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> tuple[float, dict[str, Any]]:
        ends = np.array([bool(terminated)]), np.array([bool(truncated)])
        valid = self.core.advance(obs, ends[0] | ends[1], info)
        # An inner shaping wrapper has already separated R.
        if "shaping_correction" in info:
            reward = info["extrinsic_reward"]
        extrinsic = one_per_row("The reward", reward, 1, "environments")
        intrinsic = self._intrinsic(info, valid)
        raw = to_float64(info.get("raw_intrinsic_reward", intrinsic)).reshape(1)
        shaped = np.float64(self.core.shape(action, extrinsic, intrinsic, raw, *ends).shaped[0])
        reward = float(extrinsic[0])
        if not valid[0]:
            return reward, info
        info = {
            **info,
            "extrinsic_reward": extrinsic[0],
            "raw_intrinsic_reward": raw[0],
            "intrinsic_reward": shaped,
            "shaping_correction": shaped - self.core.intrinsic_scale * raw[0],
        }
        if self.core.potential is not None:
            info["potential_time"] = self.episodes.steps[0]
        return (reward + float(shaped) if self.add_to_reward else reward), info

    def _intrinsic(self, info: dict[str, Any], valid: BoolArray) -> FloatArray:
        if "intrinsic_reward" not in info:
            if self.needs_intrinsic and valid[0]:
                raise ValueError(INTRINSIC_MISSING)
            return np.zeros(1)
        intrinsic = to_float64(info["intrinsic_reward"])
        if intrinsic.size != 1:
            raise ValueError(
                "info['intrinsic_reward'] must be one number, got shape "
                f"{intrinsic.shape} at step {self.episodes.steps[0]} of the episode."
            )
        return intrinsic.reshape(1)
