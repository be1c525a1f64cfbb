"""Starts the scripts at once: forked from a process that has torch and all else imported already.

Importing takes seconds, most commands of the tests less than one. A `Zygote` is that process, and
`start` shows each of its children as `subprocess.Popen` would. In a child, `subprocess.Popen` can
fork in the same way, so that a sweep's runs start at once too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

IMPORTED = (
    *("torch", "torch.utils.tensorboard", "tyro", "tqdm", "cloudpickle", "filelock", "gymnasium"),
    *("adops_wrappers", "adops_wrappers.inspect", "adops_wrappers.tabular", "minigrid", "rich"),
    *("torch._dynamo", "torch.profiler", "matplotlib.pyplot", "scipy.stats"),
)
NUMBER = struct.Struct("i")


class Zygote:
    """The process that all commands are forked from."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
            )

    def start(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        forking: bool = False,
        plan: str = "",
    ) -> Child:
        """Start a script, or `-m` and a module.

        Args:
            command: What would follow `python` in a shell.
            folder: Working directory; None: this process's own.
            environment: All variables; None: those that the zygote was started with.
            forking: Let the command's own `subprocess.Popen` fork, too.
            plan: File with what goes wrong, see shim.c of tests/faults.
        """
        request = {
            "command": list(command),
            "folder": str(folder or Path.cwd()),
            "environment": environment and dict(environment),
            "forking": forking,
            "plan": plan,
        }
        answer, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            fds = [theirs.fileno(), output.fileno()]
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        return Child(command, answer, output)

    def close(self) -> None:
        """End the zygote; its children go on."""
        self._control.close()
        self._process.wait()


class Child:
    """A command at work: the part of `subprocess.Popen` that the tests use."""

    def __init__(self, command: Sequence[str], answer: socket.socket, output: IO[bytes]) -> None:
        self.args, self._answer, self._file = command, answer, output
        self.output = ""
        self.returncode: int | None = None
        self.pid = self._receive(None)

    def _receive(self, timeout: float | None) -> int:
        self._answer.settimeout(timeout)
        data = self._answer.recv(NUMBER.size)
        if not data:
            raise RuntimeError("the process that starts the commands has died")
        return int(NUMBER.unpack(data)[0])

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, -n after signal n."""
        if self.returncode is None:
            try:
                self.returncode = self._receive(timeout)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            with self._answer, self._file:
                self._file.seek(0)
                self.output = self._file.read().decode(errors="replace")
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the command is at work."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end and return what the command has printed."""
        self.wait(timeout)
        return self.output, None

    def send_signal(self, number: int) -> None:
        """Send a signal to the command, if it is at work."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Fork:
    """A python script that a child starts, as `subprocess.Popen` shows it."""

    def __init__(
        self, command: Sequence[str], *, stdout: IO[bytes], env: Mapping[str, str], **options: Any
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            options["preexec_fn"]()
            os.dup2(stdout.fileno(), 1)
            # A lock of the parent's would be held on; exec would close it.
            os.closerange(3, 1024)
            become({"command": command[1:], "folder": ".", "environment": dict(env)}, output=1)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process is at work."""
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


POPEN = subprocess.Popen


def fork_python(command: Sequence[str], **options: Any) -> Any:
    """Stand in for `subprocess.Popen` in a child: fork where that would start python anew."""
    return (Fork if command[0] == sys.executable else POPEN)(command, **options)


def become(request: Mapping[str, Any], output: int) -> None:
    """Turn this process into the one that the request describes; never return."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir(request["folder"])
    if request["environment"] is not None:
        os.environ.clear()
        os.environ.update(request["environment"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    module = request["command"][0] == "-m"
    sys.argv = request["command"][module:]
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = ["" if module else os.path.dirname(sys.argv[0]), *search]
    subprocess.Popen = fork_python if request.get("forking") else POPEN  # type: ignore
    if request.get("plan"):
        os.environ["FAULTS_PLAN"] = request["plan"]
        # Last, so that opening the output does not count.
        ctypes.CDLL(os.environ["LD_PRELOAD"]).faults_begin(request["plan"].encode())
    # Not the interpreter's own end: it would spend a second on clearing all modules.
    os._exit(play(module))


def play(module: bool) -> int:
    """Run sys.argv as `python` would and return the exit status."""
    code = 0
    try:
        if module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


def guard(request: Mapping[str, Any], answer: socket.socket, output: int) -> None:
    """Fork the command, send its process id and at its end its exit code; never return."""
    child = os.fork()
    if child == 0:
        answer.close()
        become(request, output)
    os.close(output)
    answer.send(NUMBER.pack(child))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        answer.send(NUMBER.pack(code))
    os._exit(0)


def main(control: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    for name in IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 18, 2)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not message:
            return
        answer, output = socket.socket(fileno=fds[0]), fds[1]
        if os.fork() == 0:
            control.close()
            guard(json.loads(message), answer, output)
        answer.close()
        os.close(output)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
