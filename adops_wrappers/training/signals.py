"""Ending a run after the current iteration when it is asked to."""

from __future__ import annotations

import os
import signal
from typing import Any

from adops_wrappers.training.distributed import Ranks


class StopOnSignal:
    """Lets SIGINT and SIGTERM end the run after the current iteration; a second one at once.

    torchrun passes on the signal that the terminal has already sent; there it is the launcher,
    not the second signal, that ends ranks which take too long.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.received, self.requested = "", ""
        self.ranks = ranks
        self.before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}

    def _handle(self, number: int, frame: Any) -> None:
        if not self.received:
            self.received = signal.Signals(number).name
            said = f"{self.received}: finishing this iteration and writing a checkpoint."
            print(f"\n{said}", flush=True)
        if not self.ranks.launched:
            self.restore()

    def agree(self) -> None:
        """Stop all ranks after the same iteration, also when only one has got the signal.

        A signal may come while the ranks talk: it then counts in the next iteration.
        """
        if self.ranks.launched and os.getppid() != self.ranks.launcher:
            self.received = "the death of its launcher"
        self.requested = next(filter(None, self.ranks.gather(self.received)), "")

    def restore(self) -> None:
        """Put back the handlers found at the start."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
