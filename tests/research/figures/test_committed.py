"""Committed pictures are what their scripts draw of the committed tables."""

from __future__ import annotations

import importlib.metadata
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

image = pytest.importorskip("matplotlib.image")

ROOT = Path(__file__).parents[3]
DATA, IMAGES = ROOT / "docs" / "data", ROOT / "docs" / "images"
TITLE = "Kung-Fu Master from pixels, RND bonus, one run each"
SCRIPTS: dict[str, tuple[str, dict[str, str]]] = {
    "montezuma_action_prob": ("action_prob", {}),
    "montezuma_debt": ("montezuma_debt", {}),
    "pixels_kung_fu_master": ("pixels", {"title": TITLE}),
}


def same_matplotlib() -> bool:
    """Whether this version drew the committed pictures; others may place a pixel differently."""
    version = importlib.metadata.version("matplotlib")
    return f"matplotlib=={version};" in (ROOT / "train" / "constraints.txt").read_text()


def assert_as_committed(drawn: Path, name: str) -> None:
    ours, committed = image.imread(drawn), image.imread(IMAGES / f"{name}.png")
    assert ours.shape == committed.shape
    if same_matplotlib():
        np.testing.assert_array_equal(ours, committed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_picture_is_drawn_from_the_table(name: str, tmp_path: Path) -> None:
    module, settings = SCRIPTS[name]
    script, out = import_module(f"research.figures.{module}"), tmp_path / "drawn.png"
    table = str(DATA / f"{name}.csv")
    kind = script.Settings if module == "pixels" else script.Drawing
    script.main(kind((table,), **settings, out=str(out)))
    assert_as_committed(out, name)


def test_the_shapers_draw_the_pictures_of_the_method_pages(tmp_path: Path) -> None:
    from research.figures import methods

    methods.main(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(methods.PICTURES)
    for name in methods.PICTURES:
        assert_as_committed(tmp_path / f"{name}.png", name)


def test_recordings_draw_the_pictures_of_the_page_on_inspection(tmp_path: Path) -> None:
    from research.figures import inspection

    inspection.main(inspection.Args(out=tmp_path))
    names = {path.stem for path in tmp_path.iterdir()}
    assert names == {"inspect_streams", "inspect_methods"}
    for name in names:
        assert_as_committed(tmp_path / f"{name}.png", name)


def test_make_figures_draws_them_with_the_same_settings() -> None:
    recipe = (ROOT / "Makefile").read_text().replace("\\\n\t\t", "")
    for name, (module, settings) in SCRIPTS.items():
        flags = "".join(f' --{flag} "{value}"' for flag, value in settings.items())
        line = (
            f"-m research.figures.{module} docs/data/{name}.csv{flags} --out docs/images/{name}.png"
        )
        assert line in recipe
