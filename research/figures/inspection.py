"""Draws the pictures of docs/inspection.md into docs/images/.

    python -m research.figures.inspection                # all that need no trained agent
    python -m research.figures.inspection --run RUN_DIR  # and those of a run on Montezuma's Revenge

RUN_DIR holds a recording: `python train/record.py RUN_DIR --steps 1000 --frame-size 105`.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
from adops_wrappers.inspect import Recording, ShapingRecorder, plots, reshape
from adops_wrappers.inspect.runs import Run
from adops_wrappers.tabular import audit, ideal_critic
from research import ROOT

GAMMA = 0.99


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130, facecolor="white")
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


def record_gallery(folder: Path) -> Recording:
    """An agent that is hacked half of the time rings the bell beside the way to the goal."""
    env: Any = gym.make("adops/LoopFarm-v0", render_mode="rgb_array")
    mdp, bonus = env.unwrapped.to_mdp(GAMMA), env.unwrapped.tempting_bonus(0.3)
    state_of = env.unwrapped.state_of
    optimal = audit(mdp, bonus, "raw").optimal_after
    hacked = np.where(optimal, mdp.solve().q, np.inf).argmin(axis=1)
    oracle = ideal_critic(mdp, bonus, state_of=state_of)
    env = IntrinsicRewardWrapper(env, lambda s, a, after: bonus[state_of(s), a, state_of(after)])
    settings: dict[str, Any] = oracle.settings
    env = ADOPSWrapper(env, oracle, **settings)
    env = ShapingRecorder(env, folder / "farm.npz", oracle, frames="render", frame_size=120)
    rng = np.random.default_rng(0)
    for episode in range(8):
        obs, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            action = hacked[int(state_of(obs))] if rng.random() < 0.5 else rng.integers(4)
            obs, _, terminated, truncated, _ = env.step(int(action))
            ended = terminated or truncated
    recording: Recording = env.finish()
    return recording


def record_television(folder: Path) -> Recording:
    """An agent that the TV has caught watches it for 4,500 steps."""
    env: Any = gym.make("adops/TVCorridor-v0", horizon=4500)
    mdp, bonus = env.unwrapped.to_mdp(GAMMA), env.unwrapped.tempting_bonus()
    state_of = env.unwrapped.state_of
    oracle = ideal_critic(mdp, bonus, state_of=state_of)
    env = IntrinsicRewardWrapper(env, lambda s, a, after: bonus[state_of(s), a, state_of(after)])
    settings: dict[str, Any] = oracle.settings
    env = ADOPSWrapper(env, oracle, **settings)
    env = ShapingRecorder(env, folder / "tv.npz", oracle)
    env.reset(seed=0)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(3)
        ended = terminated or truncated
    recording: Recording = env.finish()
    return recording


@dataclass
class Args:
    """What to draw."""

    run: Path | None = None
    """a run directory with recording.npz"""
    out: Path = ROOT / "docs" / "images"
    """the folder"""


def main(given: Args) -> None:
    given.out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # PBIM's explosion is the point here
        farm = record_gallery(Path(folder))
        save(plots.plot_streams(farm), given.out / "inspect_streams.png")
        television = record_television(Path(folder))
        methods = ["none", "adops", "pbim", "pbim-norm", "grm", "grm-norm"]
        shaped = plots.plot_methods(television, reshape(television, methods))
        save(shaped, given.out / "inspect_methods.png")
    if given.run is not None:
        montezuma = Recording.load(given.run / "recording.npz")
        save(plots.plot_film_strip(montezuma, spacing=25), given.out / "inspect_film_montezuma.png")
        save(plots.plot_sign_plane(montezuma), given.out / "inspect_sign_plane_montezuma.png")
        save(plots.plot_training(Run(given.run)), given.out / "inspect_training_montezuma.png")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
