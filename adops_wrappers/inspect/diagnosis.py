"""What the numbers of a recording or a run say, in plain words: a summary and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.core import LARGE_REWARD
from adops_wrappers.inspect.conflicts import conflict_mask
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.inspect.runs import Run
from adops_wrappers.inspect.size import return_size
from adops_wrappers.shaping.conflict import ROUNDING, is_bad
from adops_wrappers.shaping.methods import METHODS

LARGE_BONUS, SMALL_BONUS = 3.0, 0.1
"""Sizes of the intrinsic return that are far from 1, which is what normalising makes of it."""
NO_EXPLAINED_VARIANCE = 0.05
"""Below this a critic tells next to nothing about the returns."""
_SHAPED = ("shaping/shaped_min", "shaping/shaped_max", "shaping/shaped_mean")


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


def share(part: float) -> str:
    """Write a share for a caption, never rounding something to nothing or to all."""
    if 0.0 < part < 0.001:
        return "under 0.1 %"
    if 0.999 < part < 1.0:
        return "over 99.9 %"
    return f"{100.0 * part:.3g} %"


_FLOAT32 = (
    f"Beyond {number(LARGE_REWARD)} a float32 learner no longer sees an extrinsic reward of "
    "order 1 next to it"
)


class Finding(NamedTuple):
    """One thing that a reader should know."""

    kind: Literal["warning", "note"]
    title: str
    text: str


def summarize(recording: Recording) -> list[str]:
    """Say in plain words what the bonus did, how often it fought the task, and what was done."""
    valid = recording.valid
    steps = int(valid.sum())
    ends = int(recording.ended.sum())
    bonus = recording.scale * recording.intrinsic[valid]
    shaped, reward = recording.shaped[valid], recording.reward[valid]
    lines = [
        f"The recording holds {steps:,} steps of {recording.num_envs} environment(s) of "
        f"{recording.meta['env']}, with {ends} episode end(s), under {recording.description}.",
        f"The task paid {number(float(reward.sum()))} in all ({share(float((reward != 0).mean()))} "
        f"of steps paid); the raw bonus F averaged {number(float(bonus.mean()))} per "
        f"step and F′ {number(float(shaped.mean()))}.",
    ]
    changed = float((recording.correction[valid] != 0.0).mean())
    lines.append(
        f"{recording.description} changed the bonus at {share(changed)} of steps."
        if changed
        else f"{recording.description} never changed the bonus."
    )
    if recording.has_critic:
        fights = conflict_mask(recording)[valid]
        bad = _bad(recording)[valid]
        left = recording.contradicts(recording.total(), rounding=ROUNDING)[valid]
        lines.insert(
            2,
            f"The raw bonus fights the task at {share(float(fights.mean()))} of steps: at "
            f"{share(float((fights & bad).mean()))} it makes an action that the critic "
            f"considers bad look good, at {share(float((fights & ~bad).mean()))} it makes one that "
            "is not bad look bad.",
        )
        lines.append(
            f"With F′ the agent is told the opposite of the task at {share(float(left.mean()))} of "
            "steps."
        )
    return lines


def diagnose(
    recording: Recording, reshaped: Mapping[str, FloatArray] | None = None
) -> list[Finding]:
    """Return what is wrong, or worth knowing, about a recording; warnings first.

    Args:
        recording: The recording.
        reshaped: F′ of other methods, to say which of them would explode here.
    """
    found = [*_explosion(recording), *_hidden_ends(recording)]
    if recording.has_critic:
        found += [*_critic(recording), *_ratchet(recording), *_resolution(recording)]
    else:
        found.append(
            Finding(
                "note",
                "No critic was recorded",
                "Without V_E and V_I there is no telling where the bonus fights the task. Pass the "
                "critic handle: ShapingRecorder(env, path, critic).",
            )
        )
    found += [*_size(recording), *_others_explode(recording, reshaped or {})]
    return sorted(found, key=_warnings_first)


def _warnings_first(finding: Finding) -> bool:
    return finding.kind != "warning"


def explained_variance(recording: Recording) -> float:
    """Return 1 − Var(G − V_E)/Var(G) over all real steps; NaN where the task paid nothing.

    G is the discounted extrinsic return up to the episode's end, bootstrapped with V_E where
    it was cut off or the recording stops.
    """
    if not recording.reward[recording.valid].any():
        return float("nan")  # the returns would be made of V_E itself
    returns = np.zeros(recording.reward.shape)
    gamma = float(recording.meta["gamma_ext"])
    carried = recording.next_value_ext[-1].copy()
    for t in range(recording.steps - 1, -1, -1):
        if t + 1 < recording.steps:
            goes_on = recording.valid[t + 1] & ~recording.begins[t + 1] & ~recording.ended[t]
            carried = np.where(goes_on, returns[t + 1], recording.next_value_ext[t])
        returns[t] = recording.reward[t] + gamma * np.where(recording.terminated[t], 0.0, carried)
    target = returns[recording.valid]
    if np.ptp(target) <= 1e-12 * (1.0 + np.abs(target).max()):
        return float("nan")
    error = target - recording.value_ext[recording.valid]
    return float(1.0 - np.var(error) / np.var(target))


def _bad(recording: Recording) -> BoolArray:
    return is_bad(recording.advantage_ext, float(recording.meta["tie_tolerance"]))


def _clamps(method: str) -> bool:
    """Whether this is the name of a method that clamps the total advantage."""
    return method in METHODS and METHODS[method].clamps


def _explosion(recording: Recording) -> Iterator[Finding]:
    shaped = np.where(recording.valid, np.abs(recording.shaped), 0.0)
    largest = float(shaped.max())
    usual = recording.scale * float(np.abs(recording.intrinsic).max())
    if largest <= max(1e3 * usual, 1e3):
        return
    time, row = np.unravel_index(int(np.argmax(shaped)), shaped.shape)
    step = int(recording.episode_step[time, row]) + 1
    facts = (
        f"F′ reaches {number(float(recording.shaped[time, row]))} after {step} steps of an "
        f"episode, while the raw bonus never exceeds {number(usual)}: with γ_I = "
        f"{recording.meta['gamma_int']:g} a debt grows by 1/γ_I per step, here to "
        f"γ_I^−{step} = {number(float(recording.meta['gamma_int']) ** -step)}. "
    )
    if largest > LARGE_REWARD:
        yield Finding("warning", "F′ explodes", f"{facts}{_FLOAT32}.")
    else:
        yield Finding(
            "note", "F′ has a long tail", f"{facts}Value losses and gradients grow with it."
        )


def _hidden_ends(recording: Recording) -> Iterator[Finding]:
    hidden = int(recording.meta["hidden_ends"])
    if hidden:
        yield Finding(
            "warning",
            "Episode ends are hidden from the shaping wrapper",
            f"A TimeLimit or a similar wrapper above it ended {hidden} episode(s): debts are not "
            "settled there, and V(s′) is wrong. Put that wrapper below the shaping wrapper.",
        )


def _critic(recording: Recording) -> Iterator[Finding]:
    explained = explained_variance(recording)
    if np.isnan(explained):
        yield Finding(
            "note",
            "V_E could not be checked",
            "The extrinsic reward did not vary here, so this recording cannot show whether V_E is "
            "any good. If the task paid nothing during training either, V_E's verdict on an "
            "action is noise, and so is every conflict.",
        )
    elif explained < NO_EXPLAINED_VARIANCE:
        yield Finding(
            "warning",
            "The critic explains nothing",
            f"V_E explains {share(max(0.0, explained))} of the variance of the extrinsic returns "
            f"(explained variance {number(explained)}): it has not learned, or it values another "
            "policy than the recorded one. Its verdict on an action is then noise, and so is "
            "every conflict and every correction here: the guarantee of ADOPS is for an exact "
            "critic.",
        )
    if not _bad(recording)[recording.valid].any():
        yield Finding(
            "note",
            "The critic sees no bad action",
            "A_E is never negative, as happens early in training, when V_E ≈ 0. The clamp then "
            "only lifts totals to 0: it can add to the bonus, but takes nothing away.",
        )


def _ratchet(recording: Recording) -> Iterator[Finding]:
    """V_I sustains itself: not raw F but corrections pay for it."""
    third = -(-recording.steps // 3)
    late = recording.valid[-third:]
    if not _clamps(recording.method) or not late.any():
        return
    bonus = recording.scale * float(recording.intrinsic[-third:][late].mean())
    shaped = float(recording.shaped[-third:][late].mean())
    value = float(recording.value_int[-third:][late].mean())
    gamma = float(recording.meta["gamma_int"])
    supported = max(0.0, bonus) / max(1.0 - gamma, 1e-6)
    if shaped - bonus > max(bonus, 0.0) and value > 2.0 * supported:
        yield Finding(
            "warning",
            "V_I is ratcheting",
            f"V_I averages {number(value)} in the last third of the recording, but a raw bonus of "
            f"{number(bonus)} per step supports at most {number(supported)}. Corrections of "
            f"{number(shaped - bonus)} per step pay for the rest: F′ keeps up a value whose bonus "
            "has faded, and V_I does not forget it. Check that some action has A_E < 0 here.",
        )


def _resolution(recording: Recording) -> Iterator[Finding]:
    """A margin ε that the learner's float32 rounds away."""
    bad = _bad(recording) & recording.valid
    # ε only decides where the correction has moved the total to its margin.
    bad &= (recording.correction != 0.0) & (recording.zeta[:, None] >= 1.0)
    if not _clamps(recording.method) or not bad.any():
        return
    single = {
        name: getattr(recording, name)[bad].astype(np.float32)
        for name in ("advantage_ext", "shaped", "value_int", "next_value_int")
    }
    gamma = np.float32(recording.meta["gamma_int"])
    delta_int = single["shaped"] + gamma * single["next_value_int"] - single["value_int"]
    ext_coef, int_coef = (np.float32(recording.meta[key]) for key in ("ext_coef", "int_coef"))
    lost = float((ext_coef * single["advantage_ext"] + int_coef * delta_int >= 0.0).mean())
    if lost > 0.01:
        yield Finding(
            "note",
            "ε is below float32",
            f"Most learners compute in float32. With ε = "
            f"{number(float(recording.meta['epsilon']))} the corrected total of a bad action then "
            f"comes out as not negative at {share(lost)} of those steps. Choose a larger epsilon "
            "if they should count.",
        )


def _size(recording: Recording) -> Iterator[Finding]:
    size = return_size(recording)
    if np.isnan(size) or size == 0.0 or SMALL_BONUS <= size <= LARGE_BONUS:
        return
    text = (
        f"The discounted return of the raw bonus has a root mean square of {number(size)}; "
        "normalised it is 1. "
    )
    if recording.has_critic:
        valid = recording.valid
        text += _values_beside(recording.value_int[valid], recording.value_ext[valid])
    if size > LARGE_BONUS:
        yield _large_bonus(text)
    else:
        yield Finding("note", "The bonus is small", f"{text}It may be too faint to explore by.")


def _values_beside(value_int: FloatArray, value_ext: FloatArray) -> str:
    sizes = [number(float(np.sqrt(np.nanmean(np.square(v))))) for v in (value_int, value_ext)]
    return f"V_I has a size of {sizes[0]} beside {sizes[1]} of V_E. "


def _large_bonus(text: str) -> Finding:
    return Finding(
        "warning",
        "The bonus is large",
        f"{text}Where V_I is many times V_E, its errors drown what the task says: they fill the "
        "gradient of a shared network, and leak into V_E, by whose sign ADOPS decides. Bring F to "
        'unit size with IntrinsicRewardWrapper(env, source, normalizer="rms"), or with '
        "--normalize-intrinsic rms in the training scripts.",
    )


def _others_explode(recording: Recording, reshaped: Mapping[str, FloatArray]) -> Iterator[Finding]:
    sizes = {
        name: float(np.abs(np.where(np.isnan(stream), np.inf, stream)).max())
        for name, stream in reshaped.items()
        if name != recording.method
    }
    large = {name: size for name, size in sizes.items() if size > LARGE_REWARD}
    if large:
        listed = ", ".join(f"{name} (|F′| up to {number(size)})" for name, size in large.items())
        yield Finding("note", "Other methods would explode on this rollout", f"{listed}.")


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
                f"{words} {share(first)} of steps at the beginning, {share(end)} at the end."
            )
    if run.has("charts/episodic_return_recent"):
        returns = run["charts/episodic_return_recent"]
        end = returns[np.isfinite(returns)][-1]
        lines.append(f"The extrinsic return of recent episodes is {number(float(end))} at the end.")
    return lines


def diagnose_run(run: Run) -> list[Finding]:
    """Return what is wrong, or worth knowing, about a run; warnings first."""
    return sorted(_run_findings(run, max(1, len(run) // 10)), key=_warnings_first)


def _run_findings(run: Run, last: int) -> Iterator[Finding]:
    sizes = [np.nanmax(np.abs(run[name])) for name in _SHAPED if run.has(name)]
    if sizes and max(sizes) > LARGE_REWARD:
        yield Finding(
            "warning",
            "F′ explodes",
            f"|F′| reaches {number(float(max(sizes)))}. {_FLOAT32}: debts grow like γ^−length. "
            "Use shorter episodes, a larger γ, or GRM with a small delay.",
        )
    name = "losses/explained_variance_ext"
    if not run.has(name):
        yield Finding(
            "note",
            "Nothing to learn from yet",
            "The extrinsic returns never varied, so V_E had nothing to explain.",
        )
    elif _mean(run[name][-last:]) < NO_EXPLAINED_VARIANCE:
        yield Finding(
            "warning",
            "The critic explains nothing",
            f"In the last tenth of the run V_E has an explained variance of "
            f"{number(_mean(run[name][-last:]))}. Its verdict on an action is then noise, and the "
            "guarantee of ADOPS is for an exact critic.",
        )
    method = str(run.setting("shaping") or run.setting("method") or "").lower()
    if _clamps(method) and run.has("shaping/raw_mean") and run.has("shaping/shaped_mean"):
        yield from _run_ratchet(run["shaping/raw_mean"], run["shaping/shaped_mean"], last)
    names = ("charts/value_int", "charts/value_ext")
    if all(run.has(name) for name in names):
        value_int, value_ext = (run[name][-last:] for name in names)
        if _mean(np.abs(value_int)) > LARGE_BONUS:
            yield _large_bonus(_values_beside(value_int, value_ext))


def _run_ratchet(raw: FloatArray, shaped: FloatArray, last: int) -> Iterator[Finding]:
    raw_first, raw_end = _mean(raw[:last]), _mean(raw[-last:])
    shaped_first, shaped_end = _mean(shaped[:last]), _mean(shaped[-last:])
    faded = raw_end < 0.5 * raw_first
    kept_up = shaped_end > 0.8 * shaped_first and shaped_end > 2.0 * max(raw_end, 0.0)
    if faded and kept_up:
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
