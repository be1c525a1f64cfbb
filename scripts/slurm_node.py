"""Runs a command inside a one-node SLURM that lives as long as the command does.

    python scripts/slurm_node.py -- python -m pytest tests/research/test_slurm.py

For tests. Needs root and Debian's packages (`--install` fetches them with apt-get), but neither
systemd nor cgroups. Configuration, keys, state and logs are in a temporary directory; nothing
outside it is touched, and the daemons are always stopped at the end. If SLURM cannot run here, the
reason is printed and the exit code is 77.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PACKAGES = ("slurm-wlm", "munge")
CANNOT = 77
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
KillWait=5
InactiveLimit=0
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes={host} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


class CannotRun(Exception):
    """SLURM cannot run on this machine; the text says why."""


def install() -> None:
    """Install the packages if a daemon is missing."""
    if not missing():
        return
    if shutil.which("apt-get") is None:
        raise CannotRun("there is no apt-get to install SLURM with")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(
            ["apt-get", "-q", *command], env=environment, capture_output=True, text=True
        )
        # A mirror that fails to update may still have the packages.
        if done.returncode and command[0] == "install":
            raise CannotRun(f"apt-get cannot install {' '.join(PACKAGES)}: {done.stderr[-500:]}")


def missing() -> list[str]:
    """Return the daemons that are not installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for name in DAEMONS if shutil.which(name, path=path) is None]


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, ready: Callable[[], bool], folder: Path, seconds: float = 60.0) -> None:
    """Wait until a daemon answers, or show what it logged."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ready():
            return
        time.sleep(0.2)
    logs = "".join(
        f"\n{path.name}: {path.read_text(errors='replace')[-1500:]}"
        for path in sorted(folder.glob("*.log"))
    )
    raise CannotRun(f"{what} does not answer.{logs}")


def configure(folder: Path, host: str) -> Path:
    """Write what the daemons need into a folder; return slurm.conf."""
    # munged distrusts a socket in a directory that it cannot let others enter.
    folder.chmod(0o755)
    (folder / "controller").mkdir()
    (folder / "node").mkdir()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    config = folder / "slurm.conf"
    config.write_text(
        CONFIG.format(
            host=host,
            folder=folder,
            controller_port=free_port(),
            node_port=free_port(),
            cpus=os.cpu_count(),
            memory=memory * 9 // 10,
        )
    )
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    return config


@contextlib.contextmanager
def slurm_node() -> Iterator[dict[str, str]]:
    """Start munged, slurmctld and slurmd; yield the environment in which SLURM's commands work."""
    if os.geteuid() != 0:
        raise CannotRun("it needs root")
    if missing():
        raise CannotRun(f"{', '.join(missing())} not installed (Debian: {' '.join(PACKAGES)})")
    host = socket.gethostname().split(".")[0]
    # A short path: that of a Unix socket may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as name:
        folder = Path(name)
        config = configure(folder, host)
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        variables = {"PATH": path, "SLURM_CONF": str(config), "SLURM_TEST_NODE": host}
        environment = {**os.environ, **variables}
        with contextlib.ExitStack() as daemons:
            start_daemons(folder, config, environment, daemons)
            yield environment


def start_daemons(
    folder: Path, config: Path, environment: dict[str, str], daemons: contextlib.ExitStack
) -> None:
    """Start the daemons and wait until they answer; `daemons` stops them."""

    def start(*command: str) -> None:
        with (folder / f"{command[0]}.out.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        daemons.callback(stop, process)

    def answers(*command: str, says: str = "") -> bool:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.returncode == 0 and says in done.stdout

    munge = folder / "munge"
    start(
        *("munged", "--foreground", "--force", f"--key-file={munge}.key"),
        *(f"--socket={munge}.socket", f"--pid-file={munge}.pid"),
        *(f"--log-file={munge}.log", f"--seed-file={munge}.seed"),
    )
    wait_for("munged", lambda: answers("munge", "-n", "-S", f"{munge}.socket"), folder)
    start("slurmctld", "-D", "-f", str(config))
    start("slurmd", "-D", "-f", str(config))
    daemons.callback(cancel_jobs, environment)
    idle = ("sinfo", "-h", "-p", "main", "-o", "%T")
    wait_for("SLURM's node", lambda: answers(*idle, says="idle"), folder)


def cancel_jobs(environment: dict[str, str]) -> None:
    """Cancel the jobs that still run."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["scancel", "--user", "root"]
        subprocess.run(command, env=environment, capture_output=True, timeout=20)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a daemon, with force if it does not end by itself."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="fetch missing packages with apt")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --")
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    # SIGTERM must pass through the clean-up as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.install:
            install()
        with slurm_node() as environment:
            return subprocess.run(command or ["sinfo"], env=environment).returncode
    except CannotRun as reason:
        print(f"No SLURM here: {reason}", file=sys.stderr)
        return CANNOT


if __name__ == "__main__":
    sys.exit(main())
