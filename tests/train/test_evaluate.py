from __future__ import annotations

import math
import os
import re
import shutil

import numpy as np
import pytest
import torch

from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import make_env
from adops_wrappers.training.play import play_episode
from tests.train.scripts import TRAIN, load_script, run_script

pytest.importorskip("minigrid")


@pytest.fixture(scope="module")
def run_dir(ppo_rnd, tmp_path_factory):
    """One iteration on an empty room, with model.pt and a checkpoint."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    flags = ["--env-id", "MiniGrid-Empty-5x5-v0", "--run-dir", str(folder), "--save-model"]
    flags += ["--num-envs", "4", "--num-steps", "16", "--total-iterations", "1"]
    flags += ["--obs-norm-init-iterations", "1", "--mlp-hidden", "16", "--no-tensorboard"]
    ppo_rnd.train(ppo_rnd.parse_args(flags))
    return folder


def test_report_equals_a_hand_made_evaluation(run_dir, ppo_rnd):
    output = run_script("evaluate.py", str(run_dir), "--episodes", "4", "--seed", "7")
    saved = torch.load(run_dir / "model.pt", weights_only=True)
    args = ppo_rnd.Args(**saved["args"])
    env = make_env(args, "minigrid")
    encoder = Encoder(env.observation_space, "minigrid", torch.device("cpu"))
    agent = ppo_rnd.Agent(encoder.shape, 7, 16)
    agent.load_state_dict(saved["agent"])
    scores = [play_episode(agent, encoder, env, 7 + i).score for i in range(4)]
    mean, error = re.search(r"return (\S+) ± (\S+) \(standard error\)", output).groups()
    assert float(mean) == pytest.approx(np.mean(scores), rel=1e-3, abs=1e-3)
    assert float(error) == pytest.approx(np.std(scores, ddof=1) / math.sqrt(4), rel=0.1, abs=1e-3)
    assert "rooms" not in output


def test_checkpoint_is_used_where_there_is_no_model(run_dir, tmp_path):
    evaluate = load_script("evaluate")
    assert evaluate.find_weights(str(run_dir))[0].name == "model.pt"
    copy = tmp_path / "copy"
    (copy / "checkpoints" / "00000001").mkdir(parents=True)
    state = (run_dir / "checkpoints" / "00000001" / "state.pt").read_bytes()
    (copy / "checkpoints" / "00000001" / "state.pt").write_bytes(state)
    path, found = evaluate.find_weights(str(copy))
    assert path.name == "state.pt"
    saved = torch.load(run_dir / "model.pt", weights_only=True)["agent"]
    assert all(torch.equal(found["agent"][name], saved[name]) for name in saved)


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_damaged_weights_are_passed_over_with_a_message(run_dir, tmp_path, capsys):
    evaluate = load_script("evaluate")
    run = tmp_path / "run"
    shutil.copytree(run_dir, run)
    (run / "model.pt").unlink()
    shutil.copytree(run / "checkpoints" / "00000001", run / "checkpoints" / "00000002")
    newest, older = (run / "checkpoints" / f"0000000{i}" / "state.pt" for i in (2, 1))
    assert evaluate.find_weights(str(run))[0] == newest
    damage(newest)
    assert evaluate.find_weights(str(run))[0] == older
    said = capsys.readouterr().out
    assert str(newest) in said
    assert "checksum" in said
    assert "trying the one before" in said
    damage(older)
    with pytest.raises(SystemExit, match="cannot be loaded as weights of a run"):
        evaluate.find_weights(str(run))


def test_an_env_id_from_a_file_imports_no_module(run_dir, tmp_path):
    """The module before the colon would run whatever the file's author has put there."""
    saved = torch.load(run_dir / "model.pt", weights_only=True)
    saved["args"]["env_id"] = "made_up_module:MiniGrid-Empty-5x5-v0"
    torch.save(saved, tmp_path / "model.pt")
    trap = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nimport minigrid\n"
    (tmp_path / "made_up_module.py").write_text(trap)
    path = os.pathsep.join([str(TRAIN.parent), str(tmp_path)])
    flags = (str(tmp_path / "model.pt"), "--episodes", "1")
    output = run_script("evaluate.py", *flags, code=1, PYTHONPATH=path)
    assert "imports the module 'made_up_module' and runs its code" in output
    assert not (tmp_path / "ran").exists()
    run_script("evaluate.py", *flags, "--env-id", saved["args"]["env_id"].split(":")[1])
    run_script("evaluate.py", *flags, "--import-env", PYTHONPATH=path)
    assert (tmp_path / "ran").exists()


def test_an_env_of_a_module_is_trained_and_played(ppo_rnd, tmp_path, monkeypatch, capsys):
    lines = ("import gymnasium as gym", "import minigrid", "from minigrid.envs import EmptyEnv")
    registered = "gym.register('MiniGrid-Own-v0', EmptyEnv, kwargs={'size': 5, 'max_steps': 9})"
    (tmp_path / "module_of_a_user.py").write_text("\n".join((*lines, registered)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    flags = ["--env-id", "module_of_a_user:MiniGrid-Own-v0", "--mlp-hidden", "16"]
    flags += ["--num-envs", "4", "--num-steps", "16", "--total-iterations", "1"]
    flags += ["--obs-norm-init-iterations", "1", "--no-tensorboard"]
    run = ppo_rnd.train(ppo_rnd.parse_args(flags))
    assert run.name.startswith("module_of_a_user-MiniGrid-Own-v0__ppo_rnd_none__1__")
    evaluate = load_script("evaluate")
    evaluate.main(evaluate.Evaluation(str(run), episodes=2, import_env=True))
    assert "module_of_a_user:MiniGrid-Own-v0, 2 episodes" in capsys.readouterr().out


def test_what_cannot_be_evaluated_is_said(run_dir, tmp_path):
    output = run_script("evaluate.py", str(tmp_path), code=1)
    assert "has neither model.pt nor a checkpoint" in output
    output = run_script("evaluate.py", str(run_dir), "--env-id", "CartPole-v1", code=1)
    assert "do not fit CartPole-v1" in output
    assert "at least 1" in run_script("evaluate.py", str(run_dir), "--episodes", "0", code=1)


def test_the_first_episode_is_filmed(run_dir, tmp_path):
    pytest.importorskip("moviepy")
    path = tmp_path / "out.mp4"
    output = run_script("evaluate.py", str(run_dir), "--episodes", "1", "--video", str(path))
    assert str(path) in output
    assert path.read_bytes()[4:8] == b"ftyp"
