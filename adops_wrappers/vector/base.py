"""The vector-env shaping wrapper: the shared rules for n rows, with masks in `info`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from adops_wrappers.arrays import BoolArray, FloatArray, to_float64
from adops_wrappers.core import IntBootstrap, Potential, ShapingCore
from adops_wrappers.critic import CriticHandle
from adops_wrappers.episodes import EnvLayout, split_reset_mask
from adops_wrappers.messages import INTRINSIC_MISSING
from adops_wrappers.shaping.base import Shaper

if TYPE_CHECKING:
    AnyVectorWrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:
    AnyVectorWrapper = VectorWrapper


class ShapingWrapper(AnyVectorWrapper):
    """Base of all vector shaping wrappers: rewrites F in `info` into F′ for every row.

    It reads F from `info["intrinsic_reward"]` and writes float64 arrays of shape (n,), each
    with its `_key` mask: `extrinsic_reward` (R), `raw_intrinsic_reward` (F), `intrinsic_reward`
    (F′) and `shaping_correction` (F′ − intrinsic_scale·F). The mask is False on the dummy reset
    steps of NEXT_STEP. Under SAME_STEP the values of a terminal step stand at the top level.
    With a critic, SAME_STEP ends also carry `final_value_ext` and `final_value_int`, the
    critic's values of the final observations. The reward becomes R + F′, or stays R with
    `add_to_reward=False`.

    Args:
        env: The vector env, with an `IntrinsicRewardWrapper` or another source of F below.
        make_shaper: Builds the method for a number of environments.
        needs_intrinsic: Whether a step without F is an error; otherwise F = 0 there.
        add_to_reward: Whether the reward is R + F′.
        intrinsic_scale, critic, consults_critic, potential, int_bootstrap: See
            `adops_wrappers.core.ShapingCore`.
    """

    def __init__(
        self,
        env: VectorEnv,
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
        layout = EnvLayout.of_vector_env(env)
        self.core = ShapingCore(
            make_shaper(layout.num_envs),
            layout,
            consults_critic=consults_critic,
            critic=critic,
            potential=potential,
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
        )
        super().__init__(env)
        self.needs_intrinsic = needs_intrinsic
        self.add_to_reward = add_to_reward

    @property
    def shaper(self) -> Shaper:
        """The method's state: debts, running mean, ζ."""
        return self.core.shaper

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env, or the rows in `options["reset_mask"]`, and drop what they owe."""
        mask, options = split_reset_mask(options, self.num_envs)
        obs, info = self.env.reset(seed=seed, options=options)
        self.core.reset(obs, mask)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Step the env and rewrite F into F′."""
        self.core.before_step()
        obs, reward, terminated, truncated, info = self.env.step(actions)
        try:
            reward, info = self._shape(
                actions,
                obs,
                np.asarray(reward, dtype=np.float64),
                np.asarray(terminated, dtype=np.bool_),
                np.asarray(truncated, dtype=np.bool_),
                info,
            )
        except BaseException:
            self.core.forget_episodes()
            raise
        return obs, reward, terminated, truncated, info

    def _shape(
        self,
        actions: Any,
        obs: Any,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> tuple[FloatArray, dict[str, Any]]:
        # A wrapper of this kind below has already told R from the reward that it passed on.
        if _read(info, "shaping_correction", self.num_envs) is not None:
            extrinsic = _read(info, "extrinsic_reward", self.num_envs)
            assert extrinsic is not None
            reward = np.where(extrinsic[1], extrinsic[0], reward)
        intrinsic = self._intrinsic(info)
        outcome = self.core.after_step(actions, obs, reward, intrinsic, terminated, truncated, info)
        kept = _read(info, "raw_intrinsic_reward", self.num_envs)
        raw = intrinsic if kept is None else np.where(kept[1], kept[0], intrinsic)
        raw = np.where(outcome.valid, raw, 0.0)
        info = dict(info)
        self._write(info, "extrinsic_reward", reward, outcome.valid)
        self._write(info, "raw_intrinsic_reward", raw, outcome.valid)
        self._write(info, "intrinsic_reward", outcome.shaped, outcome.valid)
        correction = outcome.shaped - self.core.intrinsic_scale * raw
        self._write(info, "shaping_correction", correction, outcome.valid)
        if outcome.final_values is not None:
            ended = terminated | truncated
            self._write(info, "final_value_ext", outcome.final_values[0], ended)
            self._write(info, "final_value_int", outcome.final_values[1], ended)
        return (reward + outcome.shaped if self.add_to_reward else reward), info

    def _intrinsic(self, info: dict[str, Any]) -> FloatArray:
        try:
            found = _read(info, "intrinsic_reward", self.num_envs)
        except ValueError as error:
            raise ValueError(
                f"{error} at step {self.core.episodes.elapsed[0]} of environment 0."
            ) from error
        if found is None:
            if self.needs_intrinsic and not self.core.episodes.pending_reset.all():
                raise ValueError(INTRINSIC_MISSING)
            return np.zeros(self.num_envs)
        values, present = found
        missing = ~present & ~self.core.episodes.pending_reset
        if missing.any():
            if self.needs_intrinsic:
                row = int(np.flatnonzero(missing)[0])
                raise ValueError(
                    f"Environment {row} wrote no 'intrinsic_reward' at step "
                    f"{self.core.episodes.elapsed[row]} of its episode. {INTRINSIC_MISSING}"
                )
            values = np.where(present, values, 0.0)
        return values

    @staticmethod
    def _write(info: dict[str, Any], key: str, values: FloatArray, mask: BoolArray) -> None:
        info[key] = values
        info[f"_{key}"] = mask

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs: debts, running mean, ζ, counters."""
        return self.core.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.core.load_state_dict(state)


def _read(info: dict[str, Any], key: str, num_envs: int) -> tuple[FloatArray, BoolArray] | None:
    """Return a key's values and the mask of the rows that have it, or None if no row has.

    What a sub-env wrote at the last step of an episode stands in `final_info` under SAME_STEP.
    """
    found = _column(info, key, num_envs)
    final_info = info.get("final_info")
    if not isinstance(final_info, dict):
        return found
    final = _column(final_info, key, num_envs)
    if found is None or final is None:
        return found or final
    take_final = final[1] & ~found[1]
    return np.where(take_final, final[0], found[0]), found[1] | final[1]


def _column(info: dict[str, Any], key: str, num_envs: int) -> tuple[FloatArray, BoolArray] | None:
    if key not in info:
        return None
    values = to_float64(info[key])
    if values.shape not in ((num_envs,), (num_envs, 1)):
        raise ValueError(
            f"info[{key!r}] must hold one value for each of {num_envs} environments, of shape "
            f"({num_envs},) or ({num_envs}, 1); got shape {values.shape}"
        )
    present = info.get(f"_{key}")
    mask = np.ones(num_envs, dtype=np.bool_) if present is None else np.asarray(present)
    return values.reshape(num_envs), mask
