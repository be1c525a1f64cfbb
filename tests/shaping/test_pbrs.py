from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers.shaping import PBRS
from tests.shaping.transitions import transition

potentials = st.lists(st.floats(-10, 10), min_size=2, max_size=20)


@given(potentials, st.floats(0.1, 1.0))
def test_return_telescopes_to_the_first_potential(phi: list[float], gamma: float) -> None:
    """Σ γ^t F_t = −Φ(s₀) when the episode terminates, whatever happened on the way."""
    shaper, total = PBRS(gamma=gamma), 0.0
    for t in range(len(phi) - 1):
        step = transition(
            [0.0],
            potential=[phi[t]],
            next_potential=[phi[t + 1]],
            terminated=[t == len(phi) - 2],
        )
        total += gamma**t * shaper.step(step)[0]
    assert total == pytest.approx(-phi[0], rel=1e-9, abs=1e-9)


def test_adds_to_the_source_and_keeps_the_potential_at_truncation() -> None:
    step = transition(
        [1.0, 1.0, 1.0],
        potential=[2.0, 2.0, 2.0],
        next_potential=[4.0, 4.0, 4.0],
        terminated=[True, False, False],
        truncated=[False, True, False],
        valid=[True, True, False],
    )
    assert PBRS(3, gamma=0.5).step(step).tolist() == [-1.0, 1.0, 0.0]


def test_needs_potentials_and_a_discount() -> None:
    with pytest.raises(ValueError, match="potential and next_potential"):
        PBRS(gamma=0.9).step(transition(np.zeros(1)))
    with pytest.raises(ValueError, match="gamma must be a discount"):
        PBRS(gamma=2.0)
