from __future__ import annotations

import csv
import runpy
from types import SimpleNamespace

from tests.train.scripts import ROOT, learned, run_script


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


def test_plot_and_its_csv_agree_with_the_runs(tmp_path, ppo_rnd):
    flags = ["--env-id", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--bonus", "count"]
    flags += ["--total-iterations", "2", "--no-tensorboard", "--shaping", "grm"]
    ppo_rnd.train(ppo_rnd.parse_args([*flags, "--run-dir", str(tmp_path / "run")]))
    plot = SimpleNamespace(**runpy.run_path(str(ROOT / "figures" / "action_prob.py")))
    table, picture = tmp_path / "data.csv", tmp_path / "plot.png"
    plot.main(plot.Settings((str(tmp_path / "run"),), out=str(picture), csv=str(table)))
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = learned(tmp_path / "run")
    assert [row["method"] for row in rows] == ["grm", "grm"]
    for row, full in zip(rows, expected, strict=True):
        assert float(row["charts/action_prob_max"]) == float(
            f"{float(full['charts/action_prob_max']):.6g}"
        )
    first = picture.read_bytes()
    plot.main(plot.Settings((str(table),), out=str(picture)))
    assert picture.read_bytes() == first  # the committed CSV is enough to draw it
