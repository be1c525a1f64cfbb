"""What all studies are made of: methods by the names of the tables, runs in order, questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class HasSeeds(Protocol):
    """An arm of a study; its runs differ only in their seeds."""

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
