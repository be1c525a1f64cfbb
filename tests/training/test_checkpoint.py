from __future__ import annotations

import contextlib
import errno
import os
import pickle
import random
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

pytest.importorskip("torch")
pytest.importorskip("filelock")
pytest.importorskip("cloudpickle")
pytest.importorskip("tyro")

import torch

from adops_wrappers._files import write_json
from adops_wrappers.training import checkpoint
from adops_wrappers.training.args import read_settings
from adops_wrappers.training.checkpoint import Saver
from adops_wrappers.training.log import Log


def write_run(run_dir: Path, iterations: int = 6, every: int = 2) -> None:
    """Write what a run of some iterations leaves behind."""
    log, saver = Log(run_dir), Saver(run_dir)
    for iteration in range(1, iterations + 1):
        log.write(iteration, 64 * iteration, {"a": iteration / 3})
        if iteration % every == 0:
            state = {"args": {"lr": 0.1, "video": 5}, "weights": torch.full((300,), iteration)}
            saver.save(iteration, state, [b"first", b"second"], log.sync())
    log.close()
    write_json(run_dir / "config.json", {"args": {"lr": 0.1, "video": 5}})


def save(run_dir: Path, iteration: int, *content: object) -> None:
    checkpoint.write(run_dir, iteration, checkpoint.pack(*content), newest=iteration)


def kept(run_dir: Path) -> list[str]:
    return sorted(os.listdir(run_dir / "checkpoints"))


def flip(path: Path, bit: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    bit = 4 * len(data) if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_the_last_two_are_kept_and_the_newest_is_loaded(tmp_path):
    assert checkpoint.load(tmp_path) is None
    write_run(tmp_path)
    assert kept(tmp_path) == ["00000004", "00000006"]
    first, second = checkpoint.load(tmp_path), checkpoint.load(tmp_path, rank=1)
    assert first is not None
    assert second is not None
    assert first.iteration == 6
    assert (first.envs, second.envs) == (b"first", b"second")
    assert torch.equal(first.state["weights"], torch.full((300,), 6))
    assert first.metrics["bytes"] == (tmp_path / "metrics.csv").stat().st_size


def test_a_rank_without_env_state_has_none(tmp_path):
    log = Log(tmp_path)
    save(tmp_path, 1, {}, [None], log.sync())
    log.close()
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.envs is None


@pytest.mark.parametrize("name", ["state.pt", "envs1.pkl", "manifest.json"])
def test_damage_is_noticed_and_the_one_before_is_taken(tmp_path, name, capsys):
    write_run(tmp_path)
    flip(tmp_path / "checkpoints" / "00000006" / name)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.iteration == 4
    assert "00000006 is damaged" in capsys.readouterr().out
    (tmp_path / "checkpoints" / "00000004" / name).unlink()
    with pytest.raises(SystemExit, match=r"no checkpoint in .* can be used: .* is damaged"):
        checkpoint.load(tmp_path)


def test_no_flipped_bit_of_a_manifest_goes_unnoticed(tmp_path):
    write_run(tmp_path, iterations=2)
    folder = tmp_path / "checkpoints" / "00000002"
    manifest = folder / "manifest.json"
    size = 8 * manifest.stat().st_size
    for bit in range(0, size, 17):
        flip(manifest, bit)
        try:
            loaded = checkpoint._read(tmp_path, folder, 0)
            assert torch.equal(loaded.state["weights"], torch.full((300,), 2))
        except checkpoint.Unusable:
            pass
        flip(manifest, bit)
    assert checkpoint._read(tmp_path, folder, 0).iteration == 2


def test_rows_lost_since_the_newest_send_the_run_back_to_the_one_before(tmp_path, capsys):
    write_run(tmp_path)
    path = tmp_path / "metrics.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.iteration == 4
    assert "00000006 does not fit metrics.csv, in which rows were lost" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [3, 0, None])
def test_rows_that_every_checkpoint_needs_are_missed(tmp_path, rows):
    write_run(tmp_path)
    path = tmp_path / "metrics.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    if rows is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[:rows]))
    with pytest.raises(SystemExit, match=r"can be used: .* does not fit metrics\.csv, in which"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_of_the_format_without_a_number_is_refused_by_name(tmp_path):
    folder = tmp_path / "checkpoints" / "00000003"
    folder.mkdir(parents=True)
    torch.save({"iteration": 3}, folder / "state.pt")
    (folder / "sha256.json").write_text('{"state.pt": "0"}')
    with pytest.raises(SystemExit, match="has format 1, but this version reads format 2"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_of_a_later_format_is_refused_by_name(tmp_path):
    folder = tmp_path / "checkpoints" / "00000003"
    folder.mkdir(parents=True)
    write_json(folder / "manifest.json", {"format": 3, "other": "layout"})
    with pytest.raises(SystemExit, match="has format 3, but this version reads format 2"):
        checkpoint.load(tmp_path)


def test_half_a_checkpoint_of_a_killed_run_does_no_harm(tmp_path):
    write_run(tmp_path)
    stale = tmp_path / "checkpoints" / ".writing"
    stale.mkdir()
    (stale / "state.pt").write_bytes(b"half")
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.iteration == 6
    save(tmp_path, 7, {}, [], loaded.metrics)
    assert kept(tmp_path) == ["00000006", "00000007"]


@pytest.mark.parametrize("after", range(3))
def test_a_checkpoint_that_is_being_dropped_is_whole_or_gone(tmp_path, monkeypatch, after):
    write_run(tmp_path)
    removals = iter(range(1000))

    def killed(path, *args, **kwargs):
        if next(removals) == after:
            raise KeyboardInterrupt
        os.remove(path, *args, **kwargs)

    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 8, {}, [b"envs"], loaded.metrics)
    visible = [name for name in kept(tmp_path) if not name.startswith(".")]
    assert visible == ["00000006", "00000008"]
    save(tmp_path, 9, {}, [b"envs"], loaded.metrics)
    assert kept(tmp_path) == ["00000008", "00000009"]


def test_checkpoints_of_a_time_that_was_gone_back_behind_are_dropped(tmp_path):
    write_run(tmp_path)
    flip(tmp_path / "checkpoints" / "00000006" / "state.pt")
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    save(tmp_path, 5, {"now": 5}, [], loaded.metrics)
    assert kept(tmp_path) == ["00000004", "00000005"]
    save(tmp_path, 5, {"now": 6}, [], loaded.metrics)
    assert kept(tmp_path) == ["00000004", "00000005"]
    again = checkpoint.load(tmp_path)
    assert again is not None
    assert again.state == {"now": 6}


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
@pytest.mark.parametrize("after", range(4))
def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, monkeypatch, call, after):
    write_run(tmp_path)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    calls = iter(range(1000))
    real = getattr(os, call)

    def full(*args, **kwargs):
        if next(calls) >= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        if call == "mkdir" and after > 1:
            pytest.skip("there are only two")
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 8, {}, [b"envs", b"more"], loaded.metrics)
    again = checkpoint.load(tmp_path)
    assert again is not None
    assert again.iteration == 6


@pytest.mark.parametrize("number", ["00000004", "00000006"])
def test_a_loss_among_the_last_two_is_found(tmp_path, number):
    assert checkpoint.find_loss(tmp_path) == ""
    write_run(tmp_path)
    assert checkpoint.find_loss(tmp_path) == ""
    flip(tmp_path / "checkpoints" / number / "envs1.pkl")
    found = checkpoint.find_loss(tmp_path)
    assert found == f"checkpoints/{number} is damaged (envs1.pkl does not match its checksum)"


def test_a_missing_checkpoint_before_the_newest_is_found(tmp_path):
    write_run(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "00000004")
    assert checkpoint.find_loss(tmp_path) == "checkpoints/00000004 is missing"


# Settings


def settings(run_dir: Path) -> dict:
    return read_settings(run_dir, free=("video",))


def test_the_settings_of_the_checkpoint_count_and_the_user_is_told(tmp_path, capsys):
    write_run(tmp_path)
    write_json(tmp_path / "config.json", {"args": {"lr": 0.5, "video": 7}})
    assert settings(tmp_path) == {"lr": 0.1, "video": 7}
    output = capsys.readouterr().out
    assert "config.json was changed: lr is 0.5 there and 0.1 in the checkpoint" in output
    assert "rewriting config.json" in output


@pytest.mark.parametrize("content", ["", "{", '{"args": 3}', None])
def test_a_damaged_config_is_restored_from_the_checkpoint(tmp_path, capsys, content):
    write_run(tmp_path)
    path = tmp_path / "config.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert settings(tmp_path) == {"lr": 0.1, "video": 5}
    assert "Using the checkpoint's settings" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(SystemExit, match=r"config\.json .*, and there is no checkpoint"):
        settings(tmp_path)


def test_an_untouched_config_is_no_news(tmp_path, capsys):
    write_run(tmp_path)
    write_json(tmp_path / "config.json", {"args": {"lr": 0.1, "video": 9}})
    assert settings(tmp_path) == {"lr": 0.1, "video": 9}
    shutil.rmtree(tmp_path / "checkpoints")
    assert settings(tmp_path) == {"lr": 0.1, "video": 9}
    assert capsys.readouterr().out == ""


# Contents


def test_plain_state_comes_back_as_it_was(tmp_path):
    state = {
        "counts": {b"\x00\x01": 3, b"longer": 1},
        "nested": [np.arange(3), {"mask": np.array([True, False])}, np.float64(0.5), None, "text"],
    }
    torch.save(checkpoint.to_plain(state), tmp_path / "state.pt")
    back = checkpoint.from_plain(torch.load(tmp_path / "state.pt", weights_only=True))
    assert back["counts"] == state["counts"]
    np.testing.assert_array_equal(back["nested"][0], np.arange(3))
    assert back["nested"][1]["mask"].dtype == np.bool_
    assert back["nested"][2:] == [0.5, None, "text"]


def draws(generator) -> list[float]:
    return [
        random.random(),
        float(np.random.random()),  # noqa: NPY002
        float(torch.rand(())),
        float(torch.rand((), generator=generator)),
    ]


def test_random_numbers_continue(capsys):
    generator = torch.Generator().manual_seed(3)
    draws(generator)
    state = checkpoint.random_states(generator)
    expected = draws(generator)
    other = torch.Generator()
    checkpoint.restore_random_states(state, other)
    assert draws(other) == expected
    assert capsys.readouterr().out == ""


def test_random_states_of_a_gpu_are_taken_up_on_a_cpu(capsys):
    """A generator of CUDA has a state of 16 bytes, which one of the CPU refuses."""
    state = checkpoint.random_states(torch.Generator())
    on_gpu = {**state, "device": "cuda", "cuda": torch.zeros(16, dtype=torch.uint8)}
    on_gpu["actions"] = torch.arange(16, dtype=torch.uint8)
    seen = []
    for _ in range(2):
        generator = torch.Generator()
        checkpoint.restore_random_states(on_gpu, generator)
        seen.append(draws(generator))
    assert seen[0] == seen[1]
    assert "was written on cuda and this run uses cpu" in capsys.readouterr().out


class FakeCuda:
    """Stands in for torch.cuda on a machine with one GPU."""

    def __init__(self) -> None:
        self.restored: list[tuple[torch.Tensor, str]] = []

    def get_rng_state(self, device):
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, state, device):
        if torch.device(device).index not in (None, 0):
            raise IndexError("invalid device ordinal")
        self.restored.append((state, str(device)))

    def manual_seed(self, seed):
        self.seed = seed


class FakeGenerator:
    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.state = torch.arange(16, dtype=torch.uint8)

    def get_state(self):
        return self.state

    def set_state(self, state):
        assert len(state) == 16
        self.state = state

    def manual_seed(self, seed):
        self.seed = seed


def test_random_states_go_from_one_gpu_to_another_and_from_cpu_to_gpu(monkeypatch, capsys):
    cuda = FakeCuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    saved = checkpoint.random_states(FakeGenerator("cuda:1"))
    checkpoint.restore_random_states(saved, FakeGenerator("cuda:0"))
    assert cuda.restored[0][1] == "cuda:0"
    assert capsys.readouterr().out == ""
    on_cpu = checkpoint.random_states(torch.Generator())
    generator = FakeGenerator("cuda:0")
    checkpoint.restore_random_states(on_cpu, generator)
    assert generator.seed == cuda.seed
    assert "was written on cpu and this run uses cuda" in capsys.readouterr().out


def test_envs_are_pickled_where_that_is_exact():
    envs = SyncVectorEnv([lambda: gym.make("adops/KeyDoorTV-v0")] * 2)
    data = checkpoint.pickle_envs(envs)
    assert data is not None
    assert pickle.loads(data).num_envs == 2


def test_envs_that_come_back_in_another_state_are_not_pickled():
    class Forgetful(gym.Env, gym.utils.EzPickle):
        observation_space = action_space = gym.spaces.Discrete(2)

    class Closed(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def __reduce__(self):
            raise TypeError("cannot pickle")

    for kind in (Forgetful, Closed):
        assert checkpoint.pickle_envs(SyncVectorEnv([kind])) is None


# The policy alone


def test_the_policy_is_written_for_any_device(tmp_path):
    agent = torch.nn.Linear(2, 1)
    checkpoint.save_model(tmp_path, {"seed": 1}, agent)
    model = checkpoint.load_model(tmp_path / "model.pt")
    assert model["args"] == {"seed": 1}
    assert torch.equal(model["agent"]["weight"], agent.weight)
    assert not model["agent"]["weight"].requires_grad


def test_tensors_are_brought_to_the_cpu_before_they_are_written():
    moved = []

    class Elsewhere(torch.Tensor):
        def cpu(self):
            moved.append(self)
            return torch.zeros(2)

    tensor = torch.ones(2).as_subclass(Elsewhere)
    back = checkpoint._on_cpu({"a": [tensor, (tensor, 1)]})
    assert len(moved) == 2
    assert torch.equal(back["a"][0], torch.zeros(2))
    assert back["a"][1][1] == 1


def test_no_flipped_bit_of_a_model_goes_unnoticed(tmp_path):
    agent = torch.nn.Linear(3, 2)
    checkpoint.save_model(tmp_path, {"seed": 1}, agent)
    path = tmp_path / "model.pt"
    for bit in range(0, 8 * path.stat().st_size, 131):
        flip(path, bit)
        with contextlib.suppress(ValueError):
            model = checkpoint.load_model(path)
            assert model["args"] == {"seed": 1}
            assert all(torch.equal(model["agent"][k], v) for k, v in agent.state_dict().items())
        flip(path, bit)


class Evil:
    def __reduce__(self):
        return (os.system, ("echo this must never run",))


def test_weights_from_elsewhere_run_no_code(tmp_path, capfd):
    torch.save({"args": {}, "agent": Evil()}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="cannot be loaded as weights of a run"):
        checkpoint.load_model(tmp_path / "model.pt")
    assert "this must never run" not in capfd.readouterr().out
