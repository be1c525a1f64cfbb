from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scaling.py"


@pytest.fixture(scope="module")
def scaling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scaling", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scaling"] = module
    spec.loader.exec_module(module)
    return module


def test_throughput_is_the_median_of_alternated_runs(scaling, monkeypatch):
    order = []

    def run(variant, iterations):
        order.append((variant.ranks, variant.threads))
        speed = 100.0 * variant.ranks + 50.0 * (variant.threads - 1)
        phases = dict.fromkeys(("time/env", "time/forward", "time/bonus", "time/update"), 0.25)
        return [{"charts/SPS": speed + i, **phases} for i in range(iterations)]

    monkeypatch.setattr(scaling, "run", run)
    table = scaling.throughput_table(scaling.Settings(repetitions=2, iterations=3))
    assert order == [*order[:6], *order[5::-1]]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [(row[1], row[2], row[3], row[4], row[5]) for row in rows[:3]] == [
        ("1", "1", "101", "102", "1.00×"),
        ("1", "2", "151", "152", "1.50×"),
        ("2", "1", "201", "202", "1.99×"),
    ]
    assert {(row[6], row[7]) for row in rows} == {("0.75 s", "0.25 s |")}


def test_all_reduce_of_two_ranks_is_timed(scaling):
    rows = [line.split(" | ") for line in scaling.all_reduce_table().splitlines()[2:]]
    assert [row[:2] for row in rows] == [
        ["| MiniGrid networks", "0.18"],
        ["| Atari networks", "14.44"],
    ]
    assert all(float(row[2].removesuffix(" ms")) > 0.0 for row in rows)
