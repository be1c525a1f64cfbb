from __future__ import annotations

import doctest
import re
from pathlib import Path

import gymnasium as gym
import pytest

from benchmarks import evidence

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.skipif("CliffWalking-v1" not in gym.registry, reason="needs Gymnasium >= 1.2")
def test_examples_of_the_page_run():
    result = doctest.testfile(str(DOCS / "audit.md"), module_relative=False, encoding="utf-8")
    assert result.attempted > 10
    assert result.failed == 0


def test_counts_of_the_page_name_every_claim_of_the_sweep():
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    _, tried, _ = evidence.sweep(8, seed=0)
    for claim in tried:
        assert re.search(rf"\| {re.escape(claim)} \| \d+ of \d+ \|", page), claim
