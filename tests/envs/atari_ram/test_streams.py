"""Single, vector and ale-py's own env give the same streams, also after being saved."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.envs.minizuma.test_streams import equal_infos

ale_py = pytest.importorskip("ale_py")
cloudpickle = pytest.importorskip("cloudpickle")

ID = "adops/MontezumaRam-v0"
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def equal_steps(one, other):
    for a, b in zip(one[:-1], other[:-1], strict=True):
        assert np.array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
    equal_infos(*({k: as_arrays(v) for k, v in step[-1].items()} for step in (one, other)))


def as_arrays(value):
    return value if isinstance(value, dict) else np.asarray(value)


def test_gymnasium_accepts_the_env():
    check_env(gym.make(ID, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("game", ["montezuma_revenge", "breakout"])
def test_env_is_ales_with_our_draws_of_stickiness(game):
    """ale-py's env, frame by frame; each frame's action is chosen here."""
    env = gym.make("adops/AtariRam-v0", game=game, repeat_action_probability=0.4, frameskip=3)
    gym.register_envs(ale_py)
    name = "".join(word.title() for word in game.split("_"))
    theirs = gym.make(
        f"ALE/{name}-v5", obs_type="ram", frameskip=1, repeat_action_probability=0.0
    ).unwrapped
    assert env.action_space == theirs.action_space
    chances, _ = seeding.np_random(5)
    rng = np.random.default_rng(0)
    env.reset(seed=5)
    ram, _ = theirs.reset(seed=0)
    held, ends = 0, 0
    for _ in range(700):
        assert np.array_equal(env.unwrapped.dynamics.ram[0], ram)
        action = int(rng.integers(env.action_space.n))
        _, reward, terminated, truncated, info = env.step(action)
        expected = 0.0
        for chance in chances.random(3):
            held = held if chance < 0.4 else action
            ram, points, over, _, told = theirs.step(held)
            expected += points
        assert (reward, terminated, truncated) == (expected, over, False)
        assert info["lives"] == told["lives"]
        if terminated:
            env.reset()
            (ram, _), held, ends = theirs.reset(), 0, ends + 1
    assert ends > 0


@pytest.mark.parametrize("mode", MODES)
def test_vector_env_equals_single_envs(mode):
    rows, horizon = 3, 190
    fast = gym.make_vec(ID, num_envs=rows, horizon=horizon, autoreset_mode=mode)
    slow = SyncVectorEnv([lambda: gym.make(ID, horizon=horizon)] * rows, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    equal_steps(fast.reset(seed=7), slow.reset(seed=7))
    terminations = truncations = 0
    for _ in range(230):
        actions = rng.integers(3, 5, rows)  # right or left: over an edge, before long
        one, other = fast.step(actions), slow.step(actions)
        equal_steps(one, other)
        ended = one[2] | one[3]
        terminations, truncations = terminations + one[2].sum(), truncations + one[3].sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            mask = {"reset_mask": ended.copy()}
            equal_steps(fast.reset(options=dict(mask)), slow.reset(options=dict(mask)))
    assert terminations > 0
    assert truncations > 0


def test_a_row_does_not_depend_on_the_number_of_rows():
    rng = np.random.default_rng(2)
    few, many = gym.make_vec(ID, num_envs=1), gym.make_vec(ID, num_envs=3)
    few.reset(seed=[9]), many.reset(seed=[4, 9, 9])
    parted = False
    for actions in rng.integers(0, 18, (100, 1)):
        one, other = few.step(actions), many.step(actions.repeat(3))
        for a, b in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(a[0], b[1])
            assert np.array_equal(b[1], b[2])
        parted = parted or not np.array_equal(other[0][0], other[0][1])
    assert parted


COPIERS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda envs: pickle.loads(pickle.dumps(envs)),
    "cloudpickle": lambda envs: pickle.loads(cloudpickle.dumps(envs)),
}


@pytest.mark.parametrize("copier", COPIERS.values(), ids=COPIERS)
@pytest.mark.parametrize("steps", [0, 1, 37])
def test_a_saved_run_goes_on_as_before(copier, steps):
    envs = gym.make_vec(ID, num_envs=2, horizon=30, autoreset_mode=AutoresetMode.SAME_STEP)
    rng = np.random.default_rng(3)
    envs.reset(seed=5)
    for actions in rng.integers(0, 18, (steps, 2)):
        envs.step(actions)
    saved = copier(envs)
    for actions in rng.integers(0, 18, (60, 2)):
        equal_steps(envs.step(actions), saved.step(actions))
    for one, other in zip(
        envs.unwrapped.dynamics.emulators, saved.unwrapped.dynamics.emulators, strict=True
    ):
        assert one is not other
        assert one.getFrameNumber() == other.getFrameNumber()
        assert one.getEpisodeFrameNumber() == other.getEpisodeFrameNumber()


def test_the_action_that_stickiness_repeats_is_saved():
    """ALE's own state lacks it: the first frame after a restore would repeat nothing."""
    env = gym.make(ID, repeat_action_probability=0.9)
    env.reset(seed=0)
    parted = 0
    for step in range(6):
        saved, forgetful = copy.deepcopy(env), copy.deepcopy(env)
        forgetful.unwrapped.dynamics.held = [0]
        outcome = env.step(3 + step % 2)
        equal_steps(outcome, saved.step(3 + step % 2))
        parted += not np.array_equal(outcome[0], forgetful.step(3 + step % 2)[0])
    assert parted > 0


def test_a_game_that_ale_restores_wrongly_is_not_saved():
    envs = gym.make_vec("adops/AtariRam-v0", num_envs=1, game="qbert")
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="ale-py does not restore qbert as it was"):
        pickle.dumps(envs)
    pytest.importorskip("torch")
    from adops_wrappers.training.checkpoint import pickle_envs

    assert pickle_envs(envs) is None  # so a resumed run says that it starts from reset


CONTINUE = """
import pickle, sys
import numpy as np
envs, actions = pickle.load(sys.stdin.buffer)
outcome = [envs.step(row)[:4] for row in actions]
pickle.dump([[np.asarray(x).tobytes() for x in step] for step in outcome], sys.stdout.buffer)
"""


def test_a_saved_run_goes_on_in_another_process():
    envs = gym.make_vec(ID, num_envs=2, autoreset_mode=AutoresetMode.SAME_STEP)
    rng = np.random.default_rng(4)
    envs.reset(seed=8)
    for actions in rng.integers(0, 18, (250, 2)):
        envs.step(actions)
    actions = rng.integers(0, 18, (250, 2))
    sent = pickle.dumps((envs, actions))
    here = [[np.asarray(x).tobytes() for x in envs.step(row)[:4]] for row in actions]
    there = subprocess.run([sys.executable, "-c", CONTINUE], input=sent, stdout=subprocess.PIPE)
    assert pickle.loads(there.stdout) == here


def test_pictures_are_those_of_the_emulator():
    env = gym.make(ID, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(3)
    assert env.render().shape == (210, 160, 3)
    assert np.array_equal(env.render(), env.unwrapped.ale.getScreenRGB())
    assert gym.make(ID).render_mode is None


def test_an_unknown_game_is_refused_by_name():
    with pytest.raises(ValueError, match=r"one of .*montezuma_revenge, .*; got 'montezuma'"):
        gym.make("adops/AtariRam-v0", game="montezuma")


def test_a_game_for_two_players_is_refused_before_it_ends_the_process():
    with pytest.raises(ValueError, match="got 'combat'"):
        gym.make("adops/AtariRam-v0", game="combat")
