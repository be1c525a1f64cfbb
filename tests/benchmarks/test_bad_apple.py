"""The fidelity command, against stand-ins with the interface of the other code.

Set BAD_APPLE to a clone of github.com/lyonva/bad-apple to test against the code itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from benchmarks import bad_apple

ROOT = Path(__file__).parents[2]

GRM = """
import numpy as np

class GRM:
    # Keeps each row's whole episode, and takes back what the definition says.
    def __init__(self, gamma, n_envs, grm_delay=1):
        self.gamma, self.delay = gamma, grm_delay
        self.given = [[] for _ in range(n_envs)]

    def shape_rewards(self, int_rewards, curr_dones):
        return np.array([self.row(*row) for row in zip(self.given, int_rewards, curr_dones)])

    def row(self, given, bonus, done):
        back = [reward / self.gamma ** (len(given) - i) for i, reward in enumerate(given)]
        due = back[-self.delay :]
        late = sum(due if done else due[:1] if len(due) == self.delay else [])
        given.append(bonus)
        if done:
            given.clear()
        return -late if done else bonus - late
"""
PIES = """
class PIES:
    def __init__(self, gamma, n_envs, pies_decay=2000):
        self.rollouts, self.decay = 0, pies_decay

    def shape_rewards(self, intrinsic_rewards):
        return max(0.0, (self.decay - self.rollouts) / self.decay) * intrinsic_rewards

    def on_rollout_end(self):
        self.rollouts += 1
"""
ADOPES = """
import math
import numpy as np

class ADOPES:
    def __init__(self, gamma, n_envs, adopes_coef_inc=1, adops_epsilon=1e-6):
        self.gamma, self.rise, self.epsilon = gamma, adopes_coef_inc, adops_epsilon
        self.zeta = math.floor(min(1, adopes_coef_inc))

    def shape_rewards(self, rewards, bonus, *values_and_dones):
        *values, dones = values_and_dones
        v_e, v_i, next_v_e, next_v_i = (v.cpu().numpy().ravel() for v in values)
        lives = np.logical_not(dones)
        ext = rewards + lives * next_v_e - v_e
        total = ext + bonus + self.gamma * lives * next_v_i - v_i
        allowed = np.where(ext < 0, np.minimum(total, -self.epsilon), np.maximum(total, 0))
        return bonus + self.zeta * (allowed - total)

    def on_rollout_end(self):
        self.zeta = min(1, self.zeta + self.rise)
"""
# The two faults: the bonus of a last step starts the debt, and it is repaid a step later.
PBIM = """
import numpy as np

class PBIM:
    def __init__(self, gamma, n_envs):
        self.gamma, self.debts = gamma, np.zeros(n_envs)

    def shape_rewards(self, int_rewards, curr_dones):
        keeps = np.asarray(curr_dones, bool)
        shaped = np.where(keeps, int_rewards, -self.debts / self.gamma)
        self.debts = np.where(keeps, (self.debts + int_rewards) / self.gamma, 0)
        return shaped
"""
# ζ·F₂ on the one-step target, within the recursion, row by row and step by step.
BUFFER = """
import numpy as np

class PPORolloutBuffer:
    def __init__(self, steps, observation_space, action_space, *, gamma, gae_lambda, n_envs,
                 adops_enabled, adopes_coef_max_rollout):
        self.steps, self.gamma, self.lam, self.n = steps, gamma, gae_lambda, n_envs
        self.rise = 1 / adopes_coef_max_rollout

    def compute_returns_and_advantage(self, last_ext, last_int, last_cost, dones, lagrangian):
        for row in range(self.n):
            later, v, w = 0.0, float(last_ext[row]), float(last_int[row])
            done = dones[row]
            for t in reversed(range(self.steps)):
                reward, bonus = self.rewards[t, row], self.intrinsic_rewards[t, row]
                ext = reward + self.gamma * v * (1 - done) - self.ext_values[t, row]
                unmasked = bonus + self.gamma * w - self.int_values[t, row]
                total = ext + unmasked
                allowed = min(total, -1e-6) if ext < 0 else max(total, 0)
                total -= self.gamma * w * done
                total += self.n_rollout * self.rise * (allowed - ext - unmasked)
                later = total + self.gamma * self.lam * (1 - done) * later
                self.advantages[t, row] = later
                v, w = self.ext_values[t, row], self.int_values[t, row]
                done = self.episode_starts[t, row]
"""
STAND_IN = {"grm": GRM, "pies": PIES, "adopes": ADOPES, "pbim": PBIM}
WRONG = {
    "GRM D = 2": ("grm", "len(given) - i", "max(1, len(given) - i - (self.delay == 2))"),
    "PIES ζ = 0 after 10 rollouts": ("pies", "self.decay - self", "self.decay - 1 - self"),
    "ADOPS": ("adopes", "np.minimum(total, -", "np.minimum(total, "),
    "ADOPES ζ = 1 after 10 rollouts": (
        "adopes",
        "self.zeta + self.rise",
        "self.zeta + 2 * self.rise",
    ),
    "PBIM `dones` negated, last F′ times γ": ("pbim", "-self.debts / self.gamma", "-self.debts"),
}
GAE = ("F₂ inside GAE ζ = 0.5", "F₂ inside GAE ζ = 1")
BOTH = ("ADOPS", "ADOPES ζ = 1 after 10 rollouts")


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Write a checkout with the given replacement; forget what was imported from another one."""

    def write(module="grm", old="", new=""):
        folder = tmp_path / "src" / "algo" / "reward_shaping"
        folder.mkdir(parents=True)
        for name, source in STAND_IN.items():
            assert old in source or name != module
            text = source.replace(old, new) if name == module and old else source
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        buffers = tmp_path / "src" / "algo" / "buffers"
        buffers.mkdir()
        assert old in BUFFER or module != "buffer"
        text = BUFFER.replace(old, new) if module == "buffer" else BUFFER
        (buffers / "ppo_buffer.py").write_text(text, encoding="utf-8")
        return str(tmp_path)

    known = set(sys.modules)
    yield write
    for name in set(sys.modules) - known:
        if name.partition(".")[0] == "src":
            del sys.modules[name]


def table(text):
    """Return {"method settings": largest difference}."""
    rows = [row.split("|") for row in text.splitlines() if row.startswith("| ")][2:]
    return {f"{row[1].strip()} {row[2].strip()}".strip(): float(row[3]) for row in rows}


def test_an_independent_implementation_agrees(stand_in, capsys):
    assert bad_apple.main([stand_in(), "--steps", "400"]) == 0
    differences = table(capsys.readouterr().out)
    expected = {key: differences.pop(key) for key in ("PBIM as it is", "PBIM `dones` negated")}
    assert len(differences) == 10
    assert max(differences.values()) <= bad_apple.TOLERANCE
    assert expected["PBIM as it is"] > 1.0
    # The settlement is 1/γ times ours: the difference is 1/γ − 1 where ours is the larger.
    assert expected["PBIM `dones` negated"] == pytest.approx(1 / bad_apple.GAMMA - 1, rel=0.05)


@pytest.mark.parametrize("comparison", WRONG)
def test_a_fault_in_one_method_is_named(comparison, stand_in, capsys):
    assert bad_apple.main([stand_in(*WRONG[comparison]), "--steps", "400"]) == 1
    named = capsys.readouterr().err.removeprefix("\nMore than rounding (1e-13): ").rstrip(".\n")
    # ADOPS is their ADOPES with ζ = 1, so a fault in its clamp shows in both.
    assert set(named.split("; ")) == {comparison} | (set(BOTH) if comparison == "ADOPS" else set())


def test_a_fault_inside_gae_is_named(stand_in, capsys):
    checkout = stand_in("buffer", "min(total, -1e-6)", "min(total, 0)")
    assert bad_apple.main([checkout, "--steps", "400"]) == 1
    named = capsys.readouterr().err.removeprefix("\nMore than rounding (1e-13): ").rstrip(".\n")
    assert set(named.split("; ")) == set(GAE)


def test_a_folder_that_is_no_checkout_is_refused_with_the_reason(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        bad_apple.main([str(tmp_path)])
    assert end.value.code == 2
    reason = f"{tmp_path} is no clone of github.com/lyonva/bad-apple: No module named 'src'"
    assert reason in capsys.readouterr().err


@pytest.mark.skipif("BAD_APPLE" not in os.environ, reason="BAD_APPLE names no clone of bad-apple")
def test_the_code_itself_agrees():
    command = [sys.executable, "-m", "benchmarks.bad_apple", os.environ["BAD_APPLE"]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
