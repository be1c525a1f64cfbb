"""What training asks of a GPU, counted on the simulated device of tests/device.

    python benchmarks/gpu_work.py
    python benchmarks/gpu_work.py --lines -- --shaping adops --num-envs 32 --pin-memory

Prints kernel launches, copies and waits per vector step, per minibatch and per iteration of
train/ppo_rnd.py; flags after `--` are the script's. Counts are exact; times need a real GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.device import simulated_gpu
from tests.device.commands import RUN
from tests.device.work import measure

COLUMNS = ("launches", "uploads", "downloads", "async_copies", "syncs")
FLAGS = (
    *("--num-envs", "8", "--num-steps", "16", "--total-iterations", "3", "--no-tensorboard"),
    *("--obs-norm-init-iterations", "1", "--checkpoint-every", "0"),
)


def main(lines: bool, flags: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = measure("ppo_rnd.py", *FLAGS, *flags, "--run-dir", Path(folder) / "run")
    print(f"\nppo_rnd.py {' '.join(flags)}\n")
    print(
        "| per | " + " | ".join(name.replace("_", " ") for name in COLUMNS) + " | KiB up | down |"
    )
    print("| --- |" + " ---: |" * (len(COLUMNS) + 2))
    for name, counts in work._asdict().items():
        cells = [f"{getattr(counts, column):,}" for column in COLUMNS]
        sizes = [f"{size / 1024:,.1f}" for size in (counts.upload_bytes, counts.download_bytes)]
        print(f"| {name.replace('_', ' ')} | {' | '.join([*cells, *sizes])} |")
    if lines:
        for name, counts in work._asdict().items():
            print(f"\nBy line, per {name.replace('_', ' ')}:")
            for line, times in counts.lines.most_common():
                print(f"  {times:6,} {line}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--lines", action="store_true", help="also list the lines that launch, copy or wait"
    )
    parser.add_argument("flags", nargs="*", help="flags of train/ppo_rnd.py, after --")
    settings = parser.parse_args()
    if not simulated_gpu.active():
        reason = simulated_gpu.unavailable()
        if reason:
            sys.exit(f"error: {reason}.")
        os.execv(sys.executable, [sys.executable, str(RUN), *sys.argv])
    main(settings.lines, settings.flags)
