from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from adops_wrappers import audit
from adops_wrappers.envs import LAYOUTS, get_world
from adops_wrappers.envs.gridworld import ACTIONS, IMAGE_BITS, Place


def test_key_door_is_laid_out_as_documented():
    plan = LAYOUTS["KeyDoor"].plan
    where = {
        symbol: (r, c)
        for r, line in enumerate(plan)
        for c, symbol in enumerate(line)
        if symbol > "."
    }
    assert where["S"] == (1, 1)
    assert where["K"] == (6, 1)
    assert where["D"] == (4, 7)
    assert where["G"] == (6, 13)
    assert LAYOUTS["KeyDoorTV"].plan[1][13] == "T"
    rooms = [line.replace("#", "") for line in plan[1:7]]
    assert [len(line) for line in rooms] == [12, 12, 12, 13, 12, 12]


def test_corridor_is_laid_out_as_documented():
    line = LAYOUTS["TVCorridor"].plan[1].strip("#")
    assert len(line) == 18
    assert line.index("S") - line.index("T") == 4
    assert line.index("G") - line.index("S") == 13


@pytest.mark.parametrize(
    ("name", "steps"),
    # KeyDoor: 5 down, use, 2 up and 5 right, use, 7 right and 2 down.
    [
        ("KeyDoor", 23),
        ("KeyDoorTV", 23),
        ("TVCorridor", 13),
        ("LoopFarm", 9),
        ("DancingSkulls", 10),
    ],
)
def test_shortest_way_by_hand(name, steps):
    mdp = get_world(name).to_mdp(0.99)
    assert mdp.solve().v[0] == pytest.approx(0.99 ** (steps - 1), abs=1e-12)


def test_coin_is_worth_its_way():
    mdp = get_world("KeyDoorCoin").to_mdp(1 - 1e-9)
    assert mdp.solve().v[0] == pytest.approx(1.1, abs=1e-6)
    taken = np.argwhere(mdp.reward == 0.1)
    assert len(taken) > 0
    world = get_world("KeyDoorCoin")
    assert all(not world.places[s].coin and world.places[t].coin for s, _, t in taken)


def test_number_of_states():
    # 36 cells without and with the key, 73 with the door open.
    assert get_world("KeyDoor").num_states == 36 + 36 + 73
    assert get_world("TVCorridor").num_states == 18


def test_use_takes_the_key_and_opens_the_door():
    world = get_world("KeyDoor")
    state = {place: i for i, place in enumerate(world.places)}
    use, right = ACTIONS.index("use"), ACTIONS.index("right")

    def after(place, action):
        return world.places[world.next_state[state[place], action]]

    assert after(Place(6, 1), use) == Place(6, 1, key=True)
    assert after(Place(4, 6), use) == Place(4, 6)
    assert after(Place(4, 6), right) == Place(4, 6)
    assert after(Place(4, 6, key=True), right) == Place(4, 6, key=True)
    assert after(Place(3, 6, key=True), use) == Place(3, 6, key=True)
    opened = after(Place(4, 6, key=True), use)
    assert opened == Place(4, 6, key=True, door=True)
    assert after(opened, right) == Place(4, 7, key=True, door=True)


def test_dance_floor_is_dangerous():
    world = get_world("DancingSkulls")
    mdp = world.to_mdp(0.9)
    state = {(place.row, place.column): i for i, place in enumerate(world.places)}
    above, floor, skull = state[2, 4], state[3, 4], state[3, 6]
    row = mdp.transition[above, ACTIONS.index("down")]
    assert row[floor] == pytest.approx(0.9)
    assert row[skull] == pytest.approx(0.1)
    assert mdp.terminal[skull]
    # Beside the skull a step into it is certain.
    assert mdp.transition[state[3, 5], ACTIONS.index("right"), skull] == 1.0


def test_bell_pays_for_arriving_only():
    world = get_world("LoopFarm")
    bonus = world.tempting_bonus(2.0)
    bell = next(i for i, p in enumerate(world.places) if world.symbol(p) == "B")
    assert bonus[bell].max() == 0.0
    assert np.count_nonzero(bonus[:, :, bell]) == 2
    assert bonus.max() == 2.0


@pytest.mark.parametrize("name", LAYOUTS)
def test_state_is_read_back_from_the_observation(name):
    world = get_world(name)
    obs = world.observations.copy()
    obs[:, -IMAGE_BITS:] = np.random.default_rng(0).choice([-1.0, 1.0], (len(obs), IMAGE_BITS))
    assert np.array_equal(world.state_of(obs), np.arange(world.num_states))
    assert world.state_of(obs[3]).shape == ()
    with pytest.raises(ValueError, match=f"not an observation of {name}"):
        world.state_of(np.zeros(world.observation_size))


@pytest.mark.parametrize("name", LAYOUTS)
def test_tempting_bonus_is_hacked_and_repaired(name):
    world = get_world(name)
    mdp, bonus = world.to_mdp(0.99), world.tempting_bonus()
    raw = audit(mdp, bonus, "raw")
    assert not raw.preserved
    # The agent that farms the bonus never reaches the goal.
    assert raw.regret == pytest.approx(mdp.solve().v[0], abs=0.02)
    assert audit(mdp, bonus, "adops").preserved
    assert audit(mdp, bonus, form="trajectory").preserved
    assert audit(mdp, bonus, "grm").preserved


def test_copies_share_the_compiled_world():
    world = get_world("KeyDoor")
    assert copy.deepcopy(world) is world
    assert pickle.loads(pickle.dumps(world)) is world


def test_unknown_layout():
    with pytest.raises(ValueError, match=r"layout must be one of KeyDoor, .*got 'Maze'"):
        get_world("Maze")
