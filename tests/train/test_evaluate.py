from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from train_scripts import load_script, run_script

pytest.importorskip("minigrid")


@pytest.fixture(scope="module")
def run_dir(ppo_rnd, tmp_path_factory):
    """A policy for FrozenLake without ice that always goes right, then down."""
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
    env = ppo_rnd.make_env(args, "minigrid")
    encoder = ppo_rnd.Encoder(env.observation_space, "minigrid", torch.device("cpu"), False)
    agent = ppo_rnd.Agent(encoder.shape, 7, 16)
    agent.load_state_dict(saved["agent"])
    scores = [ppo_rnd.play_episode(agent, encoder, env, 7 + i).score for i in range(4)]
    mean, error = re.search(r"return (\S+) ± (\S+) \(standard error\)", output).groups()
    assert float(mean) == pytest.approx(np.mean(scores), rel=1e-3, abs=1e-3)
    assert float(error) == pytest.approx(np.std(scores, ddof=1) / math.sqrt(4), rel=0.1, abs=1e-3)
    assert "rooms" not in output


def test_checkpoint_is_used_where_there_is_no_model(run_dir, tmp_path):
    evaluate = load_script("evaluate")
    assert evaluate.find_weights(str(run_dir)).name == "model.pt"
    copy = tmp_path / "copy"
    (copy / "checkpoints" / "00000001").mkdir(parents=True)
    state = (run_dir / "checkpoints" / "00000001" / "state.pt").read_bytes()
    (copy / "checkpoints" / "00000001" / "state.pt").write_bytes(state)
    _, weights = evaluate.load_agent(evaluate.find_weights(str(copy)), "")
    saved = torch.load(run_dir / "model.pt", weights_only=True)["agent"]
    assert all(torch.equal(weights[name], saved[name]) for name in saved)


def test_errors(run_dir, tmp_path):
    output = run_script("evaluate.py", str(tmp_path), code=1)
    assert "has neither model.pt nor a checkpoint" in output
    output = run_script("evaluate.py", str(run_dir), "--env-id", "CartPole-v1", code=1)
    assert "do not fit CartPole-v1" in output
    assert "at least 1" in run_script("evaluate.py", str(run_dir), "--episodes", "0", code=1)


def test_video(run_dir, tmp_path):
    pytest.importorskip("moviepy")
    path = tmp_path / "out.mp4"
    output = run_script("evaluate.py", str(run_dir), "--episodes", "1", "--video", str(path))
    assert str(path) in output
    assert path.read_bytes()[4:8] == b"ftyp"
