"""The long form: `make test-faults`, or `python -m tests.faults --minutes 20 --seed 3`."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.attack import Case, Counts, Lost, Range
from tests.faults.machine import Machine, build_shim
from tests.faults.scenarios import Scenario, scenarios

SHARES = {"kill": 0.45, "error": 0.3, "damage": 0.25}


def cases(seed: str, chosen: list[Scenario]) -> Iterator[Case]:
    """Yield attacks without end; slow scenarios come more rarely."""
    for number in itertools.count():
        rng = random.Random(f"{seed}/{number}")
        scenario = rng.choices(chosen, [1 / s.seconds**0.5 for s in chosen])[0]
        fitting = [w for w in SHARES if (scenario.read if w == "damage" else scenario.writes)]
        weapon = rng.choices(fitting, [SHARES[w] for w in fitting])[0]
        yield Case(scenario, weapon, f"{seed}/{number}")


def main() -> int:
    """Attack until the time is over; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (%(default)s)")
    parser.add_argument("--seed", default="1", help="of all that is random (%(default)s)")
    parser.add_argument("--cases", type=int, default=10**9, help="the most attacks")
    parser.add_argument("--first", type=int, default=0, help="number of the first attack")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="attacks at a time")
    parser.add_argument("--only", default="", help="scenarios with this text in their name")
    given = parser.parse_args()
    chosen = [s for name, s in scenarios().items() if given.only in name]
    waiting = itertools.islice(cases(given.seed, chosen), given.first, given.first + given.cases)
    deadline = time.monotonic() + 60 * given.minutes
    counts, guard = Counts(), threading.Lock()

    def work(folder: Path, shim: Path) -> None:
        with Machine(shim) as machine:
            place = Range(machine, folder)
            while time.monotonic() < deadline:
                with guard:
                    case = next(waiting, None)
                if case is None:
                    return
                try:
                    verdict = place.attack(case)
                except Lost as error:
                    verdict = "lost"
                    print(f"\nLOST in {error}\n", flush=True)
                with guard:
                    counts.add(case, verdict)

    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(number) for number in range(given.workers or 1)]
        for folder in folders:
            folder.mkdir()
        shim = build_shim(Path(name))
        with ThreadPoolExecutor(len(folders)) as pool:
            for done in [pool.submit(work, folder, shim) for folder in folders]:
                done.result()
    print(f"seed {given.seed}\n{counts}")
    return int(any(verdict == "lost" for _, verdict in counts.verdicts))


if __name__ == "__main__":
    sys.exit(main())
