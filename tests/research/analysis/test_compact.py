from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from research.analysis.collect import collect, join_studies
from research.analysis.compact import SUMS, InputError, write_compact
from tests.research.run_dirs import ENV, edit, study_of, write_arm, write_run
from tests.train.scripts import read_metrics


def test_a_run_is_cut_down_to_its_numbers(tmp_path):
    returns = [None, 0.5, 0.5, *[0.0] * 7, 1.0, None, 0.25, *[1.0] * 6, None]
    rates = np.linspace(0.0, 0.95, 20)
    settings = {"shaping": "adops", "intrinsic_scale": 0.3}
    write_run(tmp_path / "r", returns, seed=7, conflict=rates, intervention=rates[::-1], **settings)
    (row,) = collect([tmp_path / "r"]).runs
    # Last ten: 1, 0.25 and six times 1, two cells empty.
    assert float(row["final_return"]) == pytest.approx(7.25 / 8, rel=1e-6)
    assert float(row["mean_return"]) == pytest.approx(8.25 / 17, rel=1e-5)
    assert float(row["conflict_early"]) == pytest.approx((rates[0] + rates[1]) / 2)
    assert float(row["conflict_late"]) == pytest.approx((rates[18] + rates[19]) / 2)
    assert float(row["intervention_early"]) == pytest.approx((rates[18] + rates[19]) / 2)
    assert float(row["zeta_end"]) == pytest.approx(1.0 - 19 / 20)
    # The middle tenth: iterations 10 and 11.
    assert float(row["half_return"]) == pytest.approx((0.0 + 1.0) / 2)
    assert float(row["fall"]) == pytest.approx(0.5 - 7.25 / 8, rel=1e-5)
    assert float(row["action_prob"]) == pytest.approx(np.arange(11, 21).mean() / 20)
    assert float(row["stages"]) == pytest.approx(2 * np.arange(10, 20).mean())
    text = {key: row[key] for key in ("arm", "method", "bonus", "scale", "seed", "solved")}
    assert text == {
        **{"arm": "ADOPS ×0.3", "method": "adops", "bonus": "count"},
        **{"scale": "0.3", "seed": "7", "solved": "1"},
    }
    assert (row["iterations"], row["env_steps"]) == ("20", "2000")


def test_curves_keep_short_runs_and_average_blocks_of_long_ones(tmp_path):
    write_run(tmp_path / "short", [None, 1.0 / 3.0, *[2.0] * 78])
    write_run(tmp_path / "long", [None, None, None, 1.0, None, 2.0, *range(244)], shaping="pies")
    curves = collect([tmp_path]).curves["return"]
    assert curves["short"] == ["", "0.3333", *["2"] * 78]
    # 250 iterations: blocks of 3, and the last of a single one.
    assert len(curves["long"]) == 84
    assert curves["long"][:3] == ["", "1.5", "1"]
    assert curves["long"][-2:] == ["241", "243"]


def test_metrics_of_a_real_run(ppo_rnd, tmp_path):
    flags = ["--env-id", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--bonus", "count"]
    flags += ["--total-iterations", "13", "--no-tensorboard", "--shaping", "grm", "--seed", "5"]
    ppo_rnd.train(ppo_rnd.parse_args([*flags, "--run-dir", str(tmp_path / "run")]))
    (row,) = collect([tmp_path]).runs
    cells = [r["charts/episodic_return"] for r in read_metrics(tmp_path / "run")[3:]]
    values = [float(cell) for cell in cells if cell]
    assert float(row["final_return"]) == pytest.approx(sum(values) / len(values), rel=1e-5)
    assert (row["arm"], row["seed"], row["env_steps"]) == ("GRM(1)", "5", "416")
    assert (row["solved_if"], row["solved"]) == ("> 0", "1")


def test_the_miniature_is_solved_at_half_of_its_points(tmp_path):
    write_arm(tmp_path, [1949.0, 1950.0], shaping="none", env_id="adops/MiniZuma-v0")
    rows = collect([tmp_path]).runs
    assert [(row["solved_if"], row["solved"]) for row in rows] == [
        (">= 1950", "0"),
        (">= 1950", "1"),
    ]


def test_the_miniature_is_solved_there_too_when_two_sittings_ask_other_questions(tmp_path):
    for seed, claim in enumerate(("A.", "B."), 1):
        folder = tmp_path / claim
        settings = {"shaping": "none", "env_id": "adops/MiniZuma-v0", "seed": seed}
        write_run(folder / "run", [1949.0] * 12, **settings)
        study = study_of((f"H{seed}", claim, "adops/MiniZuma-v0", "ADOPS", "raw"))
        (folder / "study.json").write_text(json.dumps(study))
    rows = collect([tmp_path / "A.", tmp_path / "B."]).runs
    assert [(row["solved_if"], row["solved"]) for row in rows] == [(">= 1950", "0")] * 2


def test_solved_by_default_by_option_and_by_study(tmp_path):
    write_arm(tmp_path / "runs", [0.49, 0.5, 0.0], shaping="none")
    write_arm(tmp_path / "runs", [0.49, 0.0], shaping="none", env_id="CartPole-v1")

    def solved(*results, **options):
        rows = collect(results, **options).runs
        return [row["solved"] for row in sorted(rows, key=lambda row: row["env"] != ENV)]

    assert solved(tmp_path / "runs") == ["0", "1", "0", "1", "0"]
    assert solved(tmp_path / "runs", solved=0.0) == ["1"] * 5
    (tmp_path / "runs" / "study.json").write_text('{"solved": 0.49}')
    compact = collect([tmp_path / "runs"])
    assert [row["solved"] for row in compact.runs] == ["1", "0", "1", "1", "0"]
    (tmp_path / "out").mkdir()
    write_compact(collect([tmp_path / "runs"], solved=0.5), tmp_path / "out")
    assert solved(tmp_path / "out") == ["0", "1", "0", "0", "0"]
    assert solved(tmp_path / "out", solved=0.45) == ["1", "1", "0", "1", "0"]


def test_a_run_that_finished_later_replaces_what_was_missing(tmp_path):
    write_arm(tmp_path / "runs", [0.5], shaping="none")
    cell = {"name": "none__seed2", "method": "none", "seed": 2, "varied": {}}
    cell["settings"] = {"env_id": ENV, "bonus": "count"}
    (tmp_path / "runs" / "sweep.json").write_text(json.dumps({"cells": [cell]}))
    (tmp_path / "out").mkdir()
    write_compact(collect([tmp_path / "runs"]), tmp_path / "out")
    states = [row["state"] for row in collect([tmp_path / "out"]).expected]
    assert states == ["finished", "missing"]
    write_run(tmp_path / "late", [1.0] * 12, seed=2)
    joined = collect([tmp_path / "late", tmp_path / "out"])
    assert [row["state"] for row in joined.expected] == ["finished", "finished"]
    assert [row["final_return"] for row in joined.runs] == ["0.5", "1"]


def test_a_run_given_twice_counts_once_and_equal_names_stay_apart(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / f"sweep{seed}" / "run", [seed / 4] * 12, seed=seed)
    one, two = tmp_path / "sweep1", tmp_path / "sweep2"
    compact = collect([one, one / "run", two])
    assert [row["final_return"] for row in compact.runs] == ["0.25", "0.5"]
    assert [row["run"] for row in compact.runs] == [
        f"run ({ENV}, raw, seed 1)",
        f"run ({ENV}, raw, seed 2)",
    ]
    curves = compact.curves["return"]
    assert {name: values[0] for name, values in curves.items()} == {
        f"run ({ENV}, raw, seed 1)": "0.25",
        f"run ({ENV}, raw, seed 2)": "0.5",
    }


@pytest.fixture
def compact_folder(tmp_path):
    write_run(tmp_path / "run", [0.5] * 12)
    out = tmp_path / "out"
    out.mkdir()
    write_compact(collect([tmp_path / "run"]), out)
    return out


@pytest.mark.parametrize(
    "name", ["runs.csv", "expected.csv", "return.csv", "conflict.csv", "intervention.csv", SUMS]
)
def test_a_flipped_bit_or_a_cut_in_compact_files_is_refused(compact_folder, name):
    path = compact_folder / name
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(InputError, match=r"SHA256SUMS does not vouch for .* Restore them, or"):
            collect([compact_folder])
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"SHA256SUMS does not vouch for"):
        collect([compact_folder])


def test_compact_files_changed_on_purpose_need_new_checksums(compact_folder):
    edit(compact_folder / "runs.csv", "raw,none", "raw,other")
    with pytest.raises(InputError, match=r"runs.csv is not the file whose checksum") as refused:
        collect([compact_folder])
    command = str(refused.value).partition("checksums: ")[2].replace(" study.json", "")
    subprocess.run(command, shell=True, check=True)
    assert collect([compact_folder]).runs[0]["method"] == "other"
    (compact_folder / SUMS).unlink()
    with pytest.raises(InputError, match=r"No such file"):
        collect([compact_folder])


def test_studies_that_contradict_each_other_are_refused():
    one, other = (study_of(("H1", claim, ENV, "ADOPS", "raw")) for claim in ("A.", "B."))
    with pytest.raises(InputError, match=r"two different questions H1"):
        join_studies([one, other])
    with pytest.raises(InputError, match=r"solved at different returns"):
        join_studies([one, {**one, "solved": 0.7}])
    more = {**study_of(("H2", "B.", ENV, "ADOPS", "raw")), "tier": "u"}
    joined = join_studies([one, more, one])
    assert [question["id"] for question in joined["questions"]] == ["H1", "H2"]
    assert joined["tier"] == "t + u"
