"""What a sweep does while its cells run, here or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from research.sweeping.display import ProgressTable
from research.sweeping.plan import Plan
from research.sweeping.processes import Result, SignalCount


class Runs(Protocol):
    """Cells that run somewhere."""

    results: dict[str, Result]
    """How cells have ended, by name."""
    left: Result
    """What becomes of the others if the sweep ends before them."""

    @property
    def pause(self) -> float:
        """Seconds from one step to the next."""

    def step(self, signals: int, say: Callable[[str], None]) -> bool:
        """Notice what has ended, start what can start; return whether there is more to come.

        Args:
            signals: How often the sweep was asked to stop.
            say: Shows a message.
        """

    def states(self) -> dict[str, str]:
        """Return what the cells do that have not ended."""

    def close(self) -> None:
        """Leave nothing behind that the sweep has to end."""


def watch(plan: Plan, runs: Runs) -> dict[str, Result]:
    """Show runs until all have ended or a signal came; return what became of each cell."""
    with SignalCount() as signals, ProgressTable(plan) as show:
        try:
            while runs.step(signals.count, show.say):
                show.draw(runs.states(), runs.results)
                seen, until = signals.count, time.monotonic() + runs.pause
                # In slices: a signal does not cut a sleep short.
                while signals.count == seen and (left := until - time.monotonic()) > 0.0:
                    time.sleep(min(0.2, left))
        finally:
            runs.close()
        results = {cell.name: runs.results.get(cell.name, runs.left) for cell in plan.cells}
        show.draw({}, results, last=True)
    return results
