"""What the numbers of a recording say, in plain words: a summary and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.inspect import findings
from adops_wrappers.inspect.conflicts import conflict_mask
from adops_wrappers.inspect.findings import Finding, clamps, counted, fine, number, share
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.inspect.size import return_size
from adops_wrappers.meter import Reading, reading_of, terms_of
from adops_wrappers.reward_checks import LARGE_REWARD
from adops_wrappers.shaping.conflict import ROUNDING, is_bad


def summarize(recording: Recording) -> list[str]:
    """Say in plain words what the bonus did, how often it fought the task, and what was done."""
    valid = recording.valid
    steps = int(valid.sum())
    ends = int(recording.ended.sum())
    bonus = recording.scale * recording.intrinsic[valid]
    shaped, reward = recording.shaped[valid], recording.reward[valid]
    lines = [
        f"The recording holds {counted(steps, 'step')} of "
        f"{counted(recording.num_envs, 'environment')} of {recording.meta['env']} with "
        f"{recording.description}; {counted(ends, 'episode')} ended.",
        f"The task paid {number(float(reward.sum()))} in all ({share(float((reward != 0).mean()))} "
        f"of steps paid); the raw bonus F averaged {number(float(bonus.mean()))} per "
        f"step and F′ {number(float(shaped.mean()))}.",
    ]
    changed = float((recording.correction[valid] != 0.0).mean())
    lines.append(
        f"{recording.description} changed the bonus at {share(changed)} of steps."
        if changed
        else "The raw bonus was never changed."
    )
    if recording.has_critic:
        fights = conflict_mask(recording)[valid]
        bad = _bad(recording)[valid]
        left = _left(recording)
        lines.insert(
            2,
            f"The raw bonus fights the task at {share(float(fights.mean()))} of steps: at "
            f"{share(float((fights & bad).mean()))} it makes an action that the critic "
            f"considers bad look good, at {share(float((fights & ~bad).mean()))} it makes a good "
            "or neutral action look bad.",
        )
        lines.append(
            f"With F′ the agent is told the opposite of the task at {share(left)} of steps."
        )
    return lines


def diagnose(
    recording: Recording, reshaped: Mapping[str, FloatArray] | None = None
) -> list[Finding]:
    """Return what is wrong, or worth knowing, about a recording; warnings first.

    The last note lists what was checked and is unremarkable.

    Args:
        recording: The recording.
        reshaped: F′ of other methods, to say which of them would explode here.
    """
    found = [*_explosion(recording), *_hidden_ends(recording), *_returns(recording)]
    if recording.has_critic:
        found += [*_critic(recording), *_promises(recording), *_agreement(recording)]
        found += _conflicts(recording)
        found += [*_ratchet(recording), *_resolution(recording)]
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
    return findings.in_order(found)


def explained_variance(recording: Recording) -> float:
    """Return 1 − Var(G − V_E)/Var(G) over all real steps; NaN where the task paid nothing.

    G is the discounted extrinsic return up to the episode's end, bootstrapped with V_E where
    it was cut off or the recording stops.
    """
    if not recording.reward[recording.valid].any():
        return float("nan")  # the returns would be made of V_E itself
    target = _returns_to_go(recording, recording.next_value_ext)[recording.valid]
    if np.ptp(target) <= 1e-12 * (1.0 + np.abs(target).max()):
        return float("nan")
    error = target - recording.value_ext[recording.valid]
    return float(1.0 - np.var(error) / np.var(target))


def _returns_to_go(recording: Recording, after: FloatArray) -> FloatArray:
    """Return the discounted extrinsic return from each step to the end of its episode.

    Args:
        recording: The recording.
        after: What follows a step at which the episode was truncated or its recording stops.
    """
    returns = np.zeros(recording.reward.shape)
    gamma = float(recording.meta["gamma_ext"])
    carried = after[-1]
    for t in range(recording.steps - 1, -1, -1):
        if t + 1 < recording.steps:
            goes_on = recording.valid[t + 1] & ~recording.begins[t + 1] & ~recording.ended[t]
            carried = np.where(goes_on, returns[t + 1], after[t])
        returns[t] = recording.reward[t] + gamma * np.where(recording.terminated[t], 0.0, carried)
    return returns


class _Episodes(NamedTuple):
    """The episodes that ended; what came before the recording's first step is left out."""

    returns: FloatArray
    unpaid: int
    """How many of them had no reward at all."""
    rates: FloatArray
    """The mean R of the episode of each step, NaN where it did not end, shape (T, n)."""


def _episodes(recording: Recording) -> _Episodes:
    ended, reward = recording.ended, recording.reward
    own = recording.episode + np.arange(recording.num_envs) * (recording.steps + 1)
    at = np.unique(own[recording.valid], return_inverse=True)[1]
    lengths = np.bincount(at)
    sums = np.bincount(at, reward[recording.valid]).astype(np.float64)
    paid = np.bincount(at, reward[recording.valid] != 0.0)
    over = np.bincount(at, ended[recording.valid]) > 0
    rates = np.full(reward.shape, np.nan)
    rates[recording.valid] = np.where(over, sums / lengths, np.nan)[at]
    return _Episodes(sums[over], int((paid[over] == 0).sum()), rates)


def _left(recording: Recording) -> float:
    """Return the share of steps at which F′ tells the agent the opposite of the task."""
    wrong = recording.contradicts(recording.total(), rounding=ROUNDING)
    return float(wrong[recording.valid].mean())


def _bad(recording: Recording) -> BoolArray:
    return is_bad(recording.advantage_ext, float(recording.meta["tie_tolerance"]))


def _explosion(recording: Recording) -> Iterator[Finding]:
    shaped = np.where(recording.valid, np.abs(recording.shaped), 0.0)
    largest = float(shaped.max())
    usual = recording.scale * float(np.abs(recording.intrinsic).max())
    if largest <= max(1e3 * usual, 1e3):
        yield fine(f"the size of F′ (at most {number(largest)})")
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
        yield Finding("warning", "F′ explodes", f"{facts}{findings.FLOAT32}.")
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
            f"A TimeLimit or a similar wrapper above it ended {counted(hidden, 'episode')}: debts "
            "are not settled there, and V(s′) is wrong. Put that wrapper below the shaping "
            "wrapper.",
        )


def _returns(recording: Recording) -> Iterator[Finding]:
    returns, unpaid, _ = _episodes(recording)
    if not len(returns):
        text = "This recording cannot tell what an episode earns: make it longer."
        yield Finding("note", "No episode ended", text)
    elif 2 * unpaid > len(returns):
        yield Finding(
            "warning",
            "The episodes earn nothing",
            f"In {unpaid} of {counted(len(returns), 'episode')} that ended, R was 0 at every step. "
            "If the agent was better than that in training, it has unlearned the task: the report "
            "of its run shows the best return.",
        )
    else:
        yield fine(
            f"what the episodes earn (a mean return of {number(_mean(returns))}, and nothing in "
            f"{unpaid} of {len(returns)})"
        )


def _critic(recording: Recording) -> Iterator[Finding]:
    explained = explained_variance(recording)
    if np.isnan(explained):
        yield Finding(
            "note",
            "How much V_E explains could not be checked",
            "The extrinsic reward did not vary here, so this recording cannot show whether V_E "
            "tells good actions from bad ones. If the task paid nothing during training either, "
            "V_E's verdict on an action is noise, and so is every conflict.",
        )
    elif explained < findings.NO_EXPLAINED_VARIANCE:
        yield Finding(
            "warning",
            "The critic explains nothing",
            f"V_E explains {share(max(0.0, explained))} of the variance of the extrinsic returns "
            f"(explained variance {number(explained)}): it has not learned, or it values another "
            "policy than the recorded one. Its verdict on an action is then noise, and so is "
            "every conflict and every correction here: the guarantee of ADOPS is for an exact "
            "critic.",
        )
    elif explained >= findings.NO_EXPLAINED_VARIANCE:
        yield fine(f"the explained variance of V_E ({number(explained)})")
    if not _bad(recording)[recording.valid].any():
        yield Finding(
            "note",
            "The critic sees no bad action",
            "A_E is never negative, as happens early in training, when V_E ≈ 0. The clamp then "
            "only lifts totals to 0: it can add to the bonus, but takes nothing away.",
        )


def _promises(recording: Recording) -> Iterator[Finding]:
    rates = _episodes(recording).rates
    over = np.isfinite(rates)
    if over.any():
        horizon = 1.0 / max(1.0 - float(recording.meta["gamma_ext"]), 1e-6)
        earned = _returns_to_go(recording, np.zeros(rates.shape))
        endless = _returns_to_go(recording, horizon * np.where(over, rates, 0.0))
        means = [_mean(stream[over]) for stream in (recording.value_ext, earned, endless)]
        yield findings.value_against_returns(*means)


def critic_reading(recording: Recording) -> Reading:
    """Compare the critic with the returns of the episodes that ended, as `CriticMeter` does."""
    over = np.isfinite(_episodes(recording).rates)
    earned = _returns_to_go(recording, recording.next_value_ext)
    terms = terms_of(
        recording.advantage_ext,
        recording.value_ext,
        earned,
        float(recording.meta["tie_tolerance"]),
    )[over]
    own = recording.episode + np.arange(recording.num_envs) * (recording.steps + 1)
    at = np.unique(own[over], return_inverse=True)[1]
    return reading_of(np.stack([np.bincount(at, term) for term in terms.T], axis=1))


def _agreement(recording: Recording) -> Iterator[Finding]:
    found = critic_reading(recording)
    if found.agreement is not None and found.low is not None and found.high is not None:
        yield findings.agreement(found.agreement, found.low, found.high)


def _conflicts(recording: Recording) -> Iterator[Finding]:
    valid = recording.valid
    if recording.intrinsic[valid].any():
        left = _left(recording)
        remedy = (
            f"With {recording.description} the agent is told the opposite of the task at "
            f"{share(left)} of steps."
        )
        rate = float(conflict_mask(recording)[valid].mean())
        yield findings.conflict_rate(rate, left, remedy, bool(recording.reward[valid].any()))


def _ratchet(recording: Recording) -> Iterator[Finding]:
    """V_I sustains itself: not raw F but corrections pay for it."""
    third = -(-recording.steps // 3)
    late = recording.valid[-third:]
    if not clamps(recording.method) or not late.any():
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
    else:
        yield fine(f"V_I beside the bonus (a mean of {number(value)} late in the recording)")


def _resolution(recording: Recording) -> Iterator[Finding]:
    """A margin ε that the learner's float32 rounds away."""
    bad = _bad(recording) & recording.valid
    # ε only decides where the correction has moved the total to its margin.
    bad &= (recording.correction != 0.0) & (recording.zeta[:, None] >= 1.0)
    if not clamps(recording.method) or not bad.any():
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
    if np.isnan(size) or size == 0.0:
        return
    if findings.SMALL_BONUS <= size <= findings.LARGE_BONUS:
        yield fine(f"the size of the bonus (its return has a root mean square of {number(size)})")
        return
    text = (
        f"The discounted return of the raw bonus has a root mean square of {number(size)}; "
        "normalised it is 1. "
    )
    if recording.has_critic:
        valid = recording.valid
        text += findings.values_beside(recording.value_int[valid], recording.value_ext[valid])
    if size > findings.LARGE_BONUS:
        yield findings.large_bonus(text)
    else:
        yield Finding("note", "The bonus is small", f"{text}It may be too faint to explore by.")


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


def _mean(values: FloatArray) -> float:
    return float(values.mean())
