"""The two wrappers that turn F into F′: one for an env, one for a vector env.

A method is not a wrapper but a `Shaper`, which goes into either of the two.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks, arrays
from adops_wrappers.arrays import BoolArray, FloatArray, independent, one_per_row
from adops_wrappers.backends import (
    HOST,
    Backend,
    backend_of_rewards,
    cleared,
    kept,
    namespace,
    times,
)
from adops_wrappers.bootstrap import IntBootstrap
from adops_wrappers.core import ShapingCore
from adops_wrappers.critic import AnyCritic
from adops_wrappers.episodes import split_reset_mask, tracker_below
from adops_wrappers.estimates import Potential
from adops_wrappers.methods import WRAPPER_NAMES, Method, as_method
from adops_wrappers.shaper import Shaper
from adops_wrappers.wrappers.agents import settings_for_agent
from adops_wrappers.wrappers.base import Layer, SingleEnvWrapper, VectorEnvWrapper
from adops_wrappers.wrappers.bonus import with_source
from adops_wrappers.wrappers.spec import from_spec

INTRINSIC_MISSING = (
    "info has no 'intrinsic_reward' to shape. Put a source of F below this wrapper: "
    "IntrinsicRewardWrapper(env, source) with source(obs, action, next_obs) -> F, or an env that "
    "writes info['intrinsic_reward'] itself."
)
NO_HINDSIGHT = (
    "hindsight replay (HER) rewrites goals, and the rewards that the env computes for another goal "
    "hold no F': four in five sampled steps, by default. Shape without HER, or use HER without a "
    "bonus."
)


FINAL_VALUES = ("final_value_ext", "final_value_int")


class Column(NamedTuple):
    """What `info` has under one key."""

    values: FloatArray
    present: BoolArray | None
    """The rows that have a value; None for all."""


class ComposesShaper(Layer):
    """What both wrappers are: a shaper, the bookkeeping around it, and the names in `info`.

    Args:
        env: The env, with an `IntrinsicRewardWrapper` or another source of F below.
        method: The name of a method, a `Method` that has not been declared, or the class of a
            `Shaper` that consults no critic.
        critic: A `CriticHandle` or a function. Methods that consult none only report its values of
            final observations.
        potential: Φ(obs, t), for potential-based shaping.
        knowledge: A measure of knowledge that is put below in place of a source of F, for BAMPF.
        bonus: A source of F that is put below, at unit size; see `IntrinsicRewardWrapper`.
        add_to_reward: Whether the reward is R + F′ or stays R; see `settings_for_agent` for None.
        intrinsic_scale: F is multiplied by it before shaping.
        int_bootstrap: V_I(s′) at an episode's end: "final", "none" or "reset".
        autoreset_mode: When the env resets itself, if it does not declare it.
        **settings: The method's own, and `gamma` for an agent with one critic.
    """

    passes_through = False
    """Whether a step returns what the env below returned: for watching, without any effect."""

    def __init__(
        self,
        env: Any,
        method: str | Method | type[Shaper],
        critic: AnyCritic | None = None,
        *,
        potential: Potential | None = None,
        knowledge: Any = None,
        bonus: Any = None,
        add_to_reward: bool | None = None,
        intrinsic_scale: float = 1.0,
        int_bootstrap: IntBootstrap | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
        **settings: Any,
    ) -> None:
        given = dict(locals())
        self.method = as_method(from_spec(method))
        scale = _checks.non_negative("intrinsic_scale", intrinsic_scale)
        agent = settings_for_agent(self.method, add_to_reward, int_bootstrap, settings)
        env = with_source(env, self.method, bonus, knowledge, autoreset_mode)
        layout = self.layout_of(env, autoreset_mode)
        self.core = ShapingCore(
            self.method.make(layout.num_envs, **{k: from_spec(v) for k, v in agent.own.items()}),
            layout,
            consults_critic=self.method.needs_critic,
            critic=from_spec(critic),
            potential=from_spec(potential),
            int_bootstrap=agent.int_bootstrap,
            intrinsic_scale=self.method.intrinsic_scale * scale,
            episodes=tracker_below(env),
            base=env.unwrapped,
        )
        self.episodes = self.core.episodes
        """The position within the episodes."""
        self.needs_intrinsic = not self.method.does_without_bonus
        """Whether a step without F is an error; otherwise F = 0 there."""
        self.add_to_reward = agent.add_to_reward
        self._wrap(env, layout, ComposesShaper.__init__, given)

    @property
    def shaper(self) -> Shaper:
        """The method's state: debts, running mean, ζ."""
        return self.core.shaper

    @property
    def layer_name(self) -> str:
        """The name that users type, by which a stack's saved state finds this layer."""
        return WRAPPER_NAMES.get(self.method.make_shaper, "ShapingWrapper")

    def close(self, **settings: Any) -> None:
        """Close the env, and let a learning critic go on to another."""
        self.core.close()
        super().close(**settings)  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs: debts, running mean, ζ, counters."""
        return self.core.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.core.load_state_dict(state)

    if TYPE_CHECKING:

        def _read(self, info: dict[str, Any], key: str) -> Column | None:
            """Return what `info` has under a key, or None if no row has anything."""

    def _shape(
        self,
        action: Any,
        obs: Any,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> tuple[dict[str, Any], list[FloatArray] | None]:
        """Follow a step; return what goes into `info`, and V_E and V_I of final observations."""
        core = self.core
        valid = core.advance(obs, terminated | truncated, info)
        intrinsic = self._intrinsic(info, valid)
        raw = intrinsic
        if "raw_intrinsic_reward" in info or "final_info" in info:
            raw = self._below(info, "raw_intrinsic_reward", intrinsic)
            # An inner shaping wrapper has already separated R.
            if self._read(info, "shaping_correction") is not None:
                reward = self._below(info, "extrinsic_reward", reward)
        raw = kept(raw, valid)
        shaped, final_values = core.shape(action, reward, intrinsic, raw, terminated, truncated)
        columns: dict[str, Any] = {
            "extrinsic_reward": reward,
            "raw_intrinsic_reward": raw,
            "intrinsic_reward": shaped,
            "shaping_correction": shaped - times(core.intrinsic_scale, raw),
        }
        if core.potential is not None:
            columns["potential_time"] = self.episodes.steps
        return columns, final_values

    def _intrinsic(self, info: dict[str, Any], valid: BoolArray) -> FloatArray:
        """Return F of every row, 0 where there may be none."""
        steps = self.episodes.steps
        try:
            found = self._read(info, "intrinsic_reward")
        except ValueError as error:
            raise ValueError(f"{str(error)[:-1]} at step {steps[0]} of environment 0.") from error
        if found is None:
            if self.needs_intrinsic and valid.any():
                raise ValueError(INTRINSIC_MISSING)
            return self.core.zeros
        values, present = found
        if present is None:
            return values
        on_host = type(valid) is np.ndarray
        if on_host and present.tobytes() == valid.tobytes():  # the fastest comparison
            return values
        missing = valid & ~present
        if not on_host:
            # Where a real step has none: NaN, which the checks find.
            absent = math.nan if self.needs_intrinsic else 0.0
            filled: FloatArray = cleared(kept(values, present), missing, absent)
            return filled
        if missing.any():
            if self.needs_intrinsic:
                row = int(np.flatnonzero(missing)[0])
                raise ValueError(
                    f"Environment {row} wrote no 'intrinsic_reward' at step {steps[row]} of its "
                    f"episode. {INTRINSIC_MISSING}"
                )
            values = np.where(present, values, 0.0)
        return values

    def _below(self, info: dict[str, Any], key: str, otherwise: FloatArray) -> FloatArray:
        values, present = self._read(info, key) or Column(otherwise, None)
        if present is not None:
            values = namespace(values).where(present, values, otherwise)
        return values


class ShapingWrapper(ComposesShaper, SingleEnvWrapper):
    """Rewrites F in `info` into F′, for one env.

    It reads F from `info["intrinsic_reward"]` and writes `extrinsic_reward` (R),
    `raw_intrinsic_reward` (F), `intrinsic_reward` (F′) and `shaping_correction`
    (F′ − intrinsic_scale·F) as `np.float64`: floats with the dtype that readers of `info` ask for;
    with a potential also `potential_time`, t of Φ(s, t), as `np.int64`. The reward becomes R + F′,
    or stays R with `add_to_reward=False`. `ComposesShaper` explains the arguments.
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

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the env and rewrite F into F′."""
        self.core.before_step()
        try:
            below = self.env.step(action)
            obs, reward, terminated, truncated, info = below
            terminated, truncated = bool(terminated), bool(truncated)
            ends = np.array([terminated]), np.array([truncated])
            self.core.settle(HOST)
            reward = one_per_row("The reward", reward, 1, "environments")
            columns, _ = self._shape(action, obs, reward, *ends, info)
        except BaseException:
            self.core.forget_episodes()
            raise
        self._unfinished_steps = 0 if terminated or truncated else self._unfinished_steps + 1
        if self.passes_through:
            return below  # type: ignore[no-any-return]
        reward = float(columns["extrinsic_reward"][0])
        if self.episodes.valid[0]:
            info = {**info, **{key: values[0] for key, values in columns.items()}}
            if self.add_to_reward:
                reward += float(columns["intrinsic_reward"][0])
        return obs, reward, terminated, truncated, info

    def _read(self, info: dict[str, Any], key: str) -> Column | None:
        if key not in info:
            return None
        values = arrays.to_float64(info[key])
        if values.size != 1:
            raise ValueError(f"info[{key!r}] must be one number, got shape {values.shape}.")
        return Column(values.reshape(1), None)

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


class VectorShapingWrapper(ComposesShaper, VectorEnvWrapper):
    """Rewrites F in `info` into F′, for every row of a vector env.

    It reads F from `info["intrinsic_reward"]` and writes float64 arrays of shape (n,), or where
    the env's rewards are tensors of torch or JAX, tensors on that device in their dtype, each with
    its `_key` mask: `extrinsic_reward` (R), `raw_intrinsic_reward` (F), `intrinsic_reward`
    (F′) and `shaping_correction` (F′ − intrinsic_scale·F). The mask is False on the dummy reset
    steps of NEXT_STEP. Under SAME_STEP the values of a terminal step are at the top level.
    With a critic, SAME_STEP ends also carry `final_value_ext` and `final_value_int`, the
    critic's values of the final observations; with a potential, `potential_time` is t of Φ(s, t).
    The reward becomes R + F′, or stays R with `add_to_reward=False`. `ComposesShaper` explains the
    arguments; critics and potentials take batches and return one value for each row, and
    `update_every` counts vector steps, or with "episode" the episodes of all rows.
    """

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
        try:
            below = self.env.step(actions)
            obs, reward, terminated, truncated, info = below
            backend = backend_of_rewards(reward)
            self.core.settle(backend)
            columns, final_values = self._shape(
                actions,
                obs,
                one_per_row("The reward", reward, self.num_envs, "environments", backend),
                backend.masks(terminated),
                backend.masks(truncated),
                info,
            )
        except BaseException:
            self.core.forget_episodes()
            raise
        if self.passes_through:
            return below  # type: ignore[no-any-return]
        info = dict(info)
        masks = dict.fromkeys(columns, self.episodes.valid)
        if final_values is not None:
            columns |= dict(zip(FINAL_VALUES, final_values, strict=True))
            masks |= dict.fromkeys(FINAL_VALUES, self.episodes.ended)
        # Copies: what the shaper and the observers have must not change under an agent's hands, and
        # the env may write its next answer into the same arrays.
        *copied, terminated, truncated = independent(*masks.values(), terminated, truncated)
        values, total = self._released(backend, reward, columns)
        for key, value, mask in zip(columns, values, copied, strict=True):
            info[key], info[f"_{key}"] = value, mask
        return obs, total, terminated, truncated, info

    def _released(
        self, backend: Backend, reward: Any, columns: dict[str, Any]
    ) -> tuple[list[Any], FloatArray]:
        """Return copies of the columns for `info`, and the reward, as the user gets them."""
        total = columns["extrinsic_reward"]
        if self.add_to_reward:
            total = total + columns["intrinsic_reward"]
        if backend is HOST:
            copies = [values.copy() for values in columns.values()]
            return copies, total if self.add_to_reward else total.copy()
        # One operation on the device for all of them; the times of a potential are no floats.
        time = columns.get("potential_time")
        floats = [values for values in columns.values() if values is not time]
        together = backend.xp.stack([*floats, total])
        self.core.checks.record(together)
        *values, total = backend.for_users(reward, together)
        if time is not None:
            values.insert(list(columns).index("potential_time"), arrays.copy_observation(time))
        return values, total

    def _read(self, info: dict[str, Any], key: str) -> Column | None:
        """Return a key's values; what a sub-env wrote at its last step is in `final_info`."""
        found = self._column(info, key) if key in info else None
        final_info = info.get("final_info")
        if not isinstance(final_info, dict) or key not in final_info:
            return found
        final = self._column(final_info, key)
        if found is None or found.present is None:
            return found or final
        take_final = ~found.present if final.present is None else final.present & ~found.present
        values = namespace(take_final).where(take_final, final.values, found.values)
        return Column(values, found.present | take_final)

    def _column(self, info: dict[str, Any], key: str) -> Column:
        rows, backend = self.core.layout.num_envs, self.episodes.backend
        values = one_per_row(f"info[{key!r}]", info[key], rows, "environments", backend)
        present = info.get(f"_{key}")
        return Column(values, None if present is None else backend.moved(present))
