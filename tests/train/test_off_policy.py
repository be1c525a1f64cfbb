from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("torch")

import off_policy
from off_policy import ABLATION, ARMS, QUESTIONS, SCALES, TASKS, Cell, cells


def test_the_grid_is_the_designs() -> None:
    grid = list(cells(10))
    assert len(set(grid)) == len(grid) == 350
    assert {cell.task for cell in grid} == set(TASKS)
    assert {cell.task for cell in grid if cell.arm == ABLATION} == {"DQN LoopFarm"}
    for arm in ARMS:
        scales = {cell.scale for cell in grid if cell.arm == arm}
        assert scales == ({0.0} if arm == "no bonus" else set(SCALES))


@pytest.mark.parametrize("task", list(TASKS))
def test_every_arm_trains(task: str) -> None:
    arms = [*ARMS, ABLATION] if task == "DQN LoopFarm" else ["ADOPS at sampling"]
    for arm in arms:
        row = off_policy.run(Cell(task, arm, 0.3 * (arm != "no bonus"), 0), steps=1040)
        assert list(row) == off_policy.FIELDS
        assert row["curve"].count(" ") == 19
        assert math.isfinite(row["final_return"])
        assert math.isfinite(row["greedy_return"])


def test_a_killed_study_runs_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Cell] = []

    class Pool:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def imap_unordered(self, run: Any, missing: Any) -> Any:
            for cell in missing:
                ran.append(cell)
                if len(ran) == 5:
                    raise KeyboardInterrupt
                good = cell.arm == "ADOPS at sampling"
                yield {
                    **cell._asdict(), **run.keywords, "final_return": 0.9 * good,
                    "greedy_return": 0.0, "seconds": 1.0, "curve": "0.1 0.2",
                }  # fmt: skip

    context = SimpleNamespace(Pool=Pool)
    monkeypatch.setattr(off_policy.multiprocessing, "get_context", lambda _: context)
    table = tmp_path / "study" / "results.csv"
    with pytest.raises(KeyboardInterrupt):
        off_policy.run_missing(table, 1, 100, 1)
    assert len(off_policy.read(table)) == 4
    with table.open("a") as file:
        file.write("DQN LoopFarm,raw,1.0")  # a row that a crash cut off
    off_policy.run_missing(table, 1, 100, 1)
    rows = off_policy.read(table)
    assert sorted(map(off_policy.key_of, rows)) == sorted(cells(1))
    assert len(ran) == len(rows) + 1
    text = off_policy.report(rows)
    assert "| DQN LoopFarm | ADOPS at sampling | 1 | 1 of 1 | 21%–100% | 0.90 | 0.00 |" in text
    assert "| SAC Fountain | no bonus | – | 0 of 1 | 0%–79% | 0.00 | 0.00 |" in text
    pytest.importorskip("scipy")
    capsys.readouterr()
    assert off_policy.main([str(table.parent), "--report"]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{text}\n\n{off_policy.answers(rows)}\n"
    assert printed.count("| too few runs |") == len(QUESTIONS)


def test_wilsons_interval_holds_the_share() -> None:
    for solved in range(11):
        low, high = off_policy.wilson(solved, 10)
        assert 0.0 <= low <= solved / 10 <= high <= 1.0
    assert off_policy.wilson(10, 10)[0] == pytest.approx(0.722, abs=1e-3)


def test_the_questions_are_the_designs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "off_policy_study.md").read_text("utf-8")
    design = page.split("\n## Results")[0]
    for name, claim, task, scale, better, worse in QUESTIONS:
        than = "the same with TDCritic" if worse == ABLATION else worse
        assert f"| {name} | {claim} | {task}, scale {scale:g} | {better} | {than} |" in design
    assert design.count("\n| O") == len(QUESTIONS)


def rows_of(solved: dict[tuple[str, str, float], int], runs: int = 10) -> list[dict[str, str]]:
    """Runs of which the first few of each arm have solved the task."""
    return [
        {
            "task": task, "arm": arm, "scale": str(scale), "seed": str(seed),
            "final_return": "0.5" if seed < count else "0.49", "greedy_return": "1.0",
        }
        for (task, arm, scale), count in solved.items()
        for seed in range(runs)
    ]  # fmt: skip


def answer_to(name: str, rows: list[dict[str, str]], seeds: int = 10) -> list[str]:
    """The last three cells of a question's line: p, corrected p, answer."""
    text = off_policy.answers(rows, seeds)
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return line.strip("| ").split(" | ")[-3:]


def test_questions_are_answered_by_fishers_test_with_holms_correction() -> None:
    pytest.importorskip("scipy")
    key = "DQN LoopFarm", "raw", 1.0
    none, adops = ("DQN LoopFarm", "no bonus", 0.0), ("DQN LoopFarm", "ADOPS at sampling", 1.0)
    # One of C(20, 10) ways each: p = 2 / 184,756, and one of eight tests.
    rows = rows_of({none: 10, key: 0, adops: 4})
    assert answer_to("O1", rows) == ["1.1e-5", "8.7e-5", "supported"]
    assert answer_to("O2", rows) == ["0.087", "0.61", "undecided"]
    assert answer_to("O1", rows_of({none: 0, key: 10}))[-1] == "contradicted"
    assert answer_to("O3", rows) == ["–", "–", "too few runs"]
    few = rows_of({none: 9, key: 0}, runs=9)
    assert answer_to("O1", few)[-1] == "too few runs"
    assert answer_to("O1", few, seeds=9)[-1] == "supported"


def test_the_page_shows_what_the_committed_runs_say() -> None:
    docs = Path(off_policy.__file__).parents[1] / "docs"
    rows = off_policy.read(docs / "data" / "off_policy_study.csv")
    page = (docs / "off_policy_study.md").read_text()
    assert off_policy.report(rows) in page
    assert off_policy.answers(rows) in page
    assert f"\n{len(rows)} of the 350 runs" in page
