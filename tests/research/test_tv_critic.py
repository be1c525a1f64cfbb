"""The measurements of docs/mechanism.md: what the watcher counts, and that the page shows it."""

from __future__ import annotations

import csv
from importlib import import_module
from statistics import median

import numpy as np
import pytest

from adops_wrappers.shaping import Transition
from tests.train.scripts import ROOT

GAMMA = 0.9


@pytest.fixture(scope="module")
def tv_critic(ppo_rnd):
    return import_module("research.tv_critic")


def step(on_tv, after_on_tv, value_ext, next_value_ext, *, reward=0.0, kept=0.5):
    """Return one step of two rows: the first as given, the second away from the TV."""
    seen = np.zeros((2, 20))
    later = np.zeros((2, 20))
    seen[0, -3], later[0, -1] = float(on_tv), -float(after_on_tv)
    rows = np.ones(2)
    no = np.zeros(2, dtype=bool)
    return Transition(
        reward=reward * rows,
        intrinsic=2.0 * rows,
        value_ext=np.array([value_ext, 0.25]),
        value_int=np.array([3.0, 1.0]),
        next_value_ext=np.array([next_value_ext, 0.25]),
        next_value_int=rows,
        advantage_ext=None,
        terminated=no,
        truncated=no,
        valid=~no,
        shaped=2.0 * kept * rows,
        observation=seen,
        next_observation=later,
    )


def test_only_steps_that_stay_in_front_of_the_tv_count(tv_critic, monkeypatch):
    monkeypatch.setattr(tv_critic, "FEWEST", 2)
    watcher = tv_critic.TVWatcher(steps=4, gamma=GAMMA)
    watcher.observe(step(True, True, 1.0, 1.0))  # A_E = -0.1
    watcher.observe(step(True, True, 2.0, 3.0, kept=1.0))  # A_E = 0.7
    watcher.observe(step(True, False, 100.0, 0.0, kept=0.0))
    assert not watcher.updates
    watcher.observe(step(False, True, 100.0, 0.0, kept=0.0))
    assert watcher.updates == [
        pytest.approx(
            {
                "tv_share": 2 / 8,
                "called_bad": 0.5,
                "bonus_left": 0.75,
                "value_int": 3.0,
                "value_ext": 1.5,
                "signal": 0.15,
                "noise": 0.4,
            }
        )
    ]
    for _ in range(4):
        watcher.observe(step(False, False, 0.0, 0.0, reward=1.0))
    assert len(watcher.updates) == 1
    assert len(watcher.correlations) == 1


def test_values_are_correlated_before_the_first_reward_only(tv_critic):
    watcher = tv_critic.TVWatcher(steps=2, gamma=GAMMA)
    values = [(1.0, 0.0), (4.0, 0.0)]
    for value, after in values:
        watcher.observe(step(False, False, value, after))
    ext, own = np.array([1.0, 0.25, 4.0, 0.25]), np.array([3.0, 1.0, 3.0, 1.0])
    assert watcher.correlations == [pytest.approx(np.corrcoef(ext, own)[0, 1])]


def test_a_run_is_watched_to_its_end(tv_critic):
    row = tv_critic.measure("as is", 1, iterations=2)
    assert set(row) == set(tv_critic.COLUMNS)
    assert float(row["grad_norm"]) > 0.0


def test_the_page_shows_the_committed_numbers(tv_critic):
    with (ROOT / "docs" / "data" / "tv_critic.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs" / "mechanism.md").read_text()
    assert [(row["bonus"], int(row["seed"])) for row in rows] == [
        (size, seed) for size in tv_critic.SIZES for seed in range(1, 6)
    ]
    for line in tv_critic.table(rows):
        assert line in page


def test_medians_of_the_table(tv_critic):
    names = tv_critic.COLUMNS[2:]
    rows = [
        {"bonus": size, **{name: str(place + seed) for place, name in enumerate(names)}}
        for size in tv_critic.SIZES
        for seed in (1, 2, 9)
    ]
    header, _, solved, share, *_ = tv_critic.table(rows)
    assert header.count("|") == len(tv_critic.SIZES) + 2
    assert solved.endswith("| 3 of 3 | 3 of 3 | 3 of 3 |")
    assert f"| {median([2, 3, 10]):.0%} |".replace("%", " %") in share
