"""Skips where torch is missing."""

from __future__ import annotations

from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")


@pytest.fixture(scope="session")
def ppo_rnd() -> ModuleType:
    from tests.train.scripts import load_script

    return load_script("ppo_rnd")
