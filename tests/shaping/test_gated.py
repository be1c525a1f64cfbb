"""Gated ADOPS: the raw bonus where the critic knows nothing, ADOPS where it does."""

from __future__ import annotations

import numpy as np
import pytest

from adops_wrappers.shaping import ADOPS, Transition
from adops_wrappers.shaping.gated import GatedADOPS

N = 4


def transitions(seed, steps, reward_from=0):
    rng = np.random.default_rng(seed)
    for t in range(steps):
        reward = rng.normal(size=N) if t >= reward_from else np.zeros(N)
        values = rng.normal(size=(4, N))
        ended = rng.random((2, N)) < 0.1
        valid = rng.random(N) < 0.9
        yield Transition(reward, 5.0 * rng.random(N), *values, None, *ended, valid)


def extrinsic_advantage(t, gamma=0.999):
    return t.reward + gamma * t.next_value_ext * ~t.terminated - t.value_ext


def test_the_raw_bonus_passes_until_the_first_reward():
    shaper = GatedADOPS(N, gate=0.0)
    for t in transitions(0, 20, reward_from=1000):
        np.testing.assert_array_equal(shaper.step(t), np.where(t.valid, t.intrinsic, 0.0))
    assert not shaper.rewarded


def test_an_open_gate_is_adops():
    gated, adops = GatedADOPS(N, gate=0.0), ADOPS(N)
    for t in transitions(1, 50):
        np.testing.assert_array_equal(gated.step(t), adops.step(t))
    assert gated.rewarded


@pytest.mark.parametrize("gate", [0.5, 1.0, 2.0])
def test_only_advantages_above_the_noise_count(gate):
    shaper, adops = GatedADOPS(N, gate=gate, smoothing=0.1), ADOPS(N)
    squares = []
    changed = 0
    for t in transitions(2, 200):
        shaped, clamped = shaper.step(t), adops.step(t)
        if t.valid.any():
            squares.append(np.square(extrinsic_advantage(t)[t.valid]).mean())
        # A plain mean over the first ten steps, then exponential smoothing
        weights = [1.0]
        for count in range(2, len(squares) + 1):
            weight = max(0.1, 1 / count)
            weights = [w * (1 - weight) for w in weights] + [weight]
        noise = np.sqrt(np.dot(weights, squares))
        known = np.abs(extrinsic_advantage(t)) > gate * noise
        raw = np.where(t.valid, t.intrinsic, 0.0)
        np.testing.assert_array_equal(shaped, np.where(known, clamped, raw))
        changed += int((shaped != raw).sum())
    assert changed


def test_a_resumed_run_goes_on_alike_and_a_frozen_one_learns_nothing():
    first = GatedADOPS(N)
    steps = list(transitions(3, 60))
    for t in steps[:30]:
        first.step(t)
    second = GatedADOPS(N)
    second.load_state_dict(first.state_dict())
    for t in steps[30:]:
        np.testing.assert_array_equal(first.step(t), second.step(t))
    before = first.state_dict()
    first.frozen = True
    for t in steps:
        first.step(t)
    assert first.state_dict() == before
    assert before["steps"] == sum(bool(t.valid.any()) for t in steps)
