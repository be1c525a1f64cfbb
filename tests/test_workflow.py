"""The GitHub workflow calls make targets that exist, and all parts of what CI runs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "test.yml"
if not WORKFLOW.exists():
    pytest.skip("the source distribution has no workflow", allow_module_level=True)


def targets() -> set[str]:
    """Return the make targets of the workflow, those of its matrix included."""
    text = WORKFLOW.read_text(encoding="utf-8")
    matrix = re.search(r"target: \[(.*)\]", text)
    assert matrix is not None
    called = [*re.findall(r"run: make (.+)", text), *matrix[1].split(",")]
    called.remove("${{ matrix.target }}")
    words = itertools.chain.from_iterable(command.split() for command in called)
    return {word for word in words if "=" not in word}


def rules() -> dict[str, list[str]]:
    """Return what each rule of the Makefile depends on."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {name: needs.split() for name, needs in re.findall(r"^([a-z-]+):([^=\n]*)$", text, re.M)}


def test_every_target_exists() -> None:
    assert targets() <= rules().keys()


def test_the_workflow_runs_what_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)$", script, re.M):
        parts = rules()[target] if target == "test" else [target]
        assert set(parts) <= targets(), f".ci/run makes {target}"


def test_every_supported_python_is_tried() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lowest = re.search(r'requires-python = ">=3\.(\d+)"', project)
    tried = re.search(r"python: \[(.*)\]", WORKFLOW.read_text(encoding="utf-8"))
    assert lowest is not None
    assert tried is not None
    assert re.findall(r"3\.(\d+)", tried[1]) == [str(n) for n in range(int(lowest[1]), 15)]


def jobs_with_the_newest_releases() -> list[str]:
    """Return the jobs that lift the constraints of `make install`."""
    jobs = re.split(r"\n(?=  \w+:\n)", WORKFLOW.read_text(encoding="utf-8"))
    return [job for job in jobs if "CONSTRAINTS=/dev/null" in job]


def test_every_torch_above_the_constraint_is_tried_and_named() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    constraints = (ROOT / "train" / "constraints.txt").read_text(encoding="utf-8")
    bounds = set(re.findall(r'"torch>=2\.6,<2\.(\d+)"', project))
    pinned = re.search(r"torch==2\.(\d+)", constraints)
    assert pinned is not None
    assert len(bounds) == 1, "the extras allow different versions of torch"
    newer = {f"torch 2.{n}" for n in range(int(pinned[1]) + 1, int(bounds.pop()))}
    names = [
        re.findall(r"name: .*(torch \d+\.\d+)", job) for job in jobs_with_the_newest_releases()
    ]
    assert newer == set(itertools.chain.from_iterable(names))


def test_make_installs_what_the_workflow_constrains() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "CONSTRAINTS ?= train/constraints.txt" in makefile
    assert "pip install --quiet --constraint $(CONSTRAINTS) --editable '.[atari," in makefile
