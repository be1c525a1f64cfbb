from __future__ import annotations

import base64
import csv
import dataclasses
import itertools
import json
import math
import re
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest
from train_scripts import TRAIN, environment, load_script, read_metrics, run_script

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from scipy import stats

ENV = "adops/KeyDoorTV-v0"
COLUMNS = (
    *("iteration", "global_step", "charts/episodic_return", "losses/entropy"),
    *("shaping/conflict_rate", "shaping/intervention_rate", "shaping/zeta"),
)
LOW, HIGH = [0.0, 0.1, 0.0, 0.2, 0.1], [0.9, 1.0, 0.8, 0.9, 1.0]


@pytest.fixture(scope="module")
def analyze():
    return load_script("analyze")


def write_run(
    folder: Path,
    returns,
    *,
    seed=1,
    conflict=None,
    intervention=None,
    finished=True,
    reason="finished",
    **args,
):
    """Write a run directory as ppo_rnd.py does; a return of None is an empty cell."""
    folder.mkdir(parents=True)
    args = {"env_id": ENV, "bonus": "count", "seed": seed, "total_iterations": len(returns)} | args
    (folder / "config.json").write_text(json.dumps({"args": args}))
    status = {"iteration": len(returns), "finished": finished, "reason": reason}
    (folder / "status.json").write_text(json.dumps(status))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for i, value in enumerate(returns):
            rates = [0.5 if v is None else v[i] for v in (conflict, intervention)]
            cell = "" if value is None else value
            writer.writerow([i + 1, 100 * (i + 1), cell, 1.5, *rates, 1.0 - i / len(returns)])


def write_arm(root: Path, finals, *, first_seed=1, iterations=12, **args):
    """Write one run for each final return, which it has from the start on."""
    name = "__".join(f"{key}={value}".replace("/", "-") for key, value in args.items())
    for seed, final in enumerate(finals, first_seed):
        write_run(root / f"{name}__seed{seed}", [final] * iterations, seed=seed, **args)


def computed(analyze, *results, **options):
    return analyze.compute(analyze.collect(results, **options), analyze.Bootstrap(300, 0))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Labels


@pytest.mark.parametrize(
    ("args", "label"),
    [
        ({"shaping": "none"}, "raw"),
        ({"shaping": "none", "bonus": "none", "intrinsic_scale": 0.3}, "no bonus"),
        ({"shaping": "pies"}, "PIES"),
        ({"shaping": "grm", "delay": 1}, "GRM(1)"),
        ({"shaping": "grm-norm", "delay": "16"}, "GRM-norm(16)"),
        ({"shaping": "pbim", "epsilon": 0.01}, "PBIM"),
        ({"shaping": "pbim-norm"}, "PBIM-norm"),
        ({"shaping": "adops", "epsilon": 1e-7}, "ADOPS"),
        ({"shaping": "adops", "epsilon": "1e-07"}, "ADOPS"),
        ({"shaping": "adops", "epsilon": 0.01}, "ADOPS ε=0.01"),
        ({"shaping": "adopes"}, "ADOPES"),
        (
            {"shaping": "adopes-half", "epsilon": "0.01", "intrinsic_scale": "0.30"},
            "ADOPES F/2 ε=0.01 ×0.3",
        ),
        ({"shaping": "guarded"}, "guarded"),
        ({"shaping": "guarded", "balance": "0"}, "off at first reward"),
        ({"shaping": "none", "intrinsic_scale": 0.1, "bonus": "rnd"}, "raw ×0.1 (RND)"),
        ({"shaping": "adops", "bonus": "rnd", "env_id": "ALE/MontezumaRevenge-v5"}, "ADOPS"),
        ({"shaping": "future"}, "future"),
    ],
)
def test_label_of_an_arm(analyze, args, label):
    assert analyze.arm_label({"env_id": ENV, "bonus": "count", **args}) == label


def test_defaults_and_methods_are_those_of_ppo_rnd(analyze, ppo_rnd):
    args = dataclasses.asdict(ppo_rnd.Args())
    known = {name: args[name] for name in analyze.DEFAULTS if name in args}
    assert known == {name: analyze.DEFAULTS[name] for name in known}
    assert {"env_id", "shaping", "bonus", "intrinsic_scale", "epsilon", "delay"} <= known.keys()
    assert set(typing.get_args(typing.get_type_hints(ppo_rnd.Args)["shaping"])) <= set(
        analyze.SHAPINGS
    )


def test_order_and_reference_of_arms(analyze):
    references = {
        "no bonus": "",
        "raw": "no bonus",
        "GRM-norm(2)": "raw",
        "GRM-norm(16)": "raw",
        "ADOPS": "raw",
        "ADOPS ε=0.01": "raw",
        "raw ×0.3": "no bonus",
        "ADOPS ε=0.01 ×0.3": "raw ×0.3",
        "off at first reward ×0.1": "raw ×0.1",
        "raw (RND)": "no bonus",
        "PIES ×0.3 (RND)": "raw ×0.3 (RND)",
    }
    shuffled = sorted(references)
    assert sorted(shuffled, key=analyze.arm_order) == list(references)
    assert {label: analyze.reference_of(label) for label in references} == references


# From metrics to compact data


def test_a_run_is_cut_down_to_its_numbers(analyze, tmp_path):
    returns = [None, 0.5, 0.5, *[0.0] * 7, 1.0, None, 0.25, *[1.0] * 6, None]
    rates = np.linspace(0.0, 0.95, 20)
    settings = {"shaping": "adops", "intrinsic_scale": 0.3}
    write_run(tmp_path / "r", returns, seed=7, conflict=rates, intervention=rates[::-1], **settings)
    (row,) = analyze.collect([tmp_path / "r"]).runs
    # Last ten: 1, 0.25 and six times 1, two cells empty.
    assert float(row["final_return"]) == pytest.approx(7.25 / 8, rel=1e-6)
    assert float(row["mean_return"]) == pytest.approx(8.25 / 17, rel=1e-5)
    assert float(row["conflict_early"]) == pytest.approx((rates[0] + rates[1]) / 2)
    assert float(row["conflict_late"]) == pytest.approx((rates[18] + rates[19]) / 2)
    assert float(row["intervention_early"]) == pytest.approx((rates[18] + rates[19]) / 2)
    assert float(row["zeta_end"]) == pytest.approx(1.0 - 19 / 20)
    text = {key: row[key] for key in ("arm", "method", "bonus", "scale", "seed", "solved")}
    assert text == {
        **{"arm": "ADOPS ×0.3", "method": "adops", "bonus": "count"},
        **{"scale": "0.3", "seed": "7", "solved": "1"},
    }
    assert (row["iterations"], row["env_steps"]) == ("20", "2000")


def test_curves_keep_short_runs_and_average_blocks_of_long_ones(analyze, tmp_path):
    write_run(tmp_path / "short", [None, 1.0 / 3.0, *[2.0] * 78])
    write_run(tmp_path / "long", [None, None, None, 1.0, None, 2.0, *range(244)], shaping="pies")
    curves = analyze.collect([tmp_path]).curves["return"]
    assert curves["short"] == ["", "0.3333", *["2"] * 78]
    # 250 iterations: blocks of 3, and the last of a single one.
    assert len(curves["long"]) == 84
    assert curves["long"][:3] == ["", "1.5", "1"]
    assert curves["long"][-2:] == ["241", "243"]


def test_trailing_mean_by_hand(analyze):
    values = np.array([[np.nan, 1.0, 3.0, np.nan, np.nan, np.nan, 5.0], [2.0] * 7])
    expected = [[np.nan, 1.0, 2.0, 2.0, 3.0, np.nan, 5.0], [2.0] * 7]
    np.testing.assert_allclose(analyze.trailing_mean(values, 3), expected)


def test_metrics_of_a_real_run(analyze, ppo_rnd, tmp_path):
    flags = ["--env-id", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--bonus", "count"]
    flags += ["--total-iterations", "13", "--no-tensorboard", "--shaping", "grm", "--seed", "5"]
    ppo_rnd.train(ppo_rnd.parse_args([*flags, "--run-dir", str(tmp_path / "run")]))
    (row,) = analyze.collect([tmp_path]).runs
    cells = [r["charts/episodic_return"] for r in read_metrics(tmp_path / "run")[3:]]
    values = [float(cell) for cell in cells if cell]
    assert float(row["final_return"]) == pytest.approx(sum(values) / len(values), rel=1e-5)
    assert (row["arm"], row["seed"], row["env_steps"]) == ("GRM(1)", "5", "416")
    assert (row["solved_if"], row["solved"]) == ("> 0", "1")


def test_solved_by_default_by_option_and_by_study(analyze, tmp_path):
    write_arm(tmp_path / "runs", [0.49, 0.5, 0.0], shaping="none")
    write_arm(tmp_path / "runs", [0.49, 0.0], shaping="none", env_id="CartPole-v1")

    def solved(*results, **options):
        rows = analyze.collect(results, **options).runs
        return [row["solved"] for row in sorted(rows, key=lambda row: row["env"] != ENV)]

    assert solved(tmp_path / "runs") == ["0", "1", "0", "1", "0"]
    assert solved(tmp_path / "runs", solved=0.0) == ["1"] * 5
    (tmp_path / "runs" / "study.json").write_text('{"solved": 0.49}')
    compact = analyze.collect([tmp_path / "runs"])
    assert [row["solved"] for row in compact.runs] == ["1", "0", "1", "1", "0"]
    (tmp_path / "out").mkdir()
    analyze.write_compact(analyze.collect([tmp_path / "runs"], solved=0.5), tmp_path / "out")
    assert solved(tmp_path / "out") == ["0", "1", "0", "0", "0"]
    assert solved(tmp_path / "out", solved=0.45) == ["1", "1", "0", "1", "0"]


# Statistics


def test_mean_error_and_solved_by_hand(analyze, tmp_path):
    write_arm(tmp_path, [0.0, 0.5, 1.0, 0.9], shaping="adops")
    write_arm(tmp_path, [0.0, 0.0, 0.2, 0.6], shaping="none")
    analysis = computed(analyze, tmp_path)
    raw, adops = analysis.summaries[ENV]
    assert (adops.arm.label, adops.arm.solved_text) == ("ADOPS", "3/4")
    assert adops.arm.mean == pytest.approx(0.6)
    # Deviations -0.6, -0.1, 0.4, 0.3: squares sum to 0.62, over 3, over 4.
    assert adops.arm.error == pytest.approx(math.sqrt(0.62 / 3 / 4))
    assert adops.iqm.value == pytest.approx((0.5 + 0.9) / 2)
    assert (raw.arm.solved_text, raw.reference, raw.comparison) == ("1/4", "no bonus", None)
    # Fisher, 3 of 4 against 1 of 4: p of 3 or 4 solved in either arm, (16+1+16+1)/70.
    assert adops.comparison.fisher == pytest.approx(34 / 70)


def test_welch_p_is_the_textbooks(analyze):
    first, second = np.array([0.1, 0.9, 0.4, 0.7, 0.2]), np.array([0.0, 0.3, 0.1, 0.05])
    parts = [values.var(ddof=1) / len(values) for values in (first, second)]
    t = (first.mean() - second.mean()) / math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 3)
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert analyze.welch_p(first, second) == pytest.approx(expected, rel=1e-12)
    assert analyze.welch_p(second, first) == pytest.approx(expected, rel=1e-12)


def test_arms_without_spread(analyze):
    tenths = np.full(7, 0.1)  # their mean in floating point is not 0.1
    assert analyze.welch_p(tenths, np.full(3, 0.1)) == 1.0
    assert analyze.welch_p(tenths, np.full(3, 0.2)) == 0.0
    assert analyze.standard_error(tenths) == 0.0
    spread = np.array([0.0, 0.4, 0.8, 0.6])
    t = (0.1 - spread.mean()) / math.sqrt(spread.var(ddof=1) / 4)
    expected = 2 * stats.t.sf(abs(t), 3)
    assert analyze.welch_p(tenths, spread) == pytest.approx(expected, rel=1e-12)


def test_holm_by_hand(analyze):
    # 0.005·4, 0.01·3, 0.03·2, and 0.04·1 lifted to the one before.
    assert analyze.holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx(
        [0.03, 0.06, None, 0.06, 0.02]
    )
    assert analyze.holm([0.6, 0.7]) == [1.0, 1.0]
    assert analyze.holm([None]) == [None]


def test_probability_of_improvement_counts_pairs_and_half_the_ties(analyze):
    first, second = [0.5, 0.5, 1.0, 0.0, 0.7], [0.5, 0.0, 0.9]
    count = sum((a > b) + 0.5 * (a == b) for a, b in itertools.product(first, second))
    bootstrap = analyze.Bootstrap(50, 0)
    found = bootstrap.improvement(np.array(first), np.array(second))
    assert found.value == pytest.approx(count / 15)
    reversed_ = bootstrap.improvement(np.array(second), np.array(first))
    assert reversed_.value == pytest.approx(1 - count / 15)
    equal = bootstrap.improvement(np.zeros(4), np.zeros(6))
    assert equal == (0.5, 0.5, 0.5)


def test_intervals_are_rliables_on_the_same_resamples(analyze, monkeypatch):
    library = pytest.importorskip("rliable.library")
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=9).round(1), rng.normal(0.5, size=7).round(1)
    bootstrap = analyze.Bootstrap(200, 4)

    def rliable_interval(function, *streams):
        values = [array[:, None] for array in streams]
        indices = [bootstrap.indices(len(array), i) for i, array in enumerate(streams)]
        drawn = iter([draw[:, None] for draws in zip(*indices, strict=True) for draw in draws])
        monkeypatch.setattr(np.random, "choice", lambda *_, **__: next(drawn))
        scores = {"x": values[0] if len(values) == 1 else values}
        points, intervals = library.get_interval_estimates(
            scores, lambda *x: np.array([function(*x)]), reps=200
        )
        return [points["x"].item(), *intervals["x"].ravel()]

    for own, function, streams in [
        (bootstrap.mean, metrics.aggregate_mean, (first,)),
        (bootstrap.iqm, metrics.aggregate_iqm, (first,)),
        (bootstrap.iqm, metrics.aggregate_iqm, (second,)),
        (bootstrap.improvement, metrics.probability_of_improvement, (first, second)),
        (bootstrap.improvement, metrics.probability_of_improvement, (second, first)),
    ]:
        expected = rliable_interval(function, *streams)
        assert list(own(*streams)) == pytest.approx(expected, rel=1e-12)
        assert expected[1] < expected[0] < expected[2]


def test_resamples_depend_on_the_seed_alone(analyze):
    values = np.random.default_rng(0).normal(size=12)
    one, two = analyze.Bootstrap(100, 5), analyze.Bootstrap(100, 5)
    two.iqm(values[:5])
    np.random.seed(1)  # noqa: NPY002 - the global generator must not matter
    assert one.mean(values) == two.mean(values)
    assert one.mean(values) != analyze.Bootstrap(100, 6).mean(values)
    assert not np.array_equal(one.indices(12, 0), one.indices(12, 1))


def test_holm_runs_over_all_arms_of_an_env(analyze, tmp_path):
    write_arm(tmp_path, LOW, shaping="none")
    write_arm(tmp_path, HIGH, shaping="adops")
    write_arm(tmp_path, [0.1, 0.0, 0.1, 0.3, 0.2], shaping="pies")
    write_arm(tmp_path, HIGH, shaping="adops", env_id="adops/KeyDoor-v0")
    _, pies, adops = computed(analyze, tmp_path).summaries[ENV]
    assert adops.comparison.welch_holm == pytest.approx(2 * adops.comparison.welch)
    assert pies.comparison.welch_holm == pytest.approx(pies.comparison.welch)
    assert adops.comparison.fisher_holm == pytest.approx(2 * adops.comparison.fisher)


def test_few_runs_get_no_numbers(analyze, tmp_path):
    write_arm(tmp_path, LOW, shaping="none")
    write_arm(tmp_path, [1.0, 0.5, 0.6], shaping="adops")
    write_arm(tmp_path, [0.25], shaping="pbim")
    analysis = computed(analyze, tmp_path)
    raw, pbim, adops = analysis.summaries[ENV]
    assert raw.mean.value == pytest.approx(0.08)
    assert (adops.mean, adops.iqm) == (None, None)
    assert adops.comparison.p_values == (None,) * 4
    assert adops.arm.mean_text == "0.7 ± 0.15"
    assert pbim.arm.mean_text == "0.25"
    analyze.write_tables(analysis, tmp_path)
    with (tmp_path / "summary.csv").open(newline="") as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert rows["ADOPS"]["welch_p"] == rows["ADOPS"]["iqm_low"] == "too few runs"
    assert (rows["ADOPS"]["mean"], rows["PBIM"]["se"], rows["raw"]["welch_p"]) == ("0.7", "", "")
    sentences = {v.statement: v.verdict for v in analysis.verdicts}
    assert sentences == {"PBIM solves nothing": "agrees"}


# Verdicts


def claim_table(analysis):
    return {verdict.statement.partition(" (paper")[0]: verdict for verdict in analysis.verdicts}


def test_verdicts_on_the_paper_flip_with_the_data(analyze, tmp_path):
    for folder, raw, grm, adopes in (("a", HIGH, LOW, [2.0] * 5), ("b", LOW, HIGH, [-1.0] * 5)):
        root = tmp_path / folder
        write_arm(root, raw, shaping="none")
        write_arm(root, grm, shaping="grm", delay=1)
        write_arm(root, grm, shaping="grm-norm", delay=1)
        write_arm(root, raw, shaping="pies")
        write_arm(root, adopes, shaping="adopes")
        write_arm(root, [0.0, 0.0] if folder == "a" else [0.0, 0.7], shaping="pbim")
    one, other = (claim_table(computed(analyze, tmp_path / folder)) for folder in "ab")
    flipping = {
        *("GRM(1) below raw", "GRM-norm(1) below raw", "ADOPES above raw", "ADOPES above PIES"),
        *("ADOPES above GRM(1)", "PBIM solves nothing"),
    }
    staying = {"PIES not different from raw", "GRM(1) not different from GRM-norm(1)"}
    assert one.keys() == other.keys() == flipping | staying
    assert {name: one[name].verdict for name in flipping} == dict.fromkeys(flipping, "agrees")
    assert {name: other[name].verdict for name in flipping} == dict.fromkeys(
        flipping, "contradicts"
    )
    assert {one[name].verdict for name in staying} == {"agrees"}
    assert other["PBIM solves nothing"].sentence == (
        "PBIM solved 1/2, mean return 0.35 ± 0.35; raw solved 0/5."
    )


def test_verdicts_on_weak_and_on_denied_differences(analyze, tmp_path):
    write_arm(tmp_path, [0.1, 0.5, 0.3, 0.4], shaping="none")
    write_arm(tmp_path, [0.2, 0.5, 0.4, 0.4], shaping="adopes")
    write_arm(tmp_path, [1.0, 0.9, 1.0, 0.9], shaping="pies")
    verdicts = claim_table(computed(analyze, tmp_path))
    assert verdicts["ADOPES above raw"].verdict == "undecided"
    assert verdicts["PIES not different from raw"].verdict == "contradicts"
    assert verdicts["ADOPES above PIES"].verdict == "contradicts"


def test_paper_is_held_against_each_bonus_at_scale_one(analyze, tmp_path):
    for bonus, scale in (("count", 1.0), ("rnd", 1.0), ("count", 0.3)):
        settings = {"bonus": bonus, "intrinsic_scale": scale}
        write_arm(tmp_path, LOW, shaping="none", **settings)
        write_arm(tmp_path, HIGH, shaping="adopes", **settings)
    assert list(claim_table(computed(analyze, tmp_path))) == [
        "ADOPES above raw",
        "ADOPES (RND) above raw (RND)",
    ]


def study_of(*questions):
    keys = ("id", "claim", "env", "better", "worse")
    return {"tier": "t", "questions": [dict(zip(keys, q, strict=True)) for q in questions]}


def test_answers_flip_with_the_data(analyze, tmp_path):
    write_arm(tmp_path, LOW, shaping="none", intrinsic_scale=0.3)
    write_arm(tmp_path, HIGH, shaping="adops", epsilon=0.01, intrinsic_scale=0.3)
    write_arm(tmp_path, [0.0, 0.1, 0.1, 0.2, 0.2], shaping="pies", intrinsic_scale=0.3)
    write_arm(tmp_path, HIGH[:3], shaping="pbim")
    study = study_of(
        ("H1", "Margin helps.", ENV, "ADOPS ε=0.01 ×0.3", "raw ×0.3"),
        ("H2", "Margin hurts.", ENV, "raw ×0.3", "ADOPS ε=0.01 ×0.3"),
        ("H3", "PIES helps.", ENV, "PIES ×0.3", "raw ×0.3"),
        ("H4", "PBIM helps.", ENV, "PBIM", "raw"),
        ("H5", "Elsewhere.", "adops/KeyDoor-v0", "PIES ×0.3", "raw ×0.3"),
    )
    (tmp_path / "study.json").write_text(json.dumps(study))
    analysis = computed(analyze, tmp_path)
    answers = {a.question["id"]: a for a in analysis.answers}
    assert {name: a.verdict for name, a in answers.items()} == {
        **{"H1": "supported", "H2": "contradicted", "H3": "undecided"},
        **{"H4": "not run", "H5": "not run"},
    }
    assert answers["H4"].headline == (
        "not run (missing: PBIM with 3 of at least 4 runs, raw with 0 of at least 4 runs)"
    )
    # Three of the five questions could be tested.
    p = analyze.welch_p(np.array(HIGH), np.array(LOW))
    assert answers["H1"].comparison.welch_holm == pytest.approx(3 * p)
    assert answers["H1"].sentence == (
        f"Margin helps. On {ENV}: ADOPS ε=0.01 ×0.3 solved 5/5, mean return 0.92 ± 0.037; "
        f"raw ×0.3 solved 0/5, mean return 0.08 ± 0.037; Welch p = {p:.2g}, Holm-adjusted = "
        f"{3 * p:.2g}; Fisher p = 0.0079; probability of improvement 1 (95 % interval 1 to 1)."
    )
    analyze.write_tables(analysis, tmp_path)
    with (tmp_path / "questions.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert rows["H1"]["verdict"] == "supported"
    assert (rows["H1"]["better_solved"], rows["H1"]["worse_solved"]) == ("5/5", "0/5")
    assert float(rows["H1"]["welch_p"]) == pytest.approx(p, rel=1e-5)
    assert (rows["H5"]["verdict"], rows["H5"]["welch_p"]) == ("not run", "")


def test_delays_in_order_with_pbim_norm_last(analyze, tmp_path):
    for delay in (16, 2, 1):
        write_arm(tmp_path, [0.0, delay / 16], shaping="grm-norm", delay=delay)
    write_arm(tmp_path, [1.0, 0.0], shaping="pbim-norm")
    write_arm(tmp_path, [1.0, 0.0], shaping="grm-norm", delay=1, intrinsic_scale=0.3)
    arms = computed(analyze, tmp_path).arms[ENV]
    delays = analyze.delay_arms(arms)
    assert list(delays) == [""]
    assert [(delay, arm.mean) for delay, arm in delays[""]] == [
        ("1", pytest.approx(1 / 32, rel=1e-5)),
        ("2", pytest.approx(1 / 16)),
        ("16", 0.5),
        ("N−1", 0.5),
    ]
    (axis,) = analyze.draw_delays(ENV, delays).axes
    assert [text.get_text() for text in axis.texts] == ["0/2", "0/2", "1/2", "1/2"]


# Sets that are not complete


def test_missing_and_unfinished_runs_are_named_and_left_out(analyze, ppo_rnd, tmp_path):
    sweep = load_script("sweep")
    settings = {"env_id": ENV, "bonus": "count", "total_iterations": "12"}
    cells = sweep.expand(["none", "grm"], range(1, 7), settings, {"delay": ["2"]})
    sweep.write_cells(sweep.check(cells, tmp_path))
    for cell in cells[:5]:
        write_run(tmp_path / cell.name, [0.5] * 12, seed=cell.seed)
    partial = tmp_path / "grm__delay=2__seed2"
    write_run(
        *(partial, [9.0] * 4),
        **{"seed": 2, "shaping": "grm", "delay": 2, "finished": False, "reason": "SIGTERM"},
    )
    (partial / "metrics.csv").write_text("iteration,global_")  # torn by a crash
    broken = {"seed": 3, "shaping": "grm", "delay": 2}
    write_run(tmp_path / "grm__delay=2__seed3", [None] * 12, **broken)
    write_run(tmp_path / "grm__delay=2__seed4", [0.0] * 12, **{**broken, "seed": 4})
    (tmp_path / "grm__delay=2__seed4" / "status.json").unlink()
    write_run(tmp_path / "grm__delay=2__seed1", [0.1] * 12, **{**broken, "seed": 1})
    analysis = computed(analyze, tmp_path)
    arms = analysis.arms[ENV]
    assert {label: list(arm.finals) for label, arm in arms.items()} == {
        "raw": [0.5] * 5,
        "GRM(2)": [0.1],
    }
    _, paragraph, table = analyze.gap_blocks(analysis.compact.expected)
    assert paragraph.text.startswith(
        "Of 12 runs: 6 finished, 1 no return, 2 unfinished, 3 missing."
    )
    assert table.rows == [
        [ENV, "raw", "5/6", "", "6"],
        [
            *(ENV, "GRM(2)", "1/6"),
            "grm__delay=2__seed2 (SIGTERM), "
            "grm__delay=2__seed3 (no episode ended in the last 10 iterations), "
            "grm__delay=2__seed4 (no status)",
            "5–6",
        ],
    ]


def test_a_run_that_finished_later_replaces_what_was_missing(analyze, tmp_path):
    write_arm(tmp_path / "runs", [0.5], shaping="none")
    cell = {"name": "none__seed2", "method": "none", "seed": 2, "varied": {}}
    cell["settings"] = {"env_id": ENV, "bonus": "count"}
    (tmp_path / "runs" / "sweep.json").write_text(json.dumps({"cells": [cell]}))
    (tmp_path / "out").mkdir()
    analyze.write_compact(analyze.collect([tmp_path / "runs"]), tmp_path / "out")
    states = [row["state"] for row in analyze.collect([tmp_path / "out"]).expected]
    assert states == ["finished", "missing"]
    write_run(tmp_path / "late", [1.0] * 12, seed=2)
    joined = analyze.collect([tmp_path / "late", tmp_path / "out"])
    assert [row["state"] for row in joined.expected] == ["finished", "finished"]
    assert [row["final_return"] for row in joined.runs] == ["0.5", "1"]


def test_a_run_given_twice_counts_once_and_equal_names_stay_apart(analyze, tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / f"sweep{seed}" / "run", [seed / 4] * 12, seed=seed)
    one, two = tmp_path / "sweep1", tmp_path / "sweep2"
    compact = analyze.collect([one, one / "run", two])
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


# Figures


def test_figures_show_the_numbers(analyze, tmp_path):
    write_run(tmp_path / "a", [0.0, None, 1.0, 1.0], seed=1)
    write_run(tmp_path / "b", [1.0, None, 0.0, 1.0], seed=2)
    write_run(tmp_path / "c", [0.0] * 4, seed=1, shaping="adops", conflict=[0.0, 0.2, 0.4, 0.6])
    write_run(tmp_path / "d", [1.0] * 4, seed=1, shaping="pies", intrinsic_scale=0.3)
    arms = computed(analyze, tmp_path).arms[ENV]
    panels = [axis for axis in analyze.draw_curves(ENV, arms).axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == [
        "ADOPS and ADOPES: bonus ×1",
        "PIES, GRM and PBIM: bonus ×0.3",
    ]
    raw, adops = panels[0].get_lines()
    assert (raw.get_label(), adops.get_label()) == ("raw (N=2)", "ADOPS (N=1)")
    np.testing.assert_allclose(raw.get_xdata(), [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(raw.get_ydata(), [0.5, 0.5, 0.5, (2 / 3 + 2 / 3) / 2])
    (axis,) = analyze.draw_finals(ENV, arms).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["raw", "ADOPS", "PIES ×0.3"]
    texts = [text.get_text().split()[0] for text in axis.texts]
    assert texts == ["2/2", "0/1", "1/1", "solved"]
    conflict, intervention, *_ = analyze.draw_rates(ENV, arms).axes
    np.testing.assert_allclose(conflict.get_lines()[1].get_ydata(), [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(intervention.get_lines()[1].get_ydata(), [0.5] * 4)


def test_no_two_methods_of_a_panel_look_alike(analyze):
    labels = ["no bonus", "raw", "PIES", "GRM(1)", "GRM-norm(1)", "PBIM", "PBIM-norm", "ADOPS"]
    labels += ["ADOPS ε=0.01", "ADOPES", "ADOPES F/2", "guarded", "off at first reward"]
    labels += [f"{method}({d})" for d in (2, 4, 8, 16, 32) for method in ("GRM", "GRM-norm")]
    looks = {(str(s["color"]), s["linestyle"]) for s in map(analyze.style, labels)}
    assert len(looks) == len(labels)
    assert analyze.style("ADOPS ×0.3 (RND)") == analyze.style("ADOPS")


# Report


@pytest.fixture(scope="module")
def study_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("study") / "runs"
    write_arm(root, LOW, shaping="none")
    write_arm(root, HIGH, shaping="adops")
    write_arm(root, [0.1, 0.2 / 3, 1 / 3, 0.7], shaping="grm-norm", delay=1)
    write_arm(root, [0.0, 1 / 7], shaping="grm-norm", delay=4)
    write_run(root / "<img src=x onerror=alert(1)>|`*[a](b)", [1.0], seed=9, finished=False)
    write_run(root / "long", np.sin(np.arange(230)) ** 2, env_id="adops/KeyDoor-v0")
    question = ("H1", "ADOPS < raw & <script>alert(2)</script>.", ENV, "ADOPS", "raw")
    (root / "study.json").write_text(json.dumps(study_of(question)))
    cell = {"name": "pies__seed1", "method": "pies", "seed": 1, "varied": {}}
    cell["settings"] = {"env_id": ENV, "bonus": "count"}
    (root / "sweep.json").write_text(json.dumps({"cells": [cell]}))
    return root


@pytest.fixture(scope="module")
def report(analyze, study_root):
    out = study_root.parent / "out"
    assert analyze.main([str(study_root), "--out", str(out), "--reps", "200"]) == 0
    return files_of(out)


def test_compact_files_give_the_same_bytes(analyze, study_root, report, capsys):
    out = study_root.parent / "out"
    again = study_root.parent / "again"
    assert analyze.main([str(out), "--out", str(again), "--reps", "200"]) == 0
    assert capsys.readouterr().out == f"{again / 'report.html'}\n"
    assert files_of(again) == report
    assert analyze.main([str(again), "--out", str(again), "--reps", "200"]) == 0
    assert files_of(again) == report
    assert set(report) == {
        *("runs.csv", "return.csv", "conflict.csv", "intervention.csv", "expected.csv"),
        *("study.json", "summary.csv", "paper.csv", "questions.csv", "report.md", "report.html"),
        *("curves_KeyDoorTV.png", "final_KeyDoorTV.png", "rates_KeyDoorTV.png"),
        *("delay_KeyDoorTV.png", "curves_KeyDoor.png", "final_KeyDoor.png", "rates_KeyDoor.png"),
    }
    assert len(report["return.csv"].decode().splitlines()[0].split(",")) == 1 + 77
    assert b"tEXtSoftware" not in report["final_KeyDoor.png"]


def test_report_begins_with_verdicts_and_says_how_it_was_made(report, study_root):
    text = report["report.md"].decode()
    headings = [line for line in text.splitlines() if line.startswith(("# ", "## "))]
    assert headings == [
        "# Results of the study, tier t",
        "## Questions of the study",
        "## Agreement with the paper",
        "## Missing and unfinished runs",
        "## adops/KeyDoor-v0",
        f"## {ENV}",
        "## How this was made",
    ]
    assert "**H1 supported:**" in text
    assert f"{ENV}, GRM-norm(1) below raw (paper: p = .009):" in text
    assert "| adops/KeyDoorTV-v0 | PIES | 0/1 |  | 1 |" in text
    assert "| ADOPS | 5 | 5/5 | 0.92 ± 0.037 | 0.9 | 0.8 to 1 |" in text
    assert "from 17 finished runs" in text
    assert "200 bootstrap resamples of the runs, seed 0" in text
    assert str(study_root.parent) not in text
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == 7
    assert set(pictures) < set(report)


def test_page_escapes_names_and_carries_its_pictures(report):
    page = report["report.html"].decode()
    assert "<img src=x" not in page
    assert "<script" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;|`*[a](b)" in page
    assert "ADOPS &lt; raw &amp; &lt;script&gt;alert(2)&lt;/script&gt;." in page
    sources = re.findall(r'(?:src|href)="(.*?)"', page)
    assert all(source.startswith("data:") for source in sources)
    pictures = [s.removeprefix("data:image/png;base64,") for s in sources if "png" in s]
    drawn = {content for name, content in report.items() if name.endswith(".png")}
    assert {base64.b64decode(picture) for picture in pictures} == drawn
    markdown = report["report.md"].decode()
    assert r"&lt;img src=x onerror=alert(1)&gt;\|\`\*\[a\](b)" in markdown
    assert "<" not in markdown


def test_html_and_markdown_hold_the_same_tables(report):
    page, text = report["report.html"].decode(), report["report.md"].decode()
    rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in page.splitlines()]
    in_page = [row for row in rows if row]
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    in_text = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    unescaped = [[re.sub(r"\\(.)", r"\1", cell).strip() for cell in row] for row in in_text]
    assert unescaped == in_page
    assert len(in_page) > 20


def test_numbers_for_people(analyze):
    values = [0.0, -0.0, 0.12345, -0.5, 2500.4, math.nan]
    assert [analyze.shown(value) for value in values] == ["0", "0", "0.123", "−0.5", "2500", "–"]
    assert [analyze.shown(value, 2) for value in (0.0374, 19.6, 195.0)] == ["0.037", "20", "195"]
    assert [analyze.shown_p(p) for p in (None, 0.0, 0.0312, 1.0)] == [
        "too few runs",
        "< 1e-15",
        "0.031",
        "1",
    ]
    assert analyze.ranges([7, 1, 2, 3, 9, 10]) == "1–3, 7, 9–10"
    assert analyze.slug("adops/KeyDoorTV-v0") == "KeyDoorTV"
    assert analyze.slug("ALE/MontezumaRevenge-v5") == "ALE-MontezumaRevenge-v5"


# Errors


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())


def lose_row(root):
    edit(root / "run" / "metrics.csv", "2,200,0.5,1.5,0.5,0.5,0.9166666666666666\r\n", "")


DAMAGES = {
    "absent": (lambda root: (root / "run").rename(root.parent / "x"), r"holds no runs; expected"),
    "cut": (
        lambda root: edit(root / "run" / "metrics.csv", ",1.5,0.5,0.5,0.75", ""),
        r"metrics.csv, line 5: 3 cells, expected 7 as in the header. Restore",
    ),
    "text": (
        lambda root: edit(root / "run" / "metrics.csv", "0.5", "x0.5"),
        r"line 2: charts/episodic_return is 'x0.5', expected a number or an empty cell",
    ),
    "column": (
        lambda root: edit(root / "run" / "metrics.csv", "shaping/zeta", "zeta"),
        r"has no column shaping/zeta; expected a header with iteration",
    ),
    "row": (lose_row, r"the iterations are not 1, 2, 3, ... up to 11, so rows are lost"),
    "empty": (
        lambda root: (root / "run" / "metrics.csv").write_text(",".join(COLUMNS) + "\n"),
        r"has no rows, expected one for each iteration. Train this run again",
    ),
    "end": (
        lambda root: edit(root / "run" / "config.json", '_iterations": 12', '_iterations": 13'),
        r"has 12 rows, expected 13: the run is marked as finished",
    ),
    "gone": (
        lambda root: (root / "run" / "metrics.csv").unlink(),
        r"cannot read .*metrics.csv: .*; expected a CSV file. Restore it",
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
        r"a question has no text for claim, env, better, worse; expected",
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


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_results_are_refused_with_a_way_out(analyze, tmp_path, name, capsys):
    damage, message = DAMAGES[name]
    write_run(tmp_path / "runs" / "run", [0.5] * 12)
    damage(tmp_path / "runs")
    assert analyze.main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert re.search(f"error: .*{message}", error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("runs.csv", ",12,1200,", ",12.5,1200,", r"line 2: iterations is '12.5', which analyze.py"),
        ("runs.csv", ">= 0.5", "high", r"line 2: solved_if is 'high', which analyze.py"),
        ("runs.csv", "final_return", "last", r"has no column final_return; expected"),
        ("expected.csv", "finished", "done", r"expected.csv, line 2: state is 'done'"),
        ("return.csv", "run,0.5", "other,0.5", r"return.csv does not hold 12 points of run"),
        ("conflict.csv", "run,0.5", "run,half", r"line 2: a value of run is 'half', expected"),
    ],
)
def test_damaged_compact_files_are_refused(analyze, tmp_path, file, old, new, message):
    write_run(tmp_path / "run", [0.5] * 12)
    out = tmp_path / "out"
    out.mkdir()
    analyze.write_compact(analyze.collect([tmp_path / "run"]), out)
    edit(out / file, old, new)
    with pytest.raises(analyze.InputError, match=message):
        analyze.collect([out])


def test_paths_and_options_are_checked(analyze, tmp_path, capsys):
    write_run(tmp_path / "run", [0.5] * 12)
    with pytest.raises(analyze.InputError, match=r"nowhere does not exist; expected a run dir"):
        analyze.collect([tmp_path / "nowhere"])
    with pytest.raises(analyze.InputError, match=r"metrics.csv is a file; expected a run dir"):
        analyze.collect([tmp_path / "run" / "metrics.csv"])
    with pytest.raises(analyze.InputError, match=r"reps is 0 .* expected reps of at least 1"):
        analyze.analyze([tmp_path / "run"], tmp_path / "out", reps=0)
    assert analyze.main(["--out", str(tmp_path / "out")]) == 1
    assert "error: no results are given; expected run directories" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert analyze.main([str(tmp_path / "run"), "--out", str(tmp_path / "file")]) == 1
    assert f"error: cannot write to {tmp_path / 'file'}: File exists" in capsys.readouterr().err


def test_studies_that_contradict_each_other_are_refused(analyze):
    one, other = (study_of(("H1", claim, ENV, "ADOPS", "raw")) for claim in ("A.", "B."))
    with pytest.raises(analyze.InputError, match=r"two different questions H1"):
        analyze.join_studies([one, other])
    with pytest.raises(analyze.InputError, match=r"solved at different returns"):
        analyze.join_studies([one, {**one, "solved": 0.7}])
    more = {**study_of(("H2", "B.", ENV, "ADOPS", "raw")), "tier": "u"}
    joined = analyze.join_studies([one, more, one])
    assert [question["id"] for question in joined["questions"]] == ["H1", "H2"]
    assert joined["tier"] == "t + u"


def test_script_ends_with_code_1_and_needs_no_torch(tmp_path):
    output = run_script("analyze.py", str(tmp_path), "--out", str(tmp_path / "out"), code=1)
    assert f"error: {tmp_path} holds no runs; expected run directories" in output
    assert "Traceback" not in output
    code = "import sys, analyze; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=TRAIN, env=environment()
    )
    assert result.stdout == "False\n", result.stderr
