"""The single-env shaping wrapper: the shared rules at n = 1, with scalars at the edges."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from adops_wrappers.arrays import FloatArray, to_float64
from adops_wrappers.core import IntBootstrap, Potential, ShapingCore
from adops_wrappers.critic import CriticHandle
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.messages import INTRINSIC_MISSING
from adops_wrappers.shaping.base import Shaper
from adops_wrappers.wrappers.spec import RecordsSettings, from_spec

if TYPE_CHECKING:
    AnyWrapper = gym.Wrapper[Any, Any, Any, Any]
else:
    AnyWrapper = gym.Wrapper


class ShapingWrapper(RecordsSettings, AnyWrapper):
    """Base of all single-env shaping wrappers: rewrites F in `info` into F′.

    It reads F from `info["intrinsic_reward"]` and writes Python floats: `extrinsic_reward` (R),
    `raw_intrinsic_reward` (F), `intrinsic_reward` (F′) and `shaping_correction`
    (F′ − intrinsic_scale·F). The reward becomes R + F′, or stays R with `add_to_reward=False`.

    Args:
        env: The env, with an `IntrinsicRewardWrapper` or another source of F below.
        make_shaper: Builds the method for a number of environments.
        needs_intrinsic: Whether a step without F is an error; otherwise F = 0 there.
        add_to_reward: Whether the reward is R + F′.
        intrinsic_scale, critic, consults_critic, potential, int_bootstrap: See
            `adops_wrappers.core.ShapingCore`.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        make_shaper: Callable[[int], Shaper],
        *,
        needs_intrinsic: bool = True,
        add_to_reward: bool = True,
        intrinsic_scale: float = 1.0,
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        consults_critic: bool = False,
        potential: Potential | None = None,
        int_bootstrap: IntBootstrap = "final",
    ) -> None:
        layout = EnvLayout.of_env(env)
        self.core = ShapingCore(
            make_shaper(layout.num_envs),
            layout,
            consults_critic=consults_critic,
            critic=from_spec(critic),
            potential=from_spec(potential),
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
        )
        gym.Wrapper.__init__(self, env)
        self.needs_intrinsic = needs_intrinsic
        self.add_to_reward = add_to_reward
        self._unfinished_steps = 0
        self._last_cut = 0
        self._warned_cut = False

    @property
    def shaper(self) -> Shaper:
        """The method's state: debts, running mean, ζ."""
        return self.core.shaper

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env and drop what the running episode owes."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._look_for_a_hidden_time_limit()
        self.core.reset(obs, None)
        return obs, info

    def _look_for_a_hidden_time_limit(self) -> None:
        cut, self._unfinished_steps = self._unfinished_steps, 0
        if self.shaper.settles_debt and cut > 1 and cut == self._last_cut and not self._warned_cut:
            self._warned_cut = True
            warnings.warn(
                f"Two episodes in a row were reset after exactly {cut} steps without having ended. "
                f"If a TimeLimit stands outside this wrapper, {self.shaper.name} never sees the "
                "end and never settles its debt: put the TimeLimit below. This is said once.",
                RuntimeWarning,
                stacklevel=3,
            )
        self._last_cut = cut

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the env and rewrite F into F′."""
        self.core.before_step()
        obs, reward, terminated, truncated, info = self.env.step(action)
        try:
            reward, info = self._shape(action, obs, reward, terminated, truncated, info)
        except BaseException:
            self.core.forget_episodes()
            raise
        self._unfinished_steps = 0 if terminated or truncated else self._unfinished_steps + 1
        return obs, reward, bool(terminated), bool(truncated), info

    def _shape(
        self, action: Any, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> tuple[float, dict[str, Any]]:
        # A wrapper of this kind below has already told R from the reward that it passed on.
        extrinsic = info["extrinsic_reward"] if "shaping_correction" in info else reward
        intrinsic = self._intrinsic(info)
        outcome = self.core.after_step(
            action,
            obs,
            np.array([extrinsic], dtype=np.float64).reshape(1),
            intrinsic,
            np.array([terminated], dtype=np.bool_),
            np.array([truncated], dtype=np.bool_),
            info,
        )
        extrinsic, shaped = float(extrinsic), float(outcome.shaped[0])
        if not outcome.valid[0]:
            return extrinsic, info
        raw = float(info.get("raw_intrinsic_reward", intrinsic[0]))
        info = {
            **info,
            "extrinsic_reward": extrinsic,
            "raw_intrinsic_reward": raw,
            "intrinsic_reward": shaped,
            "shaping_correction": shaped - self.core.intrinsic_scale * raw,
        }
        return (extrinsic + shaped if self.add_to_reward else extrinsic), info

    def _intrinsic(self, info: dict[str, Any]) -> FloatArray:
        if "intrinsic_reward" not in info:
            if self.needs_intrinsic and not self.core.episodes.pending_reset[0]:
                raise ValueError(INTRINSIC_MISSING)
            return np.zeros(1)
        intrinsic = to_float64(info["intrinsic_reward"])
        if intrinsic.size != 1:
            raise ValueError(
                "info['intrinsic_reward'] must be one number, got shape "
                f"{intrinsic.shape} at step {self.core.episodes.elapsed[0]} of the episode."
            )
        return intrinsic.reshape(1)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs: debts, running mean, ζ, counters."""
        return self.core.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.core.load_state_dict(state)
