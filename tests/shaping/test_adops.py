from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers.shaping import ADOPES, ADOPS, NoShaping, adops_correction
from tests import toolkit as tk
from tests.shaping.transitions import transition

values = st.floats(-100, 100, allow_subnormal=False)
coefs = st.floats(0.1, 10)
epsilons = st.sampled_from([0.0, 1e-7, 1e-2, 0.5])
FIELDS = ("intrinsic", "reward", "value_ext", "value_int", "next_value_ext", "next_value_int")
rows = st.fixed_dictionaries(dict.fromkeys(FIELDS, values))
PLAIN = {"gamma_ext": tk.GAMMA_EXT, "gamma_int": tk.GAMMA_INT}


def make(row: dict[str, float], **more: Any) -> Any:
    return transition(**{name: [value] for name, value in row.items()}, **more)


def parts(row: dict[str, float], terminated: bool, c_ext: float, c_int: float) -> tuple[float, ...]:
    """A_E, total and the largest term of the total, by hand."""
    ext = (row["reward"], 0.0 if terminated else tk.GAMMA_EXT * row["next_value_ext"],
           -row["value_ext"])  # fmt: skip
    int_ = (row["intrinsic"], tk.GAMMA_INT * row["next_value_int"], -row["value_int"])
    a_ext = ext[0] + ext[1] + ext[2]
    total = c_ext * a_ext + c_int * (int_[0] + int_[1] + int_[2])
    largest = max(abs(c_ext * x) for x in ext)
    return a_ext, total, max(largest, *(abs(c_int * x) for x in int_))


@given(rows, st.booleans(), coefs, coefs, epsilons)
def test_total_after_the_correction_is_the_clamp(
    row: dict[str, float], terminated: bool, c_ext: float, c_int: float, epsilon: float
) -> None:
    shaper = ADOPS(ext_coef=c_ext, int_coef=c_int, epsilon=epsilon, **PLAIN)
    f2 = shaper.step(make(row, terminated=[terminated]))[0] - row["intrinsic"]
    a_ext, total, largest = parts(row, terminated, c_ext, c_int)
    clamped = min(total, -epsilon) if a_ext < 0 else max(total, 0.0)
    tolerance = 16 * np.spacing(max(largest, abs(f2 * c_int), 1.0))
    assert total + c_int * f2 == pytest.approx(clamped, rel=0, abs=tolerance)


@given(rows, st.booleans(), coefs, coefs, epsilons)
def test_no_sign_contradicts_the_extrinsic_advantage(
    row: dict[str, float], terminated: bool, c_ext: float, c_int: float, epsilon: float
) -> None:
    """Whatever V_I says: a good action never looks bad, a bad one never good."""
    shaper = ADOPS(ext_coef=c_ext, int_coef=c_int, epsilon=epsilon, **PLAIN)
    shaped = dict(row, intrinsic=shaper.step(make(row, terminated=[terminated]))[0])
    a_ext, total, largest = parts(shaped, terminated, c_ext, c_int)
    largest = max(largest, parts(row, terminated, c_ext, c_int)[2])
    tolerance = 8 * np.spacing(largest)
    if a_ext >= 0:
        assert total >= -tolerance
    else:
        assert total <= -epsilon + tolerance


@given(rows, st.booleans(), epsilons)
def test_equals_the_cases_as_printed(row: dict[str, float], terminated: bool, eps: float) -> None:
    f2 = adops_correction(
        make(row, terminated=[terminated]),
        ext_coef=1.0,
        int_coef=1.0,
        epsilon=eps,
        tie_tolerance=0.0,
        **PLAIN,
    )[0]
    expected = tk.adops_f2(
        row["reward"],
        row["intrinsic"],
        (row["value_ext"], row["value_int"]),
        (0.0 if terminated else row["next_value_ext"], row["next_value_int"]),
        epsilon=eps,
    )
    assert f2 == pytest.approx(expected, rel=1e-9, abs=1e-9)


fractions = st.fractions(-3, 3, max_denominator=50)


@given(fractions, fractions, st.fractions(0, Fraction(1, 2), max_denominator=50))
def test_concise_form_differs_only_between_zero_and_epsilon(
    omega: Fraction, a_ext: Fraction, epsilon: Fraction
) -> None:
    """Eq. concise_weak_f_2 against eq. f_2_weak, exactly: the paper calls them equivalent."""
    cases = min(Fraction(0), omega - epsilon) if a_ext < 0 else max(Fraction(0), omega)
    c1, c2, c3 = (a_ext < 0 < omega), (a_ext >= 0 > omega), (a_ext < 0 and omega <= 0)
    concise = omega - (c1 + c2) * omega - c3 * epsilon
    if a_ext < 0 and 0 < omega < epsilon:
        assert concise == 0 != cases
    else:
        assert concise == cases


@given(rows)
def test_intervenes_only_where_the_bonus_flips_the_sign(row: dict[str, float]) -> None:
    shaper = ADOPS(epsilon=0.0, **PLAIN)
    f2 = shaper.step(make(row))[0] - row["intrinsic"]
    a_ext, total, largest = parts(row, False, 1.0, 1.0)
    if abs(total) > 1e-9 * largest and (a_ext < 0) == (total < 0):
        assert f2 == 0.0


def test_golden_numbers() -> None:
    shaper = ADOPS(3, gamma_ext=0.5, gamma_int=0.5, epsilon=0.25)
    shaped = shaper.step(
        transition(
            [4.0, -6.0, 1.0],
            reward=[-1.0, 1.0, 2.0],
            value_ext=[1.0, 1.0, 0.0],
            value_int=[2.0, 0.0, 3.0],
            next_value_ext=[2.0, 4.0, 8.0],
            next_value_int=[2.0, 2.0, 0.0],
            terminated=[False, False, True],
        )
    )
    # Row 0: δ_E = −1, δ_I = 3, total 2 -> −0.25. Row 1: δ_E = 2, δ_I = −5, total −3 -> 0.
    # Row 2: terminated, δ_E = 2, δ_I = −2, total 0 stays.
    assert shaped.tolist() == [4.0 - 2.25, -6.0 + 3.0, 1.0]


def test_q_values_replace_the_one_step_estimate() -> None:
    step = transition([5.0], reward=[9.0], advantage_ext=[-1.0])
    assert ADOPS(epsilon=0.5).step(step)[0] == 0.5


def test_tie_tolerance_forgives_float_noise() -> None:
    step = transition([1.0], advantage_ext=[-1e-16])
    assert ADOPS(epsilon=0.5).step(step)[0] == -0.5
    assert ADOPS(epsilon=0.5, tie_tolerance=1e-9).step(step)[0] == 1.0


def test_unweighted_clamp_keeps_a_weighted_sign_when_the_task_weighs_more() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    step = transition(
        rng.normal(0, 3, n),
        reward=rng.normal(0, 1, n),
        value_ext=rng.normal(0, 1, n),
        value_int=rng.normal(0, 3, n),
    )
    delta_ext = step.reward - step.value_ext

    def violations(c_ext: float, c_int: float) -> int:
        delta_int = ADOPS(n).step(step) - step.value_int
        total = c_ext * delta_ext + c_int * delta_int
        return int(np.count_nonzero((delta_ext < 0) != (total < 0)))

    assert violations(2.0, 1.0) == 0
    assert violations(1.0, 2.0) > n / 5


def test_epsilon_of_the_paper_is_below_the_resolution_of_float32() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    step = transition(
        rng.normal(1.0, 2.0, n), value_ext=rng.uniform(1.0, 2.0, n), value_int=rng.normal(0, 2, n)
    )
    shaped = ADOPS(n).step(step)
    terms = [step.reward - step.value_ext, shaped, -step.value_int]
    clamped = shaped != step.intrinsic
    in_float64 = sum(terms)[clamped]
    in_float32 = sum(term.astype(np.float32) for term in terms)[clamped]
    assert (in_float64 < 0).all()
    assert 0.01 < np.mean(in_float32 >= 0) < 0.5


@given(rows, st.integers(1, 5))
def test_adopes_runs_from_raw_to_adops(row: dict[str, float], ramp: int) -> None:
    shaper = ADOPES(ramp_updates=ramp, update_every=1, **PLAIN)
    step = make(row)
    adops, raw = ADOPS(**PLAIN).step(step)[0], NoShaping().step(step)[0]
    emitted = [shaper.step(step)[0] for _ in range(ramp + 2)]
    assert emitted[0] == raw == row["intrinsic"]
    assert emitted[ramp] == emitted[ramp + 1] == adops
    for n, value in enumerate(emitted[:ramp]):
        assert value == pytest.approx(raw + n / ramp * (adops - raw), rel=1e-9, abs=1e-9)


def test_dummy_rows_emit_nothing() -> None:
    step = transition([5.0, 5.0], reward=[-1.0, -1.0], valid=[True, False])
    assert ADOPS(2, epsilon=0.5).step(step).tolist() == [0.5, 0.0]


def test_rollout_equals_steps() -> None:
    rng = np.random.default_rng(2)
    fields = {name: rng.normal(0, 1, (20, 3)) for name in FIELDS}
    recorded = transition(**fields, terminated=rng.random((20, 3)) < 0.2)
    for kind in (ADOPS, ADOPES):
        settings: dict[str, Any] = {} if kind is ADOPS else {"ramp_updates": 3, "update_every": 5}
        batch, stream = kind(3, **settings), kind(3, **settings)
        expected = [
            stream.step(transition(**{k: v[t] for k, v in fields.items()},
                                   terminated=recorded.terminated[t]))
            for t in range(20)
        ]  # fmt: skip
        np.testing.assert_array_equal(batch.rollout(recorded), expected)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"gamma_ext": 1.1}, ValueError, "gamma_ext must be a discount"),
        ({"gamma_int": 0}, ValueError, "gamma_int must be a discount"),
        ({"gamma_ext": 0.9, "gamma_int": 0.99}, ValueError, "allow_gamma_int_above_ext=True"),
        ({"epsilon": -1e-9}, ValueError, "epsilon must be a number of at least 0"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be a number of at least 0"),
        ({"tie_tolerance": -1.0}, ValueError, "tie_tolerance must be"),
        ({"ext_coef": 0.0}, ValueError, "ext_coef must be a number greater than 0"),
        ({"int_coef": -1.0}, ValueError, "int_coef must be a number greater than 0"),
        ({"num_envs": 0}, ValueError, "num_envs must be a whole number of at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ADOPS(**settings)


def test_gamma_int_above_ext_on_insistence() -> None:
    shaper = ADOPS(gamma_ext=0.9, gamma_int=0.99, allow_gamma_int_above_ext=True)
    assert shaper.gamma_int == 0.99


@pytest.mark.parametrize("name", ["ramp_updates", "update_every"])
@pytest.mark.parametrize("value", [0, -3])
def test_bad_ramp(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        ADOPES(**{name: value})
