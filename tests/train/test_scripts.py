from __future__ import annotations

import difflib
import itertools
import os
import shutil
import subprocess
import sys

import pytest

from adops_wrappers.methods import trainable_methods
from tests.train.scripts import TRAIN, learned, load_script, run_script

pytest.importorskip("minigrid")

METHODS = sorted(path.stem.removeprefix("ppo_rnd_") for path in TRAIN.glob("ppo_rnd_*.py"))


@pytest.fixture(scope="module")
def make_scripts():
    return load_script("make_scripts")


@pytest.mark.parametrize("method", METHODS)
def test_script_differs_in_the_marked_blocks_alone(make_scripts, method):
    script = TRAIN / f"ppo_rnd_{method}.py"
    assert script.read_text() == make_scripts.update(script), "run train/make_scripts.py"
    assert script.read_text() != (TRAIN / "ppo_rnd.py").read_text()


def test_there_is_a_script_for_the_main_methods():
    """All others are values of ppo_rnd.py's --shaping, as these are."""
    wrappers = {"adops", "adopes", "pies", "pbim", "grm", "guarded"}
    assert wrappers | {"adops_advantage"} <= set(METHODS)
    assert set(METHODS) <= {*trainable_methods(), "adops_advantage"}


@pytest.mark.parametrize("path", sorted(TRAIN.glob("ppo_rnd*.py")), ids=lambda path: path.stem)
def test_script_is_read_in_one_sitting(path):
    assert len(path.read_text().splitlines()) <= 640


def test_two_methods_are_two_wrapper_stacks():
    texts = [(TRAIN / f"ppo_rnd_{method}.py").read_text().splitlines() for method in METHODS]
    for ours, theirs in itertools.combinations(texts, 2):
        changed = [line for line in difflib.ndiff(ours, theirs) if line[0] in "+-"]
        assert 0 < len(changed) <= 60


def test_a_missing_mark_is_named(make_scripts, tmp_path):
    text = (TRAIN / "ppo_rnd_grm.py").read_text().replace("# --- wrapper stack: flags\n", "")
    (tmp_path / "ppo_rnd_new.py").write_text(text)
    with pytest.raises(ValueError, match=r"ppo_rnd_new\.py must hold .*wrapper stack: flags"):
        make_scripts.update(tmp_path / "ppo_rnd_new.py")


def test_own_blocks_stay_and_all_else_is_carried_over(make_scripts, tmp_path, monkeypatch):
    source = tmp_path / "ppo_rnd.py"
    source.write_text((TRAIN / "ppo_rnd.py").read_text() + "# A new line.\n")
    own = (TRAIN / "ppo_rnd_grm.py").read_text().replace("delay: int = 1", "delay: int = 7")
    (tmp_path / "ppo_rnd_grm.py").write_text(own)
    monkeypatch.setattr(make_scripts, "SOURCE", source)
    monkeypatch.setattr(make_scripts, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["make_scripts.py", "--check"])
    with pytest.raises(SystemExit, match=r"ppo_rnd_grm\.py out of date"):
        make_scripts.main()
    monkeypatch.setattr("sys.argv", ["make_scripts.py"])
    make_scripts.main()
    assert (tmp_path / "ppo_rnd_grm.py").read_text() == own + "# A new line.\n"


FLAGS = {
    "adops": (("--epsilon", "0.01"), ("--shaping", "adops", "--epsilon", "0.01")),
    "adopes": (("--intrinsic-scale", "0.5"), ("--shaping", "adopes-half")),
    "pies": (("--schedule-iterations", "2"), ("--shaping", "pies", "--schedule-iterations", "2")),
    "pbim": (("--normalize",), ("--shaping", "pbim-norm")),
    "grm": (
        ("--normalize", "--delay", "3", "--alpha", "0.1"),
        ("--shaping", "grm-norm", "--delay", "3", "--alpha", "0.1"),
    ),
    "guarded": (("--pause", "0.3"), ("--shaping", "guarded", "--pause", "0.3")),
    "adops_advantage": (
        ("--intrinsic-scale", "4"),
        ("--clamp-advantage", "--intrinsic-scale", "4"),
    ),
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


@pytest.mark.parametrize("script", ["ppo_rnd.py", "ppo_rnd_adops.py"])
def test_script_runs_alone_in_an_empty_folder(tmp_path, script):
    """As CleanRL means it: the file and the installed package, and nothing else."""
    shutil.copy(TRAIN / script, tmp_path / script)
    flags = [*SMALL, "--run-dir", "run", "--total-iterations", "1"]
    result = subprocess.run(
        [sys.executable, script, *flags],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TRAIN.parent)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(learned(tmp_path / "run")) == 1
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {script, "run"}
