"""Evaluation without side effects on what training has learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adops_wrappers import vector, wrappers


@contextmanager
def evaluation_mode(env: Any) -> Iterator[Any]:
    """Freeze counts, running means, scales, ζ and learning critics of `env`'s stack.

    Debts and episodes run on as always. Wrappers inside a vector env's sub-envs are out of
    reach: the stack is followed from `env` down to the base env.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, evaluation_mode
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> _ = env.reset(seed=0)
        >>> with evaluation_mode(env):
        ...     [env.step(3)[4]["intrinsic_reward"] for _ in range(2)]
        [1.0, 1.0]
    """
    parts = [part for part in _stateful_parts(env) if hasattr(part, "frozen")]
    before = [part.frozen for part in parts]
    for part in parts:
        part.frozen = True
    try:
        yield env
    finally:
        for part, frozen in zip(parts, before, strict=True):
            part.frozen = frozen


def _stateful_parts(env: Any) -> Iterator[Any]:
    while True:
        if isinstance(env, wrappers.ShapingWrapper | vector.ShapingWrapper):
            yield env.core.shaper
            yield env.core.critic
        elif isinstance(env, wrappers.IntrinsicRewardWrapper | vector.IntrinsicRewardWrapper):
            yield env.runner.source
            yield env.runner.normalizer
        if not hasattr(env, "env"):
            return
        env = env.env
