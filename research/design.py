"""What all studies are made of: methods by their names in tables, arms, cells, and questions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "raw": ("none", {}),
    "PIES": ("pies", {}),
    "GRM": ("grm", {}),
    "GRM-norm": ("grm-norm", {}),
    "PBIM": ("pbim", {}),
    "PBIM-norm": ("pbim-norm", {}),
    "ADOPS": ("adops", {}),
    "ADOPES": ("adopes", {}),
    "ADOPES F/2": ("adopes-half", {}),
    "gated ADOPS": ("adops-gated", {}),
    "ADOPS on A": ("none", {"clamp_advantage": "True"}),
    "guarded": ("guarded", {}),
    "no bonus": ("none", {"bonus": "none"}),
}
"""Each method's value of --shaping and its settings of ppo_rnd.py."""


@dataclass(frozen=True)
class Cell:
    """One run: a method, a seed and the settings of ppo_rnd.py that differ from its defaults."""

    method: str
    seed: int
    varied: tuple[tuple[str, str], ...] = ()
    """Settings that tell cells apart; they are part of the name."""
    fixed: tuple[tuple[str, str], ...] = ()
    """Settings that all cells of the sweep share."""

    @property
    def name(self) -> str:
        """Name of the run directory; it depends only on this cell's own settings."""
        settings = [f"{name}={value}".replace("/", "-") for name, value in self.varied]
        return "__".join([self.method, *settings, f"seed{self.seed}"])

    @property
    def configuration(self) -> Cell:
        """This cell with the seed 1: equal for all cells of one configuration."""
        return dataclasses.replace(self, seed=1)

    def flags(self) -> list[str]:
        """Return the command line of ppo_rnd.py, without the run directory."""
        flags = ["--shaping", self.method, "--seed", str(self.seed)]
        for name, value in (*self.fixed, *self.varied):
            flag = name.replace("_", "-")
            if value in ("True", "False"):
                flags.append(f"--{flag}" if value == "True" else f"--no-{flag}")
            else:
                flags += [f"--{flag}", value]
        return flags


def tidy(value: str) -> str:
    """Normalise a value, so that 1e-2 and 0.01 are the same cell."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return repr(kind(value))
    return {"true": "True", "false": "False"}.get(value.lower(), value)


def tidy_pairs(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return settings as a cell holds them."""
    return tuple((name, tidy(value)) for name, value in settings.items())


class Arm(NamedTuple):
    """One configuration of ppo_rnd.py in a study; its runs differ only in their seeds."""

    task: str
    name: str
    seeds: int
    """How many runs it has."""
    method: str
    varied: tuple[tuple[str, str], ...]
    fixed: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls,
        task: str,
        name: str,
        seeds: int,
        method: str,
        varied: Mapping[str, str],
        fixed: Mapping[str, str],
    ) -> Arm:
        """Return an arm; settings that vary win over fixed ones."""
        rest = {key: value for key, value in fixed.items() if key not in varied}
        return cls(task, name, seeds, method, tidy_pairs(varied), tidy_pairs(rest))

    def cell(self, seed: int) -> Cell:
        """Return one run."""
        return Cell(self.method, seed, self.varied, self.fixed)


class HasSeeds(Protocol):
    """An arm of any study."""

    @property
    def seeds(self) -> int:
        """How many runs it has."""


AnyArm = TypeVar("AnyArm", bound=HasSeeds)


def in_rounds(
    groups: Sequence[Sequence[AnyArm]], rounds: Sequence[int]
) -> Iterator[tuple[AnyArm, int]]:
    """Yield every arm with each of its seeds from 1 on, so that a part of a study is balanced.

    In each round all groups, one after the other, run their seeds up to the round's number.
    """
    for first, last in pairwise((0, *rounds)):
        for group in groups:
            for seed in range(first + 1, last + 1):
                yield from ((arm, seed) for arm in group if seed <= arm.seeds)


class Question(NamedTuple):
    """A comparison fixed before the runs: is one arm higher in a metric?"""

    id: str
    claim: str
    env: str
    better: str
    worse: str
    metric: str = "final_return"
    """One of `METRICS`; of solved runs the shares are compared, of all else the means."""
    round: str = ""
    """Questions of one round were asked at the same time, and are corrected together."""

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> Question:
        """Return the question that a study.json holds."""
        return cls(**{name: texts[name] for name in cls._fields if name in texts})


METRICS = {
    "final_return": "final return",
    "mean_return": "mean return over all of training",
    "fall": "return in the middle of training minus that at its end",
    "action_prob": "final probability of the actions taken",
    "solved": "share of solved runs",
}
"""What a question can compare, in words."""
