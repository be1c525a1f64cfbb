"""Runs commands on a machine that fails when it is told to."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.zygote import Zygote

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
KINDS = {"full disk": 1, "I/O error": 2, "short write": 3, "torn write": 4, "kill": 5}
KINDS["kill halfway"] = 6
_LAYOUT = struct.Struct("5q1024s64s64s1024s")


@dataclass(frozen=True)
class Plan:
    """Which file operation goes wrong, and how; the default is none."""

    kind: str = ""
    at: int = 0
    """Number of the operation, from 1."""
    lasting: int = 1
    """How many operations go wrong from there on."""

    only: str = ""
    """Files without this text in their path are left alone and not counted."""
    ignored: str = ""
    """So are files with this text."""

    def __str__(self) -> str:
        more = f" and {self.lasting - 1} more" if self.lasting > 1 else ""
        return f"{self.kind} at operation {self.at}{more}" if self.kind else "no fault"


class Outcome(NamedTuple):
    """What a command did."""

    code: int | None
    """Exit status as in a shell, 137 if killed; None if it did not end in time."""
    output: str
    operations: int
    """How many file operations there were."""
    where: str
    """The operation that went wrong first; empty if there was none."""


class Machine:
    """Runs one command at a time in a forked process (see tests/zygote.py)."""

    def __init__(self, shim: Path) -> None:
        environment = {
            **os.environ,
            "LD_PRELOAD": str(shim),
            "PYTHONPATH": str(REPOSITORY),
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self._zygote = Zygote(environment)
        self._scratch = tempfile.TemporaryDirectory()

    def run(self, *command: str, folder: Path, plan: Plan | None = None) -> Outcome:
        """Run a script of the repository in a folder; faults hit what is below that folder."""
        plan = plan or Plan()
        scratch = Path(self._scratch.name)
        shared = scratch / "plan"
        root = str(folder.resolve()).encode()
        kind = KINDS.get(plan.kind, 0)
        texts = (root, plan.only.encode(), plan.ignored.encode(), b"")
        shared.write_bytes(_LAYOUT.pack(0, plan.at, plan.lasting, kind, 0, *texts))
        paths = [str(REPOSITORY / c) if c.endswith(".py") else c for c in command]
        module = [] if paths[0].endswith(".py") else ["-m"]
        child = self._zygote.start([*module, *paths], folder=folder, plan=str(shared))
        code: int | None = None
        try:
            code = child.wait(900)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        count, *_, where = _LAYOUT.unpack(shared.read_bytes())
        if code is not None and code < 0:
            code = 128 - code
        return Outcome(code, child.output, count, where.rstrip(b"\0").decode(errors="replace"))

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._zygote.close()
        self._scratch.cleanup()


def build_shim(folder: Path) -> Path:
    """Compile shim.c."""
    library = folder / "shim.so"
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(HERE / "shim.c"), "-ldl"], check=True)
    return library
