"""EIPO's rule by hand, and its script."""

from __future__ import annotations

import inspect
import os
import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.train.scripts import TRAIN, learned, load_script, read_metrics, run_script, start_script

FLAGS = (
    "--env-id", "adops/KeyDoorTV-v0", "--bonus", "count", "--num-envs", "4", "--num-steps", "16",
    "--mlp-hidden", "16", "--torch-threads", "1", "--learning-rate", "1e-3",
    "--total-iterations", "40", "--checkpoint-every", "3",
)  # fmt: skip


@pytest.fixture(scope="module")
def eipo() -> ModuleType:
    return load_script("eipo_rnd")


def make(eipo: ModuleType, **settings: Any) -> Any:
    return eipo.Stages(eipo.Args(ext_coef=2.0, int_coef=0.5, **settings))


def test_objectives_by_hand(eipo: ModuleType) -> None:
    """R = 3, F = 4, A_E = 5, A_I = 6: M = 2·3 + 4/2 = 8 and A_M = 2·5 + 6/2 = 13; α = 1/2."""
    stages = make(eipo)
    rewards, advantages = (np.array([[[a], [b]]]) for a, b in ((3.0, 4.0), (5.0, 6.0)))
    found = stages.objectives(rewards, advantages)
    assert found.tolist() == [[[8.0 + 0.5 * 5.0]], [[5.0]]]
    assert stages.objective_of(found).tolist() == [[10.5]]
    stages.max_stage = False
    found = stages.objectives(rewards, advantages)
    assert found.tolist() == [[[13.0]], [[0.5 * 3.0 - 8.0 + 13.0]]]
    assert stages.objective_of(found).tolist() == [[6.5]]


def test_with_weights_one_the_min_stage_is_the_authors(eipo: ModuleType) -> None:
    stages = eipo.Stages(eipo.Args(ext_coef=1.0, int_coef=1.0, alpha=0.25))
    stages.max_stage = False
    rewards, advantages = np.random.default_rng(0).normal(size=(2, 7, 2, 3))
    reward, bonus = rewards[:, 0], rewards[:, 1]
    expected = (0.25 - 1.0) * reward - bonus + advantages[:, 0] + advantages[:, 1]
    np.testing.assert_allclose(stages.objectives(rewards, advantages)[1], expected, rtol=1e-12)


def test_alpha_moves_in_the_max_stage_alone_and_by_no_more_than_its_clip(eipo: ModuleType) -> None:
    stages = make(eipo, alpha=0.5, alpha_rate=0.1, alpha_clip=0.05)
    seen = []
    # (objective, gain): a stage ends where its objective has not risen.
    for objective, gain in [
        (1.0, 0.02),
        (2.0, 9.0),
        (2.0, -9.0),
        (5.0, 9.0),
        (4.0, 9.0),
        (0.0, 0.03),
    ]:
        seen.append((round(stages.alpha, 6), stages.max_stage))
        stages.finish(objective, gain)
    assert seen == [
        (0.5, True), (0.498, True), (0.493, True), (0.498, False), (0.498, False), (0.498, True),
    ]  # fmt: skip
    assert stages.alpha == pytest.approx(0.495, abs=1e-12)


def test_stages_resume(eipo: ModuleType) -> None:
    stages, resumed = make(eipo), make(eipo)
    stages.finish(1.0, 0.02)
    resumed.load_state_dict(stages.state_dict())
    for one in (stages, resumed):
        one.finish(0.5, 0.0)
    assert resumed.state_dict() == stages.state_dict()
    assert not resumed.max_stage
    assert resumed.last is None


def test_the_policy_that_acts_has_its_own_value(eipo: ModuleType) -> None:
    import torch

    torch.manual_seed(0)
    agent = eipo.Agent((3,), 4, 8)
    x = torch.rand(5, 3)
    logits, values = agent.everything(x)
    for acts, columns in ((0, [0, 1]), (1, [2, 1])):
        agent.acts = acts
        found = agent(x)
        assert torch.equal(found[0], logits[acts])
        assert torch.equal(found[1], values[:, columns])
    assert not torch.equal(logits[0], logits[1])


def test_a_run_alternates_and_a_killed_one_goes_on_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_script("eipo_rnd.py", *FLAGS, "--run-dir", str(whole))
    process = start_script("eipo_rnd.py", *FLAGS, "--run-dir", str(killed))
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and process.poll() is None:
        if (killed / "metrics.csv").exists() and len(read_metrics(killed)) >= 8:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    process.communicate(timeout=900)
    assert 8 <= len(read_metrics(killed)) < 40
    run_script("eipo_rnd.py", "--resume", str(killed))
    rows = learned(killed)
    assert rows == learned(whole)
    assert {row["eipo/max_stage"] for row in rows} == {"0.0", "1.0"}
    alphas = [float(row["eipo/alpha"]) for row in rows]
    moves = np.abs(np.diff(alphas))
    assert 0.0 < moves.max() <= 0.005 * 0.05 + 1e-12
    in_min_stage = [row["eipo/max_stage"] == "0.0" for row in rows[:-1]]
    assert (moves[in_min_stage] == 0.0).all()


@pytest.mark.parametrize(
    "name",
    ["ConvTrunk", "RNDBonus", "bootstrap", "gae", "make_rnd_networks", "make_trunk", "warm_up"],
)
def test_what_it_shares_with_the_other_scripts_is_the_same(
    eipo: Any, ppo_rnd: Any, name: str
) -> None:
    ours, theirs = (inspect.getsource(getattr(script, name)) for script in (eipo, ppo_rnd))
    assert ours == theirs


def test_it_is_read_in_one_sitting() -> None:
    assert len((TRAIN / "eipo_rnd.py").read_text().splitlines()) <= 640
