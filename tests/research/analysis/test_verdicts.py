from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from research.analysis.report import report
from research.analysis.statistics import welch_p
from research.analysis.tables import write_tables
from research.analysis.text import shown_p
from tests.research.run_dirs import ENV, HIGH, LOW, computed, study_of, write_arm, write_run


def claim_table(analysis):
    return {verdict.claim: verdict for verdict in analysis.verdicts}


def test_verdicts_on_the_paper_flip_with_the_data(tmp_path):
    for folder, raw, grm, adopes in (("a", HIGH, LOW, [2.0] * 5), ("b", LOW, HIGH, [-1.0] * 5)):
        root = tmp_path / folder
        write_arm(root, raw, shaping="none")
        write_arm(root, grm, shaping="grm", delay=1)
        write_arm(root, grm, shaping="grm-norm", delay=1)
        write_arm(root, raw, shaping="pies")
        write_arm(root, adopes, shaping="adopes")
        write_arm(root, [0.0] * 4 if folder == "a" else [0.0, 0.7], shaping="pbim")
    one, other = (claim_table(computed(tmp_path / folder)) for folder in "ab")
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
    assert other["PBIM solves nothing"].numbers == "solved 1/2, mean 0.35 ± 0.35"
    p = 7 * welch_p(np.array(HIGH), np.array(LOW))  # the smallest of seven
    grm = other["GRM(1) below raw"]
    assert (grm.bonus, grm.paper_p) == ("count", "0.031")
    assert grm.short == f"5/5 vs 0/5, p = {shown_p(p)}"
    assert grm.numbers.startswith(
        "GRM(1) solved 5 of 5 (mean 0.92 ± 0.04), raw 0 of 5 (0.08 ± 0.04); Welch p = "
    )


def test_verdicts_on_weak_and_on_denied_differences(tmp_path):
    write_arm(tmp_path, [0.1, 0.5, 0.3, 0.4], shaping="none")
    write_arm(tmp_path, [0.2, 0.5, 0.4, 0.4], shaping="adopes")
    write_arm(tmp_path, [1.0, 0.9, 1.0, 0.9], shaping="pies")
    verdicts = claim_table(computed(tmp_path))
    assert verdicts["ADOPES above raw"].verdict == "undecided"
    assert verdicts["PIES not different from raw"].verdict == "contradicts"
    assert verdicts["ADOPES above PIES"].verdict == "contradicts"


def test_paper_is_held_against_each_bonus_at_scale_one(tmp_path):
    for bonus, scale in (("count", 1.0), ("rnd", 1.0), ("count", 0.3)):
        settings = {"bonus": bonus, "intrinsic_scale": scale}
        write_arm(tmp_path, LOW, shaping="none", **settings)
        write_arm(tmp_path, HIGH, shaping="adopes", **settings)
    found = [(verdict.bonus, verdict.claim) for verdict in computed(tmp_path).verdicts]
    assert found == [("count", "ADOPES above raw"), ("rnd", "ADOPES above raw")]


def test_answers_flip_with_the_data(tmp_path):
    write_arm(tmp_path, LOW, shaping="none", intrinsic_scale=0.3)
    write_arm(tmp_path, HIGH, shaping="adops", epsilon=0.01, intrinsic_scale=0.3)
    write_arm(tmp_path, [0.0, 0.1, 0.1, 0.2, 0.2], shaping="pies", intrinsic_scale=0.3)
    write_arm(tmp_path, HIGH[:3], shaping="pbim")
    study = study_of(
        ("H1", "margin helps", ENV, "ADOPS ε=0.01 ×0.3", "raw ×0.3"),
        ("H2", "Margin hurts.", ENV, "raw ×0.3", "ADOPS ε=0.01 ×0.3"),
        ("H3", "PIES helps.", ENV, "PIES ×0.3", "raw ×0.3"),
        ("H4", "PBIM helps.", ENV, "PBIM", "raw"),
        ("H5", "Elsewhere.", "adops/KeyDoor-v0", "PIES ×0.3", "raw ×0.3"),
    )
    (tmp_path / "study.json").write_text(json.dumps(study))
    analysis = computed(tmp_path)
    answers = {a.question.id: a for a in analysis.answers}
    assert {name: a.verdict for name, a in answers.items()} == {
        **{"H1": "supported", "H2": "contradicted", "H3": "undecided"},
        **{"H4": "too few runs", "H5": "too few runs"},
    }
    assert answers["H4"].sentence == (
        "PBIM helps (KeyDoorTV): PBIM has 3 and raw has 0 of the 4 runs that a test needs."
    )
    # Three of the five questions could be tested; the others count, so that they may come later.
    p = welch_p(np.array(HIGH), np.array(LOW))
    assert answers["H1"].comparison.welch_holm == pytest.approx(5 * p)
    assert answers["H1"].sentence == (
        "Margin helps (KeyDoorTV): ADOPS ε=0.01 ×0.3 solved 5 of 5 (mean 0.92 ± 0.04), "
        f"raw ×0.3 0 of 5 (0.08 ± 0.04); Welch p = {shown_p(p)}, corrected {shown_p(5 * p)}; "
        "Fisher p = 0.0079; P(ADOPS ε=0.01 ×0.3 better) = 1.00 [1.00, 1.00]."
    )
    write_tables(analysis, tmp_path)
    with (tmp_path / "questions.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert rows["H1"]["verdict"] == "supported"
    assert (rows["H1"]["better_solved"], rows["H1"]["worse_solved"]) == ("5/5", "0/5")
    assert float(rows["H1"]["welch_p"]) == pytest.approx(p, rel=1e-5)
    assert (rows["H5"]["verdict"], rows["H5"]["welch_p"]) == ("too few runs", "")


def test_later_questions_do_not_change_the_answers_to_earlier_ones(tmp_path):
    write_arm(tmp_path, LOW, shaping="none")
    write_arm(tmp_path, HIGH, shaping="adops")
    write_arm(tmp_path, HIGH, shaping="pies")
    study = study_of(
        ("H1", "ADOPS helps.", ENV, "ADOPS", "raw"),
        ("L1", "PIES helps.", ENV, "PIES", "raw"),
        ("L2", "ADOPS is above PIES.", ENV, "ADOPS", "PIES"),
    )
    for question in study["questions"][1:]:
        question["round"] = "late"
    (tmp_path / "study.json").write_text(json.dumps(study))
    analysis = computed(tmp_path)
    first, *later = (answer.comparison for answer in analysis.answers)
    assert first.welch_holm == first.welch
    assert [c.welch_holm for c in later] == [2 * later[0].welch, later[1].welch]
    assert "by Holm over all questions asked at the same time, gives" in report(analysis)


def test_a_question_can_compare_another_metric(tmp_path):
    """Runs that rise and fall against runs that rise: the same mean, but another fall."""
    for seed in range(1, 6):
        up = np.linspace(0.0, 1.0 + 0.01 * seed, 20)
        fall = np.concatenate([up[::2], up[::-2]])
        write_run(tmp_path / f"rises{seed}", [*up], seed=seed, shaping="none")
        write_run(tmp_path / f"falls{seed}", [*fall], seed=seed, shaping="pies")
    study = study_of(("P4", "PIES falls", ENV, "PIES", "raw", "fall"))
    (tmp_path / "study.json").write_text(json.dumps(study))
    analysis = computed(tmp_path)
    (answer,) = analysis.answers
    assert answer.verdict == "supported"
    assert "(return in the middle of training minus that at its end " in answer.sentence
    assert "P(PIES higher) = 1.00" in answer.sentence
    falls = {arm.label: arm.values("fall") for arm in analysis.arms[ENV].values()}
    assert answer.comparison.welch == welch_p(falls["PIES"], falls["raw"])
    write_tables(analysis, tmp_path)
    with (tmp_path / "questions.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["better_mean"]) == pytest.approx(falls["PIES"].mean(), rel=1e-5)
    assert row["metric"] == "fall"
