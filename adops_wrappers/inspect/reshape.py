"""One rollout under every method, without running the env again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect.recording import CLAMP, Recording
from adops_wrappers.methods import METHODS, Method, find_method
from adops_wrappers.shaper import Shaper, Transition
from adops_wrappers.shaping.schedule import Scheduled

Methods = Iterable[str] | Mapping[str, tuple[str, Mapping[str, Any]]]


def reshape(
    recording: Recording,
    methods: Methods | None = None,
    *,
    updates: int = 0,
) -> dict[str, FloatArray]:
    """Return F′ of every method for the recorded rollout, each of shape (T, n).

    The recorded transitions go through the same shapers as in the wrappers, so that, given
    the recorded critic values, each result is what the method's wrapper would have emitted:
    exactly, in float64. The agent's actions and values are those of the recorded run.

    A method starts like a new wrapper, with the recording's discounts, coefficients and
    `intrinsic_scale`. The recorded method itself continues from the state and with the settings
    that it had, so that its entry equals `recording.shaped`. Where a debt overflows float64 the
    wrapper would raise an error; here the result is infinite.

    Args:
        recording: The rollout.
        methods: Names of `SHAPINGS`, or labels with a name and settings each, such as
            `{"GRM, D = 8": ("grm", {"delay": 8})}`. By default all that the recording allows:
            ADOPS and ADOPES need a critic, PBRS a potential.
        updates: The n from which ζ of ADOPES and PIES starts.

    Example:
        >>> import tempfile, gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper
        >>> from adops_wrappers.inspect import ShapingRecorder, reshape
        >>> folder = tempfile.TemporaryDirectory()
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 1.5)
        >>> env = ShapingRecorder(env, f"{folder.name}/cliff.npz", lambda obs: (0.0, 0.0))
        >>> _ = env.reset(seed=0)
        >>> _ = env.step(0), env.step(0)
        >>> shaped = reshape(env.finish(), {"grm": ("grm", {"gamma": 0.5}), "raw": ("none", {})})
        >>> shaped["raw"][:, 0], shaped["grm"][:, 0]
        (array([1.5, 1.5]), array([ 1.5, -1.5]))
        >>> folder.cleanup()
    """
    updates = _checks.whole("updates", updates, least=0)
    if methods is None:
        methods = [method.name for method in METHODS.values() if can_reshape(recording, method)]
    if isinstance(methods, str):
        raise TypeError(
            f"methods must be a list of names or a mapping; did you mean [{methods!r}]?"
        )
    named = methods if isinstance(methods, Mapping) else {name: (name, {}) for name in methods}
    return {
        label: _run(recording, name, dict(settings), updates)
        for label, (name, settings) in named.items()
    }


def can_reshape(recording: Recording, method: Method) -> bool:
    """Whether the recording holds what a method needs: values, a potential, a bonus or φ(h)."""
    recorded = METHODS.get(recording.method)
    holds_knowledge = recorded is not None and recorded.needs_knowledge
    return (
        method.needs_knowledge == holds_knowledge
        and (recording.has_critic or not method.needs_critic)
        and (recording.has_potential or not method.needs_potential)
    )


def _run(recording: Recording, name: str, settings: dict[str, Any], updates: int) -> FloatArray:
    method = find_method(name)
    if method.needs_critic and not recording.has_critic:
        raise ValueError(
            f"{name!r} needs critic values, but the recording has none. Record with "
            "ShapingRecorder(env, path, critic)."
        )
    if method.needs_potential and not recording.has_potential:
        raise ValueError(
            f"{name!r} needs a potential, but the recording has none. Record with "
            "ShapingRecorder(env, path, potential=function)."
        )
    recorded = recording.meta["method_settings"]
    if method.name == recording.method and recorded is not None and not settings:
        shaper = method.shaper(recording.num_envs, **{**method.presets, **recorded})
        shaper.load_state_dict(recording.meta["initial_state"])
        shaper.frozen = bool(recording.meta["frozen"])
        return run_shaper(shaper, recording, recording.scale)
    scale = method.intrinsic_scale * float(settings.pop("intrinsic_scale", recording.base_scale))
    shaper = method.make(recording.num_envs, **{**_own(recording, method), **settings})
    if isinstance(shaper, Scheduled):
        shaper.start_from(updates)
    return run_shaper(shaper, recording, scale)


def _own(recording: Recording, method: Method) -> dict[str, Any]:
    """Return the recording's discounts and coefficients by the names that the method knows."""
    known = {name: recording.meta[name] for name in CLAMP}
    known |= {"gamma": recording.meta["gamma_int"], "allow_gamma_int_above_ext": True}
    return {name: value for name, value in known.items() if name in method.settings}


def run_shaper(shaper: Shaper, recording: Recording, intrinsic_scale: float = 1.0) -> FloatArray:
    """Feed the recording to a shaper, with the resets where they happened."""
    transitions = recording.transitions(intrinsic_scale)
    # A reset that only follows an end has nothing left to clear.
    resets = recording.begins.copy()
    resets[1:] &= ~recording.ended[:-1]
    resets[0] = False
    cuts = [0, *np.flatnonzero(resets.any(axis=1)).tolist(), recording.steps]
    pieces = []
    with np.errstate(over="ignore", invalid="ignore"):
        for start, stop in pairwise(cuts):
            if start:
                shaper.reset(resets[start])
            piece: list[Any] = [
                None if field is None else field[start:stop] for field in transitions
            ]
            pieces.append(shaper.rollout(Transition(*piece)))
    return np.concatenate(pieces)
