from __future__ import annotations

import csv

import pytest

from tests.train.scripts import learned, load_script, run_script


def test_demo_leaves_one_picture_and_names_it_last(tmp_path):
    flags = ("--iterations", "2", "--seeds", "1", "--out", str(tmp_path))
    output = run_script("demo.py", *flags, forking=True)
    picture = tmp_path / "raw_vs_adops.png"
    assert output.splitlines()[-1] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    name = "env_id=adops-KeyDoorTV-v0__intrinsic_scale=0.3__total_iterations=2__seed1"
    raw, adops = (learned(tmp_path / f"{method}__{name}") for method in ("none", "adops"))
    assert len(raw) == len(adops) == 2
    assert float(raw[1]["shaping/intervention_rate"]) == 0.0
    assert float(adops[1]["shaping/intervention_rate"]) > 0.0


@pytest.mark.parametrize(("code", "drawn"), [(0, True), (3, True), (1, False)])
def test_demo_draws_once_all_runs_have_finished(tmp_path, monkeypatch, capsys, code, drawn):
    """A run that lacks an old checkpoint (code 3) has all that is drawn."""
    demo = load_script("demo")
    monkeypatch.setattr(demo.sweep, "run", lambda args, cells: code)
    monkeypatch.setattr(demo, "column", lambda run_dir, name: [0.0])
    monkeypatch.setattr(demo, "draw", lambda settings, runs: "picture.png")
    assert demo.main(demo.Settings(out=str(tmp_path))) == code
    assert ("picture.png" in capsys.readouterr().out) == drawn


def test_plot_and_its_csv_agree_with_the_runs(tmp_path, ppo_rnd):
    flags = ["--env-id", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--bonus", "count"]
    flags += ["--total-iterations", "2", "--no-tensorboard", "--shaping", "grm"]
    ppo_rnd.train(ppo_rnd.parse_args([*flags, "--run-dir", str(tmp_path / "run")]))
    from research.figures import action_prob as plot

    table, picture = tmp_path / "data.csv", tmp_path / "plot.png"
    plot.main(plot.Drawing((str(tmp_path / "run"),), out=str(picture), csv=str(table)))
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = learned(tmp_path / "run")
    assert [row["method"] for row in rows] == ["grm", "grm"]
    for row, full in zip(rows, expected, strict=True):
        assert float(row["charts/action_prob_max"]) == float(
            f"{float(full['charts/action_prob_max']):.6g}"
        )
    first = picture.read_bytes()
    plot.main(plot.Drawing((str(table),), out=str(picture)))
    assert picture.read_bytes() == first  # the committed CSV is enough to draw it
