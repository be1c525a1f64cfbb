"""The sweep on a real SLURM of one node; `make test-slurm` brings it up around these tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib import import_module
from pathlib import Path

import pytest

from tests.train.scripts import command, environment, learned, read_metrics

if "SLURM_TEST_NODE" not in os.environ:
    pytest.skip("needs a SLURM of its own: make test-slurm", allow_module_level=True)

ITERATIONS = 300
SETTINGS = {
    **{"env_id": "adops/KeyDoorTV-v0", "num_envs": "4", "num_steps": "16", "mlp_hidden": "16"},
    **{"obs_norm_init_iterations": "1", "checkpoint_every": "20", "tensorboard": "False"},
    "total_iterations": str(ITERATIONS),
}
METHODS = ("adops", "pbim")


@pytest.fixture(scope="module")
def sweep(ppo_rnd):
    return import_module("research.sweep")


@pytest.fixture(scope="module")
def whole(sweep, ppo_rnd, tmp_path_factory):
    """The same runs without SLURM and without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    for cell in sweep.expand(METHODS, [1], SETTINGS):
        flags = [*cell.flags(), "--run-dir", str(folder / cell.name), "--torch-threads", "1"]
        ppo_rnd.train(ppo_rnd.parse_args(flags))
    return folder


def start_sweep(root: Path, *flags: str, methods=METHODS, **settings) -> subprocess.Popen:
    return subprocess.Popen(
        command(
            "research.sweep",
            *(str(root), "--executor", "slurm", "--partition", "main", "--methods", *methods),
            *("--mem-gb", "1", "--refresh", "0.5", "--signal-delay", "60", *flags),
            *(
                "--settings",
                *(f"{name}={value}" for name, value in {**SETTINGS, **settings}.items()),
            ),
        ),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_rows(run_dir: Path, rows: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 900
    while not (run_dir / "metrics.csv").exists() or len(read_metrics(run_dir)) < rows:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def finish(process: subprocess.Popen, jobs: list[str]) -> str:
    """Wait for the sweep's end; a requeued job need not wait SLURM's two minutes."""
    deadline = time.monotonic() + 900
    while process.poll() is None:
        assert time.monotonic() < deadline
        # SLURM waits for the messages of the job's former life: ten seconds are enough here.
        waited = "BeginTime" in slurm("squeue", "--noheader", "--format", "%R")
        time.sleep(10.0 if waited else 0.5)
        for job in jobs if waited else []:
            # Refused while the job runs or has ended.
            update = ["scontrol", "update", f"JobId={job}", "StartTime=now"]
            subprocess.run(update, capture_output=True)
    return process.communicate()[0]


def job_of(run_dir: Path) -> str:
    return (run_dir / "job.txt").read_text()


def starts(run_dir: Path) -> list[str]:
    """How the run was started each time: anew or as a resumed one."""
    lines = (run_dir / "output.log").read_text().splitlines()
    return [line.split("ppo_rnd.py ")[1].split()[0] for line in lines if line.startswith("---")]


def logs_of(root: Path, job: str) -> str:
    return "".join(path.read_text() for path in sorted((root / "slurm").glob(f"{job}_*log*")))


def test_preempted_and_requeued_cells_equal_uninterrupted_runs(tmp_path, whole):
    """One cell gets the preemption signal, the other is requeued by SLURM."""
    root = tmp_path / "sweep"
    process = start_sweep(root)
    signalled, requeued = (root / f"{method}__seed1" for method in METHODS)
    wait_for_rows(signalled, 30, process)
    slurm("scancel", "--signal", "USR2", job_of(signalled))
    wait_for_rows(requeued, 30, process)
    slurm("scontrol", "requeue", job_of(requeued))
    assert len(read_metrics(requeued)) < ITERATIONS
    output = finish(process, [job_of(signalled), job_of(requeued)])
    print(output)
    assert process.returncode == 0, output
    assert "2 of 2 cells finished, 0 failed" in output
    for run_dir in (signalled, requeued):
        log = (run_dir / "output.log").read_text()
        print(log)
        assert starts(run_dir) == ["--run-dir", "--resume"]
        assert learned(run_dir) == learned(whole / run_dir.name)
    # The signal let the run write its checkpoint, and no step was lost.
    said = (signalled / "output.log").read_text()
    stopped = int(said.split("stopped by SIGTERM after iteration ")[1].split(".")[0])
    assert f"Resuming {signalled} after iteration {stopped}." in said
    log = logs_of(root, job_of(signalled))
    assert "Caught signal SIGUSR2" in log
    assert "Requeued job" in log
    again = start_sweep(root)
    assert "2 cells, 2 finished" in again.communicate(timeout=900)[0]
    assert again.returncode == 0


def test_an_urgent_job_preempts_a_cell(tmp_path, whole):
    """SLURM's own preemption: a job of a partition with priority takes the whole node."""
    root = tmp_path / "sweep"
    process = start_sweep(root, methods=METHODS[:1])
    run_dir = root / "adops__seed1"
    wait_for_rows(run_dir, 30, process)
    slurm("sbatch", "--partition", "urgent", "--exclusive", "--output", "/dev/null", "--wrap", "")
    output = finish(process, [job_of(run_dir)])
    assert process.returncode == 0, output
    said = (run_dir / "output.log").read_text()
    assert "stopped by SIGTERM after iteration" in said
    assert starts(run_dir) == ["--run-dir", "--resume"]
    assert learned(run_dir) == learned(whole / run_dir.name)


def test_jobs_outlive_their_watcher_and_are_found_again(tmp_path):
    root = tmp_path / "sweep"
    endless = ("--grid", "delay=1,2", "--threads", "1")
    process = start_sweep(root, *endless, methods=("grm",), total_iterations=10**6)
    run_dirs = [root / f"grm__delay={delay}__seed1" for delay in (1, 2)]
    for run_dir in run_dirs:
        wait_for_rows(run_dir, 3, process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=900)[0]
    assert process.returncode == 1
    assert "The jobs keep running" in output
    jobs = [job_of(run_dir) for run_dir in run_dirs]
    assert f"scancel {' '.join(jobs)}" in output
    rows = [len(read_metrics(run_dir)) for run_dir in run_dirs]
    process = start_sweep(root, *endless, methods=("grm",), total_iterations=10**6)
    while "2 cells are already in the queue; watching their jobs" not in (
        line := process.stdout.readline()
    ):
        assert line, "the second sweep ended without finding the jobs"
    for run_dir, before in zip(run_dirs, rows, strict=True):
        wait_for_rows(run_dir, before + 3, process)
        assert starts(run_dir) == ["--run-dir"]
    assert [job_of(run_dir) for run_dir in run_dirs] == jobs
    slurm("scancel", *jobs)
    output = process.communicate(timeout=900)[0]
    assert process.returncode == 1
    assert f"FAILED {run_dirs[0].name}: job {jobs[0]} ended before the run did" in output


def test_failed_cell_is_reported_with_its_log(tmp_path):
    process = start_sweep(
        tmp_path / "sweep", "--grid", "learning_rate=1e-3,1e30", methods=("none",)
    )
    output = finish(process, [])
    assert process.returncode == 1
    assert "1 of 2 cells finished, 1 failed" in output
    tail = output[output.index("FAILED none__learning_rate=1e+30__seed1: job ") :]
    assert "the loss or its gradient became NaN in iteration" in tail


def test_refused_submission_is_said(tmp_path):
    process = start_sweep(tmp_path / "sweep", "--partition", "nowhere", methods=("none",))
    output = process.communicate(timeout=900)[0]
    assert process.returncode == 1
    assert "SLURM refused the jobs" in output
    assert "invalid partition" in output
