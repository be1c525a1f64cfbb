"""Runs scripts in forked children that have torch and all else imported already.

    LD_PRELOAD=shim.so python zygote.py < requests > answers

A request is a line of JSON: the script's command line, its folder, the file for its output, the
file with its plan (see shim.c), and the seconds it may take. The answer is its exit status as a
shell knows it, or null after a time-out. Importing takes seconds, most runs here less than one.
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
import sys
import time
import traceback

IMPORTED = (
    *("torch", "torch.utils.tensorboard", "tyro", "tqdm", "cloudpickle", "filelock", "gymnasium"),
    *("adops_wrappers", "adops_wrappers.inspect", "adops_wrappers.tabular", "minigrid", "rich"),
    *("torch._dynamo", "torch.profiler", "matplotlib.pyplot", "scipy.stats"),
)


def become(request: dict) -> None:
    """Turn this process, a child, into the one that the request describes."""
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(output)
    os.close(nothing)
    os.chdir(request["folder"])
    os.environ["FAULTS_PLAN"] = request["plan"]
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = request["command"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    # Last, so that opening the output does not count.
    ctypes.CDLL(os.environ["LD_PRELOAD"]).faults_begin(request["plan"].encode())


def wait(child: int, seconds: float) -> int | None:
    """Return the exit status of a child, 128 + n after signal n, or None when it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.01)


def play(command: list[str]) -> int:
    """Run a script or a module as `python` would and return its exit status."""
    code = 0
    try:
        if command[0].endswith(".py"):
            runpy.run_path(command[0], run_name="__main__")
        else:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
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


def main() -> None:
    """Answer requests until there are no more."""
    for name in IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
            # Not the interpreter's own end: it would spend a second on clearing all modules.
            os._exit(play(request["command"]))
        print(json.dumps(wait(child, request["seconds"])), flush=True)


if __name__ == "__main__":
    main()
