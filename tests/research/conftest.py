"""Skips where the extras train and analysis are missing."""

from __future__ import annotations

from types import ModuleType

import pytest

for package in ("torch", "tyro", "tensorboard", "scipy", "matplotlib", "markdown"):
    pytest.importorskip(package)


@pytest.fixture(scope="session")
def ppo_rnd() -> ModuleType:
    from train import ppo_rnd

    return ppo_rnd
