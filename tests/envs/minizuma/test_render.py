from __future__ import annotations

from textwrap import dedent

import gymnasium as gym
import numpy as np

from adops_wrappers.envs import MiniZumaEnv, MiniZumaVectorEnv
from adops_wrappers.envs.minizuma import floorplan as plan
from tests.envs.minizuma.expert import expert

CELL = 24


def at(image, symbol):
    row, column = divmod("".join(plan.PLAN).index(symbol), plan.WIDTH)
    return image[(row + 1) * CELL : (row + 2) * CELL, column * CELL : (column + 1) * CELL]


def test_the_docstring_shows_the_map():
    assert "\n".join(plan.PLAN) in dedent("    " + MiniZumaEnv.__doc__)


def test_everything_that_changes_is_drawn():
    env = MiniZumaEnv(render_mode="rgb_array")
    obs, _ = env.reset(seed=1)
    start = env.render()
    assert start.shape == (17 * CELL, 21 * CELL, 3)
    assert start.dtype == np.uint8
    terminated = False
    while not terminated:
        obs, _, terminated, _, _ = env.step(expert(obs))
    end = env.render()
    for symbol in "SrbgRBG12":
        assert not np.array_equal(at(start, symbol), at(end, symbol)), symbol
    for room in range(plan.NUM_ROOMS):
        row, column = divmod(room, plan.ROOM_COLUMNS)
        pixel = (5 * row + 3) * CELL, (5 * column + 2) * CELL  # the upper left corner of a cell
        assert end[pixel].sum() > start[pixel].sum() or room == plan.ROOM[plan.START]
    assert not np.array_equal(start[:CELL], end[:CELL])


def test_a_burning_laser_and_lost_lives_are_drawn():
    env = MiniZumaEnv(render_mode="rgb_array", lives=3)
    env.reset(seed=0)
    lasers, lives = set(), set()
    for action in [3] * 3 + [2] * 8 + [3] * 40:  # into the laser of the second room
        env.step(action)
        image = env.render()
        lasers.add(at(image, "!").tobytes())
        lives.add(image[:CELL, : 3 * CELL].tobytes())
    assert len(lasers) >= 2
    assert len(lives) >= 2


def test_vector_env_draws_every_row():
    envs = MiniZumaVectorEnv(3, render_mode="rgb_array")
    env = gym.make("adops/MiniZuma-v0", render_mode="rgb_array")
    envs.reset(seed=5), env.reset(seed=6)
    assert np.array_equal(envs.render()[1], env.render())
    assert len(envs.render()) == 3
    assert MiniZumaVectorEnv(3).render() is None
