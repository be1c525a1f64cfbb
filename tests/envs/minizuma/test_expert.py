"""The whole temple can be emptied, whatever the skulls do, without losing a life."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers.envs import MiniZumaVectorEnv
from tests.envs.minizuma.expert import expert


def test_the_expert_collects_everything_under_every_seed():
    rows = 200
    envs = MiniZumaVectorEnv(rows, autoreset_mode=AutoresetMode.NEXT_STEP)
    obs, _ = envs.reset(seed=0)
    score, running = np.zeros(rows), np.ones(rows, dtype=bool)
    steps = 0
    while running.any():
        steps += 1
        actions = [expert(row) if on else 0 for row, on in zip(obs, running, strict=True)]
        obs, reward, terminated, truncated, info = envs.step(np.array(actions))
        score += reward * running
        ended = terminated & running
        assert not truncated[running].any()
        assert (info["stages"][ended] == 9).all()
        assert (info["rooms"][ended] == 12).all()
        assert (obs[ended, -1] == 1.0).all()
        running &= ~ended
    assert (score == 3 * 300 + 3 * 1000).all()
    assert steps < 300


def test_random_actions_open_the_first_door_in_fewer_than_one_episode_of_a_thousand():
    rows = 4000
    envs = MiniZumaVectorEnv(rows, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    paid = sum(np.count_nonzero(envs.step(rng.integers(0, 5, rows))[1]) for _ in range(1000))
    assert paid < rows / 1000
