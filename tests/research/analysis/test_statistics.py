from __future__ import annotations

import csv
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from research.analysis.statistics import Bootstrap, holm, standard_error, welch_p
from research.analysis.tables import write_tables
from tests.research.run_dirs import ENV, HIGH, LOW, computed, write_arm


def test_mean_error_and_solved_by_hand(tmp_path):
    write_arm(tmp_path, [0.0, 0.5, 1.0, 0.9], shaping="adops")
    write_arm(tmp_path, [0.0, 0.0, 0.2, 0.6], shaping="none")
    analysis = computed(tmp_path)
    raw, adops = analysis.summaries[ENV]
    assert (adops.arm.label, adops.arm.solved_text) == ("ADOPS", "3/4")
    assert adops.arm.mean == pytest.approx(0.6)
    # Deviations -0.6, -0.1, 0.4, 0.3: squares sum to 0.62, over 3, over 4.
    assert adops.arm.error == pytest.approx(math.sqrt(0.62 / 3 / 4))
    assert adops.iqm.value == pytest.approx((0.5 + 0.9) / 2)
    assert (raw.arm.solved_text, raw.reference, raw.comparison) == ("1/4", "no bonus", None)
    # Fisher, 3 of 4 against 1 of 4: p of 3 or 4 solved in either arm, (16+1+16+1)/70.
    assert adops.comparison.fisher == pytest.approx(34 / 70)


def test_welch_p_is_the_textbooks():
    first, second = np.array([0.1, 0.9, 0.4, 0.7, 0.2]), np.array([0.0, 0.3, 0.1, 0.05])
    parts = [values.var(ddof=1) / len(values) for values in (first, second)]
    t = (first.mean() - second.mean()) / math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 3)
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert welch_p(first, second) == pytest.approx(expected, rel=1e-12)
    assert welch_p(second, first) == pytest.approx(expected, rel=1e-12)


def test_arms_without_spread():
    tenths = np.full(7, 0.1)  # their mean in floating point is not 0.1
    assert welch_p(tenths, np.full(3, 0.1)) == 1.0
    assert welch_p(tenths, np.full(3, 0.2)) == 0.0
    assert standard_error(tenths) == 0.0
    spread = np.array([0.0, 0.4, 0.8, 0.6])
    t = (0.1 - spread.mean()) / math.sqrt(spread.var(ddof=1) / 4)
    expected = 2 * stats.t.sf(abs(t), 3)
    assert welch_p(tenths, spread) == pytest.approx(expected, rel=1e-12)


def test_holm_by_hand():
    # 0.005·4, 0.01·3, 0.03·2, and 0.04·1 lifted to the one before.
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([None]) == [None]


def test_probability_of_improvement_counts_pairs_and_half_the_ties():
    first, second = [0.5, 0.5, 1.0, 0.0, 0.7], [0.5, 0.0, 0.9]
    count = sum((a > b) + 0.5 * (a == b) for a, b in itertools.product(first, second))
    bootstrap = Bootstrap(50, 0)
    found = bootstrap.improvement(np.array(first), np.array(second))
    assert found.value == pytest.approx(count / 15)
    reversed_ = bootstrap.improvement(np.array(second), np.array(first))
    assert reversed_.value == pytest.approx(1 - count / 15)
    equal = bootstrap.improvement(np.zeros(4), np.zeros(6))
    assert equal == (0.5, 0.5, 0.5)


def test_intervals_are_rliables_on_the_same_resamples(monkeypatch):
    library = pytest.importorskip("rliable.library")
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=9).round(1), rng.normal(0.5, size=7).round(1)
    bootstrap = Bootstrap(200, 4)

    def rliable_interval(function, *streams):
        values = [array[:, None] for array in streams]
        indices = [bootstrap.indices(len(array), i) for i, array in enumerate(streams)]
        drawn = iter([draw[:, None] for draws in zip(*indices, strict=True) for draw in draws])
        monkeypatch.setattr(np.random, "choice", lambda *_, **__: next(drawn))
        scores = {"x": values[0] if len(values) == 1 else values}
        points, intervals = library.get_interval_estimates(
            scores, lambda *x: np.array([function(*x)]), reps=200
        )
        return [points["x"].item(), *intervals["x"].ravel()]

    for own, function, streams in [
        (bootstrap.mean, metrics.aggregate_mean, (first,)),
        (bootstrap.iqm, metrics.aggregate_iqm, (first,)),
        (bootstrap.iqm, metrics.aggregate_iqm, (second,)),
        (bootstrap.improvement, metrics.probability_of_improvement, (first, second)),
        (bootstrap.improvement, metrics.probability_of_improvement, (second, first)),
    ]:
        expected = rliable_interval(function, *streams)
        assert list(own(*streams)) == pytest.approx(expected, rel=1e-12)
        assert expected[1] < expected[0] < expected[2]


def test_resamples_depend_on_the_seed_alone():
    values = np.random.default_rng(0).normal(size=12)
    one, two = Bootstrap(100, 5), Bootstrap(100, 5)
    two.iqm(values[:5])
    np.random.seed(1)  # noqa: NPY002 - the global generator must not matter
    assert one.mean(values) == two.mean(values)
    assert one.mean(values) != Bootstrap(100, 6).mean(values)
    assert not np.array_equal(one.indices(12, 0), one.indices(12, 1))


def test_holm_runs_over_all_arms_of_an_env(tmp_path):
    write_arm(tmp_path, LOW, shaping="none")
    write_arm(tmp_path, HIGH, shaping="adops")
    write_arm(tmp_path, [0.1, 0.0, 0.1, 0.3, 0.2], shaping="pies")
    write_arm(tmp_path, HIGH, shaping="adops", env_id="adops/KeyDoor-v0")
    _, pies, adops = computed(tmp_path).summaries[ENV]
    assert adops.comparison.welch_holm == pytest.approx(2 * adops.comparison.welch)
    assert pies.comparison.welch_holm == pytest.approx(pies.comparison.welch)
    assert adops.comparison.fisher_holm == pytest.approx(2 * adops.comparison.fisher)


def test_few_runs_get_no_numbers(tmp_path):
    write_arm(tmp_path, LOW, shaping="none")
    write_arm(tmp_path, [1.0, 0.5, 0.6], shaping="adops")
    write_arm(tmp_path, [0.25], shaping="pbim")
    analysis = computed(tmp_path)
    raw, pbim, adops = analysis.summaries[ENV]
    assert raw.mean.value == pytest.approx(0.08)
    assert (adops.mean, adops.iqm) == (None, None)
    assert adops.comparison.p_values == (None,) * 4
    assert adops.arm.mean_text == "0.70 ± 0.15"
    assert pbim.arm.mean_text == "0.25"
    write_tables(analysis, tmp_path)
    with (tmp_path / "summary.csv").open(newline="") as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert rows["ADOPS"]["welch_p"] == rows["ADOPS"]["iqm_low"] == "too few runs"
    assert (rows["ADOPS"]["mean"], rows["PBIM"]["se"], rows["raw"]["welch_p"]) == ("0.7", "", "")
    sentences = {v.claim: v.verdict for v in analysis.verdicts}
    assert sentences == {"PBIM solves nothing": "too few runs"}
