"""Plays episodes with the policy of a run and prints the extrinsic return.

    python train/evaluate.py RUN_DIR --episodes 20 --video out.mp4

Takes the newest of model.pt and the checkpoints of RUN_DIR, or one such file. Weights are
loaded without running any code that a file from elsewhere may carry.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from adops_wrappers.training.args import EnvArgs
from adops_wrappers.training.checkpoint import load_model
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import current_id, env_kind, make_env, refuse_import
from adops_wrappers.training.exit import fail
from adops_wrappers.training.play import play_episode, write_video
from train.ppo_rnd import Agent


@dataclass
class Evaluation:
    """Settings of one evaluation."""

    run: Annotated[str, tyro.conf.Positional]
    """run directory, or a model.pt or state.pt file"""
    episodes: int = 10
    """number of episodes"""
    seed: int = 1_000
    """seed of the first episode; each further episode adds 1"""
    greedy: bool = False
    """take the most probable action instead of sampling"""
    video: str = ""
    """write the first episode to this mp4 file (needs moviepy)"""
    env_id: str = ""
    """play a different env from the one the run was trained on"""
    import_env: bool = False
    """allow importing the module that the file's env_id names, as in module:Env-v0"""


def find_weights(run: str) -> tuple[Path, dict[str, Any]]:
    """Return the newest file with undamaged weights, and what it holds."""
    path = Path(run)
    files = [path]
    if not path.is_file():
        files = sorted(path.glob("checkpoints/[0-9]*/state.pt"), reverse=True)
        model = path / "model.pt"
        if model.is_file():
            newer = not files or model.stat().st_mtime >= files[0].stat().st_mtime
            files.insert(0 if newer else len(files), model)
    for file in files:
        try:
            return file, load_model(file)
        except (OSError, ValueError) as error:
            if file is files[-1]:
                fail(str(error))
            print(f"{error}; trying the one before.")
    fail(f"{run} has neither model.pt nor a checkpoint. Name the directory of a run.")


def main(settings: Evaluation) -> None:
    """Play and report."""
    torch.set_num_threads(1)
    if settings.episodes < 1:
        fail(f"--episodes must be at least 1, got {settings.episodes}.")
    if settings.video and importlib.util.find_spec("moviepy") is None:
        fail("--video needs moviepy: pip install moviepy")
    path, saved = find_weights(settings.run)
    known = {f.name for f in dataclasses.fields(EnvArgs)}
    args = EnvArgs(**{name: value for name, value in saved["args"].items() if name in known})
    if settings.env_id:
        args.env_id = current_id(settings.env_id)
    elif not settings.import_env:
        refuse_import(args.env_id, path)
    kind = env_kind(args.env_id)
    env = make_env(args, kind, "rgb_array" if settings.video else None)
    encoder = Encoder(env.observation_space, kind, torch.device("cpu"))
    agent = Agent(encoder.shape, int(env.action_space.n), saved["args"]["mlp_hidden"])
    try:
        agent.load_state_dict(saved["agent"])
    except RuntimeError as error:
        fail(f"the weights in {path} do not fit {args.env_id}: {error}")
    agent.to(memory_format=torch.channels_last).eval()

    scores, lengths, rooms = [], [], set()
    for number in range(settings.episodes):
        film = bool(settings.video) and number == 0
        episode = play_episode(
            agent, encoder, env, settings.seed + number, settings.greedy, film=film
        )
        scores.append(episode.score)
        lengths.append(episode.length)
        rooms |= episode.rooms
        if film:
            write_video(episode.frames, Path(settings.video))
    env.close()

    error = np.std(scores, ddof=1) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
    print(f"{path}, {args.env_id}, {len(scores)} episodes")
    print(f"extrinsic return {np.mean(scores):.4g} ± {error:.2g} (standard error)")
    print(f"episode length {np.mean(lengths):.1f}")
    if rooms:
        print(f"rooms visited {len(rooms)}: {sorted(rooms)}")
    if settings.video:
        print(f"video {settings.video}")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Evaluation, description=__doc__)))
