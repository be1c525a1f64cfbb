"""Measures what a learned critic says in front of a noisy TV, and what ADOPS makes of it.

    python -m research.tv_critic --csv docs/data/tv_critic.csv

Trains ADOPS on KeyDoorTV with counts of three sizes and watches every step at which the agent stays
in front of the TV: the sign of A_E, how much of the bonus is left, and the sizes of V_E and V_I.
Every row of the file is one run, with medians over its updates. docs/mechanism.md explains them.
About five minutes on one core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import tyro
from tqdm import tqdm

from adops_wrappers.arrays import BoolArray
from adops_wrappers.shaping import Transition
from adops_wrappers.shaping.conflict import advantages, is_bad
from adops_wrappers.training.log import read_metrics
from adops_wrappers.training.run import Run
from research.design import Cell, tidy_pairs
from research.rows import Row, write_rows
from research.study import GRID_LEARNER
from train import ppo_rnd

SIZES = {
    "as is": {"normalize_intrinsic": "no"},
    "as is, ×0.1": {"normalize_intrinsic": "no", "intrinsic_scale": "0.1"},
    "unit size": {"normalize_intrinsic": "rms"},
}
IMAGE_BITS = 16
SOLVED = 0.5
FEWEST = 16
"""Steps in front of the TV that an update needs to count."""
COLUMNS = (
    *("bonus", "seed", "final_return", "tv_share", "called_bad", "bonus_left", "value_int"),
    *("value_ext", "signal", "noise", "correlation", "grad_norm"),
)


@dataclass
class Settings:
    """What to train."""

    csv: str = "tv_critic.csv"
    """file to write"""
    seeds: int = 5
    """runs of each size of the bonus"""
    iterations: int = 80
    """iterations of each run"""


class TVWatcher:
    """Looks at every step of training through the list of observers of a shaping wrapper."""

    needs_observations = True

    def __init__(self, steps: int, gamma: float) -> None:
        self.steps, self.gamma = steps, gamma
        self.rewarded = False
        self.updates: list[dict[str, float]] = []
        self.correlations: list[float] = []
        self._seen: list[tuple[Transition, BoolArray]] = []

    def reset(self, mask: BoolArray | None) -> None:
        """New episodes change nothing here."""

    def observe(self, transition: Transition) -> None:
        """Keep a step, and close an update after the last of its steps."""
        on_tv = [
            np.asarray(obs)[:, -IMAGE_BITS:].any(1)
            for obs in (transition.observation, transition.next_observation)
        ]
        stays = on_tv[0] & on_tv[1] & transition.valid
        self._seen.append((transition._replace(observation=None, next_observation=None), stays))
        self.rewarded |= bool(transition.reward.any())
        if len(self._seen) == self.steps:
            self._close()

    def _close(self) -> None:
        steps = [t for t, _ in self._seen]
        stays = np.stack([mask for _, mask in self._seen])
        fields = {
            name: np.stack([getattr(t, name) for t in steps])
            for name in ("intrinsic", "shaped", "value_ext", "value_int")
        }
        ext = np.stack(
            [advantages(t, gamma_ext=self.gamma, gamma_int=self.gamma).ext for t in steps]
        )
        self._seen.clear()
        if not self.rewarded:
            both = np.corrcoef(fields["value_ext"].ravel(), fields["value_int"].ravel())
            self.correlations.append(float(both[0, 1]))
        if stays.sum() < FEWEST:
            return
        at_tv = {name: values[stays] for name, values in fields.items()}
        value_ext = float(at_tv["value_ext"].mean())
        self.updates.append(
            {
                "tv_share": float(stays.mean()),
                "called_bad": float(is_bad(ext[stays]).mean()),
                "bonus_left": float(at_tv["shaped"].sum() / at_tv["intrinsic"].sum()),
                "value_int": float(at_tv["value_int"].mean()),
                "value_ext": value_ext,
                "signal": (1.0 - self.gamma) * value_ext,
                "noise": float(ext[stays].std()),
            }
        )


class WatchedRun(Run):
    """A run of ppo_rnd.py with one more observer of its shaping wrapper."""

    watcher: TVWatcher

    def restore(self, stack: Any) -> bool:
        """Let the watcher see every step that follows."""
        stack.core.join(self.watcher)
        return super().restore(stack)


def measure(size: str, seed: int, iterations: int) -> Row:
    """Train once and return the run's row."""
    with tempfile.TemporaryDirectory() as folder:
        learner = {**GRID_LEARNER, "total_iterations": str(iterations), "checkpoint_every": "0"}
        settings = {"env_id": "adops/KeyDoorTV-v0", **learner, **SIZES[size], "torch_threads": "1"}
        flags = Cell("adops", seed, tidy_pairs(settings)).flags()
        args = ppo_rnd.parse_args([*flags, "--run-dir", f"{folder}/run"])
        watcher = TVWatcher(args.num_steps, args.gamma_ext)
        run = WatchedRun(args, ppo_rnd.__file__, ppo_rnd.method_name(args))
        run.watcher = watcher
        with run:
            ppo_rnd.learn(args, run)
        metrics = read_metrics(run.path)
    final = [float(value) for value in metrics["charts/episodic_return"][-10:] if value]
    row = {"final_return": float(np.mean(final))}
    for name in COLUMNS[3:-2]:
        row[name] = median([update[name] for update in watcher.updates] or [np.nan])
    row["correlation"] = median(watcher.correlations or [np.nan])
    row["grad_norm"] = median(map(float, metrics["losses/grad_norm"]))
    shown = {name: f"{row[name]:.4g}" for name in COLUMNS[2:]}
    return {"bonus": size, "seed": str(seed), **shown}


LINES = {
    "share of steps in front of the TV": ("tv_share", "{:.0%}"),
    "steps there at which $A_E < 0$": ("called_bad", "{:.0%}"),
    "share of the bonus that ADOPS leaves there": ("bonus_left", "{:.0%}"),
    "$V_I$ there": ("value_int", "{:.2g}"),
    "$V_E$ there": ("value_ext", "{:.2g}"),
    "signal $(1 - \\gamma) \\lvert V_E \\rvert$": ("signal", "{:.1g}"),
    "noise of $\\delta_E$ there": ("noise", "{:.1g}"),
    "size of the correlation of $V_E$ and $V_I$ before the first reward": ("correlation", "{:.2f}"),
    "gradient norm, which is clipped at 0.5": ("grad_norm", "{:.2g}"),
}
"""The rows of the table: column and format."""


def table(rows: Sequence[Row]) -> list[str]:
    """Return the medians over seeds as the lines of a Markdown table; "–" where nobody stayed."""
    own = {size: [row for row in rows if row["bonus"] == size] for size in SIZES}
    lines = [f"| counts | {' | '.join(SIZES)} |", f"| --- |{' ---: |' * len(SIZES)}"]
    solved = [
        f"{sum(float(row['final_return']) >= SOLVED for row in rows)} of {len(rows)}"
        for rows in own.values()
    ]
    lines.append(f"| solved | {' | '.join(solved)} |")
    for text, (name, form) in LINES.items():
        cells = []
        for runs in own.values():
            values = [float(row[name]) for row in runs]
            if name in ("signal", "correlation"):
                values = [abs(value) for value in values]
            present = [value for value in values if not np.isnan(value)]
            cell = form.format(median(present)) if present else "–"
            cells.append(cell.replace("%", " %").replace("-", "−"))
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


def main(settings: Settings) -> None:
    """Train all runs, write the file and print the table."""
    torch.set_num_threads(1)
    cells = [(size, seed) for size in SIZES for seed in range(1, settings.seeds + 1)]
    rows = [measure(size, seed, settings.iterations) for size, seed in tqdm(cells, "runs")]
    write_rows(Path(settings.csv), rows)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
