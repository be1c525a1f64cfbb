from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")

from research import ROOT
from research import off_policy as design
from research import off_policy_learners as learners
from research.analysis.statistics import share_interval
from research.design import in_rounds
from research.off_policy import ABLATION, METHODS, QUESTIONS, SCALES, TASKS, Arm, all_arms

DOCS = ROOT / "docs"


def test_the_grid_is_the_designs() -> None:
    grid = list(in_rounds([all_arms(10)], range(1, 11)))
    assert len(set(grid)) == len(grid) == 530
    assert {arm.task for arm, _ in grid} == set(TASKS)
    ablated = {(arm.task, arm.scale) for arm, _ in grid if arm.name == ABLATION}
    assert ablated == {*((task, "unit") for task in TASKS), *(("DQN LoopFarm", s) for s in SCALES)}
    for name in METHODS:
        scales = {arm.scale for arm, _ in grid if arm.name == name}
        assert scales == ({"0"} if name == "no bonus" else set(SCALES))


def test_a_bonus_of_unit_size_is_divided_by_the_size_of_its_return() -> None:
    for scale in SCALES:
        env = learners.make_stack(Arm("SAC Fountain", "raw", scale), TASKS["SAC Fountain"], 1)
        normalizer = env.env.runner.normalizer
        assert (None if normalizer is None else normalizer.rule) == (
            "rms" if scale == "unit" else None
        )
        source = env.env.runner.source
        assert source(None, None, [0.0, 0.6]) == (0.3 if scale == "0.3" else 1.0)


@pytest.mark.parametrize("task", list(TASKS))
def test_every_arm_trains(task: str) -> None:
    names = [*METHODS, ABLATION] if task == "DQN LoopFarm" else ["ADOPS at sampling"]
    with (DOCS / "data" / "off_policy_study.csv").open() as file:
        columns = file.readline().strip().split(",")
    for name in names:
        arm = Arm(task, name, "0" if name == "no bonus" else "0.3")
        row = learners.run((arm, 0), steps=1040)
        assert list(row) == columns
        assert row["curve"].count(" ") == 19
        assert math.isfinite(float(row["final_return"]))
        assert math.isfinite(float(row["greedy_return"]))


def test_a_killed_study_runs_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[Arm, int]] = []

    class Pool:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def imap_unordered(self, run: Any, missing: Any) -> Any:
            for arm, seed in missing:
                ran.append((arm, seed))
                if len(ran) == 5:
                    raise KeyboardInterrupt
                good = arm.name == "ADOPS at sampling"
                yield {
                    "task": arm.task, "arm": arm.name, "scale": arm.scale, "seed": str(seed),
                    "steps": str(run.keywords["steps"]), "final_return": str(0.9 * good),
                    "greedy_return": "0.0", "seconds": "1.0", "curve": "0.1 0.2",
                }  # fmt: skip

    context = SimpleNamespace(Pool=Pool)
    monkeypatch.setattr(design.multiprocessing, "get_context", lambda _: context)
    table = tmp_path / "study" / "results.csv"
    with pytest.raises(KeyboardInterrupt):
        design.run_missing(table, 1, 100, 1)
    assert len(design.read(table)) == 4
    with table.open("a") as file:
        file.write("DQN LoopFarm,raw,1")  # a row that a crash cut off
    design.run_missing(table, 1, 100, 1)
    rows = design.read(table)
    assert sorted(map(design.key_of, rows)) == sorted((*arm.key, "0") for arm in all_arms())
    assert len(ran) == len(rows) + 1
    text = design.report(rows)
    assert "| DQN LoopFarm | ADOPS at sampling ×1 | 1 of 1 | 21%–100% | 0.90 | 0.00 |" in text
    assert "| SAC Fountain | no bonus | 0 of 1 | 0%–79% | 0.00 | 0.00 |" in text
    capsys.readouterr()
    assert design.main([str(table.parent), "--report"]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{text}\n\n{design.answers(rows)}\n"
    assert printed.count("| too few runs |") == len(QUESTIONS)


def test_wilsons_interval_holds_the_share() -> None:
    for solved in range(11):
        low, high = share_interval(solved, 10)
        assert 0.0 <= low <= solved / 10 <= high <= 1.0
    assert share_interval(10, 10)[0] == pytest.approx(0.722, abs=1e-3)


def test_the_questions_are_the_designs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "off_policy_study.md").read_text("utf-8")
    fixed = page.split("\n## Design")[1]
    labels = {(arm.task, arm.label) for arm in all_arms()}
    for name, claim, task, better, worse, metric, asked in QUESTIONS:
        assert f"| {name} | {claim} | {task} | {better} | {worse} |" in fixed
        assert {(task, better), (task, worse)} <= labels
        assert (metric, asked) == ("solved", name[0])
    assert len(re.findall(r"\n\| [OU]\d", fixed)) == len(QUESTIONS)


def rows_of(solved: dict[tuple[str, str, str], int], runs: int = 10) -> list[dict[str, str]]:
    """Runs of which the first few of each arm have solved the task."""
    return [
        {
            "task": task, "arm": arm, "scale": scale, "seed": str(seed),
            "final_return": "0.5" if seed < count else "0.49", "greedy_return": "1.0",
        }
        for (task, arm, scale), count in solved.items()
        for seed in range(runs)
    ]  # fmt: skip


def answer_to(name: str, rows: list[dict[str, str]], seeds: int = 10) -> list[str]:
    """The last three cells of a question's line: p, corrected p, answer."""
    text = design.answers(rows, seeds)
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return line.strip("| ").split(" | ")[-3:]


def test_questions_are_answered_by_fishers_test_with_holms_correction() -> None:
    key = "DQN LoopFarm", "raw", "1"
    none, adops = ("DQN LoopFarm", "no bonus", "0"), ("DQN LoopFarm", "ADOPS at sampling", "1")
    # One of C(20, 10) ways each: p = 2 / 184,756, and one of eight tests.
    rows = rows_of({none: 10, key: 0, adops: 4})
    assert answer_to("O1", rows) == ["1.1e-5", "8.7e-5", "supported"]
    assert answer_to("O2", rows) == ["0.087", "0.61", "undecided"]
    assert answer_to("O1", rows_of({none: 0, key: 10}))[-1] == "contradicted"
    assert answer_to("O3", rows) == ["–", "–", "too few runs"]
    unit = {("SAC Fountain", arm, "unit"): 10 * (arm != "raw") for arm in ("raw", adops[1])}
    # One of the five tests of the second round.
    assert answer_to("U4", rows + rows_of(unit)) == ["1.1e-5", "5.4e-5", "supported"]
    assert answer_to("O1", rows + rows_of(unit)) == answer_to("O1", rows)
    few = rows_of({none: 9, key: 0}, runs=9)
    assert answer_to("O1", few)[-1] == "too few runs"
    assert answer_to("O1", few, seeds=9)[-1] == "supported"


def test_the_page_shows_what_the_committed_runs_say() -> None:
    rows = design.read(DOCS / "data" / "off_policy_study.csv")
    page = (DOCS / "off_policy_study.md").read_text()
    assert design.report(rows) in page
    assert design.answers(rows) in page
    runs = {(*arm.key, str(seed)) for arm in all_arms() for seed in range(10)}
    assert {design.key_of(row) for row in rows} == runs
    assert f"all of the {len(rows)} runs" in page


def test_counts_in_the_text_are_those_of_the_committed_runs() -> None:
    rows = design.read(DOCS / "data" / "off_policy_study.csv")
    farm, tv, fountain = TASKS

    def solved(*arms: str, tasks: Any = TASKS, sizes: Any = SCALES) -> tuple[int, int]:
        keys = {(task, arm, size) for task in tasks for arm in arms for size in sizes}
        runs = [design.solved(row) for row in rows if design.key_of(row)[:3] in keys]
        return runs.count("1"), len(runs)

    assert solved("raw") == (0, 90)
    assert solved("no bonus", sizes=["0"]) == (30, 30)
    best = solved(ABLATION, tasks=[farm, tv], sizes=["unit"])
    other = solved("ADOPS at sampling", tasks=[farm, tv], sizes=["unit"])
    assert (best, other) == ((20, 20), (13, 20))
    assert solved("ADOPS at sampling", tasks=[fountain], sizes=["unit"]) == (9, 10)
    assert solved(ABLATION, tasks=[fountain]) == (2, 10)
    assert solved("ADOPS stored", tasks=[farm, tv], sizes=["unit"]) == (20, 20)
    assert solved("guarded", sizes=["unit"]) == (17, 30)
    of_sac = [
        [solved(arm, tasks=[fountain], sizes=[size])[0] for size in SCALES]
        for arm in ("ADOPS stored", "ADOPS at sampling")
    ]
    assert of_sac == [[1, 0, 3], [7, 10, 9]]
    best_returns = [
        max(map(float, row["curve"].split()))
        for row in rows
        if design.key_of(row)[:3] == (tv, "ADOPS at sampling", "unit")
    ]
    assert min(best_returns) > 0.7
    first = design.read(DOCS / "data" / "off_policy_first_critic.csv")
    for size, count in zip(SCALES, (2, 8, 4), strict=True):
        finals = [float(row["final_return"]) for row in first if row["scale"] == size]
        assert (sum(final >= design.SOLVED for final in finals), len(finals)) == (count, 10)
    lost = [row["curve"] for row in first if float(row["final_return"]) < design.SOLVED]
    learned = [curve for curve in lost if max(map(float, curve.split())) >= 0.8]
    assert (len(learned), len(lost)) == (14, 16)
