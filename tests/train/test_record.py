from __future__ import annotations

import json

import numpy as np
import pytest
from train_scripts import load_script

pytest.importorskip("minigrid")

FLAGS = ["--env-id", "MiniGrid-Empty-5x5-v0", "--num-envs", "4", "--num-steps", "16"]
FLAGS += ["--total-iterations", "2", "--obs-norm-init-iterations", "1", "--mlp-hidden", "16"]
FLAGS += ["--no-tensorboard"]


@pytest.mark.parametrize(
    ("script", "flags", "method"),
    [
        ("ppo_rnd", ["--shaping", "adopes", "--schedule-iterations", "4"], "adopes"),
        ("ppo_rnd_adops", [], "adops"),
        ("ppo_rnd", ["--shaping", "grm", "--bonus", "count"], "grm"),
    ],
)
def test_recording_plays_what_the_run_has_learned(script, flags, method, tmp_path):
    ppo, run = load_script(script), tmp_path / "run"
    ppo.train(ppo.parse_args([*FLAGS, *flags, "--run-dir", str(run)]))
    load_script("ppo_rnd")
    record = load_script("record")
    recording = record.record(record.RecordArgs(str(run), steps=30, frame_size=32))
    assert recording.method == method
    assert recording.steps == 30
    state = ppo.load_checkpoint(run)[0]
    # The first value is the saved agent's value of the first observation.
    args = ppo.Args(**state["args"])
    env = ppo.make_env(args, "minigrid")
    encoder = ppo.Encoder(env.observation_space, "minigrid", ppo.torch.device("cpu"), False)
    agent = ppo.Agent(encoder.shape, 7, 16)
    agent.load_state_dict(state["networks"]["agent"])
    obs, _ = env.reset(seed=1000)
    with ppo.torch.inference_mode():
        _, values = agent(encoder.features(encoder.encode(obs[None])))
    assert recording.value_ext[0, 0] == pytest.approx(values[0, 0].item(), rel=1e-5, abs=1e-7)
    assert recording.value_int[0, 0] == pytest.approx(values[0, 1].item(), rel=1e-5, abs=1e-7)
    # ζ goes on where the run has stopped, and stands still.
    expected = 2 / 4 if method == "adopes" else 1.0
    np.testing.assert_array_equal(recording.zeta, np.full(30, expected))
    if method == "adopes":
        np.testing.assert_allclose(
            recording.shaped, recording.intrinsic + 0.5 * recording.f2, rtol=0, atol=1e-12
        )
    assert recording.frame(0).shape == (32, 32, 3)


def test_refusals(tmp_path):
    load_script("ppo_rnd")
    record = load_script("record")

    def refused(**settings):
        with pytest.raises(SystemExit) as error:
            record.record(record.RecordArgs(str(tmp_path), **settings))
        return str(error.value)

    assert "no config.json" in refused()
    (tmp_path / "config.json").write_text(json.dumps({"script": "other.py"}))
    assert "made by other.py" in refused()
    (tmp_path / "config.json").write_text(json.dumps({"script": "ppo_rnd.py"}))
    assert "no checkpoint" in refused()
    assert "--steps must be" in refused(steps=0)
