"""Records how the agent of a run plays: rewards, bonus, values and pictures of every step.

    python train/record.py RUN_DIR --steps 1000
    python -m adops_wrappers.inspect RUN_DIR --out report.html

Plays one env with the newest checkpoint's policy, critic, bonus and shaping method, all of them
frozen, and writes RUN_DIR/recording.npz, which the report finds there.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from ppo_rnd import (
    Agent,
    Answer,
    Encoder,
    ExtrinsicReward,
    RNDBonus,
    env_kind,
    fail,
    from_plain,
    load_checkpoint,
    make_env,
    make_rnd_networks,
    no_bonus,
)

from adops_wrappers import CountBonus, CriticHandle, IntrinsicReturnNormalizer, evaluation_mode
from adops_wrappers.inspect import Recording, ShapingRecorder


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
    """keep small pictures of what happened"""
    frame_size: int = 84
    """most pixels of a picture's longer side"""


def script_of(run: str) -> ModuleType:
    """Return the script that made the run: its settings and its wrapper stack are its own."""
    try:
        name = Path(json.loads((Path(run) / "config.json").read_text())["script"]).stem
    except (OSError, ValueError, KeyError) as error:
        fail(f"{run} has no config.json that names its script: {error}")
    path = Path(__file__).with_name(f"{name}.py")
    if not path.is_file():
        fail(f"{run} was made by {name}.py, which is not beside this script.")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def saved_state(run: str, script: ModuleType) -> tuple[Any, dict[str, Any]]:
    """Return the settings and the newest checkpoint of a run, for one env."""
    checkpoint = load_checkpoint(Path(run))
    if checkpoint is None:
        fail(f"{run} has no checkpoint. Give a directory that a run has left.")
    # What ranks share is the same in each: the scale of F and zeta.
    state = {**checkpoint[0], **checkpoint[0]["ranks"][0]}
    known = {f.name for f in dataclasses.fields(script.Args)}
    args = script.Args(**{name: value for name, value in state["args"].items() if name in known})
    return dataclasses.replace(args, num_envs=1), state


def rebuild_source(
    args: Any, encoder: Encoder, state: dict[str, Any]
) -> tuple[Any, IntrinsicReturnNormalizer | None]:
    """Return the run's bonus and its scale, as they were at the checkpoint."""
    saved = from_plain(state["source"])
    normalizer = None
    if saved["normalizer"] is not None:
        normalizer = IntrinsicReturnNormalizer(1, gamma=args.gamma_int, update="manual")
        normalizer.load_state_dict({**saved["normalizer"], "returns": np.zeros(1)})
    if args.bonus == "count":
        source: Any = CountBonus()
        source.load_state_dict(saved["source"])
        return source, normalizer
    if args.bonus == "none":
        return no_bonus, normalizer
    target, predictor = make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
    target.load_state_dict(state["networks"]["target"])
    predictor.load_state_dict(state["networks"]["predictor"])
    source = RNDBonus(encoder, target, predictor, 1, 1, {"bonus": 0.0})
    source.whitening.load_state_dict(state["whitening"])
    return source, normalizer


def record(settings: RecordArgs) -> Recording:
    """Play, and return what was recorded."""
    if settings.steps < 1:
        fail(f"--steps must be at least 1, got {settings.steps}.")
    script = script_of(settings.run)
    args, state = saved_state(settings.run, script)
    kind = env_kind(args.env_id)
    render_mode = "rgb_array" if settings.frames else None
    base = SyncVectorEnv(
        [partial(make_env, args, kind, render_mode)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    scale = args.reward_scale or (0.001 if kind == "atari" else 1.0)
    encoder = Encoder(base.single_observation_space, kind, torch.device("cpu"), pin=False)
    agent = Agent(encoder.shape, int(base.single_action_space.n), args.mlp_hidden)
    agent.load_state_dict(state["networks"]["agent"])
    agent.to(memory_format=torch.channels_last).eval()

    def evaluate(obs: np.ndarray) -> Answer:
        with torch.inference_mode():
            stored = encoder.encode(obs)
            logits, values = agent(encoder.features(stored))
            value_ext, value_int = values.numpy().T
        return Answer(value_ext, value_int, logits, stored)

    critic = CriticHandle(evaluate)
    source, normalizer = rebuild_source(args, encoder, state)
    stack = script.wrap_stack(args, ExtrinsicReward(base, scale, False), source, normalizer, critic)
    saved = from_plain(state["shaping"])["shaper"]
    if "ticks" in saved:  # zeta; debts and means belong to the episodes of the run
        stack.shaper.load_state_dict({"ticks": saved["ticks"]})
    envs = ShapingRecorder(
        stack,
        settings.out or Path(settings.run) / "recording.npz",
        critic,
        frames="render" if settings.frames else None,
        frame_size=settings.frame_size,
        # The clamp has its own discounts; for other methods the learner's are recorded.
        **(
            {}
            if stack.core.shaper.name in ("ADOPS", "ADOPES")
            else {
                "gamma_ext": args.gamma_ext,
                "gamma_int": args.gamma_int,
                "int_bootstrap": args.int_bootstrap,
            }
        ),
    )
    generator = torch.Generator().manual_seed(settings.seed)
    first = int(base.single_action_space.start)
    with evaluation_mode(envs):
        obs, _ = envs.reset(seed=settings.seed)
        for _ in range(settings.steps):
            probabilities = critic(obs).logits.softmax(-1)
            action = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
            obs, *_ = envs.step(action.numpy() + first)
        recording = envs.finish()
    envs.close()
    return recording


def main(settings: RecordArgs) -> None:
    """Record and say what was written."""
    torch.set_num_threads(1)
    recording = record(settings)
    print(settings.out or Path(settings.run) / "recording.npz")
    print(recording)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(RecordArgs, description=__doc__)))
