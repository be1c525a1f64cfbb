"""How a script ends: messages, exit codes, SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from adops_wrappers.training.distributed import Ranks

INCOMPLETE = 3
"""Exit code of a run that has done its work but lacks a file."""


def fail(message: str) -> NoReturn:
    """End the script with a message and exit code 1."""
    sys.exit(f"error: {message}")


def fail_incomplete(message: str) -> NoReturn:
    """End the script with a message and exit code 3."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(INCOMPLETE)


@contextlib.contextmanager
def exit_on(kind: type[Exception]) -> Iterator[None]:
    """End the script with the message of an error, without its traceback."""
    try:
        yield
    except kind as error:
        fail(str(error))


@contextlib.contextmanager
def exit_on_disk_error(what: object, way_out: str) -> Iterator[None]:
    """End the script with a message if a file cannot be written."""
    try:
        yield
    except OSError as error:
        fail(f"cannot write {what}: {error.strerror or error}. {way_out}")


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
