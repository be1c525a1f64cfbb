from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import ADOPSWrapper, CountBonus, IntrinsicRewardWrapper, mdp_from_env
from adops_wrappers.envs import NoisyTV, NoisyTVEnv, NoisyTVVector

GRID = "adops/KeyDoor-v0"
USE = 4


def at_start(obs: Any) -> Any:
    return obs[..., 0] == 1.0


def grid(**tv: Any) -> gym.Env[Any, Any]:
    env = gym.make(GRID, horizon=12)
    return NoisyTV(env, **tv) if tv else env


def pieces(env: gym.Env[Any, Any], actions: list[int], seed: int = 3) -> tuple[Any, Any]:
    """Return the observations of a walk, and everything else that the env said."""
    obs, info = env.reset(seed=seed)
    seen, rest = [obs], [info]
    for action in actions:
        obs, *said = env.step(action)
        seen.append(obs)
        rest.append(said)
        if said[1] or said[2]:
            seen.append(env.reset()[0])
    return np.array(seen), rest


def test_an_action_shows_noise_once_and_changes_nothing_else() -> None:
    actions = [1, USE, 2, USE, USE, 0] * 5
    plain, said = pieces(grid(), actions)
    noisy, as_much = pieces(grid(action=USE), actions)
    assert said == as_much
    shown = [False]
    for step, action in enumerate(actions, start=1):
        shown += [action == USE] + [False] * (step % 12 == 0)  # a reset after every 12 steps
    assert ((noisy != plain).any(axis=1) == shown).all()
    pictures = noisy[np.array(shown)]
    assert len({picture.tobytes() for picture in pictures}) == len(pictures) == 15
    assert (np.abs(pictures) <= 1.0).all()
    assert (np.ptp(pictures, axis=1) > 1.5).all()


def test_at_a_place_the_screen_shows_noise_and_the_rest_is_seen() -> None:
    walk = [1, 3, 1, 1, 3, 3]  # right, left, right, right, left, left
    screen = np.zeros(91, dtype=np.bool_)
    screen[-16:-6] = True
    plain, said = pieces(grid(), walk)
    noisy, as_much = pieces(grid(place=at_start, screen=screen), walk)
    assert said == as_much
    here = np.array([True, False, True, False, False, False, True])
    assert ((noisy != plain).all(axis=1, where=screen) == here).all()
    np.testing.assert_array_equal(noisy[:, ~screen], plain[:, ~screen])


def test_action_and_place_are_both_needed() -> None:
    walk = [USE, 1, USE, 3, USE]
    plain, _ = pieces(grid(), walk)
    noisy, _ = pieces(grid(action=USE, place=at_start), walk)
    changed = (noisy != plain).any(axis=1)
    assert changed.tolist() == [False, True, False, False, False, True]


def test_a_seed_repeats_the_noise_and_another_does_not() -> None:
    env, walk = grid(action=USE), [USE] * 4
    first, _ = pieces(env, walk, seed=3)
    again, _ = pieces(env, walk, seed=3)
    other, _ = pieces(env, walk, seed=4)
    np.testing.assert_array_equal(first, again)
    assert (first[1:] != other[1:]).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_are_so_many_pictures_the_same_under_every_seed(channels: int) -> None:
    env = NoisyTV(gym.make(GRID), action=USE, channels=channels)
    seen = [pieces(env, [USE] * 40, seed)[0][1:] for seed in (0, 1)]
    pictures = [{picture.tobytes() for picture in run} for run in seen]
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) == channels


def test_whole_numbers_stay_whole_and_within_bounds() -> None:
    env = gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1", is_slippery=False))
    env = NoisyTV(env, action=0, low=2, high=5)
    env.reset(seed=0)
    obs = np.array([env.step(0)[0] for _ in range(40)])
    assert obs.dtype == env.observation_space.dtype
    assert set(obs.ravel().tolist()) == {2, 3, 4, 5}


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_check_env() -> None:
    check_env(grid(action=USE), skip_render_check=True)


def singles(rows: int, mode: AutoresetMode, **tv: Any) -> SyncVectorEnv:
    return SyncVectorEnv([partial(grid, **tv)] * rows, autoreset_mode=mode)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(
    "tv", [{"action": USE}, {"place": at_start}, {"place": at_start, "action": 0}]
)
def test_rows_of_a_vector_env_equal_single_envs(mode: AutoresetMode, tv: dict[str, Any]) -> None:
    rows, rng = 4, np.random.default_rng(0)
    below = gym.make_vec(GRID, num_envs=rows, horizon=12, autoreset_mode=mode)
    one, other = NoisyTV(below, **tv), singles(rows, mode, **tv)
    assert isinstance(one, NoisyTVVector)
    np.testing.assert_array_equal(one.reset(seed=5)[0], other.reset(seed=5)[0])
    ends = 0
    for _ in range(60):
        actions = rng.choice([0, 1, 2, 3, USE], rows, p=[0.4, 0.1, 0.1, 0.2, 0.2])
        fast, slow = one.step(actions), other.step(actions)
        for a, b in zip(fast[:4], slow[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        ended = fast[2] | fast[3]
        ends += int(ended.sum())
        if mode is AutoresetMode.SAME_STEP and ended.any():
            final, expected = fast[4]["final_obs"], slow[4]["final_obs"]
            for row in range(rows):
                np.testing.assert_array_equal(final[row], expected[row])
        mask = ended | (rng.random(rows) < 0.05)
        if mode is AutoresetMode.DISABLED and mask.any():
            reset = [env.reset(options={"reset_mask": mask.copy()})[0] for env in (one, other)]
            np.testing.assert_array_equal(reset[0][mask], reset[1][mask])
            np.testing.assert_array_equal(reset[0][~mask], fast[0][~mask])
    assert ends >= 8


@pytest.mark.parametrize("copied", [deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_with_the_same_noise(copied: Any) -> None:
    below = gym.make_vec(GRID, num_envs=2, autoreset_mode=AutoresetMode.SAME_STEP)
    env: Any = NoisyTV(below, action=USE)
    env.reset(seed=0)
    env.step(np.array([USE, 1]))
    twin = copied(env)
    for _ in range(3):
        actions = np.array([USE, USE])
        np.testing.assert_array_equal(env.step(actions)[0], twin.step(actions)[0])


def test_wrappers_above_see_what_is_shown() -> None:
    """A count bonus pays for every picture; without noise it fades."""
    paid = {}
    for action in (USE, 0):
        below = gym.make_vec(GRID, num_envs=1, autoreset_mode=AutoresetMode.SAME_STEP, horizon=5)
        env: Any = IntrinsicRewardWrapper(NoisyTV(below, action=action), CountBonus())
        env = ADOPSWrapper(env, lambda obs: (np.zeros(len(obs)), np.zeros(len(obs))))
        env.reset(seed=0)
        # The fifth step ends an episode: its true last observation is the noisy one.
        steps = [env.step(np.array([USE]))[4] for _ in range(10)]
        paid[action] = [float(info["raw_intrinsic_reward"][0]) for info in steps]
    assert paid[USE] == [1.0] * 10
    assert paid[0] == pytest.approx(1 / np.sqrt(np.arange(1, 11)))


def test_the_audit_looks_past_the_noise() -> None:
    plain = mdp_from_env(gym.make(GRID), 0.99)
    noisy = mdp_from_env(NoisyTV(gym.make(GRID), action=USE), 0.99)
    np.testing.assert_array_equal(plain.transition, noisy.transition)
    # An env without an export of its own is enumerated, with a key that the noise does not reach.
    lake = gym.wrappers.FlattenObservation(gym.make("adops/DeepSea-v0", size=4))
    seen = NoisyTV(lake, action=0)

    def cell(env: Any, obs: Any) -> tuple[int, int]:
        sea = env.unwrapped.dynamics
        return int(sea.depth[0]), int(sea.column[0])

    assert repr(mdp_from_env(seen, 0.99, key=cell)) == repr(mdp_from_env(lake, 0.99, key=cell))


def test_what_cannot_work_is_refused() -> None:
    env = gym.make(GRID)
    with pytest.raises(ValueError, match="an action that switches it on, a place"):
        NoisyTV(env)
    with pytest.raises(ValueError, match="action must be one of Discrete"):
        NoisyTV(env, action=7)
    with pytest.raises(TypeError, match="draws on Box observations, got Discrete"):
        NoisyTV(gym.make("FrozenLake-v1"), action=0)
    with pytest.raises(ValueError, match="finite bounds"):
        NoisyTV(gym.make("CartPole-v1"), action=0)
    with pytest.raises(ValueError, match="finite bounds"):
        NoisyTV(env, action=0, low=2.0, high=1.0)
    with pytest.raises(ValueError, match="channels must be a whole number of at least 1"):
        NoisyTV(env, action=0, channels=0)
    assert isinstance(NoisyTV(env, action=0), NoisyTVEnv)
