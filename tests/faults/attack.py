"""Breaks things at random and checks that nothing is lost without a word.

The rule: after a fault, either everything is bit for bit as without it, or a message says what was
lost and the exit code is not 0. A command that was killed may be rerun first. Evaluation and
recording may also say that they make do with the checkpoint before a damaged one.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.machine import Machine, Outcome, Plan
from tests.faults.scenarios import Command, Result, Scenario, digest

KILLS = ("kill", "kill halfway")
ERRORS = ("full disk", "I/O error", "short write", "torn write")
DAMAGES = ("cut off", "bit flip", "emptied", "removed")


@dataclass(frozen=True)
class Case:
    """One attack; all of it follows from the seed."""

    scenario: Scenario
    weapon: str
    """kill, error or damage"""
    seed: str

    def __str__(self) -> str:
        return f"{self.seed}: {self.weapon} on {self.scenario.name}"


class Lost(AssertionError):
    """The rule is broken."""


@dataclass(frozen=True)
class Reference:
    """A scenario without a fault."""

    base: Path
    """Folder with all that the command reads."""
    result: Result
    operations: dict[str, int]
    """How many file operations there are, by what is ignored in counting."""


class Range:
    """Attacks scenarios on one machine; makes each scenario's reference when it is first needed."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        self._references: dict[str, Reference] = {}
        self._bases: dict[tuple[Command, ...], Path] = {}

    def attack(self, case: Case) -> str:
        """Return `identical` or `reported`, or `missed` if the fault hit nothing.

        Raises:
            Lost: The rule is broken.
        """
        reference = self.reference(case.scenario)
        rng = random.Random(case.seed)
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            # The same last name in every case: some outputs hold it.
            folder = Path(name) / "work"
            if case.weapon == "damage":
                return self._damage(case, rng, folder)
            shutil.copytree(reference.base, folder)
            return self._interrupt(case, rng, folder, reference)

    def reference(self, scenario: Scenario) -> Reference:
        """Run a scenario without a fault."""
        if scenario.name not in self._references:
            base = self._base(scenario.base)
            folder = self.folder / f"reference {scenario.name}" / "work"
            operations = {}
            for ignored in ("", "tfevents"):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(base, folder)
                plan = Plan(ignored=ignored)
                outcome = self.machine.run(*scenario.command, folder=folder, plan=plan)
                if outcome.code != 0:
                    raise RuntimeError(f"{scenario.name} fails without a fault: {outcome.output}")
                operations[ignored] = outcome.operations
            result = scenario.result(folder, outcome.output)
            self._references[scenario.name] = Reference(base, result, operations)
        return self._references[scenario.name]

    def _base(self, commands: tuple[Command, ...]) -> Path:
        if commands not in self._bases:
            folder = self.folder / f"base {digest(repr(commands).encode())}" / "work"
            if commands:
                shutil.copytree(self._base(commands[:-1]), folder)
                outcome = self.machine.run(*commands[-1], folder=folder)
                if outcome.code != 0:
                    raise RuntimeError(f"{commands[-1]} fails without a fault: {outcome.output}")
            else:
                folder.mkdir(parents=True)
            self._bases[commands] = folder
        return self._bases[commands]

    def _interrupt(self, case: Case, rng: random.Random, folder: Path, reference: Reference) -> str:
        """Kill the command, or let its file operations fail; then give it again."""
        scenario = case.scenario
        ignored = rng.choice(["", "tfevents"])
        plan = Plan(
            rng.choice(KILLS if case.weapon == "kill" else ERRORS),
            at=rng.randint(1, max(1, reference.operations[ignored])),
            lasting=1 if case.weapon == "kill" else rng.choice([1, 1, 3, 10**9]),
            ignored=ignored,
        )
        first = self.machine.run(*scenario.command, folder=folder, plan=plan)
        if not first.where:
            return "missed"
        story = f"{case}: {plan}, {first.where}"
        if first.code == 0:
            self._compare(case, folder, first, story)
            return "identical"
        if case.weapon == "error":
            expect_message(first, story)
        last = self.machine.run(*scenario.again(folder), folder=folder)
        story = f"{story}\n{first.output}\nand then, rerun:"
        if last.code != 0:
            expect_message(last, story)
            return "reported"
        self._compare(case, folder, last, story)
        return "identical" if case.weapon == "kill" else "reported"

    def _damage(self, case: Case, rng: random.Random, folder: Path) -> str:
        """Damage a file that the command reads; for a run, one that was killed halfway."""
        scenario, reference = case.scenario, self.reference(case.scenario)
        command = scenario.command
        if scenario.base:
            shutil.copytree(reference.base, folder)
        else:
            shutil.copytree(self._killed(scenario), folder)
            command = scenario.again(folder)
        files = sorted({p for pattern in scenario.read for p in folder.glob(pattern)})
        path = rng.choice([p for p in files if p.is_file()])
        what = damage(path, rng, removable=path.name not in scenario.optional)
        story = f"{case}: {what} {path.relative_to(folder)}"
        last = self.machine.run(*command, folder=folder)
        if last.code != 0:
            expect_message(last, story)
            return "reported"
        if scenario.passed_over and scenario.passed_over in last.output:
            return "reported"
        self._compare(case, folder, last, story, without_events="tfevents" in path.name)
        return "identical"

    def _killed(self, scenario: Scenario) -> Path:
        """Return a folder with what a kill has left when most of the work was done."""
        folder = self.folder / f"killed {scenario.name}" / "work"
        if not folder.exists():
            folder.mkdir(parents=True)
            operations = self.reference(scenario).operations[""]
            plan = Plan("kill", at=operations * 4 // 5)
            self.machine.run(*scenario.command, folder=folder, plan=plan)
        return folder

    def _compare(
        self, case: Case, folder: Path, last: Outcome, story: str, without_events: bool = False
    ) -> None:
        try:
            result = case.scenario.result(folder, last.output)
        except Exception as error:
            raise Lost(f"{story}\nexit code 0, but {error!r}\n{last.output}") from error
        expected = self.reference(case.scenario).result
        if without_events:
            result, expected = (_drop_events(part) for part in (result, expected))
        different = list(differences(result, expected))
        if different:
            shown = "\n".join(different[:8])
            raise Lost(f"{story}\nexit code 0, but there are differences:\n{shown}\n{last.output}")


def damage(path: Path, rng: random.Random, removable: bool = True) -> str:
    """Damage a file and say how."""
    data = bytearray(path.read_bytes())
    ways = DAMAGES[:2] * 3 + (DAMAGES[2:] if removable else ("emptied",))
    what = rng.choice(ways) if data else "removed"
    if what == "cut off":
        data = data[: rng.randrange(len(data))]
    elif what == "bit flip":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif what == "emptied":
        data.clear()
    if what == "removed":
        path.unlink()
    else:
        path.write_bytes(data)
    return what


def expect_message(outcome: Outcome, story: str) -> None:
    """Check that a command which did not succeed says why, in words."""
    if outcome.code is None:
        raise Lost(f"{story}\nnever ended\n{outcome.output}")
    # A rank that loses the other one, and torchrun itself, report that in their own way.
    said = outcome.output.partition("torch/distributed/elastic/multiprocessing")[0]
    if "\nTraceback (most recent call last)" in f"\n{said}":
        raise Lost(f"{story}\nexit code {outcome.code} with a traceback\n{outcome.output}")
    if "error" not in outcome.output.lower():
        raise Lost(f"{story}\nexit code {outcome.code} without a message\n{outcome.output}")


def _drop_events(result: Result) -> Result:
    return {
        name: {k: v for k, v in part.items() if k != "events"} if isinstance(part, dict) else part
        for name, part in result.items()
    }


def differences(ours: object, theirs: object, path: str = "") -> list[str]:
    """Name the places at which two results differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            found
            for key in sorted(ours.keys() | theirs.keys(), key=str)
            for found in differences(ours.get(key), theirs.get(key), f"{path}/{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            found
            for number, (a, b) in enumerate(zip(ours, theirs, strict=True))
            for found in differences(a, b, f"{path}/{number}")
        ]
    return [] if ours == theirs else [f"{path}: {str(ours)[:200]} instead of {str(theirs)[:200]}"]


@dataclass
class Counts:
    """How many attacks there were, by weapon and verdict."""

    verdicts: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)

    def add(self, case: Case, verdict: str) -> None:
        """Count one attack."""
        self.verdicts[case.weapon, verdict] += 1

    def __str__(self) -> str:
        lines = []
        for weapon, plural in (("kill", "kills"), ("error", "I/O errors"), ("damage", "damages")):
            verdicts = ("identical", "reported", "lost")
            parts = {name: self.verdicts[weapon, name] for name in verdicts}
            shown = ", ".join(f"{count} {name}" for name, count in parts.items())
            lines.append(f"{sum(parts.values())} {plural}: {shown}")
        return "\n".join(lines)
