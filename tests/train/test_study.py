from __future__ import annotations

import csv
import functools
import json
from collections import Counter

import pytest
from analysis.labels import Label

from tests.train.scripts import ROOT, load_script, run_script

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def study(ppo_rnd):
    return load_script("study")


@pytest.fixture(scope="module")
def labels(study, ppo_rnd):
    """Seeds by env and arm, as the analysis names them."""

    @functools.cache
    def arm(configuration):
        args = vars(ppo_rnd.parse_args(configuration.flags()))
        return args["env_id"], str(Label.of(args))

    arms = {}
    for cell in study.study_cells("laptop"):
        arms.setdefault(arm(cell.configuration), []).append(cell.seed)
    return arms


def test_every_arm_has_its_own_seeds(study, labels):
    assert all(seeds == list(range(1, len(seeds) + 1)) for seeds in labels.values())
    sizes = Counter(len(seeds) for seeds in labels.values())
    assert set(sizes) == {5, 10, 20}
    text = (ROOT / "docs" / "study.md").read_text()
    assert f"{sum(map(len, labels.values()))} runs" in text


def test_every_method_runs_at_every_scale_on_both_main_envs(study, labels):
    methods = {
        *("raw", "PIES", "GRM(1)", "PBIM", "PBIM-norm", "GRM-norm(1)", "ADOPS", "ADOPS ε=0.01"),
        *("ADOPES", "ADOPES F/2", "guarded"),
    }
    for env in ("adops/KeyDoor-v0", "adops/KeyDoorTV-v0"):
        for scale in ("", " ×0.3", " ×0.1"):
            assert {method + scale for method in methods} <= {arm for e, arm in labels if e == env}
        assert (env, "no bonus") in labels
    assert {arm for _, arm in labels if arm.startswith("GRM-norm(")} >= {
        f"GRM-norm({delay})" for delay in (1, 3, 10, 30)
    }


def test_questions_are_about_arms_that_run_and_stand_in_the_design(study, labels):
    text = (ROOT / "docs" / "study.md").read_text()
    for q in study.QUESTIONS:
        assert (f"adops/{q.env}-v0", q.better) in labels
        assert (f"adops/{q.env}-v0", q.worse) in labels
        assert f"| {q.id} | {q.claim} | {q.env} | {q.better} | {q.worse} |" in text


def test_an_interrupted_study_is_balanced(study):
    cells = study.study_cells("laptop")
    rounds = [(cell.seed - 1) // 5 for cell in cells]
    assert rounds == sorted(rounds)


def test_the_papers_tier_is_the_papers_sweep(study):
    assert study.study_cells("paper") == study.sweep.paper_cells()


def test_smoke_tier_from_runs_to_report(study, tmp_path):
    output = run_script("study.py", str(tmp_path / "runs"), "--tier", "smoke", forking=True)
    cells = study.study_cells("smoke")
    assert f"{len(cells)} of {len(cells)} cells finished" in output
    report = tmp_path / "runs" / "report"
    with (report / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(cells)
    text = (report / "report.md").read_text()
    for arm in {row["arm"] for row in rows}:
        assert arm in text
    assert json.loads((tmp_path / "runs" / "study.json").read_text())["tier"] == "smoke"
    again = run_script("study.py", str(tmp_path / "runs"), "--tier", "smoke", "--dry-run")
    assert f"{len(cells)} cells, {len(cells)} finished" in again


def test_a_plan_alone_writes_nothing(study, tmp_path):
    root = tmp_path / "runs"
    output = run_script("study.py", str(root), "--tier", "laptop", "--dry-run")
    assert f"{len(study.study_cells('laptop'))} cells, 0 finished" in output
    assert not root.exists()


def test_a_refused_call_leaves_nothing(study, tmp_path):
    root = tmp_path / "runs"
    output = run_script("study.py", str(root), "--tier", "smoke", "--jobs", "-1", code=1)
    assert "--jobs must not be negative" in output
    assert not root.exists()
