from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.train.scripts import learned, read_metrics, run_script, start_script

pytest.importorskip("minigrid")

ITERATIONS = 40
MINIGRID = ("--env-id", "MiniGrid-Empty-Random-5x5-v0", "--max-episode-steps", "10")
GALLERY = ("--env-id", "adops/KeyDoorTV-v0", "--env-kwargs", '{"horizon": 10}')
METHODS = {
    # SyncVectorEnv, and an env with a vector entry point
    "pbim-norm": ("--shaping", "pbim-norm", "--bonus", "rnd", *MINIGRID),
    "adops": ("--shaping", "adops", "--bonus", "count", *GALLERY),
}
if find_spec("ale_py"):
    ram = ("--env-id", "adops/MontezumaRam-v0", "--max-episode-steps", "10")
    METHODS["none"] = ("--clamp-advantage", "--bonus", "count", *ram)
FLAGS = [
    *("--num-envs", "4", "--num-steps", "16", "--mlp-hidden", "16", "--torch-threads", "1"),
    *("--obs-norm-init-iterations", "1", "--learning-rate", "1e-3"),
    *("--total-iterations", str(ITERATIONS), "--checkpoint-every", "3"),
]


def start_and_signal(number: signal.Signals, after: int, run_dir: Path, *flags: str) -> str:
    """Start a run, send it a signal once it has written some rows, and wait for its end."""
    process = start_script("ppo_rnd.py", *FLAGS, "--run-dir", str(run_dir), *flags)
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and process.poll() is None:
        if (run_dir / "metrics.csv").exists() and len(read_metrics(run_dir)) >= after:
            os.kill(process.pid, number)
            break
        time.sleep(0.002)
    output, _ = process.communicate(timeout=900)
    return output


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted runs, one for each method that is interrupted below."""
    folder = tmp_path_factory.mktemp("whole")
    for method, flags in METHODS.items():
        run_script("ppo_rnd.py", *FLAGS, *flags, "--run-dir", str(folder / method))
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_killed_and_resumed_equals_uninterrupted(tmp_path, whole, method):
    run_dir = tmp_path / "killed"
    start_and_signal(signal.SIGKILL, 8, run_dir, *METHODS[method])
    before = read_metrics(run_dir)
    assert 8 <= len(before) < ITERATIONS
    output = run_script("ppo_rnd.py", "--resume", str(run_dir))
    resumed_after = int(output.split("after iteration ")[1].split(".")[0])
    assert resumed_after % 3 == 0
    assert resumed_after < ITERATIONS
    rows = learned(run_dir)
    assert [int(row["iteration"]) for row in rows] == list(range(1, ITERATIONS + 1))
    assert rows == learned(whole / method)
    assert tensorboard_steps(run_dir) == [64 * i for i in range(1, ITERATIONS + 1)]
    ours, theirs = (newest_state(d) for d in (run_dir, whole / method))
    for name, weights in theirs["shared"]["agent"].items():
        assert torch.equal(ours["shared"]["agent"][name], weights)


def tensorboard_steps(run_dir: Path) -> list[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars("charts/SPS")]


def newest_checkpoint(run_dir: Path) -> int:
    return max(int(path.name) for path in run_dir.glob("checkpoints/[0-9]*"))


def newest_state(run_dir: Path) -> dict:
    path = sorted(run_dir.glob("checkpoints/*/state.pt"))[-1]
    return torch.load(path, weights_only=True)


def test_sigterm_finishes_the_iteration_and_writes_a_checkpoint(tmp_path, whole):
    run_dir = tmp_path / "stopped"
    flags = (*METHODS["adops"], "--checkpoint-every", "0")
    output = start_and_signal(signal.SIGTERM, 5, run_dir, *flags)
    rows = len(read_metrics(run_dir))
    assert "finishing this iteration and writing a checkpoint" in output
    assert f"stopped by SIGTERM after iteration {rows}" in output
    assert newest_checkpoint(run_dir) == rows < ITERATIONS
    run_script("ppo_rnd.py", "--resume", str(run_dir))
    assert learned(run_dir) == learned(whole / "adops")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_random_steps_ends_the_run_in_order(tmp_path, number):
    run_dir = tmp_path / "stopped"
    flags = (*METHODS["pbim-norm"], "--run-dir", str(run_dir))
    process = start_script("ppo_rnd.py", *FLAGS, *flags, "--obs-norm-init-iterations", "100000")
    while process.poll() is None and not (run_dir / "config.json").exists():
        time.sleep(0.002)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0
    assert f"{number.name}: stopped before an iteration began. Continue with --resume" in output
    assert "Traceback" not in output
    assert json.loads((run_dir / "status.json").read_text())["iteration"] == 0
    config = json.loads((run_dir / "config.json").read_text())
    assert config["args"]["obs_norm_init_iterations"] == 100_000
    assert not (run_dir / "metrics.csv").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, ppo_rnd):
    """The settings of a finished run of six iterations with two checkpoints."""
    run_dir = tmp_path_factory.mktemp("short") / "run"
    args = ppo_rnd.parse_args([*FLAGS, *MINIGRID, "--run-dir", str(run_dir), "--no-tensorboard"])
    args.total_iterations = 6
    ppo_rnd.train(args)
    return args


@pytest.fixture
def short(tmp_path, trained):
    """The settings of a copy of that run, to break."""
    copy = shutil.copytree(trained.run_dir, tmp_path / "short")
    return dataclasses.replace(trained, run_dir=str(copy))


def test_damaged_checkpoint_falls_back_to_the_one_before(short, ppo_rnd, capsys):
    run_dir = Path(short.run_dir)
    expected = learned(run_dir)
    assert sorted(p.name for p in (run_dir / "checkpoints").iterdir()) == ["00000003", "00000006"]
    path = run_dir / "checkpoints" / "00000006" / "state.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))
    output = capsys.readouterr().out
    assert "00000006 is damaged (state.pt does not match its checksum)" in output
    assert "after iteration 3" in output
    assert learned(run_dir) == expected
    for file in run_dir.glob("checkpoints/*/manifest.json"):
        file.write_text("{")
    with pytest.raises(SystemExit, match=r"no checkpoint in .* can be used: .* is damaged"):
        ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))


def test_other_settings_are_refused_by_name(short, ppo_rnd, tmp_path):
    flags = ["--resume", short.run_dir, "--learning-rate", "0.5", "--shaping", "grm"]
    with pytest.raises(SystemExit) as refused:
        ppo_rnd.parse_args(flags)
    assert "--learning-rate is 0.001 there and 0.5 here" in str(refused.value)
    assert "--shaping is 'none' there and 'grm' here" in str(refused.value)
    allowed = ppo_rnd.parse_args(["--resume", short.run_dir, "--checkpoint-every", "7"])
    assert (allowed.checkpoint_every, allowed.learning_rate) == (7, 0.001)
    with pytest.raises(SystemExit, match="is not a run directory"):
        ppo_rnd.parse_args(["--resume", str(tmp_path)])


def test_a_run_directory_is_not_overwritten(short, ppo_rnd):
    with pytest.raises(SystemExit, match=r"already holds a run\. Continue it with --resume"):
        ppo_rnd.train(short)


@pytest.mark.parametrize("rows", [0, 2])
def test_run_without_a_checkpoint_starts_anew_in_place(short, ppo_rnd, capsys, rows):
    run_dir = Path(short.run_dir)
    expected = learned(run_dir)
    shutil.rmtree(run_dir / "checkpoints")
    lines = (run_dir / "metrics.csv").read_text().splitlines(keepends=True)
    cut = [*lines[: rows + 1], lines[rows + 1][:40]] if rows else []  # as a kill may leave it
    (run_dir / "metrics.csv").write_text("".join(cut))
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))
    assert "has no checkpoint yet: starting at iteration 1" in capsys.readouterr().out
    assert learned(run_dir) == expected


def test_disk_that_fills_up_keeps_the_previous_checkpoint(short, ppo_rnd, capsys, monkeypatch):
    run_dir = Path(short.run_dir)
    shutil.rmtree(run_dir / "checkpoints" / "00000006")

    def full(*args):
        raise OSError(28, "No space left on device")

    expected = learned(run_dir)
    with monkeypatch.context() as patch:
        patch.setattr("adops_wrappers.training.checkpoint.write", full)
        with pytest.raises(SystemExit, match=r"the last checkpoint of .* continue with --resume"):
            ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))
    assert "Cannot write the checkpoint of iteration" in capsys.readouterr().out
    assert newest_checkpoint(run_dir) == 3
    status = json.loads((run_dir / "status.json").read_text())
    assert not status["finished"]
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(run_dir)]))
    assert learned(run_dir) == expected
    assert json.loads((run_dir / "status.json").read_text())["finished"]


@pytest.mark.parametrize("damage", ["learning_rate", "num_envs", "cut off", "deleted"])
def test_the_checkpoint_s_settings_count(short, ppo_rnd, capsys, damage):
    run_dir = Path(short.run_dir)
    expected, path = learned(run_dir), run_dir / "config.json"
    shutil.rmtree(run_dir / "checkpoints" / "00000006")
    config = json.loads(path.read_text())
    if damage == "deleted":
        path.unlink()
    elif damage == "cut off":
        path.write_text(path.read_text()[:100])
    else:
        config["args"][damage] = 8
        path.write_text(json.dumps(config))
    args = ppo_rnd.parse_args(["--resume", str(run_dir)])
    assert (args.learning_rate, args.num_envs) == (0.001, 4)
    said = capsys.readouterr().out
    assert "Using the checkpoint's settings and rewriting config.json." in said
    ppo_rnd.train(args)
    assert learned(run_dir) == expected
    assert json.loads(path.read_text())["args"]["num_envs"] == 4


class Evil:
    def __reduce__(self):
        return (os.system, ("echo this must never run",))


def test_weights_from_elsewhere_run_no_code(tmp_path):
    torch.save({"args": {}, "agent": Evil()}, tmp_path / "model.pt")
    output = run_script("evaluate.py", str(tmp_path / "model.pt"), code=1)
    assert "cannot be loaded as weights of a run" in output
    assert "this must never run\n" not in output


def test_env_state_sits_in_a_file_of_its_own(short):
    run_dir = Path(short.run_dir)
    envs = pickle.loads((run_dir / "checkpoints" / "00000006" / "envs.pkl").read_bytes())
    assert envs.num_envs == 4
