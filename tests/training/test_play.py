from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.play import play_episode, write_video


@pytest.fixture
def lake():
    env = gym.make("FrozenLake-v1", is_slippery=False, render_mode="rgb_array")
    yield env
    env.close()


def right_then_down(features):
    """Walk down the left side, then right: 4, 8, 9, 13, 14, 15 on the lake's map."""
    cell = int(features.argmax())
    logits = torch.zeros(1, 4)
    logits[0, 2 if cell in (8, 13, 14) else 1] = 50.0
    return logits, torch.zeros(1, 2)


def test_an_episode_has_score_length_and_a_picture_of_each_step(lake):
    encoder = Encoder(lake.observation_space, "other", torch.device("cpu"))
    episode = play_episode(right_then_down, encoder, lake, 3, greedy=True, film=True)
    assert (episode.score, episode.length, episode.rooms) == (1.0, 6, set())
    assert len(episode.frames) == 6
    assert episode.frames[0].dtype == np.uint8


def test_playing_draws_from_a_generator_of_its_own(lake):
    encoder = Encoder(lake.observation_space, "other", torch.device("cpu"))

    def uniform(features):
        return torch.zeros(1, 4), torch.zeros(1, 2)

    state = torch.get_rng_state()
    episodes = [play_episode(uniform, encoder, lake, seed) for seed in (0, 0, 1, 2, 3)]
    assert torch.equal(torch.get_rng_state(), state)
    assert episodes[0] == episodes[1]
    assert len({episode.length for episode in episodes}) > 1


def test_video_is_an_mp4(tmp_path):
    pytest.importorskip("moviepy")
    frames = [np.full((16, 16, 3), 20 * i, dtype=np.uint8) for i in range(4)]
    write_video(frames, tmp_path / "videos" / "out.mp4")
    assert (tmp_path / "videos" / "out.mp4").read_bytes()[4:8] == b"ftyp"
