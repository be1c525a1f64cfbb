"""Numbers that the scripts log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adops_wrappers.methods import method_of
from adops_wrappers.shaping import Shaper
from adops_wrappers.shaping.advantage import AdvantageSum
from adops_wrappers.shaping.conflict import contradicts

Array = npt.NDArray[Any]


def mean(values: Sequence[float] | Array) -> float | None:
    """Return the mean, or None for no values: an empty cell in the log."""
    return float(np.mean(values)) if len(values) else None


def ratio(total: float, count: int) -> float | None:
    """Return the total divided by the count, or None if that is 0: an empty cell in the log."""
    return total / count if count else None


def spread(name: str, values: Array) -> dict[str, float | None]:
    """Return the mean and the extremes under NAME_mean, NAME_min and NAME_max."""
    return {f"{name}_{s}": float(getattr(values, s)()) for s in ("mean", "min", "max")}


def streams(raw: Array, shaped: Array, correction: Array) -> dict[str, float | None]:
    """Return the spread of F, of F' and of what the method changed, and how often it did."""
    return {
        **spread("shaping/raw", raw),
        **spread("shaping/shaped", shaped),
        **spread("shaping/correction", correction),
        "shaping/intervention_rate": mean(correction != 0.0),
    }


def critic_fit(values: Array, returns: Array) -> dict[str, float | None]:
    """Return the mean of V_E and of V_I, and how much of the returns they explain."""
    return {
        "charts/value_ext": mean(values[:, 0]),
        "charts/value_int": mean(values[:, 1]),
        "losses/explained_variance_ext": explained_variance(values, returns, 0),
        "losses/explained_variance_int": explained_variance(values, returns, 1),
    }


def explained_variance(values: Array, returns: Array, stream: int) -> float:
    """Return 1 - Var(returns - values)/Var(returns) of one stream; NaN for constant returns.

    Args:
        values: V(s), shape (steps, streams, envs).
        returns: The targets that V(s) is trained on.
        stream: An index into the second axis.
    """
    values, returns = values[:, stream], returns[:, stream]
    variance = np.var(returns)
    return float(1.0 - np.var(returns - values) / variance) if variance > 0.0 else math.nan


def conflicts(shaper: Shaper, delta_ext: Array, delta_int: Array) -> npt.NDArray[np.bool_]:
    """Return where the raw bonus flips the sign of the extrinsic one-step advantage.

    The weights and the tolerance are those of the method if it clamps, otherwise 1 and 0.
    """
    method, rule = method_of(shaper), {"ext_coef": 1.0, "int_coef": 1.0, "tie_tolerance": 0.0}
    if method is not None and method.clamps:
        rule = {name: getattr(shaper, name) for name in rule}
    total = rule["ext_coef"] * delta_ext + rule["int_coef"] * delta_int
    return contradicts(delta_ext, total, rule["tie_tolerance"])


def sum_conflicts(
    combine: AdvantageSum, advantages: Array, combined: Array
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return where the plain sum of advantages turns the sign of A_E, and where it was clamped.

    Args:
        combine: The sum, plain or clamped.
        advantages: A_E and A_I, shape (steps, 2, envs).
        combined: What `combine` made of them.
    """
    plain = combine.plain(advantages[:, 0], advantages[:, 1])
    return contradicts(advantages[:, 0], plain), combined != plain
