"""The short form of `make test-faults`, and proof that it notices what it is to notice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.attack import Case, Counts, Lost, Range, damage
from tests.faults.machine import KINDS, Machine, Plan
from tests.faults.scenarios import Scenario, files_below, scenarios

QUICK = {
    "train adops count": ("kill", "error", "error", "damage", "damage"),
    "train grm-norm rnd": ("kill", "damage"),
    "train guarded count": ("kill", "damage"),
    "recording": ("kill", "error", "damage"),
    "evaluation": ("damage",),
}


@pytest.fixture(scope="module")
def place(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Range:
    return Range(machine, tmp_path_factory.mktemp("range"))


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_costs_nothing_or_is_reported(place, name):
    counts = Counts()
    for number, weapon in enumerate(QUICK[name]):
        case = Case(scenarios()[name], weapon, f"short/{name}/{number}")
        counts.add(case, place.attack(case))
    print(counts)


CARELESS = """
import pathlib, sys
text = pathlib.Path("in.txt").read_text() if pathlib.Path("in.txt").exists() else "x" * 200000
try:
    with open("out.txt", "w") as file:
        file.write(text)
except OSError:
    pass
"""
CAREFUL = """
import pathlib, sys
try:
    with open("out.tmp", "w") as file:
        file.write("x" * 200000)
    pathlib.Path("out.tmp").rename("out.txt")
except OSError as error:
    sys.exit(f"error: {error}")
"""


def toy(folder: Path, code: str) -> Scenario:
    script = folder / "toy.py"
    script.write_text(code)
    command = (str(script),)
    return Scenario(
        str(script),
        command,
        lambda place: command,
        lambda place, output: {"out.txt": files_below(place)["out.txt"]},
        base=(("tests/faults/make_input.py",),) if code is CARELESS else (),
        read=("in.txt",),
    )


def test_data_lost_without_a_word_are_noticed(place, tmp_path):
    scenario = toy(tmp_path, CAREFUL)
    assert {place.attack(Case(scenario, "error", f"toy/{n}")) for n in range(8)} >= {"reported"}
    assert place.attack(Case(scenario, "kill", "toy")) == "identical"
    (tmp_path / "other").mkdir()
    careless = toy(tmp_path / "other", CARELESS)
    for weapon in ("error", "damage"):
        cases = [Case(careless, weapon, f"toy/{number}") for number in range(8)]
        with pytest.raises(Lost, match="exit code 0, but"):
            list(map(place.attack, cases))


def test_tracebacks_silence_and_endless_runs_are_noticed():
    from tests.faults.attack import expect_message
    from tests.faults.machine import Outcome

    expect_message(Outcome(1, "error: no space", 0, ""), "")
    for outcome, message in (
        (Outcome(1, "", 0, ""), "without a message"),
        (Outcome(1, "Traceback (most recent call last):\nOSError", 0, ""), "with a traceback"),
        (Outcome(None, "", 0, ""), "never ended"),
    ):
        with pytest.raises(Lost, match=message):
            expect_message(outcome, "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_machine_does_what_it_is_told(machine, tmp_path, kind):
    script = tmp_path / "toy.py"
    script.write_text("import os\nopen('a', 'wb', buffering=0).write(b'12345678')\nos.mkdir('b')\n")
    folder = tmp_path / "work"
    folder.mkdir()
    outcome = machine.run(str(script), folder=folder, plan=Plan(kind, at=2))
    size = {"short write": 4, "torn write": 4, "kill halfway": 4}.get(kind, 0)
    assert outcome.where == f"write {folder}/a"
    assert (folder / "a").stat().st_size == size
    assert (folder / "b").exists() == (kind == "short write")
    expected = {"kill": 137, "kill halfway": 137, "short write": 0}.get(kind, 1)
    assert outcome.code == expected


def test_damage_changes_a_file(tmp_path):
    path = tmp_path / "file"
    for seed in range(20):
        path.write_bytes(bytes(range(200)))
        damage(path, random.Random(seed))
        assert not path.exists() or path.read_bytes() != bytes(range(200))
