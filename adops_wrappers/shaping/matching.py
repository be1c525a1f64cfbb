"""Matching functions of generalised reward matching (eq. drawer), and what they must fulfil."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np

from adops_wrappers.shaper import FloatArray

MatchingFunction = Callable[[int, int, bool], float]
"""`matching(t, t_prime, final)`: the share of f_{t′} that is taken back at step t; `final` says
that t is the episode's last step."""
PROBED_LENGTHS = 64
TOLERANCE = 1e-9


def weights_of(matching: MatchingFunction, t: int, final: bool) -> FloatArray:
    """Return the weights of all steps so far at step t."""
    return np.array([matching(t, t_prime, final) for t_prime in range(t + 1)], dtype=np.float64)


def check_matching(matching: MatchingFunction) -> str:
    """Probe a function for all episodes of up to 64 steps; return a fingerprint of its weights."""
    if not callable(matching):
        raise TypeError(
            f"matching must be a function (t, t_prime, final) -> weight, got {matching!r}."
        )
    shape = (PROBED_LENGTHS, PROBED_LENGTHS)
    on_the_way, at_the_end = np.zeros(shape), np.zeros(shape)
    for t, t_prime in np.ndindex(shape):
        for table, final in ((on_the_way, False), (at_the_end, True)):
            weight = float(matching(t, t_prime, final))
            if not 0.0 <= weight <= 1.0:
                raise ValueError(
                    f"matching(t={t}, t_prime={t_prime}, final={final}) returned {weight}; "
                    "weights lie in [0, 1]."
                )
            if t_prime > t and weight != 0.0:
                raise ValueError(
                    f"matching looks ahead: matching(t={t}, t_prime={t_prime}, final={final}) "
                    f"returned {weight}, but a bonus that is still to come (t_prime > t) cannot "
                    "be taken back. Return 0 there."
                )
            table[t, t_prime] = weight
    before = np.vstack([np.zeros(PROBED_LENGTHS), np.cumsum(on_the_way, axis=0)[:-1]])
    totals = np.where(np.tri(PROBED_LENGTHS, dtype=bool), before + at_the_end, 1.0)
    wrong = np.argwhere(np.abs(totals - 1.0) > TOLERANCE)
    if len(wrong):
        last, t_prime = (int(index) for index in wrong[0])
        raise not_fully_matching(t_prime, last + 1, float(totals[last, t_prime]))
    return blake2b(on_the_way.tobytes() + at_the_end.tobytes(), digest_size=8).hexdigest()


def not_fully_matching(t_prime: int, length: int, total: float) -> ValueError:
    """Return the error that names the step that is not taken back."""
    return ValueError(
        f"matching is not fully matching: in an episode of {length} steps the weights of "
        f"t_prime={t_prime} sum to {total:.9g} instead of 1. What is left must be matched at "
        "the last step, where final=True."
    )
