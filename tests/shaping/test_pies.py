from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers.shaping import PIES
from tests.shaping.transitions import transition


@given(st.integers(1, 40), st.integers(1, 5))
def test_zeta_is_the_papers_recursion_without_its_rounding(decay: int, every: int) -> None:
    shaper = PIES(decay_updates=decay, update_every=every)
    zeta = Fraction(1)
    for step in range((decay + 2) * every):
        if step and step % every == 0:
            zeta = zeta - Fraction(1, decay) if zeta > Fraction(1, decay) else Fraction(0)
        assert shaper.zeta == pytest.approx(float(zeta), abs=1e-12)
        assert shaper.step(transition([2.0]))[0] == 2.0 * shaper_zeta(step // every, decay)
    assert shaper.zeta == 0.0


def shaper_zeta(updates: int, decay: int) -> float:
    return max(0.0, 1.0 - updates / decay)


def test_float_recursion_of_the_paper_is_an_update_late() -> None:
    decay, zeta = 10, 1.0
    for _ in range(decay):
        zeta = zeta - 1 / decay if zeta > 1 / decay else 0.0
    assert zeta > 0.0
    shaper = PIES(decay_updates=decay, update_every=1)
    for _ in range(decay):
        shaper.step(transition([1.0]))
    assert shaper.zeta == 0.0


def test_counts_vector_steps_with_dummies() -> None:
    shaper = PIES(3, decay_updates=4, update_every=2)
    for _ in range(2):
        shaper.step(transition([1.0, 1.0, 1.0], valid=[False, False, False]))
    assert shaper.zeta == 0.75


def test_counts_the_episodes_of_all_rows() -> None:
    shaper = PIES(3, decay_updates=4, update_every="episode")
    step = transition(
        [1.0, 1.0, 1.0],
        terminated=[True, False, True],
        truncated=[False, True, False],
        valid=[True, True, False],
    )
    assert shaper.step(step).tolist() == [1.0, 1.0, 0.0]
    assert shaper.zeta == 0.5


def test_frozen_counter_and_state_dict() -> None:
    shaper = PIES(decay_updates=4, update_every=1)
    shaper.step(transition([1.0]))
    shaper.frozen = True
    shaper.step(transition([1.0]))
    assert shaper.zeta == 0.75
    copy = PIES(decay_updates=4, update_every=1)
    copy.load_state_dict(shaper.state_dict())
    assert copy.zeta == 0.75


def test_recorded_rollout() -> None:
    shaper = PIES(2, decay_updates=2, update_every=1)
    shaped = shaper.rollout(transition(np.ones((3, 2))))
    assert shaped.tolist() == [[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"decay_updates": 0}, ValueError, "decay_updates must be a whole number of at least 1"),
        ({"decay_updates": -5}, ValueError, "decay_updates must be"),
        ({"decay_updates": 1.5}, TypeError, "decay_updates must be a whole number"),
        ({"update_every": 0}, ValueError, "update_every must be a whole number of at least 1"),
        ({"update_every": "step"}, ValueError, "whole number of steps or 'episode'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PIES(**settings)
