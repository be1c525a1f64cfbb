"""The notebooks match their scripts, hold no outputs, and run; they check what they say."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

for package in ("matplotlib", "jupytext", "nbclient", "ipykernel"):
    pytest.importorskip(package, reason="notebooks need the extra 'notebooks'")

HERE = Path(__file__).parents[2] / "notebooks"
PICTURES = {
    "01_quickstart": 3,
    "02_optimality_audit": 4,
    "03_inspecting_shaped_rewards": 6,
    "04_method_comparison": 4,
    "05_reward_hacking_gallery": 5,
}
EXTRAS = {"03_inspecting_shaped_rewards": ("torch", "tyro", "ale_py", "cloudpickle")}


def load_build() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks_build", HERE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


build = load_build()


def test_all_notebooks_are_there() -> None:
    assert [script.stem for script in build.scripts()] == list(PICTURES)
    assert sorted(path.stem for path in HERE.glob("*.ipynb")) == list(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_is_its_script_without_outputs(name: str) -> None:
    stored = (HERE / f"{name}.ipynb").read_text(encoding="utf-8")
    assert stored == build.text_of(HERE / f"{name}.py"), "run: python notebooks/build.py sync"
    for cell in json.loads(stored)["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_reads_as_a_tutorial(name: str) -> None:
    cells = build.notebook_of(HERE / f"{name}.py").cells
    assert cells[0].cell_type == "markdown"
    assert re.match(rf"# {int(name[:2])}\. ", cells[0].source)
    assert cells[-1].cell_type == "markdown"
    assert any("?" in cell.source for cell in cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\((\S+?)\)", "".join(cell.source for cell in cells)):
        assert (HERE / link).exists()


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_runs_and_shows_its_pictures(name: str) -> None:
    for package in EXTRAS.get(name, ()):
        pytest.importorskip(package)
    notebook = build.run(HERE / f"{name}.ipynb", short=True)
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert not [output for output in outputs if output.output_type == "error"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == PICTURES[name]
