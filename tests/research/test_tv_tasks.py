"""MiniGrid's tasks with a noisy TV: what is shown where, and that nothing else changes."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("minigrid")
pytest.importorskip("torch")

import cloudpickle
import torch

from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import env_kind, make_env
from research import tv_tasks
from train import ppo_rnd

ID = "research.tv_tasks:MiniGridTV-v0"
EMPTY, ROOMS = "MiniGrid-Empty-8x8-v0", "MiniGrid-MultiRoom-N4-S5-v1"


def image(env: Any) -> Any:
    """What MiniGrid itself shows, as the networks see it."""
    return env.unwrapped.gen_obs()["image"].astype(np.float32) * np.float32(0.1)


@pytest.mark.parametrize("place", list(tv_tasks.PLACES))
def test_the_strip_shows_noise_at_the_place_when_the_action_asks_for_it(place: str) -> None:
    task = EMPTY if place in ("near the goal", "everywhere") else ROOMS
    task = "MiniGrid-RedBlueDoors-8x8-v0" if place == "behind the red door" else task
    env: Any = gym.make(ID, task=task, place=place, action=6)
    plain: Any = gym.make(ID, task=task)
    seen, rng = {True: 0, False: 0}, np.random.default_rng(0)
    for seed in range(20):
        env.reset(seed=seed)
        plain.reset(seed=seed)
        for _ in range(60):
            action = int(rng.choice([0, 1, 2, 5, 6]))
            obs, reward, terminated, truncated, _ = env.step(action)
            expected, *rest, _ = plain.step(action)
            assert rest == [reward, terminated, truncated]
            np.testing.assert_array_equal(expected, image(env))
            np.testing.assert_array_equal(obs[:, 1:], expected[:, 1:])
            on = action == 6 and tv_tasks.PLACES[place](env.unwrapped)
            assert np.array_equal(obs[:, 0], expected[:, 0]) != on
            if on:
                assert obs[:, 0].min() >= 0.0
                assert obs[:, 0].max() == pytest.approx(1.0, abs=0.31)
            if action == 6:
                seen[on] += 1
            if terminated or truncated:
                break
    if place not in ("behind the red door", "third room", "last room", "second room"):
        assert seen[True] >= 10  # random actions get there
    if place != "everywhere":
        assert seen[False] > 10


def test_places_are_where_their_names_say() -> None:
    env: Any = gym.make(ROOMS).unwrapped
    rooms = ("first room", "second room", "third room", "last room")
    for seed in range(5):
        env.reset(seed=seed)
        for number, room in enumerate(env.rooms):
            env.agent_pos = np.array(room.top) + 1
            assert [tv_tasks.PLACES[name](env) for name in rooms] == [
                number == other for other in range(4)
            ]
        env.agent_pos = env.goal_pos
        assert tv_tasks.PLACES["near the goal"](env)
        assert tv_tasks.PLACES["last room"](env)
    for task in (EMPTY, "MiniGrid-DoorKey-5x5-v0"):
        env = gym.make(task).unwrapped
        env.reset(seed=0)
        (goal,) = [
            (x, y)
            for x in range(env.width)
            for y in range(env.height)
            if getattr(env.grid.get(x, y), "type", "") == "goal"
        ]
        near = {
            (x, y)
            for x in range(env.width)
            for y in range(env.height)
            if setattr(env, "agent_pos", (x, y)) or tv_tasks.PLACES["near the goal"](env)
        }
        assert near == {(x, y) for x, y in np.ndindex(env.width, env.height)
                        if abs(x - goal[0]) <= 2 and abs(y - goal[1]) <= 2}  # fmt: skip
    env = gym.make("MiniGrid-RedBlueDoors-8x8-v0").unwrapped
    env.reset(seed=0)
    door = next(x for x in range(16) for y in range(8) if env.grid.get(x, y) is env.red_door)
    for x in range(16):
        env.agent_pos = (x, 1)
        assert tv_tasks.PLACES["behind the red door"](env) == (x < door)


def test_networks_get_what_they_get_from_minigrids_own_ids() -> None:
    device = torch.device("cpu")
    encoded = []
    for flags in (["--env-id", EMPTY], ["--env-id", ID, "--env-kwargs", f'{{"task": "{EMPTY}"}}']):
        args = ppo_rnd.parse_args([*flags, "--bonus", "count"])
        env = make_env(args, env_kind(args.env_id))
        encoder = Encoder(env.observation_space, env_kind(args.env_id), device)
        encoded.append(encoder.encode(env.reset(seed=3)[0][None]))
    torch.testing.assert_close(encoded[0], encoded[1], rtol=0.0, atol=0.0)


def test_a_copy_goes_on_as_the_original() -> None:
    env: Any = gym.make(ID, task=EMPTY, place="everywhere", action=6)
    env.reset(seed=0)
    env.step(6)
    saved = pickle.loads(cloudpickle.dumps(env))
    for action in (6, 2, 6, 1, 6):
        np.testing.assert_array_equal(env.step(action)[0], saved.step(action)[0])


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"place must be one of first room, .*; got 'attic'"):
        gym.make(ID, task=EMPTY, place="attic")
