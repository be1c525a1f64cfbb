"""Makes the helper module beside this file importable, and skips where torch is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def ppo_rnd() -> ModuleType:
    from train_scripts import load_script

    return load_script("ppo_rnd")
