from __future__ import annotations

import dataclasses
import typing

import pytest

from adops_wrappers.methods import METHODS
from research.analysis.labels import COLOURS, DEFAULTS, Label
from tests.research.run_dirs import ENV


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
        ({"shaping": "none", "intrinsic_scale": 0.1, "bonus": "rnd"}, "raw ×0.1 (RND)"),
        ({"shaping": "adops", "bonus": "rnd", "env_id": "ALE/MontezumaRevenge-v5"}, "ADOPS"),
        ({"shaping": "none", "clamp_advantage": True}, "ADOPS on A"),
        ({"shaping": "pies", "clamp_advantage": "True"}, "PIES and ADOPS on A"),
        ({"shaping": "none", "normalize_intrinsic": "no"}, "raw (as is)"),
        (
            {"shaping": "adops", "normalize_intrinsic": "rms", "bonus": "rnd"},
            "ADOPS (rms) (RND)",
        ),
        (
            {"shaping": "pies", "normalize_intrinsic": "no", "intrinsic_scale": "3"},
            "PIES ×3 (as is)",
        ),
        ({"shaping": "none", "normalize_intrinsic": "rms"}, "raw"),
        ({"shaping": "pies", "schedule_iterations": 300, "total_iterations": 600}, "PIES"),
        (
            {"shaping": "pies", "schedule_iterations": "600", "total_iterations": "600"},
            "PIES C=600",
        ),
        ({"shaping": "guarded", "quiet_iterations": 10, "total_iterations": 80}, "late guarded"),
        (
            {
                "shaping": "none",
                "clamp_advantage": "True",
                "quiet_iterations": "75",
                "total_iterations": "600",
            },
            "late ADOPS on A",
        ),
        ({"quiet_iterations": "10", "total_iterations": "600"}, "late 10 raw"),
        ({"shaping": "future"}, "future"),
    ],
)
def test_label_of_an_arm(args, label):
    made = Label.of({"env_id": ENV, "bonus": "count", **args})
    assert str(made) == label
    assert Label.parse(label) == made


def test_defaults_and_methods_are_those_of_ppo_rnd(ppo_rnd):
    args = dataclasses.asdict(ppo_rnd.Args())
    known = {name: args[name] for name in DEFAULTS if name in args}
    assert known == {name: DEFAULTS[name] for name in known}
    assert {"env_id", "shaping", "bonus", "intrinsic_scale", "epsilon", "delay"} <= known.keys()
    for name in typing.get_args(typing.get_type_hints(ppo_rnd.Args)["shaping"]):
        assert METHODS[name].label in COLOURS


def test_order_and_reference_of_arms():
    references = {
        "no bonus": "",
        "raw": "no bonus",
        "late 10 raw": "raw",
        "late raw": "raw",
        "PIES": "raw",
        "PIES C=600": "raw",
        "GRM-norm(2)": "raw",
        "GRM-norm(16)": "raw",
        "ADOPS": "raw",
        "ADOPS ε=0.01": "raw",
        "guarded": "raw",
        "late guarded": "raw",
        "raw ×0.3": "no bonus",
        "ADOPS ε=0.01 ×0.3": "raw ×0.3",
        "off at first reward ×0.1": "raw ×0.1",
        "PIES (as is)": "raw (as is)",
        "ADOPS on A ×0.1 (as is)": "raw ×0.1 (as is)",
        "raw (RND)": "no bonus",
        "PIES ×0.3 (RND)": "raw ×0.3 (RND)",
    }
    shuffled = sorted(references)
    assert sorted(shuffled, key=lambda label: Label.parse(label).order) == list(references)
    assert {label: Label.parse(label).reference for label in references} == references
