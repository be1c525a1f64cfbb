from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module

import pytest

from tests.research.run_dirs import COLUMNS, ENV, edit, files_of, study_of, write_run, write_study
from tests.train.scripts import ROOT, environment, run_script


@pytest.fixture(scope="module")
def analyze():
    return import_module("research.analyze")


def lose_row(root):
    path = root / "run" / "metrics.csv"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:2], *rows[3:]]))


HEADER = ",".join(COLUMNS).encode() + b"\r\n"
DAMAGES = {
    "absent": (lambda root: (root / "run").rename(root.parent / "x"), r"holds no runs; expected"),
    "cut": (
        lambda root: edit(root / "run" / "metrics.csv", ",1.5,0.5,0.5,0.75", ""),
        r"metrics.csv, line 5: expected iteration 4 with 9 cells, found \['4'\] with 5",
    ),
    "text": (
        lambda root: edit(root / "run" / "metrics.csv", "0.5", "x0.5"),
        r"cannot read .*metrics.csv: could not convert string to float: 'x0.5'; expected",
    ),
    "column": (
        lambda root: edit(root / "run" / "metrics.csv", "shaping/zeta", "zeta"),
        r"has no column shaping/zeta; expected a header with iteration",
    ),
    "row": (lose_row, r"line 3: expected iteration 2 .*Rows are lost, repeated or damaged"),
    "empty": (
        lambda root: (root / "run" / "metrics.csv").write_bytes(
            (",".join(COLUMNS) + "\r\n").encode()
        ),
        r"has no rows, expected one for each iteration. Train this run again",
    ),
    "end": (
        lambda root: edit(root / "run" / "config.json", '_iterations": 12', '_iterations": 13'),
        r"has 12 rows, expected 13: the run is marked as finished",
    ),
    "gone": (
        lambda root: (root / "run" / "metrics.csv").unlink(),
        r"cannot read .*metrics.csv: .*; expected the metrics of a run. Restore",
    ),
    "config": (
        lambda root: (root / "run" / "config.json").write_text("{"),
        r"cannot read .*config.json: .*; expected the settings of a run. Restore",
    ),
    "args": (
        lambda root: (root / "run" / "config.json").write_text('{"args": {"env_id": "e"}}'),
        r"the settings are damaged \(KeyError\('seed'\)\), expected 'args'",
    ),
    "sweep": (
        lambda root: (root / "sweep.json").write_text('{"cells": [{"name": "a"}]}'),
        r"sweep.json: a cell is damaged .* expected name, method, seed and settings",
    ),
    "question": (
        lambda root: (root / "study.json").write_text('{"questions": [{"id": "H1"}]}'),
        r"a question has no text for claim, env, better, worse, metric; expected",
    ),
    "metric": (
        lambda root: (root / "study.json").write_text(
            json.dumps(study_of(("H1", "It helps.", ENV, "raw", "no bonus", "score")))
        ),
        r"question H1 compares 'score', expected one of final_return, mean_return, fall",
    ),
    "unfinished": (
        lambda root: edit(root / "run" / "status.json", "true", "false"),
        r"no finished run yet \(1 unfinished\); expected at least one",
    ),
    "twin": (
        lambda root: write_run(root / "twin", [0.6] * 12, learning_rate=0.1),
        r"run and twin are both raw with seed 1 on .*, but differ; expected one run",
    ),
    "twin in numbers": (
        lambda root: write_run(root / "twin", [0.5] * 12, conflict=[0.5, 0.9, *[0.5] * 10]),
        r"run and twin are both raw with seed 1 on .*, but differ; expected one run",
    ),
    "length": (
        lambda root: write_run(root / "other", [0.5] * 30, seed=2),
        r"run has 12 iterations and 1200 env steps, other has 30 and 3000; expected the same",
    ),
}


def test_compact_files_give_the_same_bytes(analyze, tmp_path, capsys):
    write_study(tmp_path / "runs")
    out, again = tmp_path / "out", tmp_path / "again"
    assert analyze.main([str(tmp_path / "runs"), "--out", str(out), "--reps", "200"]) == 0
    assert capsys.readouterr().out == f"{out / 'report.html'}\n"
    report = files_of(out)
    assert analyze.main([str(out), "--out", str(again), "--reps", "200"]) == 0
    assert capsys.readouterr().out == f"{again / 'report.html'}\n"
    assert files_of(again) == report
    assert analyze.main([str(again), "--out", str(again), "--reps", "200"]) == 0
    assert files_of(again) == report
    assert set(report) == {
        *("runs.csv", "return.csv", "conflict.csv", "intervention.csv", "expected.csv"),
        *("study.json", "summary.csv", "paper.csv", "questions.csv", "report.md", "report.html"),
        *(
            "SHA256SUMS",
            "solved.png",
            "curves_KeyDoorTV.png",
            "final_KeyDoorTV.png",
            "rates_KeyDoorTV.png",
        ),
        *("delay_KeyDoorTV.png", "curves_KeyDoor.png", "final_KeyDoor.png", "rates_KeyDoor.png"),
    }
    assert len(report["return.csv"].decode().splitlines()[0].split(",")) == 1 + 77
    assert b"tEXtSoftware" not in report["final_KeyDoor.png"]


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_results_are_refused_with_a_way_out(analyze, tmp_path, name, capsys):
    damage, message = DAMAGES[name]
    write_run(tmp_path / "runs" / "run", [0.5] * 12)
    damage(tmp_path / "runs")
    assert analyze.main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert re.search(f"error: .*{message}", error)
    assert not (tmp_path / "out").exists()


def test_paths_and_options_are_checked(analyze, tmp_path, capsys):
    write_run(tmp_path / "run", [0.5] * 12)
    out = str(tmp_path / "out")
    assert analyze.main([str(tmp_path / "nowhere"), "--out", out]) == 1
    assert "nowhere does not exist; expected a run dir" in capsys.readouterr().err
    assert analyze.main([str(tmp_path / "run" / "metrics.csv"), "--out", out]) == 1
    assert "metrics.csv is a file; expected a run dir" in capsys.readouterr().err
    assert analyze.main([str(tmp_path / "run"), "--out", out, "--reps", "0"]) == 1
    assert "reps is 0 and seed is 0; expected reps of at least 1" in capsys.readouterr().err
    assert analyze.main(["--out", out]) == 1
    assert "error: no results are given; expected run directories" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert analyze.main([str(tmp_path / "run"), "--out", str(tmp_path / "file")]) == 1
    assert f"error: cannot write to {tmp_path / 'file'}: File exists" in capsys.readouterr().err


def test_script_ends_with_code_1_and_needs_no_torch(tmp_path):
    output = run_script("research.analyze", str(tmp_path), "--out", str(tmp_path / "out"), code=1)
    assert f"error: {tmp_path} holds no runs; expected run directories" in output
    assert "Traceback" not in output
    code = "import sys, research.analyze; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment()
    )
    assert result.stdout == "False\n", result.stderr


def test_a_missing_package_is_named_with_its_extra():
    code = "import sys; sys.modules['scipy'] = None; import research.analyze"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 1
    assert result.stderr == (
        "error: scipy is missing: pip install 'adops-wrappers[train,analysis]'\n"
    )
