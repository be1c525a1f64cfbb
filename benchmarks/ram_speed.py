"""How much of the emulator's own speed is left while an agent learns from RAM.

    taskset -c 0 python benchmarks/ram_speed.py

Alternates ALE alone (one emulator, random actions, frame skip 4, sticky actions) with
`train/ppo_rnd.py` on adops/MontezumaRam-v0: on the same core, with one thread, so that drift in
machine load affects both equally.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass

import ale_py
import numpy as np
import tyro

from adops_wrappers.training.log import read_metrics
from train import laptop, ppo_rnd


@dataclass
class Settings:
    """Settings of the benchmark."""

    rounds: int = 3
    """alternations"""
    seconds: float = 5.0
    """seconds of ALE alone in each round, half of them before the learner and half after"""
    iterations: int = 4
    """measured iterations of the learner in each round"""


def ale_speed(seconds: float) -> float:
    """Return the agent steps per second of one emulator alone."""
    emulator = ale_py.ALEInterface()
    emulator.setInt("frame_skip", 4)
    emulator.setFloat("repeat_action_probability", 0.25)
    emulator.loadROM(str(ale_py.roms.get_rom_path("montezuma_revenge")))
    actions = np.random.default_rng(0).integers(0, 18, 100_000).tolist()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        emulator.act(actions[steps % len(actions)])
        steps += 1
        if emulator.game_over():
            emulator.reset_game()
    return steps / (time.perf_counter() - started)


def learner_speed(iterations: int) -> float:
    """Return the steps per second of a run, its first iteration left out."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--run-dir", f"{folder}/run", "--total-iterations", str(iterations + 1)]
        quiet = ["--checkpoint-every", "0", "--no-tensorboard", "--torch-threads", "1"]
        run_dir = ppo_rnd.train(ppo_rnd.parse_args([*laptop.RECIPE, *flags, *quiet]))
        speeds = [float(cell) for cell in read_metrics(run_dir)["charts/SPS"][1:]]
    return statistics.harmonic_mean(speeds)


def main(settings: Settings) -> None:
    """Alternate, compare, print."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    rows = []
    for _ in range(settings.rounds):
        before = ale_speed(settings.seconds / 2)
        learner = learner_speed(settings.iterations)
        alone = statistics.harmonic_mean([before, ale_speed(settings.seconds / 2)])
        share = learner / alone
        rows.append((alone, learner, share))
        print(f"ALE alone {alone:.0f}, learner {learner:.0f} steps/s: {share:.0%}", flush=True)
    alone, learner, share = (statistics.median(column) for column in zip(*rows, strict=True))
    print(
        f"medians of {len(rows)} alternated rounds on one thread: ALE alone {alone:.0f}, learner "
        f"{learner:.0f} agent steps/s, {share:.0%}"
    )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
