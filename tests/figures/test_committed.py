"""Committed pictures are what their scripts draw of the committed tables."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
image = pytest.importorskip("matplotlib.image")

ROOT = Path(__file__).parents[2]
DATA, IMAGES = ROOT / "docs" / "data", ROOT / "docs" / "images"
SCRIPTS = {"montezuma_action_prob": "action_prob", "montezuma_debt": "montezuma_debt"}


def same_matplotlib() -> bool:
    """Whether this version drew the committed pictures; others may place a pixel differently."""
    version = importlib.metadata.version("matplotlib")
    return f"matplotlib=={version};" in (ROOT / "train" / "constraints.txt").read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_picture_is_drawn_from_the_table(name: str, tmp_path: Path) -> None:
    script = importlib.import_module(SCRIPTS[name])
    table, out = str(DATA / f"{name}.csv"), str(tmp_path / "drawn.png")
    field = "table" if name == "montezuma_debt" else "runs"
    value = table if field == "table" else (table,)
    script.main(script.Settings(**{field: value}, out=out))
    drawn, committed = image.imread(out), image.imread(IMAGES / f"{name}.png")
    assert drawn.shape == committed.shape
    if same_matplotlib():
        np.testing.assert_array_equal(drawn, committed)
