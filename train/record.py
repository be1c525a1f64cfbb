"""Records how the agent of a run plays: rewards, bonus, values and pictures of every step.

    python train/record.py RUN_DIR --steps 1000
    python -m adops_wrappers.inspect RUN_DIR --out report.html

Plays one env with the newest checkpoint's policy, critic, bonus and shaping method, all of them
frozen, and writes RUN_DIR/recording.npz, which the report finds there.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import tyro
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import evaluation_mode
from adops_wrappers.evaluation import load_learned
from adops_wrappers.inspect import Recording, ShapingRecorder
from adops_wrappers.training import checkpoint
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import count_key, env_kind, make_env, refuse_import
from adops_wrappers.training.exit import fail
from adops_wrappers.training.progress import Clock
from adops_wrappers.training.rundir import read_config
from adops_wrappers.training.statistics import with_statistics


@dataclass
class RecordArgs:
    """Settings of one recording."""

    run: Annotated[str, tyro.conf.Positional]
    """run directory"""
    steps: int = 1000
    """number of steps"""
    seed: int = 1_000
    """seed of the env and of the actions"""
    out: str = ""
    """file to write; empty: RUN_DIR/recording.npz"""
    frames: bool = True
    """keep a small picture of every step"""
    frame_size: int = 84
    """largest size of a picture's longer side, in pixels"""
    import_env: bool = False
    """allow importing the module that the run's env_id names, as in module:Env-v0"""


def script_of(run: str) -> ModuleType:
    """Return the script that made the run: its settings, networks and stack are its own."""
    try:
        name = Path(read_config(Path(run))["script"]).stem
    except (OSError, ValueError, KeyError) as error:
        fail(f"{run} has no config.json that names its script: {error}")
    if not Path(__file__).with_name(f"{name}.py").is_file():
        fail(f"{run} was made by {name}.py, which is not beside this script.")
    return importlib.import_module(f"train.{name}")


def make_stack(settings: RecordArgs) -> tuple[Any, Any, Any]:
    """Return the run's settings, its learner and its wrapper stack, for one env."""
    script = script_of(settings.run)
    found = checkpoint.load(Path(settings.run))
    if found is None:
        fail(f"{settings.run} has no checkpoint. Name the directory of a run.")
    args = script.Args(**found.state["args"])
    args = dataclasses.replace(args, num_envs=1, amp=False, compile=False)
    if not settings.import_env:
        refuse_import(args.env_id, Path(settings.run))
    kind = env_kind(args.env_id)
    render_mode = "rgb_array" if settings.frames else None
    base = SyncVectorEnv(
        [partial(make_env, args, kind, render_mode)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    encoder = Encoder(
        base.single_observation_space, kind, torch.device("cpu"), count_key=count_key(base)
    )
    learner = script.Learner(args, encoder, int(base.single_action_space.n), 1, Clock())
    for name, part in learner.parts.items():
        part.load_state_dict(found.state["shared"][name])
    learner.agent.eval()
    statistics = with_statistics(base, args, kind, args.end_at_truncation)
    stack = script.wrap_stack(args, statistics, learner)
    # What ranks share is the same in each: the scale of F and zeta.
    load_learned(stack, checkpoint.from_plain(found.state["ranks"][0]["stack"]))
    return args, learner, stack


def record(settings: RecordArgs) -> Recording:
    """Play, and return what was recorded."""
    if settings.steps < 1:
        fail(f"--steps must be at least 1, got {settings.steps}.")
    args, learner, stack = make_stack(settings)
    # A method with discounts of its own is recorded with them, others with the learner's.
    streams = ("gamma_ext", "gamma_int", "int_bootstrap") if not stack.shaper.discounts else ()
    envs = ShapingRecorder(
        stack,
        settings.out or Path(settings.run) / "recording.npz",
        learner.critic,
        frames="render" if settings.frames else None,
        frame_size=settings.frame_size,
        **{name: getattr(args, name) for name in streams},
    )
    generator = torch.Generator().manual_seed(settings.seed)
    first = int(stack.single_action_space.start)
    with evaluation_mode(envs):
        obs, _ = envs.reset(seed=settings.seed)
        for _ in range(settings.steps):
            probabilities = learner.critic(obs).logits.softmax(-1)
            action = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
            obs, *_ = envs.step(action.numpy() + first)
        recording = envs.finish()
    envs.close()
    return recording


def main(settings: RecordArgs) -> None:
    """Record, and print what was written."""
    torch.set_num_threads(1)
    try:
        recording = record(settings)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    print(settings.out or Path(settings.run) / "recording.npz")
    print(recording)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(RecordArgs, description=__doc__)))
