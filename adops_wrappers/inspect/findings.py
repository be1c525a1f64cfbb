"""What the diagnoses of recordings and of runs share: thresholds, sentences, numbers in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.methods import METHODS
from adops_wrappers.reward_checks import LARGE_REWARD

LARGE_BONUS, SMALL_BONUS = 3.0, 0.1
"""Sizes of the intrinsic return that are far from 1, which is what normalising makes of it."""
NO_EXPLAINED_VARIANCE = 0.05
"""Below this a critic tells next to nothing about the returns."""
SMALL_VALUE = 0.05
"""V_E this close to the returns agrees with them: an untrained critic is not exactly 0."""
HELP = "docs/troubleshooting.md says under the same title what this means, and what to do."
HIGH_CONFLICT = 0.25
"""A bonus that fights the task at a larger share of the steps mostly gets in its way."""


class Finding(NamedTuple):
    """One thing that a reader should know."""

    kind: Literal["warning", "note", "fine"]
    title: str
    text: str


def fine(checked: str) -> Finding:
    """Return that this was checked, and is unremarkable."""
    return Finding("fine", checked, "")


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """Return warnings first, then notes, the last of which lists what was unremarkable."""
    found = list(found)
    checked = [finding.title for finding in found if finding.kind == "fine"]
    told = [finding for kind in ("warning", "note") for finding in found if finding.kind == kind]
    if checked:
        listed = "; ".join(checked)
        text = (
            f"{listed[0].upper()}{listed[1:]}. None of this says that the agent does well at its "
        )
        text += "task."
        told.append(Finding("note", "Checked, and unremarkable", text))
    return told


def number(value: float, digits: int = 3) -> str:
    """Write a number for a caption, with this many significant digits."""
    if value == 0.0 or not np.isfinite(value):
        return "0" if value == 0.0 else str(value)
    if 1e-3 <= abs(value) < 1e5:
        plain = f"{value:.{digits}g}" if abs(value) < 1e3 else f"{value:,.0f}"
        return plain.replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{raised}".replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Write a number of things, in the singular or the plural."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share(part: float) -> str:
    """Write a share for a caption, never rounding something to nothing or to all."""
    if 0.0 < part < 0.001:
        return "under 0.1 %"
    if 0.999 < part < 1.0:
        return "over 99.9 %"
    return f"{100.0 * part:.3g} %"


FLOAT32 = (
    f"Beyond {number(LARGE_REWARD)} a float32 learner no longer sees an extrinsic reward of "
    "order 1 next to it"
)


def clamps(method: str) -> bool:
    """Whether this is the name of a method that clamps the total advantage."""
    return method in METHODS and METHODS[method].clamps


def values_beside(value_int: FloatArray, value_ext: FloatArray) -> str:
    """Return a sentence with the sizes of V_I and V_E."""
    sizes = [number(float(np.sqrt(np.nanmean(np.square(v))))) for v in (value_int, value_ext)]
    return f"V_I has a size of {sizes[0]} beside {sizes[1]} of V_E. "


def large_bonus(text: str) -> Finding:
    """Return the warning of a bonus that drowns the task; `text` says how large it is."""
    return Finding(
        "warning",
        "The bonus is large",
        f"{text}Where V_I is many times V_E, its errors drown what the task says: they fill the "
        "gradient of a shared network, and leak into V_E, by whose sign ADOPS decides. Bring F to "
        'unit size with IntrinsicRewardWrapper(env, source, normalizer="rms"), or with '
        "--normalize-intrinsic rms in the training scripts.",
    )


def value_against_returns(value: float, earned: float, endless: float) -> Finding:
    """Compare the mean of V_E with what the episodes earned from the same steps on.

    V_E disagrees if it is more than a factor of two, and more than `SMALL_VALUE`, outside the
    interval from `earned` to `endless`.

    Args:
        value: The mean of V_E.
        earned: The mean discounted return to the episode's end.
        endless: The same if truncated episodes went on with their mean reward, which is what a
            learner that bootstraps there estimates.
    """
    low, high = sorted((earned, endless))
    nearest = min(max(value, low), high)
    if abs(value - nearest) <= max(SMALL_VALUE, 0.5 * max(abs(value), abs(nearest))):
        return fine(f"V_E beside the returns ({number(value)}, {number(earned)} earned)")
    text = (
        f"V_E averages {number(value)}, but from the same steps on the episodes that ended earned "
        f"{number(earned)} (discounted)"
    )
    if endless != earned:
        text += f", or {number(endless)} if truncated ones went on as before"
    text += (
        ". It promises too much: where episodes are truncated, V_E learns from its own estimate "
        "of what would follow, and no reward corrects it. If the time limit belongs to the task, "
        "use --end-at-truncation in the training scripts."
        if value > nearest
        else ". It promises too little: it has not caught up with what the agent does."
    )
    return Finding(
        "warning",
        "V_E and the returns disagree",
        f"{text} A_E, and with it what counts as a conflict, is wrong by such errors.",
    )


def agreement(part: float, low: float, high: float) -> Finding:
    """Judge how often A_E had the sign of what the returns say, given the 95 % interval."""
    numbers = f"{share(part)} of steps, 95 % interval {share(low)} to {share(high)}"
    if low > 0.5:
        return fine(f"the signs of A_E beside the returns (they agree at {numbers})")
    wrong = high < 0.5
    return Finding(
        "warning" if wrong else "note",
        "The signs of A_E are mostly wrong" if wrong else "The signs of A_E may be chance",
        f"Where an episode ended, A_E had the sign of G − V_E at {numbers}; a coin has one half. "
        "What ADOPS forbids and allows is then "
        f"{'mostly the opposite of the task' if wrong else 'no better than a guess'}. Let the "
        "critic learn before the bonus speaks: start it late (quiet_steps, or --quiet-iterations "
        "in the training scripts), blend the clamp in with ADOPES, or take a bonus that changes "
        "more slowly.",
    )


def conflict_rate(rate: float, left: float, remedy: str, paid: bool) -> Finding:
    """Judge how often the bonus fights the task.

    Args:
        rate: The share of steps at which the raw bonus turns the sign of A_E.
        left: The share at which it is still turned when the method is done.
        remedy: A sentence on what the method did.
        paid: Whether the task paid anything.
    """
    if rate <= HIGH_CONFLICT:
        return fine(f"how often the bonus fights the task ({share(rate)} of steps)")
    text = f"The raw bonus turns the sign of A_E at {share(rate)} of steps. {remedy}"
    if not paid:
        text += " The task paid nothing here, so A_E is what V_E makes up, and so are conflicts."
    harmful = paid and left > HIGH_CONFLICT
    return Finding("warning" if harmful else "note", "The bonus often fights the task", text)
