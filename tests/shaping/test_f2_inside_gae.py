"""F₂ added to the one-step target within GAE's recursion, against ADOPS and its clamp of A."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import Transition, clamp_advantage
from adops_wrappers.shaping import ADOPS
from tests import toolkit as tk
from tests.shaping.transitions import random_transitions

LAMBDA = 0.95


def rollout(seed: int, steps: int) -> Transition:
    """One row with values of states that follow each other, except over an end."""
    rows = random_transitions(np.random.default_rng(seed), steps, 1)
    after = {
        f"next_{name}": np.where(
            rows.terminated | rows.truncated,
            getattr(rows, f"next_{name}"),
            np.roll(getattr(rows, name), -1, axis=0),
        )
        for name in ("value_ext", "value_int")
    }
    # The intrinsic stream ends with the episode, as for int_bootstrap="none".
    after["next_value_int"] = np.where(rows.terminated, 0.0, after["next_value_int"])
    return rows._replace(valid=np.ones((steps, 1), bool), **after)


def within_the_recursion(rows: Transition, zeta: float, lam: float = LAMBDA) -> Any:
    """Step by step from the end, in plain Python, with F₂ as the paper prints it."""
    advantages, later = [], 0.0
    columns = [rows.reward, rows.intrinsic, rows.value_ext, rows.value_int]
    columns += [rows.next_value_ext, rows.next_value_int, rows.terminated, rows.truncated]
    for values in reversed(np.stack([c[:, 0].astype(float) for c in columns], axis=1).tolist()):
        reward, bonus, v, w, next_v, next_w, terminated, truncated = values
        next_v = 0.0 if terminated else next_v
        delta_ext = reward + tk.GAMMA_EXT * next_v - v
        delta_int = bonus + tk.GAMMA_INT * next_w - w
        f2 = tk.adops_f2(reward, bonus, (v, w), (next_v, next_w))
        ends = bool(terminated or truncated)
        ext, int_ = (0.0, 0.0) if ends or not advantages else later
        later = (
            delta_ext + tk.GAMMA_EXT * lam * ext,
            delta_int + zeta * f2 + tk.GAMMA_INT * lam * int_,
        )
        advantages.append(later)
    return np.array(advantages[::-1]).T


def gae(delta: Any, ended: Any, discount: float) -> Any:
    out, later = np.empty_like(delta), 0.0
    for t in reversed(range(len(delta))):
        later = out[t] = delta[t] + (0.0 if ended[t] else discount * later)
    return out


def streams(rows: Transition, intrinsic: Any, lam: float = LAMBDA) -> Any:
    """A_E and A_I of a learner that is given R and `intrinsic`."""
    ended = (rows.terminated | rows.truncated)[:, 0]
    next_ext = np.where(rows.terminated, 0.0, rows.next_value_ext)
    ext = rows.reward + tk.GAMMA_EXT * next_ext - rows.value_ext
    int_ = intrinsic + tk.GAMMA_INT * rows.next_value_int - rows.value_int
    return np.array([
        gae(ext[:, 0], ended, tk.GAMMA_EXT * lam),
        gae(int_[:, 0], ended, tk.GAMMA_INT * lam),
    ])  # fmt: skip


def shaped_by_adops(rows: Transition) -> Any:
    return ADOPS(1, gamma_ext=tk.GAMMA_EXT, gamma_int=tk.GAMMA_INT).rollout(rows)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.25, 1.0]), st.floats(0.0, 1.0))
def test_f2_inside_gae_is_the_bonus_of_adops_outside(seed: int, zeta: float, lam: float) -> None:
    rows = rollout(seed, 15)
    bonus = rows.intrinsic + zeta * (shaped_by_adops(rows) - rows.intrinsic)
    expected = within_the_recursion(rows, zeta, lam)
    np.testing.assert_allclose(streams(rows, bonus, lam), expected, rtol=1e-10, atol=1e-10)


def test_what_each_order_does_to_the_signs_of_the_advantage() -> None:
    """Shares of 20,000 random steps whose total contradicts A_E, both by GAE."""
    rows = rollout(0, 20_000)
    advantage_ext, raw = streams(rows, rows.intrinsic)
    first = within_the_recursion(rows, 1.0)[1]
    last = clamp_advantage(advantage_ext, raw)

    def wrong(total: Any) -> float:
        return float((advantage_ext * total < 0.0).mean())

    assert wrong(advantage_ext + raw) == pytest.approx(0.2323, abs=5e-4)
    assert wrong(advantage_ext + first) == pytest.approx(0.1640, abs=5e-4)
    assert wrong(last) == 0.0
    unlike = np.abs(advantage_ext + first - last) > 1e-6
    assert unlike.mean() == pytest.approx(0.6275, abs=5e-4)


def test_with_lambda_zero_both_orders_agree_up_to_epsilon() -> None:
    rows = rollout(1, 500)
    advantage_ext, raw = streams(rows, rows.intrinsic, 0.0)
    first = within_the_recursion(rows, 1.0, 0.0)[1]
    last = clamp_advantage(advantage_ext, raw)
    np.testing.assert_allclose(advantage_ext + first, last, atol=1.1e-7)
