from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("filelock")

from adops_wrappers.training import rundir
from adops_wrappers.training.rundir import Held, Lock, RunDir


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def holding_process(path: Path, code: str) -> subprocess.Popen[str]:
    """Start a process that takes a lock, says so and waits."""
    program = f"""
import sys, time
from pathlib import Path
from adops_wrappers.training.rundir import RunDir, Lock
path = {str(path)!r}
{code}
print("taken", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


def test_runs_of_the_same_name_started_at_once_get_directories_of_their_own():
    taken: list[Path] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        taken.append(RunDir.create("", "env__script__1__1700000000").path)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 8
    assert Path("runs/env__script__1__1700000000") in taken
    assert Path("runs/env__script__1__1700000000_8") in taken


def test_a_named_directory_is_taken_before_anything_is_written():
    first = RunDir.create("chosen", "")
    with pytest.raises(SystemExit, match=rf"chosen is in use by process {os.getpid()} of .* on "):
        RunDir.create("chosen", "")
    first.release()
    RunDir.create("chosen", "").release()


@pytest.mark.parametrize("name", ["metrics.csv", "checkpoints/00000001/state.pt"])
def test_a_directory_that_holds_a_run_is_not_taken_for_another(name):
    path = Path("old") / name
    path.parent.mkdir(parents=True)
    path.write_text("x")
    message = r"old already holds a run\. Continue it with --resume old, or choose another"
    for _ in range(2):  # the refusal leaves no lock behind
        with pytest.raises(SystemExit, match=message):
            RunDir.create("old", "")


def test_a_resume_waits_for_nobody_and_names_the_holder():
    with holding_process(Path("run"), "run = RunDir.create(path, '')") as process:
        Path("run/config.json").write_text("{}")
        with pytest.raises(SystemExit, match=f"run is in use by process {process.pid} of .* since"):
            RunDir.reopen("run")
        process.kill()


def test_a_killed_process_leaves_no_lock():
    with holding_process(Path("run"), "run = RunDir.create(path, '')") as process:
        os.kill(process.pid, signal.SIGKILL)
    Path("run/config.json").write_text("{}")
    reopened = RunDir.reopen("run")
    assert f"process {os.getpid()} of " in Path("run/run.holder").read_text()
    reopened.release()
    assert not Path("run/run.holder").exists()
    reopened.release()


def test_what_is_no_run_is_not_resumed():
    Path("empty").mkdir()
    with pytest.raises(SystemExit, match=r"there is no empty/config\.json, so this is not a run"):
        RunDir.reopen("empty")
    Path("empty/checkpoints").mkdir()
    RunDir.reopen("empty").release()


def test_files_of_a_killed_writer_are_cleared_away():
    Path("run").mkdir()
    Path("run/config.json").write_text("{}")
    Path("run/.tmp-0123-status.json").write_text("{")
    RunDir.reopen("run").release()
    assert sorted(os.listdir("run")) == ["config.json", "run.lock"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named():
    Path("closed").mkdir(mode=0o500)
    with pytest.raises(SystemExit, match=r"cannot write to closed: .* Choose another --run-dir"):
        RunDir.create("closed", "")


@pytest.mark.parametrize("run_dir", ["", "file/run"])
def test_a_path_that_cannot_be_made_is_named(run_dir):
    Path("file").write_text("")
    Path("runs").write_text("")
    with pytest.raises(SystemExit, match=r"cannot write to .*\. Choose another --run-dir"):
        RunDir.create(run_dir, "name")


def test_a_lock_is_a_context_and_names_others():
    lock = Lock(Path("sweep.lock"))
    with lock, pytest.raises(Held, match=rf"process {os.getpid()} of "):
        Lock(Path("sweep.lock")).take(wait=0)
    with Lock(Path("sweep.lock")):
        Path("sweep.holder").unlink()
        with pytest.raises(Held, match="another process"):
            Lock(Path("sweep.lock")).take(wait=0)


def test_a_lock_can_be_looked_at_without_being_taken():
    lock = Lock(Path("run.lock"))
    lock.refuse_holder()
    Lock(Path("missing/run.lock")).refuse_holder()
    assert not Path("run.holder").exists()
    with lock, pytest.raises(Held, match=rf"process {os.getpid()} of "):
        Lock(Path("run.lock")).refuse_holder()
    lock.refuse_holder()


def test_a_file_system_without_locks_is_named_and_worked_on(monkeypatch, capsys):
    def none_available(*args, **kwargs):
        raise OSError(errno.ENOLCK, "No locks available")

    lock = Lock(Path("run.lock"))
    monkeypatch.setattr(lock._lock, "acquire", none_available)
    with lock:
        assert "a file system without locks (No locks available)" in capsys.readouterr().out


def test_a_user_without_a_name_is_a_number(monkeypatch):
    def unknown():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(rundir.getpass, "getuser", unknown)
    with Lock(Path("run.lock")):
        assert f" of {os.getuid()} on " in Path("run.holder").read_text()


def test_settings_and_state_come_back():
    run = RunDir.create("run", "")
    config = {"script": "x.py", "args": {"seed": 1, "learning_rate": 1e-4}}
    run.write_config(config)
    run.write_status(7, True, "finished", {"bytes": 3, "sha256": "abc"}, "model.pt is missing")
    assert rundir.read_config(run.path) == config
    assert rundir.read_status(run.path) == {
        "iteration": 7,
        "finished": True,
        "reason": "finished",
        "lost": "model.pt is missing",
        "metrics": {"bytes": 3, "sha256": "abc"},
    }


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda text: "", "is damaged"),
        (lambda text: "[1]", "it holds no JSON object"),
        (lambda text: '{"script": "x.py"}', "it has no settings"),
        (lambda text: text.replace("0.0001", "0.0005"), "was changed since it was written"),
        (lambda text: text.replace("seed", "s\xffed"), "was changed since it was written"),
    ],
)
def test_a_damaged_config_is_noticed(damage, message):
    run = RunDir.create("run", "")
    run.write_config({"args": {"seed": 1, "learning_rate": 1e-4}})
    path = run.path / "config.json"
    path.write_text(damage(path.read_text()), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        rundir.read_config(run.path)


def test_every_flipped_bit_of_a_config_is_noticed_or_changes_nothing():
    run = RunDir.create("run", "")
    config = {"args": {"seed": 1, "learning_rate": 1e-4}}
    run.write_config(config)
    path = run.path / "config.json"
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            assert rundir.read_config(run.path)["args"] == config["args"]
        except ValueError:
            continue


def test_config_of_an_earlier_version_is_read(tmp_path):
    Path("config.json").write_text('{"args": {"seed": 1}}')
    assert rundir.read_config(Path()) == {"args": {"seed": 1}}


def test_a_full_disk_keeps_the_old_config(monkeypatch):
    run = RunDir.create("run", "")
    run.write_config({"args": {"seed": 1}})

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit, match=r"cannot write run/config.json: No space left on device"):
        run.write_config({"args": {"seed": 2}})
    assert rundir.read_config(run.path) == {"args": {"seed": 1}}
    assert sorted(os.listdir("run")) == ["config.json", "run.holder", "run.lock"]


def test_too_small_a_disk_is_said_before_training():
    run = RunDir.create("run", "")
    run.check_space(1)
    with pytest.raises(SystemExit, match=r"run has \d+ MB free, the run needs about 1099511627776"):
        run.check_space(2**60)
