from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers.shaping import GRM, PBIM, MatchedGRM, make_grm
from tests import toolkit as tk
from tests.shaping.transitions import run_episode, transition

bonuses = st.lists(st.fractions(-5, 5, max_denominator=20), min_size=1, max_size=9)
float_bonuses = st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=1, max_size=30)
gammas = st.fractions(Fraction(1, 2), 1, max_denominator=20)
delays = st.integers(0, 10)
alphas = st.one_of(st.none(), st.fractions(Fraction(1, 20), 1, max_denominator=20))


def exact(kind: str, gamma: Fraction, delay: int = 1, alpha: Fraction | None = None) -> Any:
    """The package's own shaper, its state turned into Fractions so that it computes exactly."""
    settings = {"gamma": float(gamma), "normalize": alpha is not None}
    shaper: Any = PBIM(**settings) if kind == "pbim" else GRM(delay=delay, **settings)
    shaper.gamma, shaper.alpha = gamma, alpha
    shaper.mean = np.array([Fraction(0)])
    if kind == "pbim":
        shaper.debt = np.array([Fraction(0)])
    else:
        shaper.ring = np.full(shaper.ring.shape, Fraction(0))
        shaper._interest = np.array([gamma**-age for age in range(1, delay + 1)])
    return shaper


def discounted(values: list[Any], gamma: Any) -> Any:
    return sum(gamma**t * value for t, value in enumerate(values))


@given(st.lists(bonuses, min_size=1, max_size=3), gammas, delays, alphas, st.booleans())
def test_discounted_sum_of_an_episode_is_exactly_zero(
    episodes: list[list[Fraction]],
    gamma: Fraction,
    delay: int,
    alpha: Fraction | None,
    truncated: bool,
) -> None:
    for shaper in (exact("pbim", gamma, alpha=alpha), exact("grm", gamma, delay, alpha)):
        for episode in episodes:
            shaped = run_episode(shaper, episode, truncated=truncated)
            assert all(isinstance(value, Fraction | int) or delay == 0 for value in shaped)
            assert discounted(shaped, gamma) == 0


@given(st.lists(bonuses, min_size=1, max_size=3), gammas, delays, alphas)
def test_equals_the_general_formula_exactly(
    episodes: list[list[Fraction]], gamma: Fraction, delay: int, alpha: Fraction | None
) -> None:
    pbim, grm = exact("pbim", gamma, alpha=alpha), exact("grm", gamma, delay, alpha)
    mean = Fraction(0)
    for episode in episodes:
        f = episode
        if alpha is not None:
            f, mean = tk.centred(episode, mean, alpha)
        assert run_episode(grm, episode) == tk.matched(f, gamma, tk.delay_weight(delay))
        assert run_episode(pbim, episode) == tk.matched(f, gamma, lambda t, i, final: int(final))


@given(bonuses, gammas)
def test_the_printed_exponent_of_pbim_does_not_cancel(
    episode: list[Fraction], gamma: Fraction
) -> None:
    n = len(episode)
    printed = [*episode[:-1], sum(-(gamma ** (i - n)) * f for i, f in enumerate(episode[:-1]))]
    given_before = discounted(episode[:-1], gamma)
    assert (discounted(printed, gamma) == 0) == (given_before == 0 or gamma == 1)


@given(bonuses, gammas, delays)
def test_remaining_return_is_minus_the_debt(
    episode: list[Fraction], gamma: Fraction, delay: int
) -> None:
    """From every t on, the return depends on what was given before t, not on what comes."""
    for shaper in (exact("pbim", gamma), exact("grm", gamma, delay)):
        shaped = run_episode(shaper, episode)
        changed = run_episode(shaper, [*episode[:-1], episode[-1] + 7])
        assert changed == shaped
        for t in range(len(episode)):
            debt = discounted(shaped[:t], gamma) / gamma**t
            assert discounted(shaped[t:], gamma) == -debt


@given(float_bonuses, st.floats(0.5, 1.0), delays)
def test_discounted_sum_in_floats(episode: list[float], gamma: float, delay: int) -> None:
    for shaper in (PBIM(gamma=gamma), GRM(gamma=gamma, delay=delay)):
        shaped = run_episode(shaper, episode)
        size = sum(abs(gamma**t * value) for t, value in enumerate(shaped))
        assert abs(discounted(shaped, gamma)) <= 1e-12 * size


@given(bonuses, gammas)
def test_limits_of_the_delay(episode: list[Fraction], gamma: Fraction) -> None:
    assert run_episode(exact("grm", gamma, 0), episode) == [0] * len(episode)
    long_enough = max(len(episode) - 1, 1)
    pbim = run_episode(exact("pbim", gamma), episode)
    for delay in (long_enough, long_enough + 3):
        assert run_episode(exact("grm", gamma, delay), episode) == pbim
    assert run_episode(exact("pbim", gamma), episode[:1]) == [0]
    assert run_episode(exact("grm", gamma, 1), episode[:1]) == [0]


@given(float_bonuses, st.floats(0.5, 1.0), st.integers(0, 6), st.booleans())
def test_matching_function_expresses_grm_and_pbim(
    episode: list[float], gamma: float, delay: int, normalize: bool
) -> None:
    settings: dict[str, Any] = {"gamma": gamma, "normalize": normalize, "alpha": 0.3}
    pairs = [
        (GRM(delay=delay, **settings), tk.delay_weight(delay)),
        (PBIM(**settings), lambda t, i, final: float(final and i <= t)),
    ]
    for shaper, weight in pairs:
        general = MatchedGRM(matching=weight, **settings)
        for _ in range(2):
            np.testing.assert_allclose(
                run_episode(general, episode), run_episode(shaper, episode), rtol=1e-9, atol=1e-9
            )


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.floats(0.5, 1.0))
def test_general_matching_function(episode: list[float], gamma: float) -> None:
    shaped = run_episode(MatchedGRM(matching=tk.halves, gamma=gamma), episode)
    np.testing.assert_allclose(shaped, tk.matched(episode, gamma, tk.halves), rtol=1e-9, atol=1e-9)
    assert abs(discounted(shaped, gamma)) <= 1e-9 * (1 + sum(map(abs, shaped)))


@pytest.mark.parametrize("delay", [127, 128, 129, 200, 300, 10**9])
def test_a_long_delay_takes_no_more_memory_than_the_longest_episode(delay: int) -> None:
    rng = np.random.default_rng(delay)
    shaper = GRM(2, delay=delay, gamma=1.0)
    for length in (40, 131, 500, 90, 260):
        bonuses = rng.integers(-9, 9, (length, 2)).astype(np.float64)
        shaped = []
        for t, bonus in enumerate(bonuses):
            # The second row's episodes are shorter: their ends leave the first row as it is.
            ends = [t == length - 1, t % 37 == 36 or t == length - 1]
            shaped.append(shaper.step(transition(bonus, terminated=ends)))
        expected = tk.matched(bonuses[:, 0].tolist(), 1.0, tk.delay_weight(delay))
        np.testing.assert_array_equal(np.array(shaped)[:, 0], expected)
        starts = range(0, length, 37)
        parts = [bonuses[start : start + 37, 1].tolist() for start in starts]
        expected = [f for part in parts for f in tk.matched(part, 1.0, tk.delay_weight(delay))]
        np.testing.assert_array_equal(np.array(shaped)[:, 1], expected)
    assert len(shaper.ring) <= min(delay, 2 * 500)


def test_a_grown_ring_is_saved_and_continued() -> None:
    first, second, fresh = (GRM(delay=10**6, gamma=0.9999) for _ in range(3))
    for bonus in np.arange(300.0):
        first.step(transition([bonus]))
    second.load_state_dict(first.state_dict())
    fresh.load_state_dict(GRM(delay=10**6, gamma=0.9999).state_dict())
    for bonus in np.arange(300.0):
        np.testing.assert_array_equal(
            first.step(transition([bonus])), second.step(transition([bonus]))
        )
        fresh.step(transition([bonus]))
    end = transition([1.0], terminated=[True])
    assert first.step(end)[0] == second.step(end)[0] != fresh.step(end)[0]


@given(float_bonuses, st.floats(0.5, 0.999))
def test_settling_at_truncation_equals_bootstrapping_minus_the_debt(
    episode: list[float], gamma: float
) -> None:
    """A learner that bootstraps V_I = −S from the cut gets the return that settling gives."""
    shaper = PBIM(gamma=gamma)
    settled = run_episode(shaper, episode, truncated=True)
    for bonus in episode[:-1]:
        shaper.step(transition([bonus]))
    bootstrapped = [*episode[:-1], -shaper.debt[0]]
    np.testing.assert_allclose(settled, bootstrapped, rtol=1e-12)


def shapers(n: int) -> list[Any]:
    return [
        PBIM(n, gamma=0.9),
        PBIM(n, gamma=0.9, normalize=True),
        GRM(n, gamma=0.9, delay=3),
        GRM(n, gamma=0.9, delay=3, normalize=True),
        MatchedGRM(n, gamma=0.9, matching=tk.halves),
    ]


@pytest.mark.parametrize("which", range(5))
def test_reset_drops_the_debt_of_its_rows_alone(which: int) -> None:
    shaper, row, fresh = (shapers(n)[which] for n in (2, 1, 1))
    for bonus in (1.0, 2.0, -0.5, 3.0):
        shaper.step(transition([bonus, bonus]))
        row.step(transition([bonus]))
    fresh.mean = row.mean.copy()
    shaper.reset(np.array([True, False]))
    for end in (False, True):
        shaped = shaper.step(transition([0.7, 0.7], terminated=[end, end]))
        assert shaped[0] == fresh.step(transition([0.7], terminated=[end]))[0]
        assert shaped[1] == row.step(transition([0.7], terminated=[end]))[0]
    assert shaped[0] != shaped[1]


@pytest.mark.parametrize("which", range(5))
def test_dummy_rows_between_episodes_change_nothing(which: int) -> None:
    with_dummies, without = shapers(1)[which], shapers(1)[which]
    for length in (5, 2, 1, 4):
        assert with_dummies.step(transition([99.0], valid=[False]))[0] == 0.0
        bonuses = [float(t + length) for t in range(length)]
        assert run_episode(with_dummies, bonuses) == run_episode(without, bonuses)


@pytest.mark.parametrize("which", range(5))
def test_state_dict_round_trip_in_mid_episode(which: int) -> None:
    first, second = shapers(2)[which], shapers(2)[which]
    for bonus in (1.0, 2.0, -0.5, 3.0, 0.25):
        first.step(transition([bonus, -bonus], terminated=[bonus == 2.0, False]))
    second.load_state_dict(first.state_dict())
    for bonus, end in ((4.0, False), (1.0, True), (2.0, False), (0.5, True)):
        step = transition([bonus, 2 * bonus], terminated=[end, end])
        np.testing.assert_array_equal(first.step(step), second.step(step))


def test_state_dict_is_a_copy_and_checks_shapes() -> None:
    shaper = GRM(2, delay=2)
    saved = shaper.state_dict()
    shaper.step(transition([5.0, 5.0]))
    assert not saved["ring"].any()
    with pytest.raises(ValueError, match=r"saved shape is \(2, 2\).*needs \(2, 3\)"):
        GRM(3, delay=2).load_state_dict({**saved, "mean": np.zeros(3)})


def test_frozen_mean_is_used_and_not_moved() -> None:
    shaper = GRM(gamma=0.9, normalize=True, alpha=0.5)
    shaper.step(transition([4.0]))
    shaper.frozen = True
    assert shaper.mean[0] == 2.0
    assert shaper.step(transition([3.0]))[0] == (3.0 - 2.0) - (4.0 - 2.0) / 0.9
    assert shaper.mean[0] == 2.0


def test_mean_lives_on_across_episodes_and_resets() -> None:
    shaper = PBIM(normalize=True, alpha=0.5)
    run_episode(shaper, [4.0, 4.0])
    shaper.reset()
    assert shaper.mean[0] == 3.0


def test_matched_memory_grows_with_the_episode_only() -> None:
    shaper = MatchedGRM(gamma=1.0, matching=lambda t, i, final: float(final and i <= t))
    shaped = run_episode(shaper, [1.0] * 200)
    assert shaped[-1] == -199.0
    assert run_episode(shaper, [1.0] * 3) == [1.0, 1.0, -2.0]


def test_make_grm_chooses_the_lightest() -> None:
    assert type(make_grm(delay=math.inf)) is PBIM
    assert type(make_grm(delay=2)) is GRM
    assert type(make_grm(matching=tk.halves)) is MatchedGRM


def test_matching_that_breaks_after_the_probed_lengths_is_caught_at_the_end() -> None:
    def late(t: int, t_prime: int, final: bool) -> float:
        return float(final and t_prime <= t and t < 70)

    shaper = MatchedGRM(gamma=1.0, matching=late)
    with pytest.raises(ValueError, match=r"71 steps the weights of t_prime=0 sum to 0 "):
        run_episode(shaper, [1.0] * 71)


@pytest.mark.parametrize(
    ("matching", "message"),
    [
        (lambda t, i, final: 0.0, "not fully matching: in an episode of 1 steps"),
        (lambda t, i, final: float(t == i + 1), "t_prime=0 sum to 0 instead of 1"),
        (lambda t, i, final: 1.0, "looks ahead"),
        (lambda t, i, final: 2.0 * (t == i), r"weights lie in \[0, 1\]"),
        (lambda t, i, final: math.nan, r"weights lie in \[0, 1\]"),
        (lambda t, i, final: float(i <= t), "sum to 2 instead of 1"),
    ],
)
def test_bad_matching_functions(matching: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MatchedGRM(matching=matching)


def test_matching_must_be_callable() -> None:
    with pytest.raises(TypeError, match=r"matching must be a function \(t, t_prime, final\)"):
        MatchedGRM(matching=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"delay": -1}, ValueError, "delay must be a whole number of at least 0, got -1"),
        ({"delay": 1.5}, TypeError, "delay must be a whole number"),
        ({"delay": True}, TypeError, "delay must be a whole number"),
        ({"delay": 10**6}, ValueError, "delay=math.inf, which is PBIM"),
        ({"gamma": 0.0}, ValueError, r"gamma must be a discount in \(0, 1\]"),
        ({"gamma": 1.5}, ValueError, "gamma must be a discount"),
        ({"gamma": math.nan}, ValueError, "gamma must be a discount"),
        ({"gamma": "0.9"}, TypeError, "gamma must be a discount"),
        ({"alpha": 0.0}, ValueError, r"alpha must be a smoothing factor in \(0, 1\]"),
        ({"alpha": 1.01}, ValueError, "alpha must be a smoothing factor"),
    ],
)
def test_bad_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GRM(**settings)
