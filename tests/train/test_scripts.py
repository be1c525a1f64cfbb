from __future__ import annotations

import pytest
from train_scripts import TRAIN, learned, load_script, run_script

pytest.importorskip("minigrid")

METHODS = ("adops", "adopes", "pies", "pbim", "grm", "guarded")
LABELS = (": imports", ": flags", "")


@pytest.fixture(scope="module")
def make_scripts():
    return load_script("make_scripts")


def outside_the_blocks(make_scripts, text: str) -> str:
    for label in LABELS:
        text = make_scripts.replace_block(text, label, "")
    return text


@pytest.mark.parametrize("method", METHODS)
def test_script_differs_in_the_marked_blocks_alone(make_scripts, method):
    source = (TRAIN / "ppo_rnd.py").read_text()
    script = (TRAIN / f"ppo_rnd_{method}.py").read_text()
    assert outside_the_blocks(make_scripts, script) == outside_the_blocks(make_scripts, source)
    assert script != source


@pytest.mark.parametrize("method", METHODS)
def test_scripts_are_up_to_date(make_scripts, method):
    source = (TRAIN / "ppo_rnd.py").read_text()
    written = (TRAIN / f"ppo_rnd_{method}.py").read_text()
    assert written == make_scripts.make_script(source, method), "run train/make_scripts.py"


def test_there_is_a_script_for_every_method(make_scripts):
    assert sorted(make_scripts.METHODS) == sorted(METHODS)
    found = {path.stem for path in TRAIN.glob("ppo_rnd_*.py")}
    assert found == {f"ppo_rnd_{method}" for method in METHODS}


def test_a_missing_marker_is_named(make_scripts):
    source = (TRAIN / "ppo_rnd.py").read_text().replace("# --- wrapper stack: flags\n", "")
    with pytest.raises(ValueError, match="wrapper stack: flags"):
        make_scripts.make_script(source, "adops")


FLAGS = {
    "adops": (("--epsilon", "0.01"), ("--shaping", "adops", "--epsilon", "0.01")),
    "adopes": (("--intrinsic-scale", "0.5"), ("--shaping", "adopes-half")),
    "pies": (("--schedule-iterations", "2"), ("--shaping", "pies", "--schedule-iterations", "2")),
    "pbim": (("--normalize",), ("--shaping", "pbim-norm")),
    "grm": (
        ("--normalize", "--delay", "3", "--alpha", "0.1"),
        ("--shaping", "grm-norm", "--delay", "3", "--alpha", "0.1"),
    ),
    "guarded": (("--balance", "0.3"), ("--shaping", "guarded", "--balance", "0.3")),
}
SMALL = [
    *("--env-id", "MiniGrid-Empty-5x5-v0", "--max-episode-steps", "10", "--num-envs", "4"),
    *("--num-steps", "16", "--mlp-hidden", "16", "--obs-norm-init-iterations", "1"),
    *("--total-iterations", "3", "--no-tensorboard", "--torch-threads", "1"),
]


@pytest.mark.parametrize("method", METHODS)
def test_script_trains_as_the_common_one_does(tmp_path, method, ppo_rnd):
    own, common = FLAGS[method]
    script = load_script(f"ppo_rnd_{method}")
    script.train(script.parse_args([*SMALL, *own, "--run-dir", str(tmp_path / "own")]))
    ppo_rnd.train(ppo_rnd.parse_args([*SMALL, *common, "--run-dir", str(tmp_path / "common")]))
    assert learned(tmp_path / "own") == learned(tmp_path / "common")


def test_script_runs_as_a_command(tmp_path):
    output = run_script("ppo_rnd_grm.py", *SMALL, "--run-dir", str(tmp_path / "run"))
    assert "GRM (delay=1, gamma=0.99)" in output
    run_script("ppo_rnd_grm.py", *SMALL, "--shaping", "grm", code=2)
    assert run_script("make_scripts.py", "--check") == ""
