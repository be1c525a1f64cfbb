"""The committed report of the study is what the analysis makes of the committed CSVs."""

from __future__ import annotations

import numpy as np
import pytest
from train_scripts import ROOT, load_script

pytest.importorskip("scipy")
image = pytest.importorskip("matplotlib.image")

COMMITTED = ROOT / "docs" / "study"
TEXTS = ["report.md", *sorted(path.name for path in COMMITTED.glob("*.csv")), "study.json"]
PICTURES = sorted(path.name for path in COMMITTED.glob("*.png"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    assert load_script("analyze").main([str(COMMITTED), "--out", str(out)]) == 0
    return out


def test_the_same_files(made):
    assert {path.name for path in made.iterdir()} == {*TEXTS, *PICTURES, "report.html"}


@pytest.mark.parametrize("name", TEXTS)
def test_report_and_tables_byte_for_byte(made, name):
    assert (made / name).read_bytes() == (COMMITTED / name).read_bytes()


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(made, name):
    ours, committed = (image.imread(folder / name) for folder in (made, COMMITTED))
    assert ours.shape == committed.shape
    assert np.abs(ours - committed).mean() < 0.01  # fonts are rendered a little differently
