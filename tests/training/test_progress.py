from __future__ import annotations

import time
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch

from adops_wrappers.training import progress
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.progress import Clock, ProgressBar, announce_duration


def test_clock_gives_every_second_to_its_part(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work(seconds):
        now[0] += seconds
        return seconds

    clock = Clock()
    forward = clock.timed("forward", work)
    assert forward(2.0) == 2.0
    work(1.0)
    clock.lap("rollout")
    work(4.0)
    clock.lap("update")
    forward(0.5)
    assert (clock["rollout"], clock["update"], clock["forward"]) == (3.0, 4.0, 2.5)
    assert clock["bonus"] == 0.0
    assert clock.total == 7.5
    clock.restart()
    assert clock.total == clock["rollout"] == clock["forward"] == 0.0


def test_a_line_is_printed_every_half_minute_where_there_is_no_bar(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    shown = ProgressBar(10, 20, mute=True)
    for iteration in range(11, 15):
        now[0] += 20.0
        shown.show(iteration, 123.4, None if iteration < 14 else 0.5)
    shown.close()
    assert capsys.readouterr().out.splitlines() == [
        "iteration 12/20, SPS 123, return -, 2.7 min left",
        "iteration 14/20, SPS 123, return 0.5, 2.0 min left",
    ]


class Networks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(36 * 36 * 4, 3)

    def forward(self, features):
        logits = self.layer(features.flatten(1))
        return logits, logits[:, :2]


def test_duration_is_announced_without_a_trace(capsys):
    encoder = Encoder(gym.spaces.Box(0, 255, (4, 36, 36), np.uint8), "atari", torch.device("cpu"))
    agent = Networks()
    predictor = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36 * 36, 2))
    parameters = [*agent.parameters(), *predictor.parameters()]
    before, state = [p.clone() for p in parameters], torch.get_rng_state()
    args = SimpleNamespace(num_steps=8, num_minibatches=4, update_epochs=4, total_iterations=30_000)
    announce_duration(args, 2, agent, predictor, encoder)
    text = capsys.readouterr().out
    assert "30000 iterations will take about" in text
    assert "--env-id MiniGrid-DoorKey-5x5-v0" in text
    assert torch.equal(torch.get_rng_state(), state)
    for parameter, old in zip(parameters, before, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, old)
