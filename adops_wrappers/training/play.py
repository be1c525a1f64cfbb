"""Playing and filming an episode with a trained policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch

from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import MONTEZUMA
from adops_wrappers.training.statistics import room_of

Policy = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Maps an encoder's features to logits and values."""


class Episode(NamedTuple):
    """One episode of evaluation."""

    score: float
    length: int
    rooms: set[int]
    """The rooms visited in Montezuma's Revenge."""
    frames: list[npt.NDArray[np.uint8]]


def play_episode(
    agent: Policy,
    encoder: Encoder,
    env: gym.Env[Any, Any],
    seed: int,
    greedy: bool = False,
    film: bool = False,
) -> Episode:
    """Play one episode, with a generator of its own that leaves training undisturbed."""
    generator = torch.Generator().manual_seed(seed)
    has_rooms = env.spec is not None and env.spec.kwargs.get("game") == MONTEZUMA
    first: int = getattr(env.action_space, "start", 0)
    obs, _ = env.reset(seed=seed)
    score, length, ended = 0.0, 0, False
    rooms: set[int] = set()
    frames: list[Any] = []
    while not ended:
        if film:
            frames.append(env.render())
        with torch.inference_mode():
            logits, _ = agent(encoder.features(encoder.encode(np.asarray(obs)[None])))
            probs = logits.float().softmax(-1).cpu()
            choice = probs.argmax() if greedy else torch.multinomial(probs, 1, generator=generator)
        obs, reward, terminated, truncated, _ = env.step(int(choice) + int(first))
        if has_rooms:
            rooms.add(room_of(env))
        score, length, ended = score + float(reward), length + 1, terminated or truncated
    return Episode(score, length, rooms, frames)


def write_video(frames: list[npt.NDArray[np.uint8]], path: Path, fps: float = 30) -> None:
    """Write frames as an mp4."""
    from moviepy.video.io.ImageSequenceClip import (  # type: ignore[import-untyped]
        ImageSequenceClip,
    )

    path.parent.mkdir(parents=True, exist_ok=True)
    ImageSequenceClip(frames, fps=fps).write_videofile(str(path), logger=None)
