"""The committed report of the study is what the analysis makes of the committed CSVs."""

from __future__ import annotations

import csv
import importlib.metadata
from collections import defaultdict
from importlib import import_module

import numpy as np
import pytest

from tests.train.scripts import ROOT, TRAIN

image = pytest.importorskip("matplotlib.image")
PathCollection = pytest.importorskip("matplotlib.collections").PathCollection

COMMITTED = ROOT / "docs" / "study"
TEXTS = ["SHA256SUMS", "report.md", *sorted(p.name for p in COMMITTED.glob("*.csv")), "study.json"]
PICTURES = sorted(path.name for path in COMMITTED.glob("*.png"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    assert import_module("research.analyze").main([str(COMMITTED), "--out", str(out)]) == 0
    return out


def test_the_same_files(made):
    assert {path.name for path in made.iterdir()} == {*TEXTS, *PICTURES, "report.html"}


@pytest.mark.parametrize("name", TEXTS)
def test_report_and_tables_byte_for_byte(made, name):
    assert (made / name).read_bytes() == (COMMITTED / name).read_bytes()


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_pixel_for_pixel(made, name):
    ours, committed = (image.imread(folder / name) for folder in (made, COMMITTED))
    assert ours.shape == committed.shape
    version = importlib.metadata.version("matplotlib")
    if f"matplotlib=={version};" in (TRAIN / "constraints.txt").read_text():
        np.testing.assert_array_equal(ours, committed)


def rows_of(name: str) -> list[list[str]]:
    with (COMMITTED / name).open(newline="") as file:
        return list(csv.reader(file))[1:]


@pytest.fixture(scope="module")
def runs():
    """Committed runs by env and arm: name and final return."""
    with (COMMITTED / "runs.csv").open(newline="") as file:
        grouped = defaultdict(list)
        for row in csv.DictReader(file):
            grouped[row["env"], row["arm"]].append((row["run"], float(row["final_return"])))
    return grouped


def test_curves_of_all_arms_are_drawn_with_their_numbers(runs):
    figures = import_module("research.analysis.figures")
    arms = import_module("research.analysis.statistics").load_arms(
        import_module("research.analysis.compact").read_compact(COMMITTED)
    )
    curve_of = {
        name: np.array([float(v or "nan") for v in values])
        for name, *values in rows_of("return.csv")
    }
    for env, own in arms.items():
        drawn = [
            (line.get_label(), line.get_ydata())
            for axis in figures.draw_curves(env, own).axes
            if axis.get_visible()
            for line in axis.get_lines()
        ]
        (points,) = (axis for axis in figures.draw_finals(env, own).axes)
        finals = [
            dots.get_offsets()[:, 0] for dots in points.collections if len(dots.get_offsets())
        ]
        for arm in own:
            held = runs[env, arm]
            # A point of a long run covers several iterations, six of the miniature's 600.
            size = int(np.ceil(own[arm].iterations / 100))
            points = int(np.ceil(own[arm].iterations / size))
            curves = np.ma.masked_invalid([curve_of[name][:points] for name, _ in held])
            steps = range(1, curves.shape[1] + 1)
            window = max(1, round(10 / size))
            recent = np.ma.array([curves[:, max(0, t - window) : t].mean(1) for t in steps])
            expected = recent.mean(1).filled(np.nan)
            assert any(
                f"(N={len(held)})" in label and np.allclose(y, expected, equal_nan=True)
                for label, y in drawn
            ), (env, arm)
            expected = np.array([final for _, final in held])
            assert any(len(x) == len(expected) and np.allclose(x, expected) for x in finals)


GRIDS = ("KeyDoor", "KeyDoorTV", "TVCorridor", "KeyDoorCoin")


def solved_on_grids(runs, arm: str) -> str:
    """The cells of an arm's row: solved runs on each grid, and together."""
    counts = [[final >= 0.5 for _, final in runs[f"adops/{grid}-v0", arm]] for grid in GRIDS]
    cells = [f"{sum(solved)}/{len(solved)}" for solved in counts]
    return f"{' | '.join(cells)} | {sum(map(sum, counts))} of {sum(map(len, counts))} |"


def test_the_page_counts_solved_runs_as_the_data_do(runs):
    """The tables of solved runs in docs/study.md."""
    page = (ROOT / "docs" / "study.md").read_text()
    arms = [arm for env, arm in runs if env == "adops/KeyDoor-v0"]
    methods = [arm for arm in arms if not arm.endswith(" (as is)")]
    assert len(methods) == len(import_module("research.study").METHODS)
    for method in methods:
        assert f"| {method} | {solved_on_grids(runs, method)}" in page
    as_is = [arm for arm in arms if arm.endswith(" (as is)")]
    assert len(as_is) == 12
    for arm in as_is:
        method, _, scale = arm.removesuffix(" (as is)").partition(" ×")
        assert f"| {method} | {scale or 1} | {solved_on_grids(runs, arm)}" in page
    easy = [
        final
        for env in ("LoopFarm", "DancingSkulls")
        for arm in methods
        for _, final in runs[f"adops/{env}-v0", arm]
    ]
    solved = sum(final >= 0.5 for final in easy)
    assert f"{solved} of {len(easy)} runs solve them" in " ".join(page.split())


def test_the_pages_give_the_miniature_s_returns_as_the_data_do(runs):
    """The tables of docs/study.md, and the figures that it, README and two methods quote."""
    mini: dict[str, dict[str, np.ndarray]] = {"RND": {}, "counts": {}}
    for (env, arm), held in runs.items():
        if env == "adops/MiniZuma-v0":
            bonus = "RND" if arm.endswith(" (RND)") else "counts"
            mini[bonus][arm.removesuffix(" (RND)")] = np.array([final for _, final in held])
    page, readme = ((ROOT / name).read_text() for name in ("docs/study.md", "README.md"))
    names = {"raw": "raw RND", "ADOPES F/2": "ADOPES on $F/2$"}
    for bonus, arms in mini.items():
        for arm, finals in arms.items():
            name = names.get(arm, arm) if bonus == "RND" else arm
            error = finals.std(ddof=1) / len(finals) ** 0.5
            mean = f"{finals.mean():.0f} ± {error:.0f}" if finals.any() else "0"
            solved = f"{(finals >= 1950).sum()} of {len(finals)}"
            assert f"| {name.replace(' C=', ', C=')} | {mean} | {solved} |" in page
    rnd = mini["RND"]
    for arm in ("PIES", "late 10 ADOPS on A", "ADOPES", "raw"):
        assert f"at {rnd[arm].mean():,.0f}" in " ".join(readme.split())
    for method, arm in (("adops_advantage", "late 10 ADOPS on A"), ("guarded", "guarded")):
        text = " ".join((ROOT / "docs" / "methods" / f"{method}.md").read_text().split())
        assert f"ends at {rnd[arm].mean():,.0f} points" in text
    best, ours = rnd["raw"], rnd["late 10 ADOPS on A"]
    test = pytest.importorskip("scipy.stats").ttest_ind(ours, best, equal_var=False)
    low, high = test.confidence_interval()
    shown = f"p {test.pvalue:.2f}; the 95 % interval of the difference is −{-low:.0f} to {high:.0f}"
    assert shown in " ".join(page.split())
    middle, short = rnd["GRM-norm(10)"], rnd["GRM-norm(1)"]
    delay = pytest.importorskip("scipy.stats").ttest_ind(middle, short, equal_var=False)
    assert f"10 against 1 has a Welch p of {delay.pvalue:.3f}" in " ".join(page.split())
    grm = " ".join((ROOT / "docs" / "methods" / "grm.md").read_text().split())
    assert f"at {middle.mean():,.0f} points against {short.mean():.0f} with $D = 1$" in grm
