"""What a sweep shows: its plan, the runs in progress, and how they ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from adops_wrappers.training.exit import INCOMPLETE
from research.sweeping.plan import Plan, free_bytes, steps_left
from research.sweeping.processes import Result, find_loss, log_tail, read_progress


def make_console() -> Console:
    """Return the console for tables; in a file or a pipe, lines have any length."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000
    return console


def make_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table with aligned columns."""
    table = Table(*header, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for row in rows:
        table.add_row(*row)
    return table


def duration(hours: float) -> str:
    """Format a time in a suitable unit."""
    if hours >= 1.0:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1.0 else f"{hours * 3600:.0f} s"


def print_plan(plan: Plan, jobs: int) -> None:
    """Print the cells by configuration, with the hours and the disk space they need."""
    rows = []
    for cell in dict.fromkeys(c.configuration for c in plan.cells):
        of_cell = [c for c in plan.cells if c.configuration == cell]
        states = Counter(plan.progress[c.name].state for c in of_cell)
        varied = " ".join(f"{k}={v}" for k, v in cell.varied) or "-"
        hours = sum(plan.hours(c) for c in of_cell if c in plan.open)
        counts = [str(states[s]) for s in ("finished", "unfinished", "waiting")]
        rows.append([cell.method, varied, str(len(of_cell)), *counts, duration(hours)])
    header = ["method", "settings", "seeds", "finished", "to resume", "to start", "time left"]
    make_console().print(make_table(header, rows))
    hours = sum(plan.hours(c) for c in plan.open)
    print(
        f"{len(plan.cells)} cells, {len(plan.cells) - len(plan.open)} finished. "
        f"About {duration(hours)} of runs at {plan.sps:.0f} steps/s each ({plan.sps_source}); "
        f"{duration(hours / max(1, min(jobs, len(plan.open))))} with {jobs} at a time. "
        f"Disk: {plan.bytes_left() / 2**20:.0f} MB needed, "
        f"{free_bytes(plan.root) / 2**20:.0f} MB free."
    )


class ProgressTable:
    """A table redrawn in place on a terminal; elsewhere one line for each change."""

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        self.plan = plan
        self.console = console or make_console()
        self.live = Live(console=self.console, auto_refresh=False)
        self.said: dict[str, str] = {}
        self.last_drawn = time.monotonic()

    def __enter__(self) -> ProgressTable:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def say(self, message: str) -> None:
        """Print a line above the table."""
        self.console.print(message, soft_wrap=True)

    def draw(
        self, states: Mapping[str, str], results: Mapping[str, Result], last: bool = False
    ) -> None:
        """Show the running cells, and how many are done or waiting."""
        if not self.live.is_started:
            self._print_changes(states, results)
        now = time.monotonic()
        pause = 1.0 if self.live.is_started else 60.0
        if now - self.last_drawn < pause and not last:
            return
        self.last_drawn = now
        shown = [self._summary(states, results)]
        if states:
            header = ["cell", "state", "iteration", "SPS", "return", "left"]
            shown.append(make_table(header, (self._row(*item) for item in states.items())))
        if self.live.is_started:
            self.live.update(Group(*shown), refresh=True)
        else:
            self.console.print(*shown, sep="\n")

    def _summary(self, states: Mapping[str, str], results: Mapping[str, Result]) -> Any:
        counts = Counter(result.state for result in results.values())
        waiting = len(self.plan.cells) - len(results) - len(states) + counts.pop("waiting", 0)
        ended = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
        summary = f"{len(self.plan.cells)} cells: {ended or '0 finished'}"
        if states or waiting:
            summary += f", {len(states)} running, {waiting} waiting"
        return summary

    def _row(self, name: str, state: str) -> list[str]:
        progress, args = read_progress(self.plan.root / name), self.plan.args[name]
        left = steps_left(args, progress)
        time_left = duration(left / progress.sps / 3600) if progress.sps else "-"
        done = f"{progress.iteration}/{args.total_iterations}"
        return [name, state, done, f"{progress.sps:.0f}", progress.score, time_left]

    def _print_changes(self, states: Mapping[str, str], results: Mapping[str, Result]) -> None:
        now = {**{name: result.state for name, result in results.items()}, **states}
        for name, state in now.items():
            if self.said.get(name) != state and not (name not in self.said and name in results):
                self.say(f"{time.strftime('%H:%M:%S')} {name}: {state}")
        self.said |= now


def report(plan: Plan, results: Mapping[str, Result]) -> int:
    """Print what failed, with the last lines of the logs, and what is lost.

    Returns:
        The exit code: 0 if all cells have finished, 3 if some of them lack a file, 1 if not all
        have finished.
    """
    for name, result in results.items():
        if result.state == "failed":
            run_dir = plan.root / name
            print(f"\nFAILED {name}: {result.detail}. Last lines of {run_dir / 'output.log'}:")
            print("    " + log_tail(run_dir).replace("\n", "\n    "))
    losses = {name: find_loss(plan.root / name) for name in results}
    for name, lost in losses.items():
        if lost:
            print(f"error: {name} {results[name].state}, but {lost}.")
    counts = Counter(result.state for result in results.values())
    print(
        f"{counts['finished']} of {len(results)} cells finished, {counts['failed']} failed, "
        f"{counts['stopped'] + counts['waiting']} resumable. Results in {plan.root}"
    )
    reasons = {r.detail for r in results.values() if r.state == "waiting"} - {"not started"}
    for reason in reasons:
        print(f"Not started: {reason}")
    if counts["finished"] < len(results):
        return 1
    return INCOMPLETE if any(losses.values()) else 0
