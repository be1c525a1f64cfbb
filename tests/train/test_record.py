from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from adops_wrappers.methods import trainable_methods
from adops_wrappers.shaping import METHODS
from adops_wrappers.training import checkpoint
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import make_env
from tests.train.scripts import load_script

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
    record = load_script("record")
    recording = record.record(record.RecordArgs(str(run), steps=30, frame_size=32))
    assert recording.method == method
    assert recording.steps == 30
    state = checkpoint.load(run).state
    # The first value is the saved agent's value of the first observation.
    env = make_env(ppo.Args(**state["args"]), "minigrid")
    encoder = Encoder(env.observation_space, "minigrid", torch.device("cpu"))
    agent = ppo.Agent(encoder.shape, 7, 16)
    agent.load_state_dict(state["shared"]["agent"])
    obs, _ = env.reset(seed=1000)
    with torch.inference_mode():
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


@pytest.mark.parametrize("method", trainable_methods())
def test_every_method_is_recorded_with_what_it_has_learned(method, tmp_path):
    """MountainCar pays at every step, so beta moves; no episode ends, so F' shows the state."""
    ppo, record, run = load_script("ppo_rnd"), load_script("record"), tmp_path / "run"
    flags = ["--env-id", "MountainCar-v0", "--bonus", "rnd", "--shaping", method]
    flags += ["--pause", "0.001"] if method == "guarded" else []
    ppo.train(ppo.parse_args([*FLAGS, *flags, "--run-dir", str(run)]))
    settings = record.RecordArgs(str(run), steps=20, frames=False)
    _, learner, stack = record.make_stack(settings)
    saved = checkpoint.from_plain(checkpoint.load(run).state["ranks"][0]["stack"])
    shaper = next(state["shaper"] for state in saved.values() if "shaper" in state)
    assert learner.normalizer.scale > 0.0
    assert stack.shaper.num_envs == 1
    # What the run has learned across episodes is here, what its episodes owe is not.
    for name in ("ticks", "beta", "mean_square"):
        if name in shaper:
            assert stack.shaper.state_dict()[name] == shaper[name] != 0
    recording = record.record(settings)
    assert recording.method == method
    shaped = recording.shaped[:, 0]
    f = METHODS[method].intrinsic_scale * recording.intrinsic[:, 0]
    if "mean" in shaper:
        f = f - np.mean(shaper["mean"]) * method.endswith("-norm")
        assert np.mean(shaper["mean"]) > 0.0 or not method.endswith("-norm")
        # The first step of a fresh episode takes nothing back.
        assert shaped[0] == pytest.approx(f[0], rel=1e-12)
    if method.startswith("grm"):
        np.testing.assert_allclose(shaped[1:], f[1:] - f[:-1] / 0.99, rtol=1e-9, atol=1e-12)
    elif not METHODS[method].clamps:
        zeta = stack.shaper.zeta
        assert (zeta == 1.0) == (method not in ("pies", "guarded"))
        np.testing.assert_allclose(shaped, zeta * f, rtol=1e-12)


def test_centred_and_plain_recordings_differ(tmp_path):
    ppo, record, shaped = load_script("ppo_rnd"), load_script("record"), {}
    for method in ("grm", "grm-norm"):
        run = tmp_path / method
        flags = ["--bonus", "count", "--shaping", method, "--total-iterations", "2"]
        ppo.train(ppo.parse_args([*FLAGS, *flags, "--run-dir", str(run)]))
        recording = record.record(record.RecordArgs(str(run), steps=20, frames=False))
        shaped[method] = recording.shaped - recording.intrinsic
    assert not np.allclose(shaped["grm"][0], shaped["grm-norm"][0], atol=1e-3)


def test_what_cannot_be_recorded_is_said(tmp_path):
    record = load_script("record")

    def refused(**settings):
        with pytest.raises(SystemExit) as error:
            record.record(record.RecordArgs(str(tmp_path), **settings))
        return str(error.value)

    assert "no config.json" in refused()
    (tmp_path / "config.json").write_text(json.dumps({"script": "other.py", "args": {}}))
    assert "made by other.py" in refused()
    (tmp_path / "config.json").write_text(json.dumps({"script": "ppo_rnd.py", "args": {}}))
    assert "no checkpoint" in refused()
    assert "--steps must be" in refused(steps=0)
