"""Ending a script with an error message."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NoReturn

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
def failing_on(kind: type[Exception]) -> Iterator[None]:
    """End the script with the message of an error, without its traceback."""
    try:
        yield
    except kind as error:
        fail(str(error))
