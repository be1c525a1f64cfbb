"""What a run says while it goes on: its progress and time, its warnings, how long it will take."""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import torch
from torch import nn
from tqdm import tqdm  # type: ignore[import-untyped]

from adops_wrappers.inspect.findings import HELP, Finding
from adops_wrappers.inspect.run_diagnosis import diagnose_run, summarize_run
from adops_wrappers.inspect.runs import Metrics
from adops_wrappers.training.args import ScriptArgs
from adops_wrappers.training.encoding import Encoder

P = ParamSpec("P")
R = TypeVar("R")


class Clock:
    """Measures the parts of an iteration, in seconds."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start an iteration."""
        self._began = self._lap = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def lap(self, part: str) -> None:
        """Add the time since the last lap to a part."""
        now = time.perf_counter()
        self._seconds[part] += now - self._lap
        self._lap = now

    def timed(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, with the time of its calls added to a part."""

        @functools.wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._seconds[part] += time.perf_counter() - started

        return measured

    def __getitem__(self, part: str) -> float:
        """Return the seconds of a part in this iteration."""
        return self._seconds[part]

    @property
    def total(self) -> float:
        """The seconds since this iteration began."""
        return time.perf_counter() - self._began

    def metrics(self, steps: int) -> dict[str, float | None]:
        """Return the speed of an iteration of so many steps, and where its time went."""
        return {
            "charts/SPS": steps / self.total,
            "time/env": self["rollout"] - self["forward"] - self["bonus"],
            "time/forward": self["forward"],
            "time/bonus": self["bonus"],
            "time/update": self["update"],
        }


class ProgressBar:
    """A progress bar in a terminal; elsewhere a line every half minute.

    Args:
        done: Iterations that are already done.
        total: Iterations of the whole run.
        mute: Whether to hide the bar; None shows it in a terminal only.
    """

    def __init__(self, done: int, total: int, mute: bool | None = None) -> None:
        self.done, self.total = done, total
        self._bar = tqdm(total=total, initial=done, unit="it", disable=mute, smoothing=0.05)
        self._began = self._said = time.perf_counter()

    def show(self, iteration: int, speed: float | None, score: float | None) -> None:
        """Report an iteration: steps per second and the return of recent episodes."""
        state = f"SPS {speed:.0f}, return {'-' if score is None else f'{score:.3g}'}"
        self._bar.set_postfix_str(state, refresh=False)
        self._bar.update()
        now = time.perf_counter()
        # tqdm itself would write one line without end to a log file.
        if self._bar.disable and now - self._said > 30.0:
            self._said = now
            left = (now - self._began) / (iteration - self.done) * (self.total - iteration)
            print(
                f"iteration {iteration}/{self.total}, {state}, {left / 60:.1f} min left", flush=True
            )

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line)
        sys.stdout.flush()

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        self._bar.close()


class Watch:
    """Says each warning once, and at the end what the report of the run says.

    Args:
        metrics: The iterations that are already done; those to come are appended to it.
        total: Iterations of the whole run. It is looked at a hundred times.
        say: Prints a line.
    """

    def __init__(self, metrics: Metrics, total: int, say: Callable[[str], None]) -> None:
        self._metrics, self._say = metrics, say
        self._every = max(1, total // 100)
        self._said: set[str] = set()

    def add(self, row: Mapping[str, float | None]) -> None:
        """Take an iteration, and say which warnings are new."""
        self._metrics.append(row)
        iteration = len(self._metrics)
        if iteration % self._every == 0:
            for warning in self._warnings():
                if warning.title not in self._said:
                    self._say(f"Iteration {iteration}: warning: {warning.title}. {warning.text}")
                self._said.add(warning.title)

    def summarize(self) -> None:
        """Say how the run went, and every warning that holds now."""
        if not len(self._metrics):
            return
        for line in summarize_run(self._metrics):
            self._say(line)
        warnings = self._warnings()
        for warning in warnings:
            self._say(f"Warning: {warning.title}. {warning.text}")
        if warnings:
            self._say(HELP)

    def _warnings(self) -> list[Finding]:
        return [finding for finding in diagnose_run(self._metrics) if finding.kind == "warning"]


def announce_duration(
    args: ScriptArgs, num_envs: int, agent: nn.Module, predictor: nn.Module | None, encoder: Encoder
) -> None:
    """Estimate from one trial minibatch how long the run takes on this machine, and print it.

    Args:
        args: The script's settings.
        num_envs: The envs of this process.
        agent: Maps features to logits and values.
        predictor: RND's predictor, if one is trained.
        encoder: Gives the shapes of the networks' inputs.
    """
    rows = num_envs * args.num_steps // args.num_minibatches
    for _ in range(2):  # the first pass also sets up the kernels
        started = time.perf_counter()
        stored = torch.zeros((rows, *encoder.shape), dtype=encoder.dtype)
        logits, values = agent(encoder.features(stored))
        (logits.sum() + values.sum()).backward()
        agent.zero_grad(set_to_none=True)
        if predictor is not None:
            predictor(torch.zeros((rows, *encoder.rnd_shape))).sum().backward()
            predictor.zero_grad(set_to_none=True)
    # Learning takes about three quarters of an iteration.
    seconds = (time.perf_counter() - started) * args.update_epochs * args.num_minibatches / 0.75
    hours = seconds * args.total_iterations / 3600
    print(
        f"No GPU in use: {args.total_iterations} iterations will take about {hours:.0f} hours "
        f"({hours / 24:.1f} days) on this CPU, about {seconds:.0f} s each. For a shorter run, "
        "try --total-iterations 20 or an env without images: "
        "--env-id MiniGrid-DoorKey-5x5-v0 --total-iterations 60 --learning-rate 1e-3 "
        "--ent-coef 0.01 --obs-norm-init-iterations 2 takes about two minutes.",
        flush=True,
    )
