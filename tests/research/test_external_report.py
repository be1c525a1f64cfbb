"""The external study's rules on rows whose answers were computed by hand, and its pages."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from matplotlib import image
from scipy import stats

from research import external
from research import external_report as report
from research.external import DATA, TASKS
from research.external_questions import (
    Answer,
    against_recipe,
    answers,
    blind_pick,
    questions,
    raw_solves,
)
from research.rows import read_rows
from tests.train.scripts import ROOT, TRAIN

Row = dict[str, str]
BY_NAME = {task.name: task for task in TASKS}
MULTI, MONTEZUMA, SEA = "MultiRoom-N4-S5", "Montezuma", "DeepSea-10"


def rows_of(task: str, finals: Mapping[str, Sequence[float]]) -> list[Row]:
    """Runs with these final returns; on DeepSea, with these episodes until solved (0: never)."""
    sea = task.startswith("DeepSea")
    return [
        {
            "task": task, "arm": arm, "seed": str(11 + number),
            "final_return": "0" if sea else repr(value),
            "solved": str(int(value > 0 if sea else value >= BY_NAME[task].solved)),
            "episodes_to_solve": str(int(value)) if sea and value else "",
            "steps_to_1000": "2000000" if value >= 1000.0 and not sea else "", "rooms": "3",
        }
        for arm, values in finals.items()
        for number, value in enumerate(values)
    ]  # fmt: skip


def answer_to(name: str, task: str, rows: Sequence[Row], tasks: Any = TASKS) -> Answer:
    (one,) = (a for a in answers(rows, tasks) if (a.asked.id, a.asked.task.name) == (name, task))
    return one


def test_the_tests_are_those_of_the_page() -> None:
    asked = [(q.id, q.task.name, q.better, q.worse, q.share) for q in questions()]
    names = [task.name for task in TASKS]
    assert [q[1:4] for q in asked if q[0] == "B"] == [(n, "raw", "no bonus") for n in names]
    # "no worse than raw by more than 10 %"; on DeepSea fewer episodes are better.
    assert [q[1:] for q in asked if q[0] == "W"] == [
        (name, "recipe", "raw", 1.1 if "DeepSea" in name else 0.9) for name in names
    ]
    assert [q[1:4] for q in asked if q[0] == "P"] == [(MONTEZUMA, "recipe", "PIES")]
    page = " ".join((ROOT / "docs" / "external_study.md").read_text("utf-8").split())
    order = [q[2:4] for q in asked if q[0] == "O"]
    assert ", ".join(f"{above} above {below}" for above, below in order) in page
    assert {q[1] for q in asked if q[0] == "O"} == {MONTEZUMA}
    assert len(asked) == len(set(asked)) == 2 * len(TASKS) + 5 + sum("TV" in n for n in names)


def test_welchs_test_with_holms_correction_over_all_questions() -> None:
    raw, none = [0.7, 0.8, 0.75, 0.72], [0.0, 0.1, 0.0]
    one = answer_to("B", MULTI, rows_of(MULTI, {"raw": raw, "no bonus": none}))
    # By the formula: t = difference / √(Σ s²/n), with Welch–Satterthwaite's degrees of freedom.
    parts = [np.var(x, ddof=1) / len(x) for x in (raw, none)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(x) - 1) for part, x in zip(parts, (raw, none), strict=True)
    )
    t = (np.mean(raw) - np.mean(none)) / math.sqrt(sum(parts))
    p = 2 * stats.t.sf(t, freedom)
    assert one.p == pytest.approx(p, rel=1e-9)
    assert one.p_holm == pytest.approx(min(1.0, p * len(questions())), rel=1e-9)
    half = stats.t.ppf(0.95, freedom) * math.sqrt(sum(parts))
    difference = np.mean(raw) - np.mean(none)
    assert one.interval == pytest.approx((difference - half, difference + half), rel=1e-9)
    assert one.verdict == "supported so far"  # 4 and 3 of 10 runs
    other = answer_to("B", MULTI, rows_of(MULTI, {"raw": none, "no bonus": raw}))
    assert (other.verdict, other.p) == ("contradicted so far", pytest.approx(p, rel=1e-9))


def test_holm_multiplies_the_smallest_p_most() -> None:
    finals = {"raw": [0.7, 0.8, 0.75], "no bonus": [0.0, 0.1, 0.0], "recipe": [0.7, 0.7, 0.72]}
    rows = rows_of(MULTI, finals)
    given = [one for one in answers(rows) if one.p is not None]
    assert [(one.asked.id, one.asked.task.name) for one in given] == [("B", MULTI), ("W", MULTI)]
    number = len(questions())
    small, large = sorted(given, key=lambda one: one.p or 0.0)
    assert small.p_holm == pytest.approx(min(1.0, number * small.p), rel=1e-12)
    expected = min(1.0, max(number * small.p, (number - 1) * large.p))
    assert large.p_holm == pytest.approx(expected, rel=1e-12)


def test_w_is_one_sided_against_nine_tenths_of_raw() -> None:
    raw, recipe = [0.70, 0.72, 0.71, 0.73, 0.69], [0.70, 0.69, 0.71, 0.70, 0.72]
    one = answer_to("W", MULTI, rows_of(MULTI, {"raw": raw, "recipe": recipe}))
    test = stats.ttest_ind(recipe, 0.9 * np.array(raw), equal_var=False, alternative="greater")
    assert one.p == pytest.approx(test.pvalue, rel=1e-9)
    assert one.interval[0] == pytest.approx(test.confidence_interval(0.95).low, rel=1e-9)
    assert one.difference == pytest.approx(0.704 - 0.9 * 0.71, rel=1e-9)
    assert one.verdict == "supported so far"
    # Worse by just under a half: contradicted, by the test in the other direction.
    worse = [value / 2 for value in recipe]
    one = answer_to("W", MULTI, rows_of(MULTI, {"raw": raw, "recipe": worse}))
    test = stats.ttest_ind(worse, 0.9 * np.array(raw), equal_var=False, alternative="less")
    assert one.p == pytest.approx(test.pvalue, rel=1e-9)
    assert one.verdict == "contradicted so far"
    # Worse by 10 % exactly: neither.
    equal = [0.9 * value for value in raw]
    one = answer_to("W", MULTI, rows_of(MULTI, {"raw": raw, "recipe": equal}))
    assert (one.p, one.verdict) == (pytest.approx(0.5), "undecided so far")


def test_on_deep_sea_fewer_episodes_are_better_and_unsolved_counts_ten_thousand() -> None:
    episodes = {"raw": [900, 1000, 1100], "no bonus": [0, 0, 9000], "recipe": [1000, 1050, 1090]}
    rows = rows_of(SEA, episodes)
    need, worse = answer_to("B", SEA, rows), answer_to("W", SEA, rows)
    none = np.array([10_000, 10_000, 9000])
    test = stats.ttest_ind(none, [900, 1000, 1100], equal_var=False)
    assert need.p == pytest.approx(test.pvalue, rel=1e-9)
    assert need.difference == pytest.approx(none.mean() - 1000)
    # 1.1 · mean(raw) − mean(recipe) = 1100 − 1046.67
    assert worse.difference == pytest.approx(1100 - 3140 / 3)
    test = stats.ttest_ind([990, 1100, 1210], episodes["recipe"], equal_var=False)
    assert worse.p == pytest.approx(test.pvalue / 2, rel=1e-9)


def test_runs_without_spread() -> None:
    rows = rows_of(MULTI, {"raw": [0.0] * 3, "no bonus": [0.0] * 3})
    one = answer_to("B", MULTI, rows)
    assert (one.p, one.interval, one.verdict) == (1.0, (0.0, 0.0), "undecided so far")
    one = answer_to("B", MULTI, rows_of(MULTI, {"raw": [0.5] * 3, "no bonus": [0.0] * 3}))
    assert (one.p, one.interval, one.verdict) == (0.0, (0.5, 0.5), "supported so far")


def test_an_answer_needs_three_runs_or_all_of_the_design() -> None:
    two = {"raw": [2000.0, 2100.0, 1900.0], "no bonus": [0.0, 10.0]}
    assert answer_to("B", MONTEZUMA, rows_of(MONTEZUMA, two)).verdict == "supported so far"
    two["raw"] += [2000.0, 2050.0]  # five and two: all that the design gives
    assert answer_to("B", MONTEZUMA, rows_of(MONTEZUMA, two)).verdict == "supported"
    few = {"raw": [0.7, 0.8, 0.75], "no bonus": [0.0, 0.1]}
    one = answer_to("B", MULTI, rows_of(MULTI, few))
    assert (one.verdict, one.p, one.p_holm) == ("too few runs so far", None, None)
    assert answer_to("B", MULTI, []).runs == (0, 0)


@pytest.mark.parametrize(
    ("finals", "verdict"),
    [
        ([0.6] * 8 + [0.4] * 2, "yes"),
        ([0.6] * 7 + [0.4] * 3, "no"),
        ([0.6] * 4 + [0.4], "yes so far"),
        ([0.6] * 2 + [0.4], "no so far"),
        ([0.6] * 2, "too few runs so far"),
    ],
)
def test_raw_solves_a_task_if_eight_tenths_of_its_runs_do(
    finals: Sequence[float], verdict: str
) -> None:
    (one,) = (o for o in raw_solves(rows_of(MULTI, {"raw": finals})) if o.task.name == MULTI)
    assert one.verdict == verdict


def test_the_blind_pick_has_the_highest_mean_share_over_the_common_tasks() -> None:
    tasks = [BY_NAME[MULTI], BY_NAME[SEA]]
    rows = rows_of(MULTI, {"raw": [0.8] * 3, "PIES": [0.6] * 3, "recipe": [0.7] * 3})
    rows += rows_of(SEA, {"raw": [2000] * 3, "PIES": [1000] * 3, "recipe": [0] * 3})
    pick = blind_pick(rows, ("raw", "PIES", "recipe"), tasks)
    assert pick.tasks == (MULTI, SEA)
    # raw: 1 and 1000/2000; PIES: .6/.8 and 1; the recipe: .7/.8 and 1000/10,000.
    assert list(pick.shares) == ["PIES", "raw", "recipe"]
    assert list(pick.shares.values()) == pytest.approx([0.875, 0.75, 0.4875])
    assert pick.worst["PIES"] == (MULTI, pytest.approx(0.75))
    assert pick.worst["raw"] == (SEA, pytest.approx(0.5))
    assert not pick.complete
    assert report.answer_to_x(pick).startswith(f"over {MULTI}, {SEA}: **PIES** so far, at worst")
    # PBIM runs on DeepSea alone, so the rule over all arms leaves MultiRoom out.
    assert blind_pick(rows).tasks == ("DeepSea-10", "DeepSea-20", "DeepSea-30")
    assert blind_pick(rows).shares == {}
    assert blind_pick(rows[:-1], ("raw", "PIES", "recipe"), tasks).shares == {}
    nothing = rows_of(MULTI, {"raw": [0.0] * 3, "PIES": [0.0] * 3})
    assert blind_pick(nothing, ("raw", "PIES"), tasks[:1]).shares == {"raw": 1.0, "PIES": 1.0}


def test_what_changes_the_recommendation() -> None:
    good, bad = [0.70, 0.72, 0.71, 0.73, 0.69], [0.30, 0.29, 0.31, 0.30, 0.32]
    assert against_recipe(rows_of(MULTI, {"raw": good, "recipe": good})) == []
    found = against_recipe(rows_of(MULTI, {"raw": good, "recipe": bad}))
    assert found == [f"W is contradicted so far on {MULTI}"]
    tv = BY_NAME[MULTI]._replace(name=f"{MULTI} TV")
    lost = [{**row, "task": tv.name} for row in rows_of(MULTI, {"raw": bad, "recipe": bad})]
    assert against_recipe(lost, [tv]) == [
        f"T is undecided so far on {tv.name}, where the raw bonus fails"
    ]
    won = [{**row, "task": tv.name} for row in rows_of(MULTI, {"raw": bad, "recipe": good})]
    assert against_recipe(won, [tv]) == []
    assert answer_to("T", tv.name, won, [tv]).verdict == "supported so far"


def test_the_intervals_of_the_table_are_students_and_wilsons() -> None:
    finals = [0.7, 0.8, 0.75, 0.4]
    text = report.table_of_runs(rows_of(MULTI, {"raw": finals}))
    test = stats.ttest_1samp(finals, 0.0).confidence_interval(0.95)
    # Wilson's for 3 of 4, by the formula with z = 1.96.
    z, share, n = stats.norm.ppf(0.975), 0.75, 4
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    cells = f"4 of 10 | 0.66 | {test.low:.2f} to {test.high:.2f} | 3 of 4"
    assert f"| {MULTI} | raw | {cells} | {centre - half:.0%}–{centre + half:.0%} |" in text
    assert "| 1 of 10 | 0.70 | – | 1 of 1 |" in report.table_of_runs(
        rows_of(MULTI, {"raw": finals[:1]})
    )


def test_the_tables_of_montezuma_and_deep_sea() -> None:
    rows = rows_of(MONTEZUMA, {"raw": [2000.0, 900.0, 1500.0]})
    rows[0]["steps_to_1000"] = "4000000"
    rows[0]["rooms"] = "9"
    assert "| raw | 2 of 3 | 3.00M | 5.0 |" in report.table_of_montezuma(rows)
    sea = report.table_of_deep_sea(rows_of(SEA, {"raw": [1000, 0]}))
    low, high = stats.ttest_1samp([1000, 10_000], 0.0).confidence_interval(0.95)
    assert f"| {SEA} | raw | 5,500 | −{-low:,.0f} to {high:,.0f} |" in sea


def test_every_arm_that_all_tasks_have_is_drawn_at_its_share() -> None:
    rows = rows_of(MULTI, {"raw": [0.8, 0.6], "PIES": [0.35] * 3, "ADOPS": [1.0]})
    rows += rows_of(SEA, {"raw": [2000], "recipe": [1000]})
    (axis,) = report.draw(rows).axes
    points = {
        (line.get_color(), round(float(line.get_xdata()[0]), 9), round(float(line.get_ydata()[0])))
        for line in axis.get_lines()
        if line.get_marker() == "o"
    }
    own = report.SHOWN
    # ADOPS is the best arm of the first task, and is not drawn.
    assert points == {
        (own["raw"], 0.7, 0), (own["PIES"], 0.35, 0),
        (own["raw"], 0.5, 1), (own["recipe"], 1.0, 1),
    }  # fmt: skip
    hollow = [line for line in axis.get_lines() if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 2  # single runs
    assert [label.get_text() for label in axis.get_yticklabels()] == [MULTI, SEA]


@pytest.mark.parametrize("page", list(report.PAGES))
def test_pages_say_what_the_committed_rows_say(page: str) -> None:
    """After new rows: python -m research.external runs/external --report."""
    name, make = report.PAGES[page]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert report.spliced(text, name, make(read_rows(DATA))) == text


def test_the_committed_picture_is_drawn_from_the_committed_rows(tmp_path: Any) -> None:
    report.save(report.draw(read_rows(DATA)), tmp_path / "drawn.png", dpi=report.DPI)
    ours, committed = image.imread(tmp_path / "drawn.png"), image.imread(ROOT / report.PICTURE)
    assert ours.shape == committed.shape
    assert ours.shape[1] <= 830
    version = importlib.metadata.version("matplotlib")
    if f"matplotlib=={version};" in (TRAIN / "constraints.txt").read_text():
        np.testing.assert_array_equal(ours, committed)


def test_one_command_writes_what_the_rows_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page, (name, _) in report.PAGES.items():
        (tmp_path / page).parent.mkdir(exist_ok=True)
        text = (ROOT / page).read_text(encoding="utf-8")
        (tmp_path / page).write_text(report.spliced(text, name, "older rows"), encoding="utf-8")
    monkeypatch.setattr(report, "write", partial(report.write, root=tmp_path))
    assert external.main([str(tmp_path / "runs"), "--report"]) == 0
    for page in report.PAGES:
        assert (tmp_path / page).read_bytes() == (ROOT / page).read_bytes()
    assert (tmp_path / report.PICTURE).exists()


def test_a_page_without_its_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"expected <!-- results.* once each, found them 0 times"):
        report.spliced("no marks", "results", "text")


def test_readme_names_answers_once_there_are_some() -> None:
    text = report.seen_so_far(rows_of(MULTI, {"raw": [0.8], "no bonus": [0.0]}))
    few = " ".join(text.split())
    assert "no bonus solves 0 of 1, the raw bonus 1 of 1" in few
    assert few.endswith("No question has enough runs yet.")
    finals = {"raw": [0.7, 0.8, 0.75, 0.72], "no bonus": [0.0, 0.1, 0.0]}
    enough = " ".join(report.seen_so_far(rows_of(MULTI, finals)).split())
    claim = "the raw bonus is above no bonus"
    assert enough.endswith(f"Supported so far: {claim} (on {MULTI}).")
    finals["recipe"] = [0.3, 0.35, 0.28, 0.31]
    both = " ".join(report.seen_so_far(rows_of(MULTI, finals)).split())
    worse = "our recipe is no worse than the raw bonus by more than 10 %"
    told = f"Supported so far: {claim} (on {MULTI}). Contradicted so far: {worse} (on {MULTI})."
    assert both.endswith(told)
    equal = rows_of(MULTI, {"raw": [0.0] * 3, "no bonus": [0.0] * 3})
    undecided = " ".join(report.seen_so_far(equal).split())
    assert undecided.endswith(f"Undecided: 1 of {len(questions())} questions.")


def test_the_reproduction_table_sets_our_means_beside_the_papers_claims() -> None:
    finals = {"raw": [2000.0, 2100.0, 1900.0], "GRM(1)": [500.0, 400.0, 600.0]}
    text = report.reproduction(rows_of(MONTEZUMA, finals))
    p = stats.ttest_ind(finals["GRM(1)"], finals["raw"], equal_var=False).pvalue
    seen = "GRM(1) 500 (3 runs); raw 2,000 (3 runs)"
    assert f"| GRM(1) below raw | 0.031 | 10, 20 | {seen} | {p:.2g} |".replace("e-0", "e-") in text
    assert (
        "| ADOPS above PIES | 4.4e-5 | 20, 20 | ADOPS: no run yet; PIES: no run yet | – |" in text
    )


def test_the_power_that_the_page_states() -> None:
    def fisher(seeds: int) -> float:
        """The chance that .5 and .9 of so many seeds differ by Fisher's test."""
        counts = range(seeds + 1)
        return sum(
            stats.binom.pmf(a, seeds, 0.5) * stats.binom.pmf(b, seeds, 0.9)
            for a in counts
            for b in counts
            if stats.fisher_exact([[a, seeds - a], [b, seeds - b]]).pvalue < 0.05
        )

    def t_test(first: int, second: int) -> float:
        """The chance to find a difference of two standard deviations."""
        freedom, shift = first + second - 2, 2.0 / math.sqrt(1 / first + 1 / second)
        limit = stats.t.ppf(0.975, freedom)
        return float(stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift))

    page = " ".join((ROOT / "docs" / "external_study.md").read_text("utf-8").split())
    shown = [f"{power:.2f}"[1:] for power in (fisher(10), fisher(5))]
    assert "50 % from 90 % solved is {}, with five it is {};".format(*shown) in page
    shown = [f"{t_test(*seeds):.2f}"[1:] for seeds in ((10, 10), (5, 5), (3, 5), (2, 5))]
    assert "a power of {} by ten seeds and {} by five".format(*shown[:2]) in page
    assert "a power of {}, and the two of no bonus with {}.".format(*shown[2:]) in page
