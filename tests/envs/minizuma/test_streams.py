"""Single, vector and reference implementation give the same streams in every autoreset mode."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers.envs import MiniZumaVectorEnv
from tests.envs.minizuma.expert import expert
from tests.envs.minizuma.reference import Reference

ID = "adops/MiniZuma-v0"
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def careless(obs, rng, mistakes=0.15):
    """The expert's actions with random ones among them: they get far, and some die."""
    wrong = rng.random(len(obs)) < mistakes
    actions = np.array([expert(row) for row in obs])
    return np.where(wrong, rng.integers(0, 5, len(obs)), actions)


def equal_infos(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            equal_infos(value, other[key])
        elif key == "final_obs":
            for a, b in zip(value, other[key], strict=True):
                assert (a is None) == (b is None)
                assert a is None or np.array_equal(a, b)
        else:
            assert np.array_equal(value, other[key]), key
            assert value.dtype == other[key].dtype, key


def test_gymnasium_accepts_the_env():
    check_env(gym.make(ID, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("mode", MODES)
def test_vector_env_equals_single_envs(mode):
    rows, horizon = 4, 230
    fast = gym.make_vec(ID, num_envs=rows, horizon=horizon, autoreset_mode=mode)
    slow = SyncVectorEnv(
        [lambda: gym.make(ID, horizon=horizon) for _ in range(rows)], autoreset_mode=mode
    )
    rng = np.random.default_rng(0)
    (obs, info), (slow_obs, slow_info) = fast.reset(seed=7), slow.reset(seed=7)
    assert np.array_equal(obs, slow_obs)
    equal_infos(info, slow_info)
    ends = Counter()
    for _ in range(2 * horizon):
        actions = careless(obs, rng)
        one, other = fast.step(actions), slow.step(actions)
        for a, b in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype
        equal_infos(one[4], other[4])
        obs, ended = one[0], one[2] | one[3]
        ends.update(terminated=int(one[2].sum()), truncated=int(one[3].sum()))
        if mode is AutoresetMode.DISABLED and ended.any():
            again, again_slow = (
                env.reset(options={"reset_mask": ended.copy()}) for env in (fast, slow)
            )
            assert np.array_equal(again[0], again_slow[0])
            equal_infos(again[1], again_slow[1])
            obs = again[0]
    assert ends["terminated"] > 0
    assert ends["truncated"] > 0


@pytest.mark.parametrize("mistakes", [0.02, 0.15, 1.0])
def test_vector_env_equals_the_reference(mistakes):
    rows, horizon = 6, 300
    envs = MiniZumaVectorEnv(rows, horizon=horizon, autoreset_mode=AutoresetMode.SAME_STEP)
    references = [Reference(11 + row, horizon=horizon) for row in range(rows)]
    rng = np.random.default_rng(1)
    obs, info = envs.reset(seed=11)
    for row, reference in enumerate(references):
        first, first_info = reference.reset()
        assert obs[row].tolist() == np.float32(first).tolist()
        assert first_info == {key: info[key][row] for key in ("stages", "rooms")}
    reached = 0
    for _ in range(700):
        actions = careless(obs, rng, mistakes)
        obs, reward, terminated, truncated, info = envs.step(actions)
        for row, reference in enumerate(references):
            seen, *outcome, told = reference.step(int(actions[row]))
            assert outcome == [reward[row], terminated[row], truncated[row]]
            reached = max(reached, told["stages"])
            if terminated[row] or truncated[row]:
                assert info["final_obs"][row].tolist() == np.float32(seen).tolist()
                final = info["final_info"]
                assert told == {key: final[key][row] for key in ("stages", "rooms")}
                seen, told = reference.reset()
            assert obs[row].tolist() == np.float32(seen).tolist()
            assert told == {key: info[key][row] for key in ("stages", "rooms")}
    assert reached == (9 if mistakes < 0.1 else reached)


def test_a_row_does_not_depend_on_the_number_of_rows():
    rng = np.random.default_rng(2)
    actions = rng.integers(0, 5, (300, 7))
    few, many = MiniZumaVectorEnv(2, horizon=50), MiniZumaVectorEnv(7, horizon=50)
    few.reset(seed=[4, 9]), many.reset(seed=[0, 1, 4, 3, 4, 5, 9])
    for row in actions:
        row[4] = row[2]
        one, other = few.step(row[[2, 6]]), many.step(row)
        for a, b in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(a, b[[2, 6]])
        assert np.array_equal(other[0][2], other[0][4])


def dangers(env, seed=None):
    """What a reset has drawn; the first room shows nothing of it."""
    env.reset(seed=seed)
    state = env.unwrapped.dynamics.state
    return (*state.skulls[0].tolist(), *state.phases[0].tolist())


def test_an_unseeded_reset_continues_the_stream():
    env = gym.make(ID)
    first = [dangers(env, 3), dangers(env), dangers(env)]
    again = [dangers(env, 3), dangers(env), dangers(env)]
    assert first == again
    assert len(set(first)) == 3
    assert dangers(env, 4) != first[0]
    assert len({dangers(gym.make(ID)) for _ in range(20)}) > 10


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_saved_run_goes_on_as_before(copier, mode):
    envs = gym.make_vec(ID, num_envs=6, horizon=150, autoreset_mode=mode)
    rng = np.random.default_rng(3)
    obs, _ = envs.reset(seed=5)
    for _ in range(155):
        obs = envs.step(careless(obs, rng))[0]
    saved = copier(envs)
    for _ in range(200):
        actions = careless(obs, rng)
        one, other = envs.step(actions), saved.step(actions)
        for a, b in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(a, b)
        equal_infos(one[4], other[4])
        obs = one[0]


def test_a_single_env_is_saved_too():
    env = gym.make(ID)
    env.reset(seed=0)
    for action in (3, 3, 3, 0):
        env.step(action)
    saved = pickle.loads(pickle.dumps(env))
    for action in (3, 3, 4, 4) * 20:
        one, other = env.step(action), saved.step(action)
        assert np.array_equal(one[0], other[0])
        assert one[1:] == other[1:]
    assert np.array_equal(env.reset()[0], saved.reset()[0])
