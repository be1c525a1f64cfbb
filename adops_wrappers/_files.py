"""Files and folders that are complete or absent, and JSON with a checksum."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TEMPORARY = ".tmp-"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` in one step on success.

    After a crash or an error the old file is still there. The temporary path keeps the suffix of
    `path`, by which some writers choose their format.
    """
    temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex[:12]}-{path.name}")
    try:
        yield temporary
        # Before the rename: otherwise a power cut can leave the new name with no contents.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part of it."""
    with replacing(path) as temporary, temporary.open("xb") as file:
        file.write(data)


def write_folder(path: Path, files: dict[str, bytes]) -> None:
    """Write a folder of files so that a crash leaves all of them or none."""
    temporary = path.with_name(".writing")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, data in files.items():
        write_atomically(temporary / name, data)
    if path.exists():  # a folder that is not empty cannot be replaced
        remove_folder(path)
    os.replace(temporary, path)
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder so that a crash leaves all of it or nothing of that name."""
    removed = path.with_name(".dropped")
    shutil.rmtree(removed, ignore_errors=True)
    os.replace(path, removed)
    shutil.rmtree(removed, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system can sync folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers have left in a folder that nobody else is writing to."""
    for path in folder.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def digest(data: bytes) -> str:
    """Return the SHA-256 of some data."""
    return hashlib.sha256(data).hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object atomically, with a checksum that `read_json` verifies."""
    write_atomically(path, signed_json(content))


def signed_json(content: dict[str, Any]) -> bytes:
    """Return an object as JSON with a checksum."""
    return json.dumps({**content, "checksum": _checksum(content)}, indent=2).encode()


def read_json(path: Path) -> dict[str, Any]:
    """Return what `write_json` wrote.

    An object without a checksum is accepted: earlier versions wrote none.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is truncated, or was changed after it was written.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object")
    checksum = content.pop("checksum", None)
    if checksum not in (None, _checksum(content)):
        raise ValueError(f"{path} was changed since it was written")
    return content


def _checksum(content: dict[str, Any]) -> str:
    # Of the contents, not of the text: reformatting the file by hand changes nothing.
    return digest(json.dumps(content, sort_keys=True).encode())
