from __future__ import annotations

import numpy as np
import pytest

from research.analysis.figures import (
    draw_curves,
    draw_delays,
    draw_finals,
    draw_overview,
    draw_rates,
    style,
    trailing_mean,
)
from research.analysis.statistics import delay_arms
from tests.research.run_dirs import ENV, computed, write_arm, write_run


def test_trailing_mean_by_hand():
    values = np.array([[np.nan, 1.0, 3.0, np.nan, np.nan, np.nan, 5.0], [2.0] * 7])
    expected = [[np.nan, 1.0, 2.0, 2.0, 3.0, np.nan, 5.0], [2.0] * 7]
    np.testing.assert_allclose(trailing_mean(values, 3), expected)


def test_figures_show_the_numbers(tmp_path):
    write_run(tmp_path / "a", [0.0, None, 1.0, 1.0], seed=1)
    write_run(tmp_path / "b", [1.0, None, 0.0, 1.0], seed=2)
    write_run(tmp_path / "c", [0.0] * 4, seed=1, shaping="adops", conflict=[0.0, 0.2, 0.4, 0.6])
    write_run(tmp_path / "d", [1.0] * 4, seed=1, shaping="pies", intrinsic_scale=0.3)
    arms = computed(tmp_path).arms[ENV]
    panels = [axis for axis in draw_curves(ENV, arms).axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == [
        "ADOPS and ADOPES: bonus of unit size",
        "PIES, GRM and PBIM: bonus ×0.3",
    ]
    raw, adops = panels[0].get_lines()
    assert (raw.get_label(), adops.get_label()) == ("raw (N=2)", "ADOPS (N=1)")
    np.testing.assert_allclose(raw.get_xdata(), [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(raw.get_ydata(), [0.5, 0.5, 0.5, (2 / 3 + 2 / 3) / 2])
    (axis,) = draw_finals(ENV, arms).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["raw", "ADOPS", "PIES ×0.3"]
    texts = [text.get_text().split()[0] for text in axis.texts]
    assert texts == ["2/2", "0/1", "1/1", "solved"]
    conflict, intervention, *_ = draw_rates(ENV, arms).axes
    np.testing.assert_allclose(conflict.get_lines()[1].get_ydata(), [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(intervention.get_lines()[1].get_ydata(), [0.5] * 4)


def test_overview_of_an_env_on_which_rnd_is_the_only_bonus(tmp_path):
    write_arm(tmp_path, [0.0], shaping="none", bonus="none")
    write_arm(tmp_path, [1.0], shaping="none", bonus="rnd")
    (axis,) = draw_overview(computed(tmp_path).arms).axes
    assert [text.get_text() for text in axis.get_xticklabels()] == ["RND"]
    cells = {text.get_position(): text.get_text() for text in axis.texts if "/" in text.get_text()}
    assert cells == {(0, 0): "0/1", (0, 1): "1/1"}


def test_overview_counts_solved_runs_by_method_env_and_scale(tmp_path):
    write_arm(tmp_path, [1.0, 0.0, 0.6], shaping="none")
    write_arm(tmp_path, [0.0], shaping="none", bonus="none")
    write_arm(tmp_path, [1.0, 1.0], shaping="adops", intrinsic_scale=0.3)
    write_arm(tmp_path, [0.0, 0.0], shaping="none", env_id="adops/KeyDoor-v0")
    write_arm(tmp_path, [1.0], shaping="grm-norm", delay=4)
    (axis,) = draw_overview(computed(tmp_path).arms).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["no bonus", "raw", "ADOPS"]
    assert [text.get_text() for text in axis.get_xticklabels()] == [
        "unit\nsize",
        "unit\nsize",
        "×0.3",
    ]
    cells = {text.get_position(): text.get_text() for text in axis.texts if "/" in text.get_text()}
    assert cells == {(0, 1): "0/2", (1, 1): "2/3", (1, 0): "0/1", (2, 2): "2/2"}
    np.testing.assert_array_equal(
        axis.images[0].get_array().filled(np.nan),
        [[np.nan, 0.0, np.nan], [0.0, 2 / 3, np.nan], [np.nan, np.nan, 1.0]],
    )


def test_no_two_methods_of_a_panel_look_alike():
    labels = ["no bonus", "raw", "PIES", "GRM(1)", "GRM-norm(1)", "PBIM", "PBIM-norm", "ADOPS"]
    labels += ["ADOPS ε=0.01", "ADOPES", "ADOPES F/2", "guarded"]
    labels += ["PIES C=600", "gated ADOPS", "ADOPS on A", "late ADOPS on A", "late 10 ADOPS on A"]
    labels += [f"{method}({d})" for d in (2, 4, 8, 16, 32) for method in ("GRM", "GRM-norm")]
    looks = {(str(s["color"]), s["linestyle"]) for s in map(style, labels)}
    assert len(looks) == len(labels)
    assert style("ADOPS ×0.3 (RND)") == style("ADOPS")


def test_delays_in_order_with_pbim_norm_last(tmp_path):
    for delay in (16, 2, 1):
        write_arm(tmp_path, [0.0, delay / 16], shaping="grm-norm", delay=delay)
    write_arm(tmp_path, [1.0, 0.0], shaping="pbim-norm")
    write_arm(tmp_path, [1.0, 0.0], shaping="grm-norm", delay=1, intrinsic_scale=0.3)
    arms = computed(tmp_path).arms[ENV]
    delays = delay_arms(arms)
    assert list(delays) == [""]
    assert [(delay, arm.mean) for delay, arm in delays[""]] == [
        ("1", pytest.approx(1 / 32, rel=1e-5)),
        ("2", pytest.approx(1 / 16)),
        ("16", 0.5),
        ("N−1", 0.5),
    ]
    (axis,) = draw_delays(ENV, delays).axes
    assert [text.get_text() for text in axis.texts] == ["0/2", "0/2", "1/2", "1/2"]
