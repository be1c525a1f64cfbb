"""Walks a wrapper stack: find a layer, save and restore the state of all layers at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

Layer = TypeVar("Layer")


def layers(env: Any) -> Iterator[Any]:
    """Yield `env` and every env below it, from the outermost wrapper to the base env.

    Stable-Baselines3's wrappers are followed too. What a vector env steps in its sub-envs, or in
    other processes, is out of reach.
    """
    while env is not None:
        yield env
        env = getattr(env, "venv", None) or getattr(env, "env", None)


def find_layer(env: Any, kind: type[Layer] | tuple[type[Layer], ...]) -> Layer | None:
    """Return the outermost layer of `env` that is an instance of `kind`, or None."""
    return next((layer for layer in layers(env) if isinstance(layer, kind)), None)


def stack_state_dict(env: Any) -> dict[str, Any]:
    """Return the state of every layer that has a `state_dict`, outermost first.

    The keys are the layers' names; repeated ones are numbered.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, GRMWrapper, IntrinsicRewardWrapper
        >>> from adops_wrappers.stack import load_stack_state_dict, stack_state_dict
        >>> def make_stack():
        ...     return GRMWrapper(IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus()))
        >>> env = make_stack()
        >>> _ = env.reset(seed=0)
        >>> state = stack_state_dict(env)
        >>> list(state)
        ['GRMWrapper', 'IntrinsicRewardWrapper']
        >>> load_stack_state_dict(make_stack(), state)
    """
    return {name: layer.state_dict() for name, layer in stateful_layers(env).items()}


def load_stack_state_dict(env: Any, state: dict[str, Any]) -> None:
    """Restore a `stack_state_dict()` into a stack of the same layers.

    Raises:
        ValueError: The stack has other layers, or the same in another order.
    """
    found = stateful_layers(env)
    if list(found) != list(state):
        raise ValueError(
            f"Cannot load this state: it was saved from a stack of {_listed(state)}, this one has "
            f"{_listed(found)}. Build the stack as it was when the state was saved."
        )
    for name, layer in found.items():
        layer.load_state_dict(state[name])


def stateful_layers(env: Any) -> dict[str, Any]:
    """Return the layers that have a `state_dict`, outermost first, by their names."""
    found: dict[str, Any] = {}
    names: list[str] = []
    for layer in layers(env):
        # Asked of the class: an instance may answer for the layers below it.
        if hasattr(type(layer), "state_dict"):
            name = getattr(layer, "layer_name", type(layer).__name__)
            names.append(name)
            repeats = names.count(name)
            found[f"{name} {repeats}" if repeats > 1 else name] = layer
    return found


def _listed(names: Any) -> str:
    return ", ".join(names) or "no stateful layers"
