"""What all pictures share: colours for every reader, axes that can show both 1 and 10²¹."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from adops_wrappers._extras import analysis_package
from adops_wrappers.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Okabe and Ito's colours, which colour-blind readers can tell apart; line styles, markers and
# hatches distinguish the same things in grey.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#767676",
)

_STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "hatch.linewidth": 0.6,
}


def require_matplotlib() -> Any:
    """Return matplotlib, or say how to install it."""
    return analysis_package("matplotlib", "a plot")


def styled(plot: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run a plotting function in the common style, leaving the user's own settings alone."""

    @functools.wraps(plot)
    def in_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with require_matplotlib().rc_context(_STYLE):
            return plot(*args, **kwargs)

    return in_style


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """Return a figure that belongs to no window, and its axes as an array of two dimensions."""
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def spread(values: FloatArray) -> float | None:
    """Return the linear range of a symmetric-log axis, or None where a linear one is readable."""
    size = np.abs(values[np.isfinite(values)])
    size = size[size > 0.0]
    if len(size) == 0:
        return None
    usual = float(np.quantile(size, 0.8))
    return float(10.0 ** np.floor(np.log10(usual))) if size.max() > 25.0 * usual else None


def scale_axis(axis: Axes, which: str, values: FloatArray, linear: float | None = None) -> bool:
    """Make an axis symmetric-log where a few values dwarf the others; return whether it is."""
    linear = spread(values) if linear is None else linear
    if linear is None:
        return False
    ticker = importlib.import_module("matplotlib.ticker")
    getattr(axis, f"set_{which}scale")("symlog", linthresh=linear)
    largest = float(np.abs(values[np.isfinite(values)]).max())
    first, last = round(np.log10(linear)), int(np.ceil(np.log10(largest)))
    step = max(1, -(-(last - first) // 3))
    # The end of the linear range is too close to 0 for a label of its own.
    innermost = first + 1 if last - first > 2 else first
    decades = 10.0 ** np.arange(last, innermost - 1, -step, dtype=np.float64)
    ticks = [0.0]
    if (values > linear).any():
        ticks += decades.tolist()
    if (values < -linear).any():
        ticks += (-decades).tolist()
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    getattr(axis, f"set_{which}lim")(
        3.0 * low if low < -linear else min(1.1 * low, -0.5 * linear),
        3.0 * high if high > linear else max(1.1 * high, 0.5 * linear),
    )
    chosen = axis.xaxis if which == "x" else axis.yaxis
    chosen.set_major_locator(ticker.FixedLocator(sorted(ticks)))
    chosen.set_minor_locator(ticker.NullLocator())
    return True
