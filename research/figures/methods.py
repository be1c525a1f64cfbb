"""Draws the pictures of the README and of the concept and method pages.

    python -m research.figures.methods

Every curve comes out of the package's own shapers and wrappers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper, PBRSWrapper, Transition
from adops_wrappers.inspect.plots.style import BLUE, VERMILION
from adops_wrappers.shaping import ADOPS, GRM, PBIM, PIES, Shaper
from adops_wrappers.shaping.adops import ADOPES
from adops_wrappers.tabular import ideal_critic
from research import ROOT

GRAY = "0.5"
LEFT, RIGHT = 3, 1


def transition(reward: Any, bonus: Any, *, last: bool = False) -> Transition:
    """One step of n rows with all values 0."""
    reward, bonus = np.broadcast_arrays(
        np.asarray(reward, dtype=np.float64), np.atleast_1d(np.asarray(bonus, dtype=np.float64))
    )
    zeros, never = np.zeros(bonus.shape), np.zeros(bonus.shape, dtype=np.bool_)
    return Transition(
        reward, bonus, zeros, zeros, zeros, zeros, None, never | last, never, ~never
    )  # fmt: skip


def episode(shaper: Shaper, bonuses: Any) -> Any:
    """F′ along one episode that ends with the last bonus."""
    last = len(bonuses) - 1
    return np.array(
        [shaper.step(transition(0.0, f, last=t == last))[0] for t, f in enumerate(bonuses)]
    )


def bare(figure: Figure) -> Figure:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def clamp() -> Figure:
    epsilon = 0.3
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
    cases = ((-1.0, "bad for the task: A_E = −1"), (1.0, "good for the task: A_E = +1"))
    for axis, (advantage, title) in zip(axes, cases, strict=True):
        bonus = np.linspace(-3.0, 3.0, 241)
        # A last step with V = 0: A_E is the reward, δ_I is F.
        shaper = ADOPS(len(bonus), epsilon=epsilon)
        shaped = shaper.step(transition(advantage, bonus, last=True))
        before, after = advantage + bonus, advantage + shaped
        axis.plot(before, before, color=GRAY, ls=":", label="before: A_E + δ_I")
        axis.plot(before, after, color=BLUE, lw=2, label="after ADOPS")
        axis.fill_between(before, before, after, color=VERMILION, alpha=0.25, label="correction F₂")
        axis.axhline(0, color="0.2", lw=0.8)
        axis.set(title=title, xlabel="total advantage with the raw bonus", xlim=(-2, 2))
    axes[0].axhline(-epsilon, color=BLUE, lw=0.8, ls="--")
    axes[0].text(-1.9, -epsilon + 0.08, "−ε", color=BLUE)
    axes[0].set(ylabel="total advantage", ylim=(-2, 2))
    axes[1].legend(frameon=False, fontsize=8, loc="lower right")
    return bare(figure)


def corridor(plan: Sequence[int]) -> tuple[Any, Any]:
    """F and F′ of ADOPS along one episode in the TV corridor.

    The bonus pays 1 for every step on the TV and 0.1 for every step towards the goal. The critic
    knows the exact values, so this is ADOPS as the theorem has it.
    """
    env = gym.make("adops/TVCorridor-v0")
    base: Any = env.unwrapped
    bonus = base.tempting_bonus()
    bonus[:, RIGHT] += 0.1
    critic = ideal_critic(base.to_mdp(gamma=0.95), bonus, state_of=base.state_of)

    def source(obs: Any, action: Any, next_obs: Any) -> float:
        return float(bonus[base.state_of(obs), action, base.state_of(next_obs)].item())

    settings: dict[str, Any] = critic.settings
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, source), critic, **settings)
    env.reset(seed=0)
    infos = [env.step(action)[4] for action in plan]
    keys = ("raw_intrinsic_reward", "intrinsic_reward")
    raw, shaped = (np.array([info[key] for info in infos]) for key in keys)
    return raw, shaped


def one_episode() -> Figure:
    """The agent walks to the TV, watches, and then goes to the goal: the README's picture."""
    raw, shaped = corridor([LEFT] * 10 + [RIGHT] * 17)
    steps = np.arange(len(raw)) + 1
    fig, ax = plt.subplots(figsize=(8, 3.1), layout="constrained")
    ax.bar(steps, raw, width=0.8, color="white", edgecolor="0.45", lw=1.2, label="raw bonus F")
    ax.bar(steps, shaped, width=0.8, color=BLUE, label="shaped bonus F′")
    low, high = np.minimum(raw, shaped), np.maximum(raw, shaped)
    cut = np.abs(raw - shaped) > 1e-3
    ax.bar(
        steps[cut], (high - low)[cut], bottom=low[cut], width=0.8, facecolor="none",
        edgecolor=VERMILION, hatch="////", lw=0, label="correction F₂",
    )  # fmt: skip
    ax.axhline(0.0, color="0.2", lw=0.8)
    for x, text in ((2.5, "walks to\nthe TV"), (7.5, "watches"), (18.5, "walks to the goal")):
        ax.text(x, 1.13, text, ha="center", va="bottom", fontsize=9)
    for x in (4.5, 10.5):
        ax.axvline(x, color="0.7", lw=0.8, ls=":")
    ax.set(xlabel="step", ylabel="intrinsic reward", ylim=(-0.12, 1.42), xlim=(0.3, 27.7))
    ax.legend(loc="center right", frameon=False, fontsize=9)
    return bare(fig)


def adops() -> Figure:
    raw, shaped = corridor([LEFT] * 8 + [RIGHT] * 12)
    figure, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
    bars(axis, raw, shaped)
    axis.text(2.5, 1.04, "to the TV", ha="center", fontsize=9)
    axis.text(6.6, 1.04, "watches", ha="center", fontsize=9)
    axis.text(14.5, 1.04, "towards the goal", ha="center", fontsize=9)
    axis.set_ylim(-0.1, 1.2)
    return bare(figure)


def bars(axis: Any, raw: Any, shaped: Any) -> None:
    steps = np.arange(len(raw)) + 1
    axis.bar(steps, raw, width=0.8, color="white", edgecolor=GRAY, label="F")
    axis.bar(steps, shaped, width=0.5, color=BLUE, label="F′")
    axis.axhline(0, color="0.2", lw=0.8)
    axis.set(xlabel="step", ylabel="intrinsic reward")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False, fontsize=9)


def adopes() -> Figure:
    bonus = np.linspace(0.0, 3.0, 121)
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    for zeta, shade in zip((0.0, 0.25, 0.5, 0.75, 1.0), np.linspace(0.75, 0.0, 5), strict=True):
        shaper = ADOPES(len(bonus), ramp_updates=4, update_every=1, epsilon=0.1)
        for _ in range(int(4 * zeta)):
            shaper.step(transition(-1.0, bonus, last=True))
        shaped = shaper.step(transition(-1.0, bonus, last=True))
        axis.plot(bonus, shaped, color=plt.cm.Blues(1.0 - shade), label=f"ζ = {zeta:g}")
    axis.set(xlabel="F", ylabel="F′")
    axis.legend(frameon=False, fontsize=9)
    return bare(figure)


def pies() -> Figure:
    rng = np.random.default_rng(0)
    raw = 1.0 + 0.3 * rng.normal(size=400)
    shaper = PIES(decay_updates=300, update_every=1)
    shaped = [shaper.step(transition(0.0, f))[0] for f in raw]
    figure, axis = plt.subplots(figsize=(8, 2.6), layout="constrained")
    axis.plot(raw, color=GRAY, lw=0.7, label="F")
    axis.plot(shaped, color=BLUE, lw=0.9, label="F′ = ζ·F")
    axis.plot(np.maximum(0.0, 1.0 - np.arange(400) / 300), color=VERMILION, label="ζ")
    axis.set(xlabel="update n", ylim=(-0.1, 2.0))
    axis.legend(frameon=False, fontsize=9)
    return bare(figure)


def pbim() -> Figure:
    raw = np.ones(20)
    figure, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
    bars(axis, raw, episode(PBIM(gamma=0.95), raw))
    return bare(figure)


def grm() -> Figure:
    raw = np.zeros(20)
    raw[[2, 3, 10, 17]] = [1.0, 0.5, 0.8, 0.6]
    figure, axes = plt.subplots(2, 1, figsize=(8, 4.2), layout="constrained", sharex=True)
    for axis, delay in zip(axes, (1, 5), strict=True):
        bars(axis, raw, episode(GRM(delay=delay, gamma=0.95), raw))
        axis.set(title=f"D = {delay}", ylim=(-1.5, 1.3))
    axes[0].set_xlabel("")
    return bare(figure)


def pbrs() -> Figure:
    def minus_distance(obs: Any, t: Any) -> float:
        row, column = divmod(int(obs), 12)
        return -float(abs(3 - row) + abs(11 - column))

    env = PBRSWrapper(gym.make("CliffWalking-v1"), minus_distance, gamma=0.99)
    env.reset(seed=0)
    plan = [0, 0, 0, 1, 1, 3, 1, *[1] * 9, 2, 2, 2]
    obs, shaped = [36], []
    for action in plan:
        state, _, _, _, info = env.step(action)
        obs.append(state)
        shaped.append(info["intrinsic_reward"])
    figure, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
    steps = np.arange(len(shaped)) + 1
    axis.bar(steps, shaped, color=BLUE, label="F′ = γΦ(s′) − Φ(s)")
    axis.axhline(0, color="0.2", lw=0.8)
    axis.set(xlabel="step", ylabel="F′", ylim=(-1.4, 1.6))
    twin = axis.twinx()
    twin.plot(np.arange(len(obs)) + 0.5, [minus_distance(s, 0) for s in obs], color=VERMILION)
    twin.set_ylabel("Φ", color=VERMILION)
    axis.legend(frameon=False, fontsize=9, loc="upper center")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    draw.__name__: draw for draw in (one_episode, clamp, adops, adopes, pies, pbim, grm, pbrs)
}


def main(folder: Path = ROOT / "docs" / "images") -> None:
    """Draw all pictures."""
    with plt.rc_context({"font.family": "DejaVu Sans"}):
        for name, draw in PICTURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.png", dpi=110)
            plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    main()
