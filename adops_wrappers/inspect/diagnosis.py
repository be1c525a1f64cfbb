"""What the numbers of a recording say, in plain words: a summary and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.core import LARGE_REWARD
from adops_wrappers.inspect.conflicts import conflict_mask
from adops_wrappers.inspect.plots.sign_plane import contradicts
from adops_wrappers.inspect.plots.style import number, share
from adops_wrappers.inspect.recording import Recording

NO_EXPLAINED_VARIANCE = 0.05
"""Below this a critic tells next to nothing about the returns."""


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
        f"of steps paid something); the raw bonus F averaged {number(float(bonus.mean()))} per "
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
        bad = recording.advantage_ext[valid] < -float(recording.meta["tie_tolerance"])
        left = contradicts(recording.advantage_ext[valid], recording.total()[valid], recording)
        lines.insert(
            2,
            f"The raw bonus fights the task at {share(float(fights.mean()))} of steps: at "
            f"{share(float((fights & bad).mean()))} it makes an action look good that the critic "
            f"holds to be bad, at {share(float((fights & ~bad).mean()))} it makes one look bad "
            "that is not.",
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
                "Without V_E and V_I nobody can say where the bonus fights the task. Give the "
                "critic handle: ShapingRecorder(env, path, critic).",
            )
        )
    found += _others_explode(recording, reshaped or {})
    return sorted(found, key=lambda finding: finding.kind != "warning")


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


def _explosion(recording: Recording) -> list[Finding]:
    shaped = np.where(recording.valid, np.abs(recording.shaped), 0.0)
    largest = float(shaped.max())
    usual = recording.scale * float(np.abs(recording.intrinsic).max())
    if largest <= max(1e3 * usual, 1e3):
        return []
    time, row = np.unravel_index(int(np.argmax(shaped)), shaped.shape)
    step = int(recording.episode_step[time, row]) + 1
    text = (
        f"F′ reaches {number(float(recording.shaped[time, row]))} after {step} steps of an "
        f"episode, while the raw bonus never exceeds {number(usual)}: with γ_I = "
        f"{recording.meta['gamma_int']:g} a debt grows by 1/γ_I per step, here to "
        f"γ_I^−{step} = {number(float(recording.meta['gamma_int']) ** -step)}. "
    )
    text += (
        f"Beyond {number(LARGE_REWARD)} a float32 learner no longer sees an extrinsic reward of "
        "order 1 beside it."
        if largest > LARGE_REWARD
        else "Value losses and gradients follow it."
    )
    kind: Literal["warning", "note"] = "warning" if largest > LARGE_REWARD else "note"
    return [Finding(kind, "F′ explodes" if kind == "warning" else "F′ has a long tail", text)]


def _hidden_ends(recording: Recording) -> list[Finding]:
    hidden = int(recording.meta["hidden_ends"])
    if not hidden:
        return []
    return [
        Finding(
            "warning",
            "Episode ends are hidden from the shaping wrapper",
            f"{hidden} episode end(s) were made above it, by a TimeLimit or the like: debts are "
            "never settled there, and V(s′) is wrong. Put that wrapper below the shaping wrapper.",
        )
    ]


def _critic(recording: Recording) -> list[Finding]:
    explained = explained_variance(recording)
    bad = recording.advantage_ext[recording.valid] < -float(recording.meta["tie_tolerance"])
    found = []
    if np.isnan(explained):
        found.append(
            Finding(
                "note",
                "V_E could not be checked",
                "The task paid nothing here that varies, so this recording cannot say whether V_E "
                "is any good. Where the task has paid nothing in training either, what V_E calls "
                "a good or a bad action is noise, and so is every conflict.",
            )
        )
    elif explained < NO_EXPLAINED_VARIANCE:
        found.append(
            Finding(
                "warning",
                "The critic explains nothing",
                f"V_E explains {share(max(0.0, explained))} of the variance of the extrinsic "
                f"returns (explained variance {number(explained)}): it has not learned, or it "
                "values another policy than the recorded one. What it calls a good or a bad "
                "action is then noise, and so is every conflict and every correction here: the "
                "guarantee of ADOPS is for an exact critic.",
            )
        )
    if not bad.any():
        found.append(
            Finding(
                "note",
                "The critic sees no bad action",
                "A_E is never negative, as early in training where V_E ≈ 0. The clamp then only "
                "lifts totals to 0: it can add to the bonus, and take nothing away.",
            )
        )
    return found


def _ratchet(recording: Recording) -> list[Finding]:
    """V_I pays for itself: raw F cannot sustain it, corrections do."""
    if not recording.method.startswith("adop"):
        return []
    third = -(-recording.steps // 3)
    late = recording.valid[-third:]
    if not late.any():
        return []
    bonus = recording.scale * float(recording.intrinsic[-third:][late].mean())
    shaped = float(recording.shaped[-third:][late].mean())
    value = float(recording.value_int[-third:][late].mean())
    gamma = float(recording.meta["gamma_int"])
    supported = max(0.0, bonus) / max(1.0 - gamma, 1e-6)
    if not (shaped - bonus > max(bonus, 0.0) and value > 2.0 * supported):
        return []
    return [
        Finding(
            "warning",
            "V_I is ratcheting",
            f"V_I averages {number(value)} in the last third of the recording, but a raw bonus of "
            f"{number(bonus)} per step supports no more than {number(supported)}. The rest is paid "
            f"by corrections, {number(shaped - bonus)} per step: F′ keeps up a value whose bonus "
            "has faded, and V_I does not forget it. Check that some action has A_E < 0 here.",
        )
    ]


def _resolution(recording: Recording) -> list[Finding]:
    """A margin ε that the learner's float32 rounds away."""
    if not recording.method.startswith("adop"):
        return []
    bad = (recording.advantage_ext < -float(recording.meta["tie_tolerance"])) & recording.valid
    # Only where the correction has moved the total to its margin does ε decide.
    bad &= (recording.correction != 0.0) & (recording.zeta[:, None] >= 1.0)
    if not bad.any():
        return []
    single = {
        name: getattr(recording, name)[bad].astype(np.float32)
        for name in ("advantage_ext", "shaped", "value_int", "next_value_int")
    }
    gamma = np.float32(recording.meta["gamma_int"])
    delta_int = single["shaped"] + gamma * single["next_value_int"] - single["value_int"]
    ext_coef, int_coef = (np.float32(recording.meta[key]) for key in ("ext_coef", "int_coef"))
    lost = float((ext_coef * single["advantage_ext"] + int_coef * delta_int >= 0.0).mean())
    if lost <= 0.01:
        return []
    return [
        Finding(
            "note",
            "ε is below float32",
            f"With ε = {number(float(recording.meta['epsilon']))} the corrected total of a bad "
            f"action comes out as not negative at {share(lost)} of those steps when it is computed "
            "in float32, as most learners do. Choose a larger epsilon if they should count.",
        )
    ]


def _others_explode(recording: Recording, reshaped: Mapping[str, FloatArray]) -> list[Finding]:
    sizes = {
        name: float(np.abs(np.where(np.isnan(stream), np.inf, stream)).max())
        for name, stream in reshaped.items()
        if name != recording.method
    }
    large = {name: size for name, size in sizes.items() if size > LARGE_REWARD}
    if not large:
        return []
    listed = ", ".join(f"{name} (|F′| up to {number(size)})" for name, size in large.items())
    return [Finding("note", "Other methods would explode on this rollout", f"{listed}.")]
