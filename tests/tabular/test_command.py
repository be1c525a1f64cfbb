from __future__ import annotations

import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from adops_wrappers.tabular.__main__ import main
from tests.tabular.examples import CLIFF, TAXI
from tests.tabular.test_enumeration import Coin, HiddenKey


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_readable_report(capsys):
    code, out, _ = run(capsys, CLIFF, "--bonus", "noisy-tv", "--shaping", "adops")
    assert code == 0
    assert "adops: optimal policies PRESERVED" in out
    code, out, _ = run(capsys, CLIFF, "--shaping", "raw")
    assert "raw bonus: optimal policies CHANGED" in out
    assert "36 --up--> 24   R=-1  F=0  F'=0" in out
    # The best policy has −(1 − 0.99^13)/0.01, the worst newly optimal one −1 forever: −100.
    assert f"regret      {100 - (1 - 0.99**13) / 0.01:.6g}" in out


def test_json(capsys):
    code, out, _ = run(capsys, "FrozenLake-v1", "--bonus", "random", "--shaping", "grm", "--json")
    facts = json.loads(out)
    assert (code, facts["env"], facts["method"]) == (0, "FrozenLake-v1", "grm")
    assert facts["preserved"] is True
    assert facts["nodes"] > 11


def test_table_of_all_methods(capsys):
    code, out, _ = run(capsys, "adops/TVCorridor-v0", "--all")
    verdict = {line[:26].strip(): line[26:].split()[:1] for line in out.splitlines()[2:]}
    assert code == 0
    assert verdict["raw"] == verdict["PIES, ζ = 0.5"] == verdict["ADOPES, ζ = 0.5"] == ["CHANGED"]
    for name in ("ADOPS", "ADOPS, sampled s′", "GRM(1)", "PIES, ζ = 0", "PBIM, horizon 8"):
        assert verdict[name] == ["kept"]
    _, out, _ = run(capsys, "adops/TVCorridor-v0", "--all", "--json")
    assert json.loads(out)["methods"]["ADOPS"]["preserved"] is True


def test_a_method_that_cannot_be_audited_says_why(capsys):
    code, out, _ = run(capsys, "FrozenLake-v1", "--bonus", "random", "--all", "--horizon", "40")
    lines = {line[:26].strip(): line[26:] for line in out.splitlines()[2:]}
    assert code == 0
    assert lines["ADOPS"].split()[0] == "kept"
    assert "more than max_nodes=200000 nodes" in lines["PBIM, horizon 40"]


def test_plot(capsys, tmp_path):
    matplotlib_image = pytest.importorskip("matplotlib.image")
    pictures = {}
    for shaping in ("raw", "adops"):
        path = tmp_path / f"{shaping}.png"
        code, _, err = run(capsys, CLIFF, "--shaping", shaping, "--plot", str(path))
        assert code == 0
        assert f"Wrote {path}" in err
        pictures[shaping] = matplotlib_image.imread(path)[..., :3]

    def marked(picture):
        changed = np.array([0xF6, 0xD9, 0x9A]) / 255
        return float((np.abs(picture - changed) < 0.01).all(axis=-1).mean())

    # 21 of 2·48 cells are marked where the raw bonus changed them, none where ADOPS repaired it.
    assert marked(pictures["raw"]) > 0.1
    assert marked(pictures["adops"]) == 0.0


def test_a_plot_goes_into_a_new_folder_and_an_error_of_the_disk_is_one_line(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "folder" / "cliff.png"
    assert run(capsys, CLIFF, "--shaping", "raw", "--plot", str(path))[0] == 0
    assert [file.name for file in path.parent.iterdir()] == ["cliff.png"]
    code, _, err = run(capsys, CLIFF, "--shaping", "raw", "--plot", str(path / "below_a_file.png"))
    assert code == 2
    assert err.splitlines()[-1].startswith("error: ")


def test_a_held_scale_is_said(capsys):
    out = run(capsys, CLIFF, "--shaping", "guarded", "--zeta", "0.25")[1]
    assert "held        β = 0.25, which training would move" in out
    facts = json.loads(run(capsys, CLIFF, "--shaping", "pies", "--json")[1])
    assert facts["zeta"] == 0.5
    assert "held" not in run(capsys, CLIFF, "--shaping", "grm")[1]


def test_bonus_file(capsys, tmp_path):
    path = tmp_path / "bonus.npy"
    np.save(path, np.zeros((48, 4)))
    code, out, _ = run(capsys, CLIFF, "--bonus", str(path), "--shaping", "raw")
    assert code == 0
    assert "PRESERVED" in out


def test_settings_reach_the_method(capsys):
    small = (CLIFF, "--shaping", "pies", "--zeta")
    assert "PRESERVED" in run(capsys, *small, "0.5")[1]
    assert "CHANGED" in run(capsys, *small, "1.0")[1]
    lake = ("FrozenLake-v1", "--bonus", "episodic-count", "--horizon", "3", "--shaping", "pbim")
    assert "PRESERVED" in run(capsys, *lake)[1]
    reward = ("FrozenLake-v1", "--bonus", "reward", "--shaping", "pbrs")
    assert "PRESERVED" in run(capsys, *reward)[1]


@pytest.fixture
def hidden_key(monkeypatch):
    """The id of an env whose observation does not show its key."""
    env_id = "tests/HiddenKey-v0"
    monkeypatch.setitem(gym.registry, env_id, gym.envs.registration.EnvSpec(env_id, HiddenKey))
    return env_id


def has_key(env, obs):
    return obs, env.has_key


@pytest.mark.parametrize("key", ["obs,has_key", f"{__name__}:has_key"])
def test_a_key_tells_states_apart(capsys, hidden_key, key):
    code, _, err = run(capsys, hidden_key)
    assert code == 2
    assert "(--key on the command line)" in err
    code, out, _ = run(capsys, hidden_key, "--key", key, "--shaping", "raw", "--json")
    # 6 places with the key, the 5 others without it, and the end.
    assert (code, json.loads(out)["states"]) == (0, 11)


def test_a_key_that_does_not_exist(capsys, hidden_key):
    assert "no attribute 'hat'" in run(capsys, hidden_key, "--key", "obs,hat")[2]
    assert "has no function 'hat'" in run(capsys, hidden_key, "--key", f"{__name__}:hat")[2]
    assert "No module named 'hat'" in run(capsys, hidden_key, "--key", "hat:has_key")[2]


def test_accuracy_reaches_the_import_and_the_report(capsys, monkeypatch):
    spec = gym.envs.registration.EnvSpec("tests/Coin-v0", Coin)
    monkeypatch.setitem(gym.registry, "tests/Coin-v0", spec)
    out = run(capsys, "tests/Coin-v0", "--bonus", "random", "--accuracy", "0.05")[1]
    assert "1 of 2 pairs of state and action are random, from 200 to 200 samples each" in out
    out = run(capsys, "tests/Coin-v0", "--bonus", "random", "--accuracy", "0.1", "--all")[1]
    assert "1 of 2 pairs of state and action are random, from 100 to 100 samples each" in out
    facts = json.loads(run(capsys, "tests/Coin-v0", "--accuracy", "0.1", "--json")[1])
    assert facts["origin"]["most_samples"] == 100


def test_the_table_takes_the_settings_of_the_methods(capsys):
    settings = ("--zeta", "0.25", "--delay", "3", "--epsilon", "0.5", "--max-nodes", "100")
    methods = json.loads(run(capsys, CLIFF, "--all", "--json", *settings)[1])["methods"]
    assert {"PIES, ζ = 0.25", "ADOPES, ζ = 0.25", "guarded scale, β = 0.25"} <= methods.keys()
    assert "more than max_nodes=100 nodes" in methods["PBIM, horizon 8"]

    def single(*arguments):
        facts = json.loads(run(capsys, CLIFF, "--json", *arguments)[1])
        return {name: facts[name] for name in methods["raw"]}

    assert methods["PIES, ζ = 0.25"] == single("--shaping", "pies", "--zeta", "0.25")
    assert methods["GRM(3)"] == single("--shaping", "grm", "--delay", "3")
    assert methods["ADOPES, ζ = 0.25"] == single(
        "--shaping", "adopes", *settings[:2], *settings[4:6]
    )


def test_the_table_holds_the_form(capsys):
    corridor = ("adops/TVCorridor-v0", "--all", "--json")
    adops = {
        form: [
            name
            for name in json.loads(run(capsys, *corridor, "--form", form)[1])["methods"]
            if name.startswith("ADOPS")
        ]
        for form in ("expected", "trajectory")
    }
    assert adops == {"expected": ["ADOPS"], "trajectory": ["ADOPS, sampled s′"]}


@pytest.mark.parametrize("arguments", [("--plot", "x.png"), ("--shaping", "grm")])
def test_the_table_refuses_what_is_about_one_method(capsys, arguments):
    code, _, err = run(capsys, CLIFF, "--all", *arguments)
    assert code == 2
    assert "--all prints a table of all methods" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["NoSuchEnv-v0"], "NoSuchEnv"),
        (["CartPole-v1", "--max-states", "50"], "more than max_states=50"),
        (["Pendulum-v1"], "Discrete action space"),
        ([CLIFF, "--bonus", "nois"], "There is no bonus 'nois'"),
        ([CLIFF, "--bonus", "gone.npy"], "There is no file 'gone.npy'"),
        ([CLIFF, "--tv-state", "99"], "Unknown state 99"),
        ([CLIFF, "--shaping", "adop"], "Did you mean 'adops'"),
        ([CLIFF, "--gamma", "1.0"], "gamma=1 needs every policy"),
        ([CLIFF, "--shaping", "pbim", "--max-nodes", "500"], "Give a horizon"),
        ([TAXI, "--plot", "taxi.png"], "Only grid worlds can be drawn"),
    ],
)
def test_errors_are_one_line(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last


def test_missing_matplotlib_is_named(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = str(tmp_path / "x.png")
    code, _, err = run(capsys, CLIFF, "--plot", path)
    assert code == 2
    assert "pip install adops-wrappers[analysis]" in err


def test_as_a_module():
    command = [sys.executable, "-m", "adops_wrappers.tabular", "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    assert "noisy-tv" in answer.stdout
    assert "--shaping" in answer.stdout
