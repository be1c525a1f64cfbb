"""What the metrics of a run show, said in the console while it goes on and at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adops_wrappers.inspect.findings import Finding
from adops_wrappers.inspect.run_diagnosis import diagnose_run, summarize_run
from adops_wrappers.inspect.runs import Metrics


class Watch:
    """Says each warning once, and at the end what the report of the run says.

    Args:
        metrics: The iterations that are already done; those to come are appended to it.
        total: Iterations of the whole run. It is looked at a hundred times.
        say: Prints a line.
    """

    def __init__(self, metrics: Metrics, total: int, say: Callable[[str], None]) -> None:
        self._metrics, self._say = metrics, say
        self._every = max(1, total // 100)
        self._said: set[str] = set()

    def add(self, row: Mapping[str, float | None]) -> None:
        """Take an iteration, and say which warnings are new."""
        self._metrics.append(row)
        iteration = len(self._metrics)
        if iteration % self._every == 0:
            for warning in self._warnings():
                if warning.title not in self._said:
                    self._say(f"Iteration {iteration}: warning: {warning.title}. {warning.text}")
                self._said.add(warning.title)

    def summarize(self) -> None:
        """Say how the run went, and every warning that holds now."""
        if not len(self._metrics):
            return
        for line in summarize_run(self._metrics):
            self._say(line)
        for warning in self._warnings():
            self._say(f"Warning: {warning.title}. {warning.text}")

    def _warnings(self) -> list[Finding]:
        return [finding for finding in diagnose_run(self._metrics) if finding.kind == "warning"]
