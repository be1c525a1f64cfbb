"""Files of version 0.2 load, or are refused with a sentence that says what to do.

`written_by_0_2/` holds them: the state of six stacks and two critics, a recording, and the run
directory of a training script, each written by version 0.2.0 itself.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    CountBonus,
    CriticHandle,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    Recording,
    load_stack_state_dict,
    make_shaping,
    reshape,
    stack_state_dict,
)
from tests import toolkit as tk

OLD = Path(__file__).parent / "written_by_0_2"
METHODS: dict[str, dict[str, Any]] = {
    "adops": {},
    "adopes": {"ramp_updates": 5, "update_every": 2},
    "pies": {"decay_updates": 5, "update_every": 2},
    "pbim-norm": {},
    "grm": {"delay": 3},
    "guarded": {"update_every": 4},
}
ACTIONS = np.random.default_rng(0).integers(0, 4, (12, 2))
OBSERVATIONS = np.arange(4)


def cliff() -> Any:
    return gym.make_vec(
        tk.CLIFF,
        num_envs=2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        max_episode_steps=7,
    )


def stack(name: str) -> Any:
    normalizer = IntrinsicReturnNormalizer(2, rule="rms", warm_up=3)
    env = IntrinsicRewardWrapper(cliff(), CountBonus(), normalizer=normalizer)
    critic = CriticHandle(lambda obs: (0.1 * obs, 0.01 * obs))
    return make_shaping(name, env, critic, **METHODS[name])


def read(name: str) -> Any:
    torch = pytest.importorskip("torch")
    return torch.load(OLD / name, weights_only=False)


@pytest.mark.parametrize("name", METHODS)
def test_the_state_of_a_stack_goes_on_as_it_would_have(name: str) -> None:
    state = pickle.loads((OLD / "stacks.pkl").read_bytes())[name]
    straight, resumed = stack(name), stack(name)
    for env in (straight, resumed):
        env.reset(seed=3)
        for actions in ACTIONS:
            env.step(actions)
    # Without a reset since: the base envs are in the state in which 0.2 left them.
    scrambled = stack(name)
    scrambled.reset(seed=4)
    load_stack_state_dict(resumed, stack_state_dict(scrambled))
    load_stack_state_dict(resumed, state)
    for actions in ACTIONS:
        one, other = straight.step(actions), resumed.step(actions)
        np.testing.assert_array_equal(one[1], other[1])
        np.testing.assert_array_equal(one[4]["intrinsic_reward"], other[4]["intrinsic_reward"])


@pytest.mark.parametrize("name", ["td_critic", "q_critic"])
def test_the_state_of_a_critic_gives_the_same_values(name: str) -> None:
    old = read(f"{name}.pt")
    from adops_wrappers import QCritic, TDCritic

    env = cliff()
    space, actions = env.single_observation_space, env.single_action_space
    critic: Any = (
        TDCritic(space, hidden=(4,), replay_size=64, batch_size=16)
        if name == "td_critic"
        else QCritic(space, actions, hidden=(4,))
    )
    critic.load_state_dict(old["state"])
    values = critic.evaluate(OBSERVATIONS)
    assert values.value_ext.tolist() == old["value_ext"]
    assert values.value_int.tolist() == old["value_int"]


def test_a_recording_is_read_and_compared() -> None:
    recording = Recording.load(OLD / "recording.npz")
    assert (recording.method, recording.steps) == ("adops", 12)
    np.testing.assert_array_equal(reshape(recording)["adops"], recording.shaped)


def test_a_run_is_refused_with_the_way_out(tmp_path: Path) -> None:
    pytest.importorskip("tyro")
    pytest.importorskip("torch")
    run = shutil.copytree(OLD / "run", tmp_path / "run")
    script = Path(__file__).parents[1] / "train" / "ppo_rnd.py"
    done = subprocess.run(
        [sys.executable, str(script), "--resume", str(run)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "adops-wrappers 0.2.0 wrote this run" in done.stderr
    assert "(atari_obs). Continue it with version 0.2.0, or start a new run." in done.stderr
    assert (run / "metrics.csv").read_bytes() == (OLD / "run" / "metrics.csv").read_bytes()
