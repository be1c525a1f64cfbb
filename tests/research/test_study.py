from __future__ import annotations

import csv
import functools
import json
import re
import shlex
from collections import Counter
from importlib import import_module

import pytest
import tyro

from research.analysis.labels import Label
from tests.train.scripts import ROOT, run_script


@pytest.fixture(scope="module")
def study(ppo_rnd):
    return import_module("research.study")


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
    assert all(sorted(seeds) == list(range(1, len(seeds) + 1)) for seeds in labels.values())
    sizes = Counter(len(seeds) for seeds in labels.values())
    assert set(sizes) == {5, 20}
    text = (ROOT / "docs" / "study.md").read_text()
    assert f"{sum(map(len, labels.values()))} runs" in text


def test_no_run_depends_on_whether_advantages_are_scaled_by_default(study):
    """What the committed runs did stays said, whatever the script's default becomes."""
    scaled = {}
    for cell in (*study.study_cells("laptop"), *study.study_cells("smoke")):
        settings = dict((*cell.fixed, *cell.varied))
        scaled.setdefault(settings["env_id"], set()).add(settings["scale_adv"])
    assert scaled.pop("adops/MiniZuma-v0") == {"False"}
    assert set().union(*scaled.values()) == {"True"}


def test_every_method_runs_in_both_regimes(study, labels):
    methods = {
        *("raw", "PIES", "GRM(1)", "GRM-norm(1)", "PBIM", "PBIM-norm", "ADOPS", "ADOPES"),
        *("ADOPES F/2", "gated ADOPS", "ADOPS on A", "guarded"),
    }
    for env in (*study.GRIDS, "LoopFarm", "DancingSkulls"):
        assert {"no bonus", *methods} <= {arm for e, arm in labels if e == f"adops/{env}-v0"}
    miniature = {arm for env, arm in labels if env == "adops/MiniZuma-v0"}
    assert {"no bonus", *methods, *(f"{method} (RND)" for method in methods)} <= miniature
    assert {f"GRM-norm({delay}) (RND)" for delay in (1, 3, 10, 30)} <= miniature
    for env in study.GRIDS:
        for scale in (" ×3", "", " ×0.3", " ×0.1"):
            for method in ("raw", "PIES", "ADOPS on A"):
                assert (f"adops/{env}-v0", f"{method}{scale} (as is)") in labels
        assert len(labels[f"adops/{env}-v0", "ADOPS on A"]) == 20


def test_questions_are_about_arms_with_20_seeds_and_stand_in_the_design(study, labels):
    text = (ROOT / "docs" / "study.md").read_text()
    for q in study.QUESTIONS:
        assert len(labels[f"adops/{q.env}-v0", q.better]) == 20
        assert len(labels[f"adops/{q.env}-v0", q.worse]) == 20
        assert f"| {q.id} | {q.claim} | {q.env} | {q.better} | {q.worse} | " in text


def test_an_interrupted_study_is_balanced(study):
    rounds = [(cell.seed - 1) // 5 for cell in study.study_cells("laptop")]
    assert rounds == sorted(rounds)


def test_the_papers_tier_is_the_papers_sweep(study):
    assert study.study_cells("paper") == study.sweep.paper_cells()


def test_the_papers_table_on_a_cluster_is_one_command(study, tmp_path, monkeypatch, capsys):
    """Its plan, made without a cluster, is the one that the page shows."""
    pytest.importorskip("ale_py")
    page = (ROOT / "docs" / "reproduction.md").read_text()
    scaling = (ROOT / "docs" / "scaling.md").read_text()
    (command,) = re.findall(r"^python -m research\.study (.*--executor slurm.*)$", page, re.M)
    (sweep,) = re.findall(r"^python -m research\.sweep (.*--paper.*) --dry-run$", scaling, re.M)
    asked = tyro.cli(study.sweep.Args, args=shlex.split(sweep))
    assert study.sweep.cells_of(asked) == study.study_cells("paper")
    monkeypatch.chdir(tmp_path)
    assert study.main([*shlex.split(command), "--dry-run"]) == 0
    (shown,) = re.findall(r"```\n(method .*?), \.\.\. MB free\.\n```", scaling, re.S)
    assert " ".join(shown.split()) in " ".join(capsys.readouterr().out.split())
    assert list(tmp_path.iterdir()) == []


def test_smoke_tier_from_runs_to_report(study, tmp_path):
    output = run_script("research.study", str(tmp_path / "runs"), "--tier", "smoke", forking=True)
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
    again = run_script("research.study", str(tmp_path / "runs"), "--tier", "smoke", "--dry-run")
    assert f"{len(cells)} cells, {len(cells)} finished" in again


def test_runs_of_an_earlier_report_are_kept(study, tmp_path):
    """Two sittings in two folders make one report; the second runs only what the first lacks."""
    cells = study.study_cells("smoke")
    first, rest = cells[:2], cells[2:]
    root = tmp_path / "first"
    flags = [str(root), "--jobs", "2"]
    assert study.sweep.run(tyro.cli(study.Args, args=flags), first) == 0
    study.analyze.main([str(root), "--out", str(tmp_path / "report")])
    assert study.without_kept(cells, str(tmp_path / "report")) == rest
    kept = ["--tier", "smoke", "--keep", str(tmp_path / "report"), "--dry-run"]
    output = run_script("research.study", str(tmp_path / "second"), *kept)
    assert f"{len(rest)} cells, 0 finished" in output
    missing = ["--tier", "smoke", "--keep", str(tmp_path / "nothing")]
    output = run_script("research.study", str(tmp_path / "second"), *missing, code=1)
    assert "does not vouch for the files" in output


def test_a_plan_alone_writes_nothing(study, tmp_path):
    root = tmp_path / "runs"
    output = run_script("research.study", str(root), "--tier", "laptop", "--dry-run")
    assert f"{len(study.study_cells('laptop'))} cells, 0 finished" in output
    assert not root.exists()


def test_a_refused_call_leaves_nothing(study, tmp_path):
    root = tmp_path / "runs"
    output = run_script("research.study", str(root), "--tier", "smoke", "--jobs", "-1", code=1)
    assert "--jobs must not be negative" in output
    assert not root.exists()
