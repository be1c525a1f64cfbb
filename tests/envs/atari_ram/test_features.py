"""What the RAM says, read once more by hand, and events of the game that move the named bytes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from adops_wrappers import CountBonus
from adops_wrappers.envs import montezuma_key
from adops_wrappers.envs.atari_ram import montezuma
from tests.envs.atari_ram.walk import WALK

pytest.importorskip("ale_py")

ID = "adops/MontezumaRam-v0"


def bits_of(byte):
    return [byte >> place & 1 for place in range(7, -1, -1)]


def part_of(obs, name):
    starts = np.cumsum([0, *montezuma.PARTS.values()])
    names = list(montezuma.PARTS)
    return obs[starts[names.index(name)] : starts[names.index(name) + 1]].tolist()


@pytest.fixture(scope="module")
def walk():
    """The RAM, observation, reward and info of every step of the walk."""
    env = gym.make(ID, repeat_action_probability=0.0)
    obs, info = env.reset(seed=0)
    steps = [(env.unwrapped.ale.getRAM(), obs, 0.0, info)]
    for action in WALK:
        obs, reward, terminated, truncated, info = env.step(action)
        assert not terminated
        assert not truncated
        steps.append((env.unwrapped.ale.getRAM(), obs, reward, info))
    return steps


def test_observation_names_what_the_ram_holds(walk):
    assert walk[0][1].shape == (sum(montezuma.PARTS.values()),)
    for ram, obs, *_ in walk[::7]:
        ram = ram.tolist()
        assert part_of(obs, "room") == [float(room == ram[3]) for room in range(24)]
        expected = [bit for byte in montezuma.BYTES.values() for bit in bits_of(ram[byte])]
        assert part_of(obs, "bits") == expected
        x, y = ram[42], ram[43]
        place = np.float32([x / 255, y / 255, x % 16 / 16, y % 16 / 16]).tolist()
        assert part_of(obs, "position") == place
        assert part_of(obs, "bytes") == np.float32([byte / 255 for byte in ram]).tolist()


def test_any_other_game_shows_bytes_and_bits():
    env = gym.make("adops/AtariRam-v0", game="breakout")
    obs, info = env.reset(seed=0)
    for action in (1, 2, 3, 0, 2, 2):
        assert obs.shape == (1152,)
        ram = env.unwrapped.ale.getRAM().tolist()
        assert obs[:128].tolist() == np.float32([byte / 255 for byte in ram]).tolist()
        assert obs[128:].tolist() == [bit for byte in ram for bit in bits_of(byte)]
        assert info == {"lives": 5, "score": 0}
        obs, *_, info = env.step(action)
    assert env.unwrapped.count_key is None
    assert env.action_space.n == 4


def test_rewards_items_and_rooms_follow_the_walk(walk):
    infos = [info for *_, info in walk]
    paid = [(reward, info["room"], info["items"]) for _, _, reward, info in walk if reward]
    key, sword = 0b10, 0b100000
    assert paid == [(100.0, 1, key), (300.0, 1, 0), (100.0, 6, sword)]
    assert list(dict.fromkeys(info["room"] for info in infos)) == [1, 2, 6]
    assert [info["rooms"] for info in infos] == [
        len({info["room"] for info in infos[: i + 1]}) for i in range(len(infos))
    ]
    assert infos[-1] == {
        "lives": 6,
        "score": 500,
        "room": 6,
        "x": walk[-1][0][42],
        "y": walk[-1][0][43],
        "items": sword,
        "rooms": 3,
    }


def test_score_is_that_of_the_screen(walk):
    for ram, _, _, info in walk:
        assert info["score"] == int(bytes(ram[19:22]).hex())  # decimal digits, two in a byte


def test_bytes_are_what_they_are_called(walk):
    def byte(number, room):
        return np.array([int(ram[number]) for ram, *_, info in walk if info["room"] == room])

    assert (walk[0][0][42], walk[0][0][43]) == (77, 235)  # the start: in the middle, at the top
    # x grows to the right: out of the room at the right door, in at the left of the next.
    first, second = byte(42, 1), byte(42, 2)
    assert first[-1] > 140
    assert second[0] < 10
    # y grows upwards: down the ladder of room 2 into room 6.
    assert byte(43, 2)[-1] < 150
    assert byte(43, 6)[0] > 250
    skull = byte(47, 1)
    assert np.abs(np.diff(skull)).max() <= 4
    assert skull.min() < 30 < 60 < skull.max()
    hopping = byte(45, 2)  # two skulls that jump
    assert hopping.max() - hopping.min() > 20
    left = [int(ram[66]) for ram, *_, info in walk if info["room"] == 1]
    # The key, then the door on the right, are no longer in the room.
    assert list(dict.fromkeys(left)) == [0b1111, 0b1110, 0b1010]


def test_key_is_room_place_in_eights_and_items(walk):
    for ram, obs, *_ in walk:
        ram = ram.tolist()
        assert montezuma_key(obs) == bytes([ram[3], ram[42] // 8, ram[43] // 8, ram[65]])


def test_key_reads_every_byte_without_rounding():
    dynamics = gym.make(ID).unwrapped.dynamics
    ram = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 128, axis=1)
    keys = [montezuma_key(obs) for obs in dynamics.encode(ram)]
    assert keys == [bytes([byte, byte // 8, byte // 8, byte]) for byte in range(256)]


def test_env_offers_its_key_to_counts():
    envs = gym.make_vec(ID, num_envs=3)
    obs, _ = envs.reset(seed=0)
    bonus = CountBonus(key=envs.unwrapped.count_key)
    found = bonus(obs, np.zeros(3, int), obs, valid=np.ones(3, bool))
    assert found.tolist() == (1 / np.sqrt([1, 2, 3])).tolist()
    assert bonus.counts == {bytes([1, 77 // 8, 235 // 8, 0]): 3}
    assert gym.make(ID).unwrapped.count_key is envs.unwrapped.count_key
