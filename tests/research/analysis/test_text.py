from __future__ import annotations

import math

from research.analysis.text import env_name, ranges, shown, shown_p, slug


def test_numbers_for_people():
    values = [0.0, -0.001, 0.12345, -0.5, 19.6, 2500.4, math.nan]
    texts = ["0.00", "0.00", "0.12", "−0.50", "19.60", "2500", "–"]
    assert [shown(value) for value in values] == texts
    assert [shown(value, 0) for value in (0.4, 19.6)] == ["0", "20"]
    assert [shown_p(p) for p in (None, 0.0, 0.0312, 1.54e-5, 1.0)] == [
        "too few runs",
        "< 1e-15",
        "0.031",
        "1.5e-5",
        "1",
    ]
    assert ranges([7, 1, 2, 3, 9, 10]) == "1–3, 7, 9–10"


def test_names_of_envs():
    names = {"adops/KeyDoorTV-v0": "KeyDoorTV", "CartPole-v0": "CartPole-v0"}
    assert {env: env_name(env) for env in names} == names
    assert slug("adops/KeyDoorTV-v0") == "KeyDoorTV"
    assert slug("ALE/MontezumaRevenge-v5") == "ALE-MontezumaRevenge-v5"
