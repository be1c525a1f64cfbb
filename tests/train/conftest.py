"""Makes the helpers beside this file and the scripts importable; skips where torch is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "train")]


@pytest.fixture(scope="session")
def ppo_rnd() -> ModuleType:
    from train_scripts import load_script

    return load_script("ppo_rnd")
