"""A run's directory, used by one process at a time, with its settings and status."""

from __future__ import annotations

import contextlib
import errno
import getpass
import itertools
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import filelock

from adops_wrappers._files import read_json, remove_leftovers, sync_folder, write_json
from adops_wrappers.training.exit import exit_on_disk_error, fail

_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)


class Held(Exception):
    """Another process holds a lock; the text says which."""


class Lock:
    """Gives one process at a time a directory; the system frees it when that process dies.

    The lock is a `flock` on `path`. It works between processes of one machine, and between
    machines on file systems that support it: NFS from version 4 (or 3 with its lock daemon),
    Lustre mounted with `flock`, GPFS, CephFS. When a whole machine dies, NFS frees its locks after
    the server's lease, about 90 seconds. Where `flock` does not exist, filelock creates a file
    instead; after a crash, delete it by hand. Where the server has no lock daemon, work continues
    without a lock, with a message.

    Args:
        path: The file to lock; a file beside it, ending in `.holder`, names the holder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._holder = path.with_suffix(".holder")
        self._lock = filelock.FileLock(path, thread_local=False)

    def take(self, wait: float = 1.0) -> None:
        """Take the lock, within `wait` seconds.

        Raises:
            Held: Another process holds it; the text names the process.
            OSError: The directory cannot be written.
        """
        try:
            self._acquire(wait)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            print(
                f"{self.path.parent} is on a file system without locks ({error.strerror}): make "
                "sure that no second process works there."
            )
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f"process {os.getpid()} of {_user()} on {socket.gethostname()} since {since}\n"
        self._holder.write_text(text)

    def refuse_holder(self) -> None:
        """Raise `Held` if another process holds the lock; do not keep it."""
        # A full disk, or no such directory: nobody can be at work there.
        with contextlib.suppress(OSError), self._acquire(0):
            pass

    def _acquire(self, wait: float) -> Any:
        try:
            return self._lock.acquire(timeout=wait)
        except filelock.Timeout:
            raise Held(self._read_holder()) from None

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):
                self._holder.unlink(missing_ok=True)
            self._lock.release()

    def discard(self) -> None:
        """Release the lock and remove its file."""
        # While it is held: afterwards the file may be another process's lock.
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.release()

    def __enter__(self) -> Lock:
        self.take()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _read_holder(self) -> str:
        holder = ""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            holder = self._holder.read_text().strip()
        if isinstance(self._lock, filelock.SoftFileLock):
            holder += f" (if that process is gone, delete {self.path})"
        return holder or "another process"


def _user() -> str:
    """Return the user's name, or the number of a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class RunDir:
    """A run directory locked by this process until `release` or exit.

    Use `create` or `reopen` to get one.
    """

    def __init__(self, path: Path, made: bool = False) -> None:
        self.path, self._made = path, made
        self._lock = run_lock(path)
        with _writing_to(path):
            try:
                self._lock.take()
            except Held as holder:
                fail(
                    f"{path} is in use by {holder}. Wait for it, stop it, or choose another "
                    "directory."
                )
        remove_leftovers(path)

    @classmethod
    def create(cls, run_dir: str, default_name: str) -> RunDir:
        """Lock the directory of a new run, or end the script with a message.

        Args:
            run_dir: The directory chosen by the user, which must not hold a run yet; or empty.
            default_name: The directory under `runs` if `run_dir` is empty. If it exists already, a
                number is added.
        """
        if not run_dir:
            return cls(_make_new(Path("runs") / default_name), made=True)
        path = Path(run_dir)
        made = not path.exists()
        with _writing_to(path):
            path.mkdir(parents=True, exist_ok=True)
        new = cls(path, made)
        # Looked for once the lock is held: until then another process may have begun a run.
        if (path / "metrics.csv").exists() or (path / "checkpoints").exists():
            new._lock.release()
            fail(
                f"{path} already holds a run. Continue it with --resume {path}, or choose "
                "another --run-dir."
            )
        return new

    @classmethod
    def reopen(cls, run_dir: str) -> RunDir:
        """Lock the directory of a run to resume, or end the script with a message."""
        require_run(Path(run_dir))
        return cls(Path(run_dir))

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.json: settings, versions and machine."""
        self._write("config.json", config)

    def write_status(
        self,
        iteration: int,
        finished: bool,
        reason: str,
        metrics: dict[str, Any] | None = None,
        lost: str = "",
    ) -> None:
        """Write status.json.

        Args:
            iteration: How far the run got.
            finished: Whether that is its end.
            reason: Why it stopped.
            metrics: The mark of metrics.csv.
            lost: What should be in the directory and is not.
        """
        status = {"iteration": iteration, "finished": finished, "reason": reason, "lost": lost}
        self._write("status.json", {**status, "metrics": metrics})

    def check_space(self, needed: int) -> None:
        """End the script if the disk has fewer free bytes than this."""
        free = shutil.disk_usage(self.path).free
        if free < needed:
            fail(
                f"{self.path} has {free / 2**20:.0f} MB free, the run needs about "
                f"{needed / 2**20:.0f} MB. Free some space or choose another --run-dir."
            )

    def release(self) -> None:
        """Release the directory; if nothing of a run was written, leave no trace of it."""
        if is_run(self.path):
            self._lock.release()
            return
        self._lock.discard()
        if self._made:
            with contextlib.suppress(OSError):  # somebody else has put a file there
                self.path.rmdir()

    def _write(self, name: str, content: dict[str, Any]) -> None:
        safe = f"Existing files are safe: free some space and continue with --resume {self.path}"
        with exit_on_disk_error(self.path / name, safe):
            write_json(self.path / name, content)


def run_lock(run_dir: Path) -> Lock:
    """Return the lock of a run directory, which training, resuming and sweeps take."""
    return Lock(run_dir / "run.lock")


def is_run(path: Path) -> bool:
    """Whether a directory holds a run, even one that has barely begun."""
    return (path / "config.json").is_file() or (path / "checkpoints").is_dir()


def require_run(path: Path) -> None:
    """End the script with a message if a directory to resume holds no run."""
    if not is_run(path):
        config = path / "config.json"
        fail(f"--resume {path}: there is no {config}, so this is not a run directory.")


def read_config(run_dir: Path) -> dict[str, Any]:
    """Return the config.json of a run.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is truncated, or was changed after the script wrote it.
    """
    config = read_json(run_dir / "config.json")
    if not isinstance(config.get("args"), dict):
        raise ValueError(f"{run_dir / 'config.json'} is damaged: it has no settings ('args')")
    return config


def read_status(run_dir: Path) -> dict[str, Any]:
    """Return the status.json of a run.

    Raises:
        FileNotFoundError: There is none because the run has not ended yet.
        ValueError: It is truncated, or was changed after the script wrote it.
    """
    return read_json(run_dir / "status.json")


def _make_new(first: Path) -> Path:
    """Make a directory that did not exist: this one, or with a number behind its name."""
    with _writing_to(first):
        first.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = first if number == 1 else first.with_name(f"{first.name}_{number}")
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
    sync_folder(path.parent)
    return path


def _writing_to(path: Path) -> contextlib.AbstractContextManager[None]:
    return exit_on_disk_error(f"to {path}", "Choose another --run-dir.")
