"""The way out of a script when something is wrong."""

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
    """Fail with the message of an error, whose traceback would tell a user nothing."""
    try:
        yield
    except kind as error:
        fail(str(error))
