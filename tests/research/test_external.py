"""The external study: what it plans, and what it reports of a run."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from research import external
from train import ppo_rnd

PAGE = Path(__file__).parents[2] / "docs" / "external_study.md"


def test_every_round_gives_all_tasks_their_seeds_before_the_next() -> None:
    runs = external.planned()
    names = {cell.name for *_, cell in runs}
    assert len(runs) == len(names) == sum(sum(t.seeds.values()) for t in external.TASKS)
    first = runs[: sum(len(task.seeds) for task in external.TASKS)]
    assert {cell.seed for *_, cell in first} == {11}
    assert [arm.name for _, arm, _ in first[:4]] == ["raw", "recipe", "PIES", "no bonus"]
    assert {cell.seed for *_, cell in runs} == set(range(11, 21))
    by_task = Counter(arm.task for _, arm, _ in runs)
    assert (by_task["Montezuma"], by_task["MultiRoom-N4-S5"], by_task["DeepSea-10"]) == (30, 70, 80)


def test_arms_of_a_task_differ_in_what_the_arm_is_and_in_nothing_else() -> None:
    own = {"shaping", "clamp_advantage", "quiet_iterations", "bonus"}
    for task in external.TASKS[:3]:
        settings = []
        for arm in task.arms():
            args = ppo_rnd.parse_args(arm.cell(1).flags())
            settings.append({k: v for k, v in vars(args).items() if k not in own})
        assert all(one == settings[0] for one in settings)
        assert settings[0]["normalize_intrinsic"] == "auto"
        assert settings[0]["total_iterations"] == task.iterations


def test_the_page_names_every_task() -> None:
    text = PAGE.read_text(encoding="utf-8").split("\n## Design")[1]
    for task in external.TASKS:
        assert task.name.removesuffix("-20").removesuffix("-30").split("-10")[0] in text


def test_a_task_with_a_tv_is_the_task_and_a_tv() -> None:
    tasks = [task for task in external.TASKS if task.name.endswith(" TV")]
    assert [task.name for task in tasks] == ["Empty-8x8 TV", "MultiRoom-N2-S4 TV"]
    for task in tasks:
        args = ppo_rnd.parse_args(task.arms()[0].cell(11).flags())
        keywords = json.loads(args.env_kwargs)
        assert keywords == {
            "task": f"MiniGrid-{task.name.removesuffix(' TV')}-v0",
            "place": "everywhere",
            "action": 6,
        }
        plain = external.minigrid(keywords["task"].removeprefix("MiniGrid-"), 245, task.seeds)
        other = ppo_rnd.parse_args(plain.arms()[0].cell(11).flags())
        own = {"env_id", "env_kwargs"}
        assert {k: v for k, v in vars(args).items() if k not in own} == {
            k: v for k, v in vars(other).items() if k not in own
        }


def test_a_finished_run_becomes_a_row_and_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = external.deep_sea(4)._replace(iterations=5, seeds={"raw": 1})
    plan = external.planned
    monkeypatch.setattr(external, "planned", lambda *tasks: plan([small]))
    ((*_, cell),) = external.planned()
    root, rows = tmp_path / "runs", tmp_path / "rows.csv"

    def train(root: Path) -> int:
        flags = [*cell.flags(), "--run-dir", str(root / cell.name)]
        if not external.is_finished(root / cell.name):
            ppo_rnd.train(ppo_rnd.parse_args([*flags, "--num-steps", "8", "--num-envs", "4"]))
        return 0

    train(root)
    (root / "commit.json").write_text(json.dumps({"commit": "c0ffee"}))
    assert external.main([str(root), "--collect", str(rows)]) == 0
    with rows.open(newline="") as file:
        (row,) = csv.DictReader(file)
    metrics = external.read_metrics(root / cell.name)
    assert (row["task"], row["arm"], row["seed"], row["commit"]) == (
        "DeepSea-4",
        "raw",
        "11",
        "c0ffee",
    )
    assert float(row["final_return"]) == pytest.approx(
        float(metrics["charts/episodic_return_recent"][-1]), rel=1e-5
    )
    assert int(row["steps"]) == 5 * 32
    seconds = sum(32 / float(speed) for speed in metrics["charts/SPS"])
    assert float(row["hours"]) == pytest.approx(seconds / 3600, rel=1e-2)
    settings = json.loads(row["settings"])
    assert settings["scale_adv"] is True
    assert str(tmp_path) not in row["settings"]
    assert settings["normalize_intrinsic"] == "rms"  # what `auto` stood for
    # 40 episodes of 4 steps, of which the file tells how many were bad.
    bad = list(external.bad_episodes(metrics))
    shares = [float(x) * 8 for x in metrics["charts/bad"]]
    assert len(bad) == 40
    assert sum(bad) == pytest.approx(sum(shares))
    assert external.main([str(root), "--keep", str(rows)]) == 0  # nothing left, nothing started

    # Once more elsewhere: the same numbers, or the command says which differ.
    monkeypatch.setattr(external.sweep, "run", lambda args, cells, at_start: train(Path(args.root)))
    monkeypatch.setattr(external, "commit_of", lambda folder: "c0ffee")
    again = [str(tmp_path / "again"), "--keep", str(rows), "--again", "10"]
    capsys.readouterr()
    assert external.main(again) == 0
    assert "DeepSea-4, raw, seed 11: the same" in capsys.readouterr().out
    text = rows.read_text().replace(f",{row['final_return']},", ",0.5,", 1)
    rows.write_text(text)
    assert external.main([*again[:1], "--keep", str(rows), "--again", "1"]) == 1
    assert f"final_return 0.5, now {row['final_return']}\n" in capsys.readouterr().out


def test_runs_that_are_made_again_are_spread_over_all() -> None:
    runs = external.planned()
    chosen = external.spread(runs, 10)
    places = [runs.index(run) for run in chosen]
    assert (places[0], places[-1], len(set(places))) == (0, len(runs) - 1, 10)
    assert max(np.diff(places)) - min(np.diff(places)) <= 1
    assert external.spread(runs[:3], 10) == runs[:3]


def test_runs_of_two_commits_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commit.json").write_text(json.dumps({"commit": "older"}))
    monkeypatch.setattr(external, "commit_of", lambda folder: "newer")
    with pytest.raises(SystemExit, match="holds runs of another commit"):
        external.main([str(tmp_path), "--only", "DeepSea-10"])


def test_deep_sea_runs_for_bsuites_ten_thousand_episodes() -> None:
    for task in external.TASKS:
        if task.name.startswith("DeepSea"):
            size = int(task.name.rpartition("-")[2])
            episodes = task.iterations * 32 * 64 / size
            assert 10_000 <= episodes < 10_000 + 32 * 64 / size
