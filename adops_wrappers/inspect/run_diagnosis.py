"""What the metrics of a run say, in plain words: a summary and warnings."""

from __future__ import annotations

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.core import LARGE_REWARD
from adops_wrappers.inspect.diagnosis import NO_EXPLAINED_VARIANCE, Finding
from adops_wrappers.inspect.plots.style import number, share
from adops_wrappers.inspect.runs import Run

_SHAPED = ("shaping/shaped_min", "shaping/shaped_max", "shaping/shaped_mean")


def summarize_run(run: Run) -> list[str]:
    """Say in plain words how conflicts, interventions and the return went over a run."""
    last = max(1, len(run) // 10)
    lines = [f"The run {run.title} has {len(run):,} iterations, {number(run.x[-1])} {run.x_label}."]
    for name, words in (
        ("shaping/conflict_rate", "The raw bonus fought the task at"),
        ("shaping/intervention_rate", "The method changed the bonus at"),
    ):
        if run.has(name):
            first, end = _mean(run[name][:last]), _mean(run[name][-last:])
            lines.append(
                f"{words} {share(first)} of steps in the beginning, {share(end)} at the end."
            )
    if run.has("charts/episodic_return_recent"):
        returns = run["charts/episodic_return_recent"]
        end = returns[np.isfinite(returns)][-1]
        lines.append(f"The extrinsic return of recent episodes is {number(float(end))} at the end.")
    return lines


def diagnose_run(run: Run) -> list[Finding]:
    """Return what is wrong, or worth knowing, about a run; warnings first."""
    found: list[Finding] = []
    last = max(1, len(run) // 10)
    sizes = [np.nanmax(np.abs(run[name])) for name in _SHAPED if run.has(name)]
    if sizes and max(sizes) > LARGE_REWARD:
        found.append(
            Finding(
                "warning",
                "F′ explodes",
                f"|F′| reaches {number(float(max(sizes)))}. Beyond {number(LARGE_REWARD)} a "
                "float32 learner no longer sees an extrinsic reward of order 1 beside it: debts "
                "grow like γ^−length. Use shorter episodes, a larger γ, or GRM with a small delay.",
            )
        )
    name = "losses/explained_variance_ext"
    if run.has(name) and _mean(run[name][-last:]) < NO_EXPLAINED_VARIANCE:
        found.append(
            Finding(
                "warning",
                "The critic explains nothing",
                f"In the last tenth of the run V_E has an explained variance of "
                f"{number(_mean(run[name][-last:]))}. What it calls a good or a bad action is then "
                "noise, and the guarantee of ADOPS is for an exact critic.",
            )
        )
    elif not run.has(name):
        found.append(
            Finding(
                "note",
                "Nothing to learn from yet",
                "The extrinsic returns never varied, so V_E had nothing to explain.",
            )
        )
    found += _run_ratchet(run, last)
    return sorted(found, key=lambda finding: finding.kind != "warning")


def _run_ratchet(run: Run, last: int) -> list[Finding]:
    names = ("shaping/raw_mean", "shaping/shaped_mean")
    method = str(run.setting("shaping") or run.setting("method") or "").lower()
    if not method.startswith("adop") or not all(run.has(name) for name in names):
        return []
    raw, shaped = (run[name] for name in names)
    raw_first, raw_end = _mean(raw[:last]), _mean(raw[-last:])
    shaped_first, shaped_end = _mean(shaped[:last]), _mean(shaped[-last:])
    faded = raw_end < 0.5 * raw_first
    kept_up = shaped_end > 0.8 * shaped_first and shaped_end > 2.0 * max(raw_end, 0.0)
    if not (faded and kept_up):
        return []
    return [
        Finding(
            "warning",
            "V_I is ratcheting",
            f"The raw bonus faded from {number(raw_first)} to {number(raw_end)} per step, but F′ "
            f"went from {number(shaped_first)} to {number(shaped_end)}: corrections keep up a "
            "value that the bonus no longer supports, and V_I does not forget it.",
        )
    ]


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
