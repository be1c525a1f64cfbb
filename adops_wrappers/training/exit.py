"""Ending a script with an error message."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NoReturn


def fail(message: str) -> NoReturn:
    """End the script with a message and exit code 1."""
    sys.exit(f"error: {message}")


@contextlib.contextmanager
def failing_on(kind: type[Exception]) -> Iterator[None]:
    """End the script with the message of an error, without its traceback."""
    try:
        yield
    except kind as error:
        fail(str(error))
