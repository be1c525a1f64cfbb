from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers import GuardedScaleWrapper, IntrinsicRewardWrapper
from adops_wrappers.shaping import GuardedScale
from tests import toolkit as tk
from tests.shaping.transitions import transition


def guarded(num_envs: int = 1, **more: Any) -> GuardedScale:
    return GuardedScale(num_envs, **{"update_every": 1} | more)


def episode(shaper: GuardedScale, score: float, bonus: float = 1.0) -> None:
    """One step that is a whole episode in every row."""
    n = shaper.num_envs
    shaper.step(transition([bonus] * n, reward=[score] * n, terminated=[True] * n))


def test_the_bonus_is_raw_until_a_reward_has_been_seen() -> None:
    shaper = guarded(2, update_every=3)
    for _ in range(6):
        assert shaper.step(transition([2.0, -1.0])).tolist() == [2.0, -1.0]
    shaper.step(transition([2.0, 0.0], reward=[0.0, 1.0]))
    assert shaper.beta == 1.0  # the update is not over yet
    shaper.step(transition([2.0, 0.0]))
    shaper.step(transition([2.0, 0.0]))
    assert shaper.beta == 0.05


def test_a_reward_before_there_is_a_score_pauses_the_bonus() -> None:
    shaper = guarded(2, pause=0.1, regrow=0.5)
    lucky = transition([1.0, 1.0], reward=[1.0, 0.0], terminated=[True, False])
    quiet = transition([1.0, 1.0])
    betas = []
    for step in (lucky, quiet, quiet, lucky, *[quiet] * 6):
        shaper.step(step)
        betas.append(shaper.beta)
    growth = math.exp(0.5)
    regrown = [0.1 * growth**k for k in range(1, 5)]
    assert betas == pytest.approx([0.1, *regrown[:2], 0.1, *regrown, 1.0, 1.0])
    assert shaper.score is None


def test_a_pause_never_raises_the_bonus_and_ends_at_the_floor() -> None:
    shaper = guarded(2, pause=0.0, floor=0.02)
    lucky = transition([1.0, 1.0], reward=[1.0, 0.0])
    shaper.step(lucky)
    assert shaper.beta == 0.02
    shaper.pause = 0.5
    shaper.step(lucky)
    assert shaper.beta == 0.02


def test_a_score_lets_the_bonus_regrow_to_one_and_no_further() -> None:
    shaper = guarded(regrow=0.5)
    episode(shaper, 1.0)
    betas = [shaper.beta]
    for _ in range(8):
        episode(shaper, 1.0)
        betas.append(shaper.beta)
    # The first episode already is a score: J = J* = 1.
    expected = [min(1.0, math.exp(0.5 * k)) for k in range(1, 10)]
    assert betas == pytest.approx(expected)


def test_a_fallen_score_shrinks_the_bonus_until_it_recovers() -> None:
    shaper = guarded(smoothing=0.5, forgetting=0.0, shrink=0.7, regrow=0.1, floor=0.01)
    episode(shaper, 1.0)
    assert (shaper.score, shaper.best, shaper.beta) == (1.0, 1.0, 1.0)
    episode(shaper, 0.8)  # J = 0.9: within the tolerance of 0.2
    assert (shaper.score, shaper.beta) == (pytest.approx(0.9), 1.0)
    episode(shaper, 0.0)  # J = 0.45
    assert shaper.beta == pytest.approx(math.exp(-0.7))
    for _ in range(20):
        episode(shaper, 0.0)
    assert shaper.beta == 0.01
    for _ in range(10):
        episode(shaper, 1.0)
    assert shaper.score == pytest.approx(1.0, abs=1e-2)
    # Two episodes are needed before J is above 0.8 again.
    assert shaper.beta == pytest.approx(0.01 * math.exp(0.1 * 8))


def test_the_best_score_is_forgotten_slowly() -> None:
    shaper = guarded(smoothing=1.0, forgetting=0.25)
    for score in (1.0, 0.0, 0.0):
        episode(shaper, score)
    assert shaper.best == pytest.approx(0.75**2)
    episode(shaper, 3.0)
    assert shaper.best == 3.0


def test_costs_are_guarded_too() -> None:
    shaper = guarded(smoothing=1.0, forgetting=0.0)
    episode(shaper, -10.0)
    before = shaper.beta
    episode(shaper, -11.0)  # within a fifth of the best
    assert shaper.beta >= before
    episode(shaper, -13.0)
    assert shaper.beta < before * math.exp(0.2)
    assert shaper.best == -10.0


def test_a_disaster_does_not_make_a_score_look_like_a_lucky_hit() -> None:
    shaper = guarded(smoothing=1.0, forgetting=0.0)
    for _ in range(3):
        episode(shaper, -13.0)
    assert shaper.beta == 1.0
    episode(shaper, -1300.0)
    assert shaper.beta == pytest.approx(math.exp(-0.5))


def test_the_score_waits_for_every_row() -> None:
    shaper = guarded(2)
    shaper.step(transition([1.0, 1.0], reward=[1.0, 0.0], terminated=[True, False]))
    assert shaper.score is None  # only the one that succeeded has finished
    shaper.step(transition([1.0, 1.0], truncated=[False, True]))
    assert shaper.score == 0.5


def test_a_lucky_hit_is_no_score() -> None:
    rows = 64
    shaper = guarded(rows, smoothing=1.0, forgetting=0.0)
    reward = np.zeros(rows)
    reward[:2] = 1.0
    ends = np.ones(rows, dtype=bool)
    shaper.step(transition(np.ones(rows), reward=reward, terminated=ends))
    beta = shaper.beta
    assert shaper.best == 2 / 64  # below 0.2² of the largest return
    shaper.step(transition(np.ones(rows), reward=reward, terminated=ends))
    assert shaper.beta == beta
    reward[:3] = 1.0
    shaper.step(transition(np.ones(rows), reward=reward, terminated=ends))
    assert shaper.beta == pytest.approx(beta * math.exp(0.2))


def test_frozen() -> None:
    shaper = guarded()
    shaper.frozen = True
    for _ in range(3):
        episode(shaper, 1.0)
    assert (shaper.beta, shaper.score, shaper.largest) == (1.0, None, -math.inf)
    assert shaper.counter.updates == 0


steps = st.lists(
    st.tuples(st.floats(-2, 2), st.sampled_from([0.0, 0.0, 1.0, -1.0]), st.booleans()),
    min_size=2,
    max_size=40,
)


@settings(deadline=None)
@given(steps, st.integers(1, 5), st.data())
def test_resuming_changes_nothing(stream: Any, every: int, data: Any) -> None:
    def feed(shaper: GuardedScale, part: Any) -> list[float]:
        return [
            float(shaper.step(transition([f], reward=[r], truncated=[end]))[0])
            for f, r, end in part
        ]

    cut = data.draw(st.integers(0, len(stream)))
    whole = feed(guarded(update_every=every), stream)
    first, second = guarded(update_every=every), guarded(update_every=every)
    head = feed(first, stream[:cut])
    second.load_state_dict(first.state_dict())
    assert head + feed(second, stream[cut:]) == whole


@settings(deadline=None)
@given(steps, st.integers(1, 5), st.integers(-4, 4))
def test_the_scale_of_the_rewards_does_not_matter(stream: Any, every: int, power: int) -> None:
    unit = 2.0**power  # rounds nothing, so that a score right at its threshold stays there
    one, other = guarded(update_every=every), guarded(update_every=every)
    for f, r, end in stream:
        one.step(transition([f], reward=[r], truncated=[end]))
        other.step(transition([f], reward=[unit * r], truncated=[end]))
        assert 0.0001 <= one.beta <= 1.0
        assert other.beta == one.beta


def reference(rows: list[list[tk.Step]], times: int, every: int) -> dict[tuple[int, int], float]:
    """β·F by row and time with plain Python, from the bare transitions of all rows."""
    beta, score, best, largest, paid = 1.0, None, None, -math.inf, False
    running, last = [0.0] * len(rows), [math.nan] * len(rows)
    out = {}
    for time in range(times):
        for i, row in enumerate(rows):
            for s in (s for s in row if s.time == time):
                out[i, time] = beta * float(tk.source(s.obs, s.action, s.next_obs))
                paid = paid or s.reward != 0.0
                running[i] += s.reward
                if s.ended:
                    last[i], running[i] = running[i], 0.0
                    largest = max(largest, last[i])
        if (time + 1) % every:
            continue
        now = sum(last) / len(last)
        if not math.isnan(now):
            score = now if score is None else score + 0.2 * (now - score)
            best = score if best is None else max(score, best + 0.02 * (score - best))
        known = best is not None and (largest <= 0.0 or best > 0.04 * largest)
        if known and score < best - 0.2 * abs(best):
            beta *= math.exp(-0.5)
        elif paid and not known:
            beta = min(beta, 0.05)
        else:
            beta *= math.exp(0.2)
        beta, paid = min(1.0, max(beta, 0.0001)), False
    return out


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_wrapper_against_a_slow_reference(mode: AutoresetMode) -> None:
    actions = np.random.default_rng(5).integers(0, 3, (80, 3))
    rows = tk.record(tk.make_vector("sync", mode), actions, 11, mode)
    expected = reference(rows, len(actions), every=4)
    env = GuardedScaleWrapper(
        IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source), update_every=4
    )
    env.reset(seed=11)
    found = {}
    for time, action in enumerate(actions):
        _, _, terminated, truncated, info = env.step(action)
        valid = info["_intrinsic_reward"]
        found |= {(i, time): info["intrinsic_reward"][i] for i in np.flatnonzero(valid)}
        done = terminated | truncated
        if mode is AutoresetMode.DISABLED and done.any():
            env.reset(options={"reset_mask": done})
    assert found == pytest.approx(expected, rel=1e-9)
    assert 0.0001 < env.shaper.beta < 1.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"pause": 1.5}, "pause must be a number from 0 to 1"),
        ({"forgetting": 1.5}, "forgetting must be a number from 0 to 1"),
        ({"floor": -0.1}, "floor must be a number from 0 to 1"),
        ({"smoothing": 0.0}, "smoothing must be a smoothing factor"),
        ({"update_every": 0}, "update_every must be a whole number"),
    ],
)
def test_bad_settings(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        guarded(**bad)
