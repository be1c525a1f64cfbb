"""A batched `gymnasium.Env`, as simulators on a GPU are, seen as a vector env."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from adops_wrappers.stack import layers


class BatchedEnv(VectorEnv):  # type: ignore[type-arg,unused-ignore]
    """Presents an env that steps `num_envs` rows at once, but is no `VectorEnv`, as one.

    IsaacLab's envs are of this kind: a `gymnasium.Env` with `num_envs` and the spaces of one row.
    So are those that follow rsl_rl's `VecEnv`, whose step returns four values: there `dones` are
    split into time-outs, where `extras["time_outs"]` says so, and terminations. Their TensorDicts
    become dicts. Nothing is copied and nothing waits for a device.

    `unwrapped` is the inner env's: a wrapper above, such as IsaacLab's `RslRlVecEnvWrapper`, finds
    there what it reads.

    Args:
        env: The batched env, or Gymnasium's wrappers around one.
        autoreset_mode: When the env resets its rows; None if its `metadata` says so. IsaacLab's
            envs, and rsl_rl's, reset them within their last step: SAME_STEP.
        single_observation_space: The space of one row's observation, where the env has none.
        single_action_space: The same for actions.

    Example:
        >>> import gymnasium as gym
        >>> import torch
        >>> from adops_wrappers import ADOPSWrapper, BatchedEnv
        >>> class Counter(gym.Env):  # two rows, as IsaacLab has thousands
        ...     num_envs, metadata = 2, {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
        ...     single_observation_space = gym.spaces.Box(0.0, 9.0, (1,))
        ...     single_action_space = gym.spaces.Discrete(2)
        ...     def reset(self, *, seed=None, options=None):
        ...         return torch.zeros(2, 1), {}
        ...     def step(self, action):
        ...         over = torch.tensor([False, False])
        ...         return torch.ones(2, 1), torch.tensor([1.0, 1.0]), over, over, {}
        >>> env = BatchedEnv(Counter())
        >>> env = ADOPSWrapper(
        ...     env, lambda obs: (obs[:, 0], obs[:, 0]), bonus=lambda s, a, next_s: next_s[:, 0]
        ... )
        >>> _ = env.reset()
        >>> env.step(torch.tensor([0, 1]))[1]
        tensor([1., 1.])
    """

    def __init__(
        self,
        env: Any,
        autoreset_mode: AutoresetMode | str | None = None,
        *,
        single_observation_space: gym.Space[Any] | None = None,
        single_action_space: gym.Space[Any] | None = None,
    ) -> None:
        if isinstance(env, VectorEnv) or _found(env, "num_envs") is None:
            raise TypeError(
                f"BatchedEnv takes an env that steps several rows at once and has `num_envs`, got "
                f"{env!r} of type {type(env).__name__}. A VectorEnv needs no adapter, nor does an "
                "env of one row."
            )
        self.env = env
        self.num_envs = int(_found(env, "num_envs"))
        mode = _mode(env, autoreset_mode)
        self.metadata = {**(_found(env, "metadata") or {}), "autoreset_mode": mode}
        self.spec, self.render_mode = _found(env, "spec"), _found(env, "render_mode")
        for name, given in (
            ("single_observation_space", single_observation_space),
            ("single_action_space", single_action_space),
        ):
            space = _found(env, name) if given is None else given
            if not isinstance(space, gym.Space):
                raise TypeError(
                    f"{env!r} has no {name}. Pass the space of one row as {name}=, such as "
                    "gymnasium.spaces.Box(-inf, inf, (size,))."
                )
            setattr(self, name, space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def unwrapped(self) -> Any:
        """The env at the bottom, which is no `VectorEnv`."""
        return getattr(self.env, "unwrapped", self.env)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all rows. An env that is no `gymnasium.Env` takes neither seed nor options."""
        itself = self.metadata["autoreset_mode"] is not AutoresetMode.DISABLED
        if itself and options is not None and options.get("reset_mask") is not None:
            raise ValueError(
                f"This env resets its rows itself ({self.metadata['autoreset_mode'].name}), so "
                "options['reset_mask'] has no meaning here. Leave it out to reset all rows."
            )
        if isinstance(self.env, gym.Env):
            return _with_info(self.env.reset(seed=seed, options=options))
        if seed is not None or options:
            raise ValueError(
                f"{self.env!r} is no gymnasium.Env: its reset takes neither seed nor options. Give "
                "it its seed when you build it."
            )
        return _with_info(self.env.reset())

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all rows."""
        answer = self.env.step(actions)
        if len(answer) == 5:
            obs, reward, terminated, truncated, info = answer
        elif len(answer) == 4:
            obs, reward, dones, info = answer
            ended = dones != 0
            time_outs = info.get("time_outs")
            # Some envs leave old time-outs in `extras` where no episode has ended.
            truncated = ended & (time_outs != 0) if time_outs is not None else ended & False
            terminated = ended & ~truncated
        else:
            raise TypeError(
                "A step must return (obs, reward, terminated, truncated, info), or (obs, reward, "
                f"dones, extras) as rsl_rl has it; {self.env!r} returned {len(answer)} values."
            )
        return _plain(obs), reward, terminated, truncated, info

    def render(self) -> Any:
        """Return what the env shows."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the env."""
        if hasattr(self.env, "close"):
            self.env.close()


def require_one_row(env: Any) -> None:
    """Raise if what is to be wrapped as a single env steps several rows at once."""
    if isinstance(env, VectorEnv) or (rows := _found(env, "num_envs")) is None:
        return
    single = _found(env, "single_observation_space")
    if not isinstance(env, gym.Env) or (single is not None and env.observation_space != single):
        raise TypeError(
            f"{env!r} steps num_envs={rows} rows at once, but is no VectorEnv. Wrap it first: "
            "BatchedEnv(env), from adops_wrappers; for ManiSkill, its own ManiSkillVectorEnv(env)."
        )


def _found(env: Any, name: str) -> Any:
    """Return an attribute of the outermost layer that has it, or None."""
    values = (getattr(layer, name, None) for layer in layers(env))
    return next((value for value in values if value is not None), None)


def _mode(env: Any, given: AutoresetMode | str | None) -> AutoresetMode:
    declared = (_found(env, "metadata") or {}).get("autoreset_mode")
    if given is None and declared is None:
        raise ValueError(
            f"{env!r} does not declare when it resets its rows. Pass autoreset_mode: "
            "AutoresetMode.SAME_STEP if it resets them within their last step, as envs of IsaacLab "
            "and rsl_rl do, NEXT_STEP or DISABLED."
        )
    mode = AutoresetMode(declared if given is None else given)
    if declared is not None and mode is not AutoresetMode(declared):
        raise ValueError(
            f"autoreset_mode is {mode.name} here, but the env declares "
            f"{AutoresetMode(declared).name}. Leave autoreset_mode out."
        )
    return mode


def _with_info(answer: Any) -> tuple[Any, dict[str, Any]]:
    """Return observations and `info` of a reset; some envs return the first alone."""
    obs, info = answer if isinstance(answer, tuple) else (answer, {})
    return _plain(obs), dict(info)


def _plain(obs: Any) -> Any:
    return obs.to_dict() if hasattr(obs, "to_dict") else obs
