"""Stopping a run after the current iteration on SIGINT or SIGTERM."""

from __future__ import annotations

import os
import signal
from typing import Any

from adops_wrappers.training.distributed import Ranks


class StoppedEarly(BaseException):
    """SIGINT or SIGTERM came before the first iteration; the text is its name."""


class StopOnSignal:
    """Ends the run after the current iteration on SIGINT or SIGTERM; a second one ends it at once.

    Before `begin` there is no iteration to finish: the signal raises `StoppedEarly`.

    Under torchrun, ranks may get the same signal twice, from the terminal and from the launcher.
    There a second signal is ignored, and the launcher ends ranks that take too long. Since only one
    of them may get the first signal, they always stop together, after an iteration.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.begun, self.received, self.requested = False, "", ""
        self.ranks = ranks
        self.before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}

    def begin(self) -> None:
        """From now on, finish the current iteration."""
        self.begun = True

    def _handle(self, number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        if not self.begun and not self.ranks.launched:
            self.begun, self.received = True, name  # a second one does not interrupt the end
            raise StoppedEarly(name)
        if not self.received:
            self.received = name
            said = f"{self.received}: finishing this iteration and writing a checkpoint."
            print(f"\n{said}", flush=True)
        if not self.ranks.launched:
            self.restore()

    def agree(self) -> None:
        """Stop all ranks after the same iteration, even if only one received the signal.

        A signal that arrives during this exchange takes effect one iteration later.
        """
        if self.ranks.launched and os.getppid() != self.ranks.launcher:
            self.received = "the death of its launcher"
        self.requested = next(filter(None, self.ranks.gather(self.received)), "")

    def restore(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
