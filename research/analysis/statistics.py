"""Statistics of arms: intervals, tests and comparisons."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from research.analysis.compact import Compact, mean_of
from research.analysis.labels import Label
from research.analysis.text import shown
from research.rows import Row

MIN_RUNS = 4
"""Fewest runs of an arm in a test: with three of each, Fisher's p is never below 0.1."""
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Arm:
    """All finished runs of one configuration on one env."""

    label: str
    rows: tuple[Row, ...]
    curves: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By curve: runs x points, NaN where no episode ended."""

    @functools.cached_property
    def finals(self) -> np.ndarray:
        """Final returns."""
        return self.values("final_return")

    @functools.cached_property
    def solved(self) -> np.ndarray:
        """Which runs have solved their task."""
        return np.asarray(self.values("solved") == 1.0)

    @property
    def env_steps(self) -> int:
        """Env steps of each run."""
        return int(self.rows[0]["env_steps"])

    @property
    def iterations(self) -> int:
        """Iterations of each run."""
        return int(self.rows[0]["iterations"])

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(self.finals)

    @property
    def bonus(self) -> str:
        """Kind of the bonus."""
        return self.rows[0]["bonus"]

    @property
    def solved_text(self) -> str:
        """Solved runs of all runs."""
        return f"{int(self.solved.sum())}/{self.count}"

    @property
    def mean(self) -> float:
        """Mean final return."""
        return float(self.finals.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single run."""
        return standard_error(self.finals)

    @property
    def mean_text(self) -> str:
        """Mean and standard error of the final return."""
        return mean_text(self.finals)

    def average(self, column: str) -> float:
        """Return the mean of a column of runs.csv."""
        return mean_of(self.values(column))

    def values(self, column: str) -> np.ndarray:
        """Return a column of runs.csv."""
        return np.array([float(row[column] or "nan") for row in self.rows])


Arms = dict[str, dict[str, Arm]]
"""By env and label."""


def load_arms(compact: Compact) -> Arms:
    """Sort the runs by env and arm."""
    return arms_of(compact.runs, compact.curves)


def arms_of(rows: Sequence[Row], curves: Mapping[str, Mapping[str, Sequence[str]]] = {}) -> Arms:
    """Sort runs by env and arm.

    Args:
        rows: A row for each run, with at least env, arm, final_return and solved.
        curves: By curve and run.
    """
    grouped: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        grouped[row["env"]][row["arm"]].append(row)

    def arm_of(label: str, own: Sequence[Row]) -> Arm:
        points = {
            name: np.array([[float(v or "nan") for v in runs[row["run"]]] for row in own])
            for name, runs in curves.items()
        }
        return Arm(label, tuple(own), points)

    return {
        env: {label: arm_of(label, own) for label, own in arms.items()}
        for env, arms in grouped.items()
    }


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    if len(values) < 2:
        return math.nan
    # Rounding must not give equal values a spread.
    return 0.0 if np.ptp(values) == 0.0 else float(values.std(ddof=1) / math.sqrt(len(values)))


def mean_text(values: np.ndarray) -> str:
    """Write a mean and its standard error."""
    mean = float(values.mean())
    error = shown(standard_error(values), 0 if abs(mean) >= 100.0 else 2)
    return shown(mean) + (f" ± {error}" if len(values) > 1 else "")


def iqm(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half along the last axis."""
    # Not scipy's trim_mean: it adds in another order, which the last digit of a report shows.
    cut = values.shape[-1] // 4
    middle: np.ndarray = np.sort(values, -1)[..., cut : values.shape[-1] - cut]
    return np.asarray(middle.mean(-1))


class Interval(NamedTuple):
    """An estimate with its 95 % percentile bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def ends(self) -> str:
        """The interval alone."""
        return f"[{shown(self.low)}, {shown(self.high)}]"

    def __str__(self) -> str:
        return f"{shown(self.value)} {self.ends}"


class Bootstrap:
    """Percentile intervals as of rliable's stratified bootstrap.

    Own code for two reasons: rliable 1.2 draws from numpy's global generator whatever its
    `random_state` is, so that no report could be made twice, and it calls a test of scipy for each
    resample of the probability of improvement, which takes minutes here.
    """

    def __init__(self, reps: int, seed: int) -> None:
        self.reps = reps
        self.seed = seed
        self._drawn: dict[tuple[int, int], np.ndarray] = {}

    def indices(self, count: int, stream: int = 0) -> np.ndarray:
        """Return resamples x count indices of runs, the same whenever asked."""
        if (count, stream) not in self._drawn:
            generator = np.random.RandomState([self.seed, stream])
            self._drawn[count, stream] = generator.randint(count, size=(self.reps, count))
        return self._drawn[count, stream]

    def mean(self, values: np.ndarray) -> Interval:
        """Return the interval of the mean."""
        return self._interval(values.mean(), values[self.indices(len(values))].mean(-1))

    def iqm(self, values: np.ndarray) -> Interval:
        """Return the interval of the interquartile mean."""
        return self._interval(iqm(values), iqm(values[self.indices(len(values))]))

    def improvement(self, first: np.ndarray, second: np.ndarray) -> Interval:
        """Return the interval of the probability that a run of the first beats one of the second.

        The two are resampled on their own; a tie counts one half.
        """
        pairs = (np.sign(first[:, None] - second) + 1.0) / 2.0
        drawn = [
            (self.indices(len(values), stream)[..., None] == np.arange(len(values))).sum(1)
            for stream, values in enumerate((first, second))
        ]
        won = ((drawn[0] @ pairs) * drawn[1]).sum(-1)
        return self._interval(pairs.mean(), won / pairs.size)

    @staticmethod
    def _interval(value: Any, resampled: np.ndarray) -> Interval:
        low, high = np.percentile(resampled, [2.5, 97.5])
        return Interval(float(value), float(low), float(high))


def welch_p(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of Welch's t-test; arms without any spread differ or are equal."""
    errors = standard_error(first), standard_error(second)
    if not any(errors):
        return float(first[0] == second[0])
    spreads = [e * math.sqrt(len(v)) for e, v in zip(errors, (first, second), strict=True)]
    result = stats.ttest_ind_from_stats(
        *(first.mean(), spreads[0], len(first), second.mean(), spreads[1], len(second)),
        equal_var=False,
    )
    return float(result.pvalue)


def fisher_p(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of Fisher's exact test on solved runs."""
    table = [[int(solved.sum()), int((~solved).sum())] for solved in (first, second)]
    return float(stats.fisher_exact(table).pvalue)


def share_interval(count: int, runs: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of solved runs."""
    low, high = stats.binomtest(count, runs).proportion_ci(method="wilson")
    return float(low), float(high)


def holm(p_values: Sequence[float | None], tests: int = 0) -> list[float | None]:
    """Return Holm's adjusted p-values.

    Tests that could not be made (None) do not count, unless `tests` says how many there are.
    """
    made = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(made):
        highest = max(highest, min(1.0, p * ((tests or len(made)) - rank)))
        adjusted[place] = highest
    return adjusted


@dataclass
class Comparison:
    """Two arms of one env; the tests are None where an arm has too few runs."""

    first: Arm
    second: Arm
    metric: str = "final_return"
    """What is compared by Welch's test: a column of runs.csv. Solved runs: by Fisher's."""
    welch: float | None = None
    fisher: float | None = None
    improvement: Interval | None = None
    welch_holm: float | None = None
    fisher_holm: float | None = None

    @property
    def p_values(self) -> tuple[float | None, ...]:
        """Both tests, each as it is and corrected."""
        return self.welch, self.welch_holm, self.fisher, self.fisher_holm

    @property
    def decisive(self) -> float | None:
        """The corrected p of the test that the metric asks for."""
        return self.fisher_holm if self.metric == "solved" else self.welch_holm

    @property
    def direction(self) -> int:
        """1 if the first arm is better on average, -1 if the second is, 0 if they are equal."""
        means = [arm.values(self.metric).mean() for arm in (self.first, self.second)]
        return int(np.sign(means[0] - means[1]))


def compare(
    first: Arm, second: Arm, bootstrap: Bootstrap, metric: str = "final_return"
) -> Comparison:
    """Test one arm against another."""
    if min(first.count, second.count) < MIN_RUNS:
        return Comparison(first, second, metric)
    one, two = first.values(metric), second.values(metric)
    return Comparison(
        first,
        second,
        metric,
        welch=welch_p(one, two),
        fisher=fisher_p(first.solved, second.solved),
        improvement=bootstrap.improvement(one, two),
    )


def adjust(comparisons: Sequence[Comparison], tests: int = 0) -> None:
    """Correct the p-values of a family of comparisons; see `holm`."""
    welch = holm([comparison.welch for comparison in comparisons], tests)
    fisher = holm([comparison.fisher for comparison in comparisons], tests)
    for comparison, own_welch, own_fisher in zip(comparisons, welch, fisher, strict=True):
        comparison.welch_holm, comparison.fisher_holm = own_welch, own_fisher


@dataclass(frozen=True)
class Summary:
    """An arm with its intervals, and its comparison to the reference arm if there is one."""

    arm: Arm
    mean: Interval | None
    iqm: Interval | None
    reference: str
    comparison: Comparison | None


def summarize(arms: Mapping[str, Arm], bootstrap: Bootstrap) -> list[Summary]:
    """Return the statistics of an env's arms; p-values are corrected over all of them."""
    summaries = []
    for label, arm in arms.items():
        enough = arm.count >= MIN_RUNS
        reference = Label.parse(label).reference
        summaries.append(
            Summary(
                arm,
                bootstrap.mean(arm.finals) if enough else None,
                bootstrap.iqm(arm.finals) if enough else None,
                reference,
                compare(arm, arms[reference], bootstrap) if reference in arms else None,
            )
        )
    adjust([summary.comparison for summary in summaries if summary.comparison])
    return summaries


def delay_arms(arms: Mapping[str, Arm]) -> dict[str, list[tuple[str, Arm]]]:
    """Return GRM-norm's arms by delay where there are several, by scale and bonus.

    PBIM-norm closes the row: it takes the bonus back at the end of the episode.
    """
    groups: dict[str, list[tuple[str, Arm]]] = defaultdict(list)
    for label, arm in arms.items():
        parts = Label.parse(label)
        if parts.method == "GRM-norm":
            groups[parts.group].append((str(parts.delay), arm))
    for group, own in groups.items():
        if f"PBIM-norm{group}" in arms:
            own.append(("N−1", arms[f"PBIM-norm{group}"]))
    return {
        group: own
        for group, own in groups.items()
        if sum(Label.parse(arm.label).method == "GRM-norm" for _, arm in own) > 1
    }
