from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import textwrap
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from adops_wrappers.training.rundir import Held, run_lock
from tests.train.scripts import learned, read_metrics, run_script, start_script
from tests.zygote import Child

ITERATIONS = 60
SMALL = [
    *("env_id=adops/KeyDoorTV-v0", "bonus=rnd", "num_envs=4", "num_steps=16", "mlp_hidden=16"),
    *("obs_norm_init_iterations=1", "checkpoint_every=4", "tensorboard=false"),
    f"total_iterations={ITERATIONS}",
]


@pytest.fixture(scope="module")
def sweep(ppo_rnd):
    return import_module("research.sweep")


@pytest.fixture(scope="module")
def rooms(sweep):
    """The modules behind sweep.py."""
    names = ("cells", "display", "jobs", "local", "plan", "processes", "slurm", "watching")
    return SimpleNamespace(**{name: import_module(f"research.sweeping.{name}") for name in names})


def pairs(settings):
    return dict(setting.split("=") for setting in settings)


# Cells


def test_cells_of_a_grid_and_their_names(sweep):
    cells = sweep.expand(
        ["none", "adops"],
        [1, 2],
        {"env_id": "adops/KeyDoorTV-v0", "tie_tolerance": "1e-9"},
        {"epsilon": ["1e-2", "1E-7"], "bonus": ["rnd"]},
    )
    assert [cell.name for cell in cells] == [
        "none__bonus=rnd__seed1",
        "none__bonus=rnd__seed2",
        "adops__bonus=rnd__epsilon=0.01__seed1",
        "adops__bonus=rnd__epsilon=0.01__seed2",
        "adops__bonus=rnd__epsilon=1e-07__seed1",
        "adops__bonus=rnd__epsilon=1e-07__seed2",
    ]
    # Plain RND reads no epsilon and no tie tolerance; ppo_rnd.py would refuse them.
    assert dict(cells[0].fixed) == {"env_id": "adops/KeyDoorTV-v0"}
    assert dict(cells[2].fixed)["tie_tolerance"] == "1e-09"


def test_a_name_is_a_directory_and_does_not_depend_on_order(sweep):
    one, *_ = sweep.expand(["none"], [3], {}, {"gamma_ext": ["0.9"], "env_id": ["adops/A-v0"]})
    two, *_ = sweep.expand(["none"], [3], {}, {"env_id": ["adops/A-v0"], "gamma_ext": [".90"]})
    assert one == two
    assert one.name == "none__env_id=adops-A-v0__gamma_ext=0.9__seed3"


def test_flags_give_ppo_rnd_the_settings_of_the_cell(sweep, ppo_rnd):
    settings = {"tensorboard": "false", "save_model": "True", "num_envs": "8"}
    (cell,) = sweep.expand(["grm-norm"], [7], settings, {"delay": ["3"]})
    assert ppo_rnd.parse_args(cell.flags()) == ppo_rnd.Args(
        shaping="grm-norm",
        seed=7,
        tensorboard=False,
        save_model=True,
        num_envs=8,
        delay=3,
        scale_adv=False,
    )


def test_paper_is_nine_configurations_at_the_default_settings(sweep, ppo_rnd):
    cells = sweep.paper_cells()
    counts = {m: sum(c.method == m for c in cells) for m in dict.fromkeys(c.method for c in cells)}
    assert counts == {
        **{"none": 20, "pies": 20, "adops": 20, "adopes": 20, "adopes-half": 20},
        **{"grm": 10, "grm-norm": 10, "pbim": 1, "pbim-norm": 1},
    }
    assert len({cell.name for cell in cells}) == 122
    assert ppo_rnd.parse_args(cells[25].flags()) == ppo_rnd.Args(
        shaping="pies", seed=6, scale_adv=False
    )


# Plan


def test_dry_run_reckons_hours_and_disk_and_writes_nothing(sweep, tmp_path, capsys):
    root = tmp_path / "sweep"
    flags = ["--methods", "none", "adops", "--seeds", "1-3", "--sps", "2", "--jobs", "3"]
    code = sweep.main([str(root), *flags, "--settings", *SMALL, "--dry-run"])
    output = capsys.readouterr().out
    assert code == 0
    # 60 iterations of 4·16 steps at 2 steps/s are 32 min; six runs, three at a time.
    assert "6 cells, 0 finished. About 3.2 h of runs at 2 steps/s each (--sps)" in output
    assert "1.1 h with 3 at a time" in output
    lines = [line.split() for line in output.splitlines()]
    assert ["none", "-", "3", "0", "0", "3", "1.6", "h"] in lines
    plan = sweep.check(sweep.expand(["none"], [1], pairs(SMALL)), root)
    assert f"{6 * plan.bytes_left() / 2**20:.0f} MB needed" in output
    assert not root.exists()


def test_the_sweep_is_found_beside_the_scripts(tmp_path):
    flags = [str(tmp_path / "sweep"), "--methods", "none", "--settings", *SMALL, "--dry-run"]
    plans = [
        run_script(command, *flags).partition("Disk:") for command in ("sweep.py", "research.sweep")
    ]
    assert "1 cells, 0 finished" in plans[0][0]
    assert plans[0][0] == plans[1][0]


def test_speed_is_measured_where_there_are_runs_and_assumed_elsewhere(sweep, tmp_path):
    cells = sweep.expand(["none", "adops"], [1], pairs(SMALL))
    assert sweep.check(cells, tmp_path).sps_source.startswith("assumed for gallery")
    run_dir = tmp_path / cells[0].name
    run_dir.mkdir()
    (run_dir / "metrics.csv").write_text("iteration,charts/SPS\n1,10\n5,400.0\n6,77")
    plan = sweep.check(cells, tmp_path)
    assert (plan.sps, plan.sps_source) == (400.0, "mean of 1 runs in this directory")
    assert plan.progress[cells[0].name].iteration == 5
    atari = sweep.expand(["none"], [1], {})
    assert sweep.check(atari, tmp_path / "a", on_gpu=True).hours(atari[0]) == pytest.approx(30.0)
    for names in ({"atari_obs": "ram"}, {"env_id": "adops/MontezumaRam-v0"}):
        ram = sweep.expand(["none"], [1], names)
        plan = sweep.check(ram, tmp_path / "b", on_gpu=True)
        assert plan.sps_source.startswith("assumed for atari from RAM")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "adop"], r"unknown method 'adop'; there are none, adops.*mean adops\?"),
        ([], r"choose --methods from none, adops"),
        (["--methods", "none", "--settings", "num_env=3"], r"no setting num_env.*num_envs\?"),
        (["--methods", "none", "--settings", "num_envs"], r"takes name=value, got 'num_envs'"),
        (["--methods", "none", "--settings", "seed=3"], r"seed is set by the sweep itself"),
        (["--methods", "none", "--grid", "delay=1", "delay=2"], r"names delay twice"),
        (
            ["--methods", "none", "--grid", "num_envs=1,2", "--settings", "num_envs=1"],
            r"num_envs cannot be in both --settings and --grid",
        ),
        (["--methods", "none", "--seeds", "one"], r"ranges such as 1-20, got 'one'"),
        (["--methods", "none", "--seeds", "5-3"], r"the range 5-3 is empty"),
        (["--paper", "--methods", "none"], r"--paper sets methods and seeds itself"),
        (["--methods", "none", "--threads", "0"], r"--threads must be at least 1"),
        (["--methods", "none", "--jobs", "-1"], r"--jobs must not be negative"),
        (["--methods", "none", "--slurm-extra", "qos"], r"--slurm-extra takes name=value"),
        (
            ["--methods", "none", "--settings", "num_envs=6", "--ranks", "4"],
            r"none__seed1: num_envs=6 cannot be split over --ranks 4",
        ),
        (
            ["--methods", "none", "--settings", "bonus=count", "--ranks", "2"],
            r"bonus=count keeps its counts in one process",
        ),
        (["--methods", "guarded", "--ranks", "2"], r"guarded learns from all envs of a process"),
        (
            ["--methods", "none", "--settings", "gamma_ext=1.5"],
            r"cell none__seed1: --gamma-ext must lie in \[0, 1\], got 1\.5",
        ),
        (["--methods", "none", "--settings", "env_id=No/Such-v0"], r"No/Such-v0 cannot be built"),
        (["--methods", "none", "--settings", "env_id=CartPole"], r"CartPole names no version"),
        (["--methods", "none", "--settings", "env_id=no_module:A-v0"], r"importing 'no_module'"),
        (["--methods", "none", "--settings", "env_id=Pendulum-v1"], r"needs Discrete actions"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(sweep, tmp_path, flags, message):
    with pytest.raises(SystemExit, match=message):
        sweep.main([str(tmp_path / "sweep"), *flags])
    assert not (tmp_path / "sweep").exists()


def test_an_atari_game_without_a_vector_env_is_refused_before_anything_starts(sweep, tmp_path):
    pytest.importorskip("ale_py")
    settings = ["--methods", "none", "--settings", "env_id=PongNoFrameskip-v4"]
    with pytest.raises(SystemExit, match=r"cell none__seed1: .*has no vector env"):
        sweep.main([str(tmp_path / "sweep"), *settings, "--dry-run"])


def test_no_slurm_is_said(sweep, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    flags = ["--methods", "none", "--executor", "slurm"]
    with pytest.raises(SystemExit, match=r"no SLURM on this machine.*--executor local"):
        sweep.main([str(tmp_path / "sweep"), *flags])
    for name in ("sbatch", "squeue", "scontrol"):
        path = tmp_path / name
        path.write_text("#!/bin/sh\necho slurm_load_jobs error: Unable to contact >&2\nexit 1\n")
        path.chmod(0o755)
    with pytest.raises(SystemExit, match="SLURM does not answer: slurm_load_jobs error: Unable"):
        sweep.main([str(tmp_path / "sweep"), *flags])


def test_missing_submitit_is_said(rooms, monkeypatch):
    monkeypatch.setattr(rooms.slurm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r'pip install "adops-wrappers\[cluster\]"'):
        rooms.slurm.require_slurm()


@pytest.mark.parametrize(
    ("gpus", "threads", "ranks", "jobs"),
    [
        ("", 1, 1, 16),
        ("", 4, 2, 2),
        ("0", 1, 1, 2),
        ("0,1", 1, 1, 4),
        ("0,1", 1, 2, 2),
        ("0", 9, 1, 1),
    ],
)
def test_runs_share_gpus_and_fill_cores(rooms, monkeypatch, gpus, threads, ranks, jobs):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert rooms.local.default_jobs(threads, ranks) == jobs


@pytest.mark.parametrize(
    ("gpus", "ranks", "chosen"),
    [("4,7", 1, ["4", "7", "4", "7"]), ("4,7,9", 2, ["4,7", "9,4"]), ("4", 1, ["4", "4"])],
)
def test_slots_take_the_gpus_in_turn(rooms, monkeypatch, gpus, ranks, chosen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    given = [rooms.local.gpus_of_slot(slot, ranks) for slot in range(len(chosen))]
    assert given == [{"CUDA_VISIBLE_DEVICES": names} for names in chosen]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert rooms.local.gpus_of_slot(0, ranks) == {}


@pytest.mark.parametrize(
    ("flags", "env_id", "num_envs", "cpus"),
    [
        ({"threads": 3}, "ALE/MontezumaRevenge-v5", 32, 3),
        ({"gpus": 1}, "ALE/MontezumaRevenge-v5", 8, 4),
        ({"gpus": 1}, "ALE/MontezumaRevenge-v5", 1024, 16),
        ({"ranks": 2, "threads": 2}, "ALE/MontezumaRevenge-v5", 4, 4),
        ({"gpus": 1, "threads": 2}, "adops/KeyDoorTV-v0", 64, 2),
        ({"gpus": 1, "threads": 2}, "adops/MontezumaRam-v0", 64, 2),
        ({"gpus": 1, "cpus": 6}, "ALE/MontezumaRevenge-v5", 32, 6),
    ],
)
def test_a_job_has_the_cpus_that_its_emulators_need(
    sweep, rooms, ppo_rnd, flags, env_id, num_envs, cpus
):
    pytest.importorskip("ale_py")
    runs = [ppo_rnd.Args(env_id=env_id, num_envs=num_envs), ppo_rnd.Args(env_id=env_id, num_envs=1)]
    asked = rooms.slurm.job_parameters(sweep.RunArgs("runs", **flags), runs)
    assert asked["cpus_per_task"] == cpus


# Runs of a stand-in for ppo_rnd.py, which starts at once

STAND_IN = """
import json, pathlib, signal, sys, time

flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
run_dir = pathlib.Path(flags.get("--run-dir") or flags["--resume"])
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
print("--run-dir" in flags and "new" or "resumed", flush=True)
(run_dir / "config.json").write_text("{}")
seed = run_dir.name[-1]
if seed == "9":
    sys.exit("error: this run cannot work")
deadline = time.monotonic() + (900 if seed == "8" and "--run-dir" in flags else 0)
while time.monotonic() < deadline and not stopped:
    time.sleep(0.01)
reason = "stopped by SIGTERM" if stopped else "finished"
status = {"iteration": 3, "finished": not stopped, "reason": reason}
if seed == "7":
    status["lost"] = "checkpoints/00000002 is missing"
(run_dir / "status.json").write_text(json.dumps(status))
if seed == "7":
    sys.exit(3)
"""


@pytest.fixture
def stand_in(rooms, tmp_path, monkeypatch):
    script = tmp_path / "stand_in.py"
    script.write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setattr(rooms.processes, "SCRIPT", script)
    monkeypatch.setattr(rooms.plan, "refuse_other_run", lambda run_dir, wanted: None)


def plan_for(sweep, root, seeds):
    root.mkdir(exist_ok=True)
    return sweep.check(sweep.expand(["none"], seeds, pairs(SMALL)), root)


def states(results):
    return {name[-1]: result.state for name, result in results.items()}


@pytest.mark.usefixtures("stand_in")
def test_a_failed_cell_is_reported_and_stops_no_other(sweep, tmp_path, capsys):
    root = tmp_path / "sweep"
    plan = plan_for(sweep, root, [9, 1, 2])
    results = sweep.run_local(plan, jobs=1, refresh=0.01)
    assert states(results) == {"9": "failed", "1": "finished", "2": "finished"}
    assert sweep.report(plan, results) == 1
    output = capsys.readouterr().out
    tail = output[output.index("FAILED none__seed9: exit code 1. Last lines of") :]
    assert "\n    error: this run cannot work\n" in tail
    assert "2 of 3 cells finished, 1 failed" in tail
    logs = {seed: (root / f"none__seed{seed}" / "output.log").read_text() for seed in (1, 9)}
    again = plan_for(sweep, root, [9, 1, 2])
    assert [cell.seed for cell in again.open] == [9]
    sweep.run_local(again, jobs=1, refresh=0.01)
    assert (root / "none__seed1" / "output.log").read_text() == logs[1]
    assert (root / "none__seed9" / "output.log").read_text().count("this run cannot work") == 2


@pytest.mark.usefixtures("stand_in")
def test_a_finished_run_that_lost_a_file_is_named_each_time_and_not_run_again(
    sweep, tmp_path, capsys
):
    root = tmp_path / "sweep"
    for _ in range(2):
        plan = plan_for(sweep, root, [7, 1])
        results = sweep.run_local(plan, jobs=1, refresh=0.01)
        assert states(results) == {"7": "finished", "1": "finished"}
        assert sweep.report(plan, results) == 3
        output = capsys.readouterr().out
        assert "error: none__seed7 finished, but checkpoints/00000002 is missing.\n" in output
        assert "2 of 2 cells finished, 0 failed" in output
        assert "seed1 finished, but" not in output
    assert (root / "none__seed7" / "output.log").read_text().count("---") == 1
    plan = plan_for(sweep, root, [7, 9])
    assert sweep.report(plan, sweep.run_local(plan, jobs=1, refresh=0.01)) == 1


def test_a_run_that_stopped_in_order_is_resumable_whatever_it_lost(rooms, tmp_path):
    status = {"finished": False, "reason": "stopped by SIGTERM", "lost": "one"}
    (tmp_path / "status.json").write_text(json.dumps(status))
    assert rooms.local.end_of_run(tmp_path, 3, stopping=False).state == "stopped"
    assert rooms.local.end_of_run(tmp_path, 1, stopping=False).state == "failed"


@pytest.mark.usefixtures("stand_in")
def test_a_run_on_several_ranks_goes_through_torchrun(sweep, tmp_path):
    plan = plan_for(sweep, tmp_path / "sweep", [1])
    results = sweep.run_local(plan, ranks=2, refresh=0.01)
    assert states(results) == {"1": "finished"}
    log = (tmp_path / "sweep" / "none__seed1" / "output.log").read_text().splitlines()
    assert log.count("new") == 2


@pytest.mark.usefixtures("stand_in")
def test_sigterm_lets_the_runs_write_their_checkpoint(sweep, rooms, tmp_path, capsys):
    root = tmp_path / "sweep"
    plan = plan_for(sweep, root, [8, 1])

    def stop_when_running(seconds):
        if (root / "none__seed8" / "config.json").exists():
            os.kill(os.getpid(), signal.SIGTERM)

    waits = SimpleNamespace(**{**vars(time), "sleep": stop_when_running})
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms.watching, "time", waits)
        # The first signal asks; from the second on the run would be killed.
        handle = lambda self, *_: setattr(self, "count", 1)  # noqa: E731
        patch.setattr(rooms.processes.SignalCount, "_handle", handle)
        results = sweep.run_local(plan, jobs=1)
    assert signal.getsignal(signal.SIGTERM) is before
    assert states(results) == {"8": "stopped", "1": "waiting"}
    assert sweep.report(plan, results) == 1
    assert "0 of 2 cells finished, 0 failed, 2 resumable" in capsys.readouterr().out
    again = sweep.run_local(plan_for(sweep, root, [8, 1]), jobs=2, refresh=0.01)
    assert states(again) == {"8": "finished", "1": "finished"}
    log = (root / "none__seed8" / "output.log").read_text().splitlines()
    assert [line for line in log if not line.startswith("---")] == ["new", "resumed"]


@pytest.mark.usefixtures("stand_in")
def test_a_run_that_is_still_at_work_is_waited_for(sweep, rooms, tmp_path, capsys):
    """As when a sweep was killed and its runs outlived it for a moment."""
    root = tmp_path / "sweep"
    plan = plan_for(sweep, root, [1])
    run_dir = root / "none__seed1"
    run_dir.mkdir()
    other = run_lock(run_dir)
    other.take()
    with pytest.raises(Held, match=f"process {os.getpid()} of .* on .* since 20"):
        rooms.processes.start_run(run_dir, [])

    def let_go(seconds):
        other.release()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms.watching, "time", SimpleNamespace(**{**vars(time), "sleep": let_go}))
        results = sweep.run_local(plan, jobs=1)
    assert states(results) == {"1": "finished"}
    assert f"none__seed1: waiting for process {os.getpid()} of" in capsys.readouterr().out


def test_a_run_that_found_its_directory_taken_waits_and_is_no_failure(rooms, tmp_path):
    with run_lock(tmp_path):
        ended = rooms.local.end_of_run(tmp_path, 1, stopping=False)
    assert ended.state == "waiting"
    assert f"process {os.getpid()}" in ended.detail
    (tmp_path / "output.log").write_text("error: not again\n")
    assert rooms.local.end_of_run(tmp_path, 1, False) == ("failed", "exit code 1")
    assert rooms.local.end_of_run(tmp_path, -9, False) == ("failed", "killed by SIGKILL")


def test_a_run_whose_last_words_a_full_disk_swallowed_is_said_to_have_none(rooms, tmp_path):
    (tmp_path / "output.log").write_text("--- ppo_rnd.py --run-dir here\n")
    ended = rooms.local.end_of_run(tmp_path, 1, stopping=False)
    assert ended.detail.startswith("exit code 1, but the log holds no error message; perhaps the")


@pytest.mark.usefixtures("stand_in")
def test_full_disk_loses_nothing(sweep, rooms, tmp_path, monkeypatch, capsys):
    root = tmp_path / "sweep"
    plan = plan_for(sweep, root, [1, 2, 3])
    need = plan.bytes_per_run["none__seed1"]
    disk = SimpleNamespace(free=need * 3 - 1)
    monkeypatch.setattr(rooms.plan.shutil, "disk_usage", lambda path: disk)
    with pytest.raises(SystemExit, match=r"the sweep needs about .* MB more\. Free some space"):
        sweep.main([str(root), "--methods", "none", "--seeds", "1-3", "--settings", *SMALL])
    monkeypatch.setattr(
        rooms.plan.shutil,
        "disk_usage",
        lambda path: SimpleNamespace(
            free=0 if rooms.processes.is_finished(root / "none__seed1") else need
        ),
    )
    results = sweep.run_local(plan, jobs=1, refresh=0.01)
    assert states(results) == {"1": "finished", "2": "waiting", "3": "waiting"}
    assert sweep.report(plan, results) == 1
    assert "Not started: the disk has 0 MB free and a run needs" in capsys.readouterr().out
    monkeypatch.undo()
    assert rooms.processes.is_finished(root / "none__seed1")


def test_unwritable_directory_is_said(sweep, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="cannot write to"), sweep.hold(tmp_path / "file" / "x"):
        pass


def test_two_sweeps_in_one_directory(sweep, tmp_path):
    root = tmp_path / "sweep"
    flags = [str(root), "--methods", "none", "--settings", *SMALL]
    holder = rf"in use by another sweep: process {os.getpid()} of .* since 20"
    with sweep.hold(root), pytest.raises(SystemExit, match=holder):
        sweep.main(flags)
    assert [path.name for path in root.iterdir()] == ["sweep.lock"]


# Jobs of a cluster, without one; test_slurm.py has a real one


@pytest.mark.usefixtures("stand_in")
def test_a_job_runs_its_cell_and_is_asked_for_again_when_it_must_stop(rooms, tmp_path):
    submitit = pytest.importorskip("submitit")
    job = rooms.jobs.CellJob(tmp_path / "none__seed1", [], 1, 1, 20.0)
    assert job() == "finished"
    with pytest.raises(
        RuntimeError, match=r"(?s)ended with code 1:.*\nerror: this run cannot work"
    ):
        rooms.jobs.CellJob(tmp_path / "none__seed9", [], 1, 1, 20.0)()
    endless = rooms.jobs.CellJob(tmp_path / "none__seed8", [], 1, 1, 20.0)
    process = endless._start()
    endless.pid = process.pid
    while not (endless.run_dir / "config.json").exists():
        time.sleep(0.01)
    (tmp_path / "taken").mkdir()
    with pytest.raises(RuntimeError, match="is in use by process"), run_lock(tmp_path / "taken"):
        rooms.jobs.CellJob(tmp_path / "taken", [], 1, 1, 0.0)()
    asked = endless.checkpoint()
    process.wait()
    assert isinstance(asked, submitit.helpers.DelayedSubmission)
    assert "stopped by SIGTERM" in (endless.run_dir / "status.json").read_text()
    assert asked.function() == "finished"
    assert (endless.run_dir / "output.log").read_text().count("--resume") == 1


def test_jobs_are_watched_until_the_queue_has_lost_them(sweep, rooms, tmp_path, monkeypatch):
    plan = plan_for(sweep, tmp_path, [1, 2, 3])
    jobs = {cell.name: f"7_{cell.seed}" for cell in plan.cells}
    (tmp_path / "none__seed1").mkdir()
    (tmp_path / "none__seed1" / "status.json").write_text('{"finished": true}')
    answers = iter([dict.fromkeys(jobs.values(), "PENDING"), None, {"7_3": "RUNNING"}] * 2)
    monkeypatch.setattr(rooms.slurm, "queue_states", lambda: next(answers))
    runs = rooms.slurm.QueuedRuns(plan, jobs, 0.0)
    assert runs.step(0, print)
    assert runs.states() == dict.fromkeys(jobs, "pending")
    assert runs.step(0, print)  # SLURM is silent: nothing is known
    assert not runs.results
    assert runs.step(0, print)
    assert states(runs.results) == {"1": "finished"}
    assert runs.states() == {"none__seed2": "?", "none__seed3": "running"}
    monkeypatch.setattr(rooms.slurm, "queue_states", lambda: {"7_3": "RUNNING"})
    assert runs.step(0, print)
    assert runs.results["none__seed2"] == ("failed", "job 7_2 ended before the run did")
    assert not runs.step(1, print)
    assert runs.left.detail == "its job keeps running"


def test_queued_jobs_are_found_and_named_when_the_watcher_is_stopped(
    sweep, rooms, tmp_path, monkeypatch, capsys
):
    plan = plan_for(sweep, tmp_path, [1, 2])
    for cell in plan.cells:
        (tmp_path / cell.name).mkdir()
        (tmp_path / cell.name / "job.txt").write_text(f"7_{cell.seed}")

    def stopped():
        signal.raise_signal(signal.SIGINT)
        return {"7_1": "RUNNING", "7_2": "PENDING"}

    monkeypatch.setattr(rooms.slurm, "require_slurm", lambda: None)
    found = iter([{"7_1": "RUNNING", "7_2": "PENDING"}])
    monkeypatch.setattr(rooms.slurm, "queue_states", lambda: next(found, None) or stopped())
    results = rooms.slurm.run_slurm(plan, sweep.RunArgs(str(tmp_path), refresh=0.01))
    assert states(results) == {"1": "stopped", "2": "stopped"}
    output = capsys.readouterr().out
    assert "2 cells are already in the queue; watching their jobs." in output
    assert "scancel 7_1 7_2" in output


# Real runs


def one_run(ppo_rnd, sweep, cell: object, run_dir: Path) -> None:
    flags = [*cell.flags(), "--run-dir", str(run_dir), "--torch-threads", "1"]
    ppo_rnd.train(ppo_rnd.parse_args(flags))


def wait_until(ready, process: Child) -> None:
    deadline = time.monotonic() + 900
    while not ready():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_grid_started_again_equals_uninterrupted_runs(sweep, rooms, ppo_rnd, tmp_path):
    """Two methods × two seeds; the sweep and its runs are killed without warning."""
    root, methods = tmp_path / "sweep", ["none", "pbim"]
    cells = sweep.expand(methods, [1, 2], pairs(SMALL))
    for cell in cells:
        one_run(ppo_rnd, sweep, cell, tmp_path / "whole" / cell.name)

    flags = [str(root), "--methods", *methods, "--seeds", "1-2", "--jobs", "2", "--refresh", "0.1"]
    process = start_script("research.sweep", *flags, "--settings", *SMALL, forking=True)
    victim = root / cells[2].name
    wait_until(
        lambda: (victim / "metrics.csv").exists() and len(read_metrics(victim)) >= 5, process
    )
    pid = int((victim / "run.holder").read_text().split()[1])
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.communicate()
    rows_before = len(read_metrics(victim))
    finished = [cell.name for cell in cells if rooms.processes.is_finished(root / cell.name)]
    assert rows_before < ITERATIONS
    assert 0 < len(finished) < len(cells)
    kept = {name: (root / name / "metrics.csv").stat().st_mtime_ns for name in finished}

    output = run_script("research.sweep", *flags, "--settings", *SMALL, forking=True)
    assert "4 of 4 cells finished, 0 failed, 0 resumable" in output
    for cell in cells:
        assert learned(root / cell.name) == learned(tmp_path / "whole" / cell.name), cell.name
    assert len(learned(victim)) == ITERATIONS
    assert "--resume" in (victim / "output.log").read_text()
    assert {n: (root / n / "metrics.csv").stat().st_mtime_ns for n in finished} == kept


def test_other_settings_in_the_same_directory_are_refused(sweep, ppo_rnd, tmp_path):
    (cell,) = sweep.expand(["none"], [1], {**pairs(SMALL), "total_iterations": "1"})
    one_run(ppo_rnd, sweep, cell, tmp_path / cell.name)
    before = (tmp_path / cell.name / "metrics.csv").read_bytes()
    flags = [str(tmp_path), "--methods", "none", "--settings", *SMALL]
    with pytest.raises(SystemExit, match=r"total_iterations is 1 there and 60 here.*nothing was"):
        sweep.main(flags)
    assert (tmp_path / cell.name / "metrics.csv").read_bytes() == before
    (tmp_path / cell.name / "config.json").write_text("{")
    with pytest.raises(SystemExit, match=r"config\.json cannot be read"):
        sweep.main(flags)


# Table and log


def test_last_lines_of_a_log_leave_out_what_a_progress_bar_overwrote(rooms, tmp_path):
    (tmp_path / "output.log").write_bytes(b"first\nsecond\n\n 1%\r 2%\r 3%\nlast \xff\n")
    assert rooms.processes.log_tail(tmp_path, 3) == "second\n 3%\nlast \ufffd"
    assert rooms.processes.log_tail(tmp_path / "none") == "(no output)"


def test_cells_are_listed_for_later_evaluation(sweep, tmp_path):
    sweep.write_cells(sweep.check(sweep.expand(["none"], [1], pairs(SMALL)), tmp_path))
    more = sweep.expand(["adops"], [2], pairs(SMALL), {"epsilon": ["0.1"]})
    sweep.write_cells(sweep.check(more, tmp_path))
    first, second = json.loads((tmp_path / "sweep.json").read_text())["cells"]
    assert (first["name"], first["method"], first["seed"]) == ("none__seed1", "none", 1)
    assert second["varied"] == {"epsilon": "0.1"}
    assert second["settings"] == {**dict(more[0].fixed), "epsilon": "0.1"}
    (tmp_path / "sweep.json").write_text('{"cells": [{"name"')
    with pytest.raises(SystemExit, match=r"sweep\.json cannot be read .* move it away"):
        sweep.write_cells(sweep.check(more, tmp_path))


@pytest.fixture
def at_work(sweep, tmp_path):
    """A plan of three cells, of which the second has made five of its 60 iterations."""
    plan = plan_for(sweep, tmp_path, [1, 2, 3])
    run_dir = tmp_path / "none__seed2"
    run_dir.mkdir()
    (run_dir / "metrics.csv").write_text(
        "iteration,charts/episodic_return_recent,charts/SPS\n1,,16.0\n5,0.25,32.0\n"
    )
    return plan


def lines_of(file: io.StringIO) -> list[str]:
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    file.seek(0)
    file.truncate()
    return lines


def test_progress_table_shows_the_runs_at_work(sweep, rooms, at_work):
    file = io.StringIO()
    show = rooms.display.ProgressTable(at_work, Console(file=file, width=200))
    results = {"none__seed1": rooms.processes.Result("finished")}
    with show:
        show.draw({"none__seed2": "running"}, results)
        (said,) = lines_of(file)
        assert said.endswith(" none__seed2: running")
        show.draw({"none__seed2": "running"}, results, last=True)
        # 55 iterations of 64 steps are left, at 32 steps/s.
        assert lines_of(file) == [
            "3 cells: 1 finished, 1 running, 1 waiting",
            "cell         state    iteration  SPS  return  left",
            "none__seed2  running  5/60       32   0.25    1.8 min",
        ]


def test_a_terminal_shows_one_table_that_is_redrawn(sweep, rooms, at_work):
    file = io.StringIO()
    console = Console(file=file, width=200, force_terminal=True, highlight=False)
    results = {"none__seed1": rooms.processes.Result("finished")}
    with rooms.display.ProgressTable(at_work, console) as show:
        show.draw({"none__seed2": "running"}, results, last=True)
        lines_of(file)
        show.say("the disk is full")
        show.draw({}, {**results, "none__seed2": rooms.processes.Result("failed")}, last=True)
    text = file.getvalue()
    assert "\x1b[1A" in text  # the lines before are drawn over
    assert text.index("the disk is full") < text.index("3 cells: 1 failed, 1 finished, 0 running")
