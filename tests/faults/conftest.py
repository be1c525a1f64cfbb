"""Two machines that fail when told to; skips where there is no compiler, or no torch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.machine import Machine, build_shim

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")
pytest.importorskip("minigrid")
if sys.platform != "linux" or shutil.which("gcc") is None:
    pytest.skip("the shim below the file system needs Linux and gcc", allow_module_level=True)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def machine(shim: Path) -> Iterator[Machine]:
    with Machine(shim) as machine:
        yield machine


@pytest.fixture(scope="session")
def second_machine(shim: Path) -> Iterator[Machine]:
    with Machine(shim) as machine:
        yield machine
