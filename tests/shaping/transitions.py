"""Transitions for tests of the pure methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from adops_wrappers import Transition


def transition(intrinsic: Any, **fields: Any) -> Transition:
    """Build a Transition of n rows from what matters to a test; the rest is zero."""
    dtype = object if np.asarray(intrinsic).dtype == object else np.float64
    intrinsic = np.array(intrinsic, dtype=dtype)
    zeros = np.zeros(intrinsic.shape)
    values: dict[str, Any] = {
        name: zeros.copy()
        for name in ("reward", "value_ext", "value_int", "next_value_ext", "next_value_int")
    }
    flags = {
        "terminated": np.zeros(intrinsic.shape, dtype=bool),
        "truncated": np.zeros(intrinsic.shape, dtype=bool),
        "valid": np.ones(intrinsic.shape, dtype=bool),
    }
    values.update(flags, advantage_ext=None, intrinsic=intrinsic)
    for name, value in fields.items():
        values[name] = (
            value if value is None else np.array(value, dtype=flags.get(name, zeros).dtype)
        )
    return Transition(**values)


def run_episode(shaper: Any, bonuses: list[Any], *, truncated: bool = False) -> list[Any]:
    """Feed one whole episode to row 0 of a shaper of one env."""
    out = []
    for t, bonus in enumerate(bonuses):
        end = t == len(bonuses) - 1
        out.append(
            shaper.step(
                transition(
                    [bonus], terminated=[end and not truncated], truncated=[end and truncated]
                )
            )[0]
        )
    return out


def random_transitions(rng: np.random.Generator, steps: int, num_envs: int) -> Transition:
    """Return a rollout of shape (T, n) with random values and ends; some rows are not valid."""
    shape = (steps, num_envs)
    names = ("reward", "value_ext", "value_int", "next_value_ext", "next_value_int")
    return transition(
        rng.normal(size=shape),
        **{name: rng.normal(size=shape) for name in names},
        terminated=rng.random(shape) < 0.1,
        truncated=rng.random(shape) < 0.1,
        valid=rng.random(shape) < 0.9,
    )
