from __future__ import annotations

import math

from analysis.text import ranges, shown, shown_p, slug


def test_numbers_for_people():
    values = [0.0, -0.0, 0.12345, -0.5, 2500.4, math.nan]
    assert [shown(value) for value in values] == ["0", "0", "0.123", "−0.5", "2500", "–"]
    assert [shown(value, 2) for value in (0.0374, 19.6, 195.0)] == ["0.037", "20", "195"]
    assert [shown_p(p) for p in (None, 0.0, 0.0312, 1.0)] == [
        "too few runs",
        "< 1e-15",
        "0.031",
        "1",
    ]
    assert ranges([7, 1, 2, 3, 9, 10]) == "1–3, 7, 9–10"
    assert slug("adops/KeyDoorTV-v0") == "KeyDoorTV"
    assert slug("ALE/MontezumaRevenge-v5") == "ALE-MontezumaRevenge-v5"
