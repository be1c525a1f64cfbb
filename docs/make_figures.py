"""Draws the pictures of README and docs: `python docs/make_figures.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
from adops_wrappers.tabular import ideal_critic

IMAGES = Path(__file__).parent / "images"
GRAY, BLUE, ORANGE = "0.45", "#0072B2", "#D55E00"
LEFT, RIGHT = 3, 1


def one_episode() -> None:
    """Raw bonus, correction and shaped bonus along one episode in the TV corridor.

    The bonus pays 1 for every step on the TV and 0.1 for every step towards the goal. The agent
    walks to the TV, watches, and then goes to the goal.
    """
    env = gym.make("adops/TVCorridor-v0")
    base: Any = env.unwrapped
    mdp = base.to_mdp(gamma=0.95)
    bonus = base.tempting_bonus()
    bonus[:, RIGHT] += 0.1
    # The critic knows the exact values, so this is ADOPS as the theorem has it.
    critic = ideal_critic(mdp, bonus, state_of=base.state_of)

    def source(obs: Any, action: Any, next_obs: Any) -> float:
        return float(bonus[base.state_of(obs), action, base.state_of(next_obs)].item())

    env = ADOPSWrapper(IntrinsicRewardWrapper(env, source), critic, **critic.settings)
    env.reset(seed=0)
    plan = [LEFT] * 4 + [LEFT] * 6 + [RIGHT] * 17
    infos = [env.step(action)[4] for action in plan]
    raw = np.array([info["raw_intrinsic_reward"] for info in infos])
    shaped = np.array([info["intrinsic_reward"] for info in infos])
    draw_episode(raw, shaped, IMAGES / "one_episode.png")


def draw_episode(raw: Any, shaped: Any, path: Path) -> None:
    steps = np.arange(len(raw)) + 1
    fig, ax = plt.subplots(figsize=(8, 3.1), layout="constrained")
    ax.bar(steps, raw, width=0.8, color="white", edgecolor=GRAY, lw=1.2, label="raw bonus F")
    ax.bar(steps, shaped, width=0.8, color=BLUE, label="shaped bonus F′")
    low, high = np.minimum(raw, shaped), np.maximum(raw, shaped)
    cut = np.abs(raw - shaped) > 1e-3
    ax.bar(
        steps[cut], (high - low)[cut], bottom=low[cut], width=0.8, facecolor="none",
        edgecolor=ORANGE, hatch="////", lw=0, label="correction F₂",
    )  # fmt: skip
    ax.axhline(0.0, color="0.2", lw=0.8)
    for x, text in ((2.5, "walks to\nthe TV"), (7.5, "watches"), (18.5, "walks to the goal")):
        ax.text(x, 1.13, text, ha="center", va="bottom", fontsize=9)
    for x in (4.5, 10.5):
        ax.axvline(x, color="0.7", lw=0.8, ls=":")
    ax.set(xlabel="step", ylabel="intrinsic reward", ylim=(-0.12, 1.42), xlim=(0.3, 27.7))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="center right", frameon=False, fontsize=9)
    fig.savefig(path, dpi=110)
    plt.close(fig)


if __name__ == "__main__":
    plt.rcParams["font.family"] = "DejaVu Sans"
    IMAGES.mkdir(exist_ok=True)
    one_episode()
