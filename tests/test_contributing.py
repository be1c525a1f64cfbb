"""CONTRIBUTING's way to a new method, followed step by step in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests import toolkit as tk

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"`([\w/]+\.py)`")
FOUND = [
    "tests/vector/test_equivalence.py",
    "tests/vector/test_backends.py",
    "tests/inspect/test_recorder.py",
    "tests/inspect/test_reshape.py",
]
"""Tests that find a method through its declaration."""
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def files_of_the_guide() -> dict[str, str]:
    """Each file of the guide is the code block after the first mention of its name in a step."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = re.split(r"\n\*\*\d\. ", text.split("## Adding a method")[1])
    found = {}
    for step in steps:
        block, name = BLOCK.search(step), FILE.search(step)
        if block and name:
            found[name.group(1)] = block.group(1)
    return found


def test_the_steps_lead_to_a_method_that_works_everywhere(tmp_path: Path) -> None:
    files = files_of_the_guide()
    assert list(files) == ["adops_wrappers/shaping/budget.py", "tests/shaping/test_budget.py"]
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("adops_wrappers", "tests/shaping", "tests/vector", "tests/inspect"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for name in ("tests/toolkit.py", "tests/declared.py", "tests/conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, content in files.items():
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(content, encoding="utf-8")
    new = ["-q", "-p", "no:cacheprovider", "tests/shaping", "-k", "test_budget or test_methods"]
    assert "passed" in run(tmp_path, "-m", "pytest", *new)
    log = run(tmp_path, "-m", "pytest", "-v", "-p", "no:cacheprovider", *FOUND, "-k", "budget")
    for file in FOUND:
        if file.endswith("test_backends.py") and find_spec("torch") is None:
            continue
        assert re.search(rf"^{file}::\S*budget\S* PASSED", log, re.MULTILINE), log
    text = (tmp_path / next(iter(files))).read_text()  # an older Gymnasium has the older env
    (tmp_path / next(iter(files))).write_text(text.replace("CliffWalking-v1", tk.CLIFF))
    example = ["-q", "-p", "no:cacheprovider", "--doctest-modules", next(iter(files))]
    assert "1 passed" in run(tmp_path, "-m", "pytest", *example)
    listing = "import adops_wrappers; print(*adops_wrappers.SHAPINGS)"
    assert run(tmp_path, "-c", listing).split()[-1] == "budget"


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
