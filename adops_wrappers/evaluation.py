"""Evaluation without side effects on what training has learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adops_wrappers.stack import layers, stateful_layers
from adops_wrappers.wrappers.bonus import AsksSource
from adops_wrappers.wrappers.shaping import ComposesShaper


@contextmanager
def evaluation_mode(env: Any) -> Iterator[Any]:
    """Freeze counts, running means, scales, ζ and learning critics of `env`'s stack.

    Debts and episodes continue as usual. The stack is followed from `env` down to the base env,
    through the wrappers and vector envs of Stable-Baselines3 too. Wrappers that a vector env steps
    in other processes are out of reach.

    Raises:
        ValueError: There is nothing to freeze.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, evaluation_mode
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> _ = env.reset(seed=0)
        >>> with evaluation_mode(env):
        ...     [float(env.step(3)[4]["intrinsic_reward"]) for _ in range(2)]
        [1.0, 1.0]
    """
    parts = [part for part in _stateful_parts(env) if hasattr(part, "frozen")]
    if not parts:
        raise ValueError(
            f"evaluation_mode found nothing to freeze in {env}: no source of F, shaping wrapper or "
            "critic. Pass the whole stack, with the wrappers of this package in it. Wrappers in "
            "other processes (AsyncVectorEnv, SubprocVecEnv) are out of reach: wrap the vector "
            "env instead."
        )
    before = [part.frozen for part in parts]
    for part in parts:
        part.frozen = True
    try:
        yield env
    finally:
        for part, frozen in zip(parts, before, strict=True):
            part.frozen = frozen


def load_learned(env: Any, state: dict[str, Any]) -> None:
    """Copy into a stack what another has learned across episodes: counts, scales, F̄, ζ and β.

    The two may have different numbers of envs, for instance to evaluate during training. Debts
    and running episodes are not copied: reset the env before the next step.

    Args:
        env: A stack of the same wrappers.
        state: The other's `adops_wrappers.stack.stack_state_dict`.
    """
    for name, layer in stateful_layers(env).items():
        if isinstance(layer, ComposesShaper):
            layer.core.shaper.load_learned(state[name]["shaper"])
        elif isinstance(layer, AsksSource):
            layer.runner.steps = state[name]["steps"]  # how much of the quiet time is over
            source, normalizer = layer.runner.source, layer.runner.normalizer
            if state[name]["source"] is not None:
                source.load_state_dict(state[name]["source"])
            if normalizer is not None:
                normalizer.load_learned(state[name]["normalizer"])


def _stateful_parts(env: Any) -> Iterator[Any]:
    for layer in layers(env):
        if isinstance(layer, ComposesShaper):
            yield layer.core.shaper
            yield layer.core.critic
        elif isinstance(layer, AsksSource):
            yield layer.runner
            yield layer.runner.source
            yield layer.runner.normalizer
        # The layer's own: an SB3 wrapper answers for what is below it.
        sub_envs = getattr(layer, "__dict__", {}).get("envs")
        for sub_env in sub_envs if isinstance(sub_envs, list) else ():
            yield from _stateful_parts(sub_env)
