"""What the metrics of a run say, in plain words: a summary and warnings, for page and console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.inspect import findings
from adops_wrappers.inspect.findings import Finding, clamps, fine, number, share
from adops_wrappers.inspect.runs import Metrics
from adops_wrappers.reward_checks import LARGE_REWARD

ENOUGH = 20
"""Iterations after which one can tell whether something is learned."""
EPISODES = 100
"""The episodes in `charts/episodic_return_recent`. The first hundred of a run count for nothing:
episodes that end early come first, and on many tasks these are the ones that succeed."""
STANDARD_ERRORS = 5.0
"""How many a fall of the return must exceed to be no accident of these episodes."""
LOWER_ENTROPY, UNIFORM_ENTROPY = 0.85, 0.98
"""Shares of the largest entropy of a run: a policy that has learned, one that has unlearned."""
CLOSE = 0.1
"""How far V_E may be from what episodes earn, relative to that, to be right on average."""
_SHAPED = ("shaping/shaped_min", "shaping/shaped_max", "shaping/shaped_mean")


def recent(run: Metrics) -> slice:
    """Return the iterations that a verdict is about: the last tenth, at least five."""
    return slice(-max(5, len(run) // 10), None)


def summarize_run(run: Metrics) -> list[str]:
    """Say in plain words how conflicts, interventions and the return went over a run."""
    end = recent(run)
    lines = [f"The run {run.title} has {len(run):,} iterations, {number(run.x[-1])} {run.x_label}."]
    for name, words in (
        ("shaping/conflict_rate", "The raw bonus fought the task at"),
        ("shaping/intervention_rate", "The method changed the bonus at"),
    ):
        if run.has(name):
            rates = run[name]
            lines.append(
                f"{words} {share(_mean(rates[: -end.start]))} of steps at the beginning, "
                f"{share(_mean(rates[end]))} at the end."
            )
    course = _Course.of(run)
    if course is not None:
        lines.append(
            f"The mean return of the last {EPISODES} episodes is {number(course.now)} at the end; "
            f"the best was {number(course.best)}, at iteration {course.best_at}."
        )
    elif run.has("charts/episodic_return_recent"):
        returns = run["charts/episodic_return_recent"]
        now = float(returns[np.isfinite(returns)][-1])
        lines.append(f"The mean return of recent episodes is {number(now)} at the end.")
    return lines


def diagnose_run(run: Metrics) -> list[Finding]:
    """Return what is wrong, or worth knowing, about a run so far; warnings first.

    The last note lists what was checked and is unremarkable.
    """
    found = [*_explosion(run), *_size(run), *_ratchet(run)]
    if len(run) >= ENOUGH:
        found += [*_return(run), *_entropy(run), *_promises(run), *_conflicts(run)]
    return findings.in_order([*found, *_critic(run), *_agreement(run)])


class _Course(NamedTuple):
    """The mean return of the last `EPISODES` episodes over a run, without the first ones."""

    returns: FloatArray
    best: float
    best_at: int
    """The iteration of the best value."""
    low: float
    """The lowest value before it."""
    noise: float
    """What two such means differ by as a matter of chance, at most."""

    @property
    def now(self) -> float:
        return float(self.returns[-1])

    @staticmethod
    def of(run: Metrics) -> _Course | None:
        names = ("charts/episodic_return_recent", "charts/episodes", "charts/episodic_return")
        if not all(run.has(name) for name in names):
            return None
        smooth, episodes, returns = (run[name] for name in names)
        full = episodes >= 2 * EPISODES
        if not full.any():
            return None
        iterations, values = run["iteration"][full], smooth[full]
        at = int(np.argmax(values))
        noise = STANDARD_ERRORS * _scatter(returns, episodes) * np.sqrt(2.0 / EPISODES)
        best, low = float(values[at]), float(values[: at + 1].min())
        return _Course(values, best, int(iterations[at]), low, float(noise))


def _scatter(returns: FloatArray, episodes: FloatArray) -> float:
    """Return the standard deviation of one episode's return, from means of few episodes each.

    Only a mean that its neighbours on both sides lie above, or below, tells of chance: learning and
    unlearning go one way.
    """
    counts = np.diff(episodes, prepend=0.0)
    some = (counts > 0) & np.isfinite(returns)
    means, counts = returns[some], counts[some]
    if len(means) < 3:
        return 0.0
    before, after = np.diff(means)[:-1], np.diff(means)[1:]
    return float(np.sqrt(np.mean(np.maximum(0.0, -before * after) * counts[1:-1])))


def _return(run: Metrics) -> Iterator[Finding]:
    course = _Course.of(run)
    if course is None:
        return
    rise = course.best - course.low
    if rise <= course.noise:  # it was best at the start: 0 is no gain, twice as bad a loss
        rise = abs(course.best)
    half = course.best - 0.5 * rise
    late = course.returns[recent(run)]
    if late.max() >= half or course.best - late.max() <= course.noise:
        yield fine(f"the return ({number(course.now)}, {number(course.best)} at best)")
        return
    yield Finding(
        "warning",
        "The return fell and stayed down",
        f"The mean return of the last {EPISODES} episodes was {number(course.best)} at iteration "
        f"{course.best_at}, and is {number(course.now)} now. In the last {len(late)} iterations it "
        f"was never above {number(float(late.max()))}. Try a smaller learning rate, a smaller "
        "entropy bonus or scaled advantages.",
    )


def _entropy(run: Metrics) -> Iterator[Finding]:
    if not run.has("losses/entropy"):
        return
    entropy = run["losses/entropy"]
    entropy = entropy[np.isfinite(entropy)]
    largest, least = float(entropy.max()), int(np.argmin(entropy))
    late = entropy[recent(run)]
    if entropy[least] >= LOWER_ENTROPY * largest or late.min() < UNIFORM_ENTROPY * largest:
        yield fine(f"the entropy ({number(_mean(late))}, {number(largest)} at most)")
        return
    yield Finding(
        "warning",
        "The policy is as random as at the start",
        f"Its entropy had come down from {number(largest)} to {number(float(entropy[least]))}, and "
        f"is back at {number(_mean(late))}, that of {number(float(np.exp(_mean(late))))} equally "
        "probable actions. The entropy bonus then outweighs the advantages: use a smaller "
        "--ent-coef or scaled advantages.",
    )


def _promised(run: Metrics) -> list[float]:
    """Return the latest means of V_E and of what episodes earn, as far as they are known."""
    names = ("charts/value_ext", "charts/return_to_go", "charts/return_to_go_endless")
    means = [_mean(run[name][recent(run)]) for name in names if run.has(name)]
    return means if len(means) == len(names) and np.isfinite(means).all() else []


def _promises(run: Metrics) -> Iterator[Finding]:
    promised = _promised(run)
    if promised:
        yield findings.value_against_returns(*promised)


def _conflicts(run: Metrics) -> Iterator[Finding]:
    end = recent(run)
    name = "shaping/conflict_rate"
    if not run.has(name) or not any(run.has(n) and run[n][end].any() for n in _RAW):
        return
    rate = _mean(run[name][end])
    zeta = _mean(run["shaping/zeta"][end]) if run.has("shaping/zeta") else 1.0
    clamped = _mean(run[_CLAMPED][end]) if run.has(_CLAMPED) else 0.0
    left, remedy = rate, "Nothing in this run holds it back where it does."
    if clamps(_method(run)):
        left, remedy = (1.0 - zeta) * rate, f"The clamp corrects that, with ζ = {number(zeta)}."
    elif clamped > 0.0:
        left = 0.0
        remedy = f"The clamp on the advantage set it to 0 in {share(clamped)} of the batch."
    yield findings.conflict_rate(rate, left, remedy, _paid(run))


_RAW = ("shaping/raw_min", "shaping/raw_max", "shaping/raw_mean")
_CLAMPED = "shaping/advantage_intervention_rate"


def _paid(run: Metrics) -> bool:
    """Whether any episode had a return other than 0, as far as the run knows."""
    name = "charts/episodic_return"
    return not run.has(name) or bool((np.nan_to_num(run[name]) != 0.0).any())


def _method(run: Metrics) -> str:
    return str(run.setting("shaping") or run.setting("method") or "").lower()


def _explosion(run: Metrics) -> Iterator[Finding]:
    sizes = [np.nanmax(np.abs(run[name])) for name in _SHAPED if run.has(name)]
    if not sizes:
        return
    largest = number(float(max(sizes)))
    if max(sizes) <= LARGE_REWARD:
        yield fine(f"the size of F′ (at most {largest})")
        return
    yield Finding(
        "warning",
        "F′ explodes",
        f"|F′| reaches {largest}. {findings.FLOAT32}: debts grow like γ^−length. "
        "Use shorter episodes, a larger γ, or GRM with a small delay.",
    )


def _critic(run: Metrics) -> Iterator[Finding]:
    name = "losses/explained_variance_ext"
    if not run.has(name) or not _paid(run):
        yield Finding(
            "note",
            "Nothing to learn from yet",
            "The extrinsic returns never varied, so V_E had nothing to explain.",
        )
        return
    explained = _mean(run[name][recent(run)])
    if len(run) < ENOUGH or np.isnan(explained):
        return
    if explained >= findings.NO_EXPLAINED_VARIANCE:
        yield fine(f"the explained variance of V_E ({number(explained)})")
        return
    value, earned, _ = _promised(run) or (0.0, 0.0, 0.0)
    if abs(value - earned) < CLOSE * abs(earned):
        yield Finding(
            "note",
            "There is little for the critic to explain",
            f"V_E has an explained variance of {number(explained)}, but a mean of {number(value)} "
            f"beside {number(earned)} earned: what is left of the returns' variance is mostly "
            "chance. Of the signs of A_E many are chance too.",
        )
        return
    yield Finding(
        "warning",
        "The critic explains nothing",
        f"In the last tenth of the run V_E has an explained variance of {number(explained)}. Its "
        "verdict on an action is then noise, and the guarantee of ADOPS is for an exact critic.",
    )


def _agreement(run: Metrics) -> Iterator[Finding]:
    names = [f"critic/{name}" for name in ("agreement", "low", "high")]
    if all(run.has(name) for name in names):
        late = np.array([run[name][recent(run)] for name in names])
        known = np.flatnonzero(np.isfinite(late).all(axis=0))
        if len(known):  # the last reading: it is made of many episodes already
            yield findings.agreement(*late[:, known[-1]].tolist())


def _size(run: Metrics) -> Iterator[Finding]:
    names = ("charts/value_int", "charts/value_ext")
    if not all(run.has(name) for name in names):
        return
    value_int, value_ext = (run[name][recent(run)] for name in names)
    size = _mean(np.abs(value_int))
    if size > findings.LARGE_BONUS:
        yield findings.large_bonus(findings.values_beside(value_int, value_ext))
    else:
        yield fine(f"the size of V_I ({number(size)})")


def _ratchet(run: Metrics) -> Iterator[Finding]:
    names = ("shaping/raw_mean", "shaping/shaped_mean")
    if not clamps(_method(run)) or not all(run.has(name) for name in names):
        return
    raw, shaped = (run[name] for name in names)
    end = recent(run)
    start = slice(-end.start)
    raw_first, raw_end = _mean(raw[start]), _mean(raw[end])
    shaped_first, shaped_end = _mean(shaped[start]), _mean(shaped[end])
    faded = raw_end < 0.5 * raw_first
    kept_up = shaped_end > 0.8 * shaped_first and shaped_end > 2.0 * max(raw_end, 0.0)
    if not (faded and kept_up):
        yield fine(f"F′ beside F (means of {number(shaped_end)} and {number(raw_end)})")
        return
    yield Finding(
        "warning",
        "V_I is ratcheting",
        f"The raw bonus faded from {number(raw_first)} to {number(raw_end)} per step, but F′ "
        f"went from {number(shaped_first)} to {number(shaped_end)}: corrections keep up a "
        "value that the bonus no longer supports, and V_I does not forget it.",
    )


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
