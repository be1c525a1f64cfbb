# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. The reward hacking gallery
#
# Six small worlds, each with something that pays a bonus forever. What does an agent do there
# that is *optimal* for task plus bonus? And what does it do when the bonus is shaped? No training
# is involved: we solve both exactly and play the solutions.

# %%
# %matplotlib inline
import os

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
from adops_wrappers.envs import GALLERY_IDS, LAYOUTS
from adops_wrappers.inspect import ShapingRecorder, plots
from adops_wrappers.inspect.report import write_report
from adops_wrappers.tabular import audit, ideal_critic

SHORT = os.environ.get("ADOPS_NOTEBOOKS_SHORT") == "1"  # for the tests
GAMMA, SIZE = 0.99, 0.3
WORLDS = GALLERY_IDS[3:] if SHORT else GALLERY_IDS

# %% [markdown]
# ## The worlds

# %%
figure, axes = plt.subplots(-(-len(WORLDS) // 3), 3, figsize=(7.2, 1.3 * -(-len(WORLDS) // 3)))
for axis, world in zip(axes.flat, WORLDS, strict=False):
    env = gym.make(world, render_mode="rgb_array")
    env.reset(seed=0)
    axis.imshow(env.render())
    axis.set_title(world, fontsize=8)
for axis in axes.flat:
    axis.set_axis_off()
figure.tight_layout()
for world in WORLDS:
    print(f"{world}: {LAYOUTS[world.split('/')[1][:-3]].story}")

# %% [markdown]
# ## Solved with the bonus, and played
#
# For each world we compute the optimal policy for $R$ alone, for $R + F$, and for $R + F'$ with
# ideal ADOPS. Where several actions tie, the policy takes the one that is worst for the task, to
# be safe.


# %%
def play(world, policy, seed=0, draw=False):
    """Return the extrinsic return, the bonuses collected, and pictures, of one episode."""
    env = gym.make(world, render_mode="rgb_array")
    bonus = env.unwrapped.tempting_bonus(SIZE)
    obs, _ = env.reset(seed=seed)
    earned, collected, frames, ended = 0.0, 0.0, [], False
    while not ended:
        state = int(env.unwrapped.state_of(obs))
        if draw:
            frames.append(env.render())
        obs, reward, terminated, truncated, _ = env.step(int(policy[state]))
        earned += reward
        collected += bonus[state, policy[state], int(env.unwrapped.state_of(obs))]
        ended = terminated or truncated
    return earned, collected, frames


def policies(world):
    env = gym.make(world)
    mdp, bonus = env.unwrapped.to_mdp(GAMMA), env.unwrapped.tempting_bonus(SIZE)
    q = mdp.solve().q
    raw, kept = audit(mdp, bonus, "raw"), audit(mdp, bonus, "adops")

    def worst(optimal):
        return np.where(optimal, q, np.inf).argmin(axis=1)

    return {
        "task alone": worst(raw.optimal_before),
        "raw bonus": worst(raw.optimal_after),
        "ADOPS": worst(kept.optimal_after),
    }


found = {world: policies(world) for world in WORLDS}
results = {
    world: {name: play(world, policy)[:2] for name, policy in chosen.items()}
    for world, chosen in found.items()
}
figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.8), layout="constrained", sharey=True)
places = np.arange(len(WORLDS))
looks = {"task alone": ("#767676", ""), "raw bonus": ("#D55E00", "///"), "ADOPS": ("#0072B2", "")}
for column, (axis, title) in enumerate(
    zip(axes, ("return of the task", "bonus collected"), strict=True)
):
    for offset, (name, (color, hatch)) in zip((-0.27, 0, 0.27), looks.items(), strict=True):
        sizes = [results[world][name][column] for world in WORLDS]
        axis.barh(
            places + offset, sizes, 0.25, color=color, hatch=hatch, edgecolor="white", label=name
        )
    axis.set_title(title, fontsize=9, loc="left")
axes[0].set_yticks(places, [world[6:-3] for world in WORLDS])
axes[0].invert_yaxis()
_ = axes[1].legend(frameon=False, fontsize=8)

# %% [markdown]
# With the raw bonus every world is lost: the optimal agent collects bonuses until the episode is
# cut off, and the task's return is lower. With ADOPS the task's return is the same as without any
# bonus.

# %%
for world in WORLDS:
    assert results[world]["raw bonus"][0] < results[world]["task alone"][0]
    assert results[world]["ADOPS"][0] == results[world]["task alone"][0]

# %% [markdown]
# ## Watching an agent exploit the bonus
#
# The optimal policy for $R + F$ in the ring with the bell, and the one with ADOPS, step by step:

# %%
world = "adops/LoopFarm-v0"
figure, axes = plt.subplots(2, 6, figsize=(7.2, 2.0), layout="constrained")
for row, name in zip(axes, ("raw bonus", "ADOPS"), strict=True):
    earned, collected, frames = play(world, found[world][name], draw=True)
    shown = np.linspace(0, min(len(frames), 17) - 1, 6).astype(int)
    for axis, t in zip(row, shown, strict=True):
        axis.imshow(frames[t])
        axis.set_title(f"{name}: t = {t}", fontsize=7)
        axis.set_axis_off()

# %% [markdown]
# ## What the wrapper sees on the way
#
# We record a wandering agent with an exact critic: where is the bonus tempting, and what is left
# of it?

# %%
env = gym.make(world, render_mode="rgb_array")
mdp, bonus = env.unwrapped.to_mdp(GAMMA), env.unwrapped.tempting_bonus(SIZE)
state_of = env.unwrapped.state_of
oracle = ideal_critic(mdp, bonus, state_of=state_of)
env = IntrinsicRewardWrapper(env, lambda s, a, after: bonus[state_of(s), a, state_of(after)])
env = ADOPSWrapper(env, oracle, **oracle.settings)
env = ShapingRecorder(env, "farm.npz", oracle, frames="render", frame_size=120)
rng = np.random.default_rng(0)
farming = found[world]["raw bonus"]
for episode in range(2 if SHORT else 8):
    obs, _ = env.reset(seed=episode)
    ended = False
    while not ended:
        # Half of the time the policy that farms the bell, otherwise a random action.
        state = int(state_of(obs))
        action = farming[state] if rng.random() < 0.5 else rng.integers(4)
        obs, _, terminated, truncated, _ = env.step(int(action))
        ended = terminated or truncated
recording = env.finish()
plots.plot_streams(recording)

# %%
plots.plot_film_strip(recording, count=6, spacing=4)

# %%
print(write_report("farm.npz", "farm.html"))

# %% [markdown]
# Each frame is a moment at which the bell tempts the agent away from its task. What ADOPS leaves
# of the bonus there is just too little to make the lap worthwhile. Elsewhere the bonus is
# untouched.
#
# To try your own agent on these worlds, wrap it as in [notebook 1](01_quickstart.ipynb): they are
# registered as `adops/…-v0` when you import `adops_wrappers`.
