"""What tells the states of an env apart: keys by default, and those that the command line names."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np

StateKey = Callable[[gym.Env[Any, Any], Any], Hashable]
"""`key(env, obs)`: what distinguishes one state of an env from another."""


def default_key(env: Any) -> StateKey:
    """Return the key of a MiniGrid env, and elsewhere the observation."""
    if is_minigrid(env):
        return _minigrid_key
    return lambda env, obs: frozen(obs)


def is_minigrid(env: Any) -> bool:
    """Whether an env without wrappers is one of MiniGrid's."""
    return hasattr(env, "grid") and hasattr(env, "agent_dir")


def _minigrid_key(env: Any, obs: Any) -> Hashable:
    carried = None if env.carrying is None else (env.carrying.type, env.carrying.color)
    place = tuple(int(i) for i in env.agent_pos)
    return env.grid.encode().tobytes(), place, int(env.agent_dir), carried


def frozen(value: Any) -> Hashable:
    """Return something hashable that is equal for equal observations or attributes."""
    if isinstance(value, dict):
        return tuple((name, frozen(value[name])) for name in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, np.ndarray):
        # An array of objects holds addresses, which differ from copy to copy.
        return value.shape, frozen(value.tolist()) if value.dtype.hasobject else value.tobytes()
    if isinstance(value, Hashable):
        return value
    raise TypeError(
        f"A {type(value).__name__} cannot tell states apart. Give key= a function that returns "
        "numbers, strings, arrays or tuples of them."
    )


def named_key(text: str) -> StateKey:
    """Return the key that `--key` names: "module:function", or attributes with commas between.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers.tabular.keys import named_key
        >>> env = gym.make("FrozenLake-v1").unwrapped
        >>> obs, _ = env.reset(seed=0)
        >>> named_key("obs,nrow")(env, obs)
        (0, 4)
    """
    if ":" in text:
        return _function(*text.split(":", 1))
    names = [name.strip() for name in text.split(",")]

    def key(env: Any, obs: Any) -> Hashable:
        return tuple(frozen(obs if name == "obs" else _attribute(env, name)) for name in names)

    return key


def _attribute(env: Any, name: str) -> Any:
    if not hasattr(env, name):
        raise ValueError(
            f"{type(env).__name__} has no attribute {name!r} to tell states apart. Its attributes "
            f"are: {', '.join(sorted(n for n in vars(env) if not n.startswith('_')))}."
        )
    return getattr(env, name)


def _function(module: str, name: str) -> StateKey:
    function = getattr(import_module(module), name, None)
    if not callable(function):
        raise ValueError(f"The module {module} has no function {name!r}, called as (env, obs).")
    return function  # type: ignore[no-any-return]
