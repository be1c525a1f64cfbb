"""The picture of the off-policy study: an interval for each arm that has runs."""

from __future__ import annotations

import csv
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest


def write(table: Path, solved: dict[tuple[str, str, str], int]) -> None:
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "arm", "scale", "seed", "final_return", "greedy_return", "curve"])
        for key, count in solved.items():
            writer.writerows([*key, seed, float(seed < count), 0.0, "0"] for seed in range(4))


def test_every_arm_with_runs_has_its_share_and_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = import_module("research.figures.off_policy")
    table, picture = tmp_path / "results.csv", tmp_path / "images" / "drawn.png"
    arms = {
        ("SAC Fountain", "raw", "0.3"): 1,
        ("SAC Fountain", "raw", "unit"): 3,
        ("DQN LoopFarm", script.ABLATION, "1"): 0,
        ("DQN LoopFarm", "no bonus", "0"): 4,
    }
    write(table, arms)
    drawn = []
    monkeypatch.setattr(script.plt, "close", drawn.append)
    script.main([str(table), "--out", str(picture)])
    assert picture.stat().st_size > 5000
    farm, fountain = drawn[0].axes
    assert [axis.get_title() for axis in (farm, fountain)] == ["DQN LoopFarm", "SAC Fountain"]
    labels = [label.get_text() for label in (*farm.get_yticklabels(), *fountain.get_yticklabels())]
    assert labels == ["no bonus", "ADOPS at sampling,\nTDCritic", "raw"]
    interval, point, _, unit = fountain.lines
    assert (unit.get_xdata()[0], unit.get_marker(), unit.get_markerfacecolor()) == (
        0.75,
        "D",
        script.COLOURS["raw"],
    )
    assert unit.get_ydata()[0] > point.get_ydata()[0]  # both in the row of their arm
    sizes = [text.get_text() for text in drawn[0].legends[0].texts]
    assert sizes == ["bonus ×1", "bonus ×0.3", "bonus of unit size"]
    assert point.get_xdata()[0] == 0.25
    assert list(interval.get_xdata()) == pytest.approx([0.0456, 0.6994], abs=1e-3)
    assert point.get_markerfacecolor() == "white"
    assert farm.lines[1].get_markerfacecolor() == script.COLOURS["no bonus"]


def test_the_committed_picture_is_drawn_from_the_committed_table(tmp_path: Path) -> None:
    from matplotlib import image

    from tests.research.figures.test_committed import DATA, IMAGES, same_matplotlib

    drawn = tmp_path / "drawn.png"
    import_module("research.figures.off_policy").draw(DATA / "off_policy_study.csv", drawn)
    ours, committed = image.imread(drawn), image.imread(IMAGES / "off_policy.png")
    assert ours.shape == committed.shape
    if same_matplotlib():
        np.testing.assert_array_equal(ours, committed)


def test_all_arms_of_the_study_have_a_colour() -> None:
    script = import_module("research.figures.off_policy")
    study = import_module("research.off_policy")
    assert {*study.METHODS, study.ABLATION} <= script.ARM_COLOURS.keys()


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    script = import_module("research.figures.off_policy")
    with pytest.raises(SystemExit, match="no finished run"):
        script.main([str(tmp_path / "results.csv")])
