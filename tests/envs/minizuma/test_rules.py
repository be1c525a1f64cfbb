from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adops_wrappers.envs import MiniZumaEnv, MiniZumaVectorEnv
from adops_wrappers.envs.minizuma import floorplan as plan
from tests.envs.minizuma.expert import expert

WAIT, UP, RIGHT, DOWN, LEFT = range(5)
SYMBOLS = "".join(plan.PLAN)


def env_with(row_seed=0, horizon=1000, lives=5, **fields):
    """An env whose state was changed by hand: a cell is given as row and column of the map."""
    env = MiniZumaEnv(horizon=horizon, lives=lives)
    env.reset(seed=row_seed)
    for name in ("cell", "entrance"):
        if name in fields:
            row, column = fields[name]
            fields[name] = row * plan.WIDTH + column
    state = env.dynamics.state
    for name, value in fields.items():
        getattr(state, name)[0] = value
    return env


def place(env):
    return divmod(int(env.dynamics.state.cell[0]), plan.WIDTH)


def where(symbol):
    return divmod(SYMBOLS.index(symbol), plan.WIDTH)


def test_the_map_is_as_promised():
    rooms = {}
    for cell in np.flatnonzero(plan.INSIDE & ~plan.WALL):
        rooms.setdefault(int(plan.ROOM[cell]), []).append(int(cell))
    assert sorted(rooms) == list(range(12))
    assert all(len(cells) == 16 for cells in rooms.values())
    assert all(SYMBOLS.count(symbol) == 1 for symbol in "SrbgRBG123")
    # A laser's clock can be seen from both sides, and no room has two of them.
    lasers = [cell for cell, at in enumerate(SYMBOLS) if at == "!"]
    beside = [int(plan.ROOM[cell + side]) for cell in lasers for side in (-21, 21)]
    assert len(set(beside)) == len(beside) == 2 * plan.NUM_LASERS
    # Whoever comes back to life stands where no skull passes.
    doorways = np.flatnonzero(~plan.INSIDE & ~plan.WALL)
    neighbours = {int(cell + move) for cell in doorways for move in plan.MOVES}
    assert not any(SYMBOLS[cell] == "~" for cell in neighbours)


@pytest.mark.parametrize("action", [UP, RIGHT, DOWN, LEFT])
def test_walls_stop_a_move(action):
    corner = {UP: (6, 16), RIGHT: (6, 19), DOWN: (9, 19), LEFT: (9, 16)}[action]
    env = env_with(cell=corner)
    env.step(action)
    assert place(env) == corner


@pytest.mark.parametrize(("key", "door"), ["rR", "bB", "gG"])
def test_a_door_opens_with_its_own_key_and_pays_once(key, door):
    bit, side = 1 << "rbg".index(key), {"R": LEFT, "B": UP, "G": LEFT}[door]
    back = {LEFT: RIGHT, UP: DOWN}[side]
    step = {LEFT: (0, -1), UP: (-1, 0)}[side]
    row, column = where(door)
    before = (row + step[0], column + step[1])
    locked = env_with(cell=before, entrance=before, progress=0b111 & ~bit)
    assert locked.step(back)[1] == 0.0
    assert place(locked) == before
    env = env_with(cell=before, entrance=before, progress=bit)
    obs, reward, *_, info = env.step(back)
    assert (place(env), reward, info["stages"]) == ((row, column), 300.0, 2)
    index = "rbg".index(key)
    assert (obs[22 + index], obs[25 + index]) == (0.0, 1.0)  # the key is used up
    env.step(side)
    assert env.step(back)[1] == 0.0
    assert place(env) == (row, column)


@pytest.mark.parametrize("symbol", "rbg123")
def test_keys_are_free_and_jewels_pay_once(symbol):
    row, column = where(symbol)
    action, start = (UP, (row + 1, column)) if row % 5 == 1 else (DOWN, (row - 1, column))
    env = env_with(cell=start, entrance=start)
    index = "rbg123".index(symbol)
    obs, reward, *_, info = env.step(action)
    assert reward == (0.0 if symbol in "rbg" else 1000.0)
    assert obs[22 + index if index < 3 else 25 + index] == 1.0
    assert info["stages"] == 1
    env.step(UP if action == DOWN else DOWN)
    assert env.step(action)[1] == 0.0


def skull_cells(skull):
    return [divmod(int(cell), plan.WIDTH) for cell in plan.SKULL_CELL[skull, :-1]]


@given(
    skull=st.integers(0, plan.NUM_SKULLS - 1),
    column=st.integers(0, 3),
    at=st.integers(0, 7),
    action=st.integers(0, 4),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=250, deadline=None)
def test_a_skull_kills_in_the_same_cell_and_when_places_are_swapped(
    skull, column, at, action, seed
):
    cells = skull_cells(skull)
    home = cells[0][0] + 1, cells[0][1]
    skulls = np.full(plan.NUM_SKULLS + 1, plan.NO_SKULL)
    skulls[:-1] = at
    env = env_with(seed, cell=cells[column], entrance=home, skulls=skulls)
    was = cells[at >> 1]
    dy, dx = [(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1)][action]
    goal = cells[column][0] + dy, cells[column][1] + dx
    if SYMBOLS[goal[0] * plan.WIDTH + goal[1]] == "#":
        goal = cells[column]
    obs = env.step(action)[0]
    now = cells[int(env.dynamics.state.skulls[0, skull]) >> 1]
    killed = goal == now or (goal == was and cells[column] == now)
    assert place(env) == (home if killed else goal)
    assert obs[-1] == pytest.approx(0.8 if killed else 1.0)


def test_skulls_move_as_documented():
    envs = MiniZumaVectorEnv(4000)
    envs.reset(seed=0)
    skulls = envs.dynamics.state.skulls
    skulls[:, :-1] = 3  # the second place, going right
    envs.step(np.zeros(4000, dtype=np.int64))
    after = envs.dynamics.state.skulls[:, :-1].ravel()
    share = np.bincount(after, minlength=8) / after.size
    # Right with 7/8 · 3/4, left with 1/8 · 3/4, rest with 1/4; 20,000 draws.
    expected = [3 / 32, 0, 1 / 32, 7 / 32, 0, 21 / 32, 0, 0]
    assert np.abs(share - expected).max() < 0.012
    skulls = envs.dynamics.state.skulls
    skulls[:, :-1] = 7  # the last place, going right: it turns at the wall
    envs.step(np.zeros(4000, dtype=np.int64))
    after = envs.dynamics.state.skulls[:, :-1].ravel()
    share = np.bincount(after, minlength=8) / after.size
    assert np.abs(share - [0, 0, 0, 0, 3 / 32, 0, 22 / 32, 7 / 32]).max() < 0.012


@pytest.mark.parametrize("laser", range(plan.NUM_LASERS))
@pytest.mark.parametrize("phase", range(8))
def test_a_laser_burns_half_of_the_time(laser, phase):
    cell = [cell for cell, at in enumerate(SYMBOLS) if at == "!"][laser]
    above = divmod(cell - plan.WIDTH, plan.WIDTH)
    env = env_with(cell=above, entrance=above, phases=np.full(plan.NUM_LASERS + 1, phase))
    obs = env.step(WAIT)[0]
    clock = (phase + 1) % 8
    assert obs[36] == pytest.approx((4 - clock) / 4 if clock < 4 else (clock - 8) / 4)
    obs = env.step(DOWN)[0]
    burns = (phase + 2) % 8 < 4
    assert (place(env) == above) == burns
    assert obs[-1] == pytest.approx(0.8 if burns else 1.0)


def test_the_agent_comes_back_to_life_at_the_first_cell_that_it_entered():
    env = env_with(cell=(4, 12), entrance=(9, 12))
    env.step(RIGHT)
    assert divmod(int(env.dynamics.state.entrance[0]), plan.WIDTH) == (4, 13)
    skulls = env.dynamics.state.skulls
    for _ in range(200):
        env.dynamics.state.skulls[0, :-1] = skulls[0, :-1]
        env.step(UP)
        if env.dynamics.state.lives[0] == 4:
            break
        env.step(DOWN)
    assert env.dynamics.state.lives[0] == 4
    assert place(env) == (4, 13)


def test_the_last_life_ends_the_episode():
    cell = (11, 17)
    env = env_with(cell=cell, entrance=cell, lives=2, phases=np.zeros(plan.NUM_LASERS + 1))
    _, _, terminated, truncated, _ = env.step(UP)
    assert (terminated, truncated) == (False, False)
    obs, reward, terminated, truncated, _ = env.step(UP)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert obs[-1] == 0.0


def test_the_last_jewel_ends_the_episode_even_when_time_is_up():
    row, column = where("3")
    env = env_with(cell=(row + 1, column), progress=0b011_111_111, horizon=1)
    _, reward, terminated, truncated, info = env.step(UP)
    assert (reward, terminated, truncated) == (1000.0, True, False)
    assert info["stages"] == 9


def test_the_time_limit_is_a_truncation():
    env = MiniZumaEnv(horizon=3)
    env.reset(seed=0)
    assert [env.step(WAIT)[2:4] for _ in range(3)] == [(False, False)] * 2 + [(False, True)]
    default = MiniZumaEnv()
    assert (default.dynamics.horizon, default.dynamics.max_lives) == (1000, 5)


@given(seed=st.integers(0, 10_000), mistakes=st.sampled_from([0.05, 0.2, 1.0]))
@settings(max_examples=15, deadline=None)
def test_no_step_breaks_the_rules(seed, mistakes):
    env = MiniZumaEnv(horizon=300)
    obs, info = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    ended = False
    while not ended:
        before = env.dynamics.state
        action = int(rng.integers(5)) if rng.random() < mistakes else expert(obs)
        obs, reward, terminated, truncated, told = env.step(action)
        after = env.dynamics.state
        gained = int(after.progress[0] & ~before.progress[0])
        assert not int(before.progress[0] & ~after.progress[0])
        doors, jewels = bin(gained & 0b111000).count("1"), bin(gained >> 6).count("1")
        assert reward == 300 * doors + 1000 * jewels
        assert not after.progress[0] >> 3 & 0b111 & ~after.progress[0]  # no door without its key
        died = int(before.lives[0] - after.lives[0])
        assert died in (0, 1)
        if died:
            assert after.cell[0] == after.entrance[0] == before.entrance[0]
        assert not plan.WALL[after.cell[0]]
        assert plan.INSIDE[after.entrance[0]]
        assert told["rooms"] >= info["rooms"]
        assert env.observation_space.contains(obs)
        info, ended = told, terminated or truncated
    assert terminated == (after.lives[0] == 0 or after.progress[0] >> 6 == 0b111)


def test_bad_input():
    with pytest.raises(ValueError, match="lives must be a whole number of at least 1"):
        MiniZumaEnv(lives=0)
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1"):
        MiniZumaEnv(horizon=0)
    with pytest.raises(ValueError, match="num_envs must be a whole number of at least 1"):
        MiniZumaVectorEnv(0)
    with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array'"):
        MiniZumaEnv(render_mode="human")
    env = MiniZumaEnv()
    with pytest.raises(gym.error.ResetNeeded, match="before the first step"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match=r"whole numbers in 0 … 4, got \[5\]"):
        env.step(5)
