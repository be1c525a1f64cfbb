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
# # 4. Choose a method: one rollout, every method
#
# What does each method make of the *same* steps? A recording answers that without running the env
# again: the recorded transitions go through the same code as in the wrappers. Given the recorded
# values of the critic, the result is what each wrapper would have emitted, to the last bit.

# %%
# %matplotlib inline
import math
import os

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from adops_wrappers import IntrinsicRewardWrapper, PBIMWrapper
from adops_wrappers.inspect import ShapingRecorder, plots, reshape
from adops_wrappers.shaping import GRM, PBIM
from adops_wrappers.tabular import policy_critic

SHORT = os.environ.get("ADOPS_NOTEBOOKS_SHORT") == "1"  # for the tests

# %% [markdown]
# ## One rollout
#
# In the corridor of [notebook 1](01_quickstart.ipynb), the policy wanders between the TV and the
# goal. The bonus pays 1 for every arrival at the TV. The critic is exact: it gives the values of
# this very policy, computed from the env's MDP, so that no learning blurs the picture.

# %%
GAMMA = 0.99
env = gym.make("adops/TVCorridor-v0", render_mode="rgb_array")
mdp, bonus = env.unwrapped.to_mdp(GAMMA), env.unwrapped.tempting_bonus()
policy = np.tile([0.05, 0.45, 0.05, 0.45], (mdp.num_states, 1))
state_of = env.unwrapped.state_of
critic = policy_critic(mdp, policy, bonus, state_of=state_of)

stack = IntrinsicRewardWrapper(env, lambda s, a, after: bonus[state_of(s), a, state_of(after)])
stack = ShapingRecorder(stack, "wander.npz", critic, gamma_ext=GAMMA, gamma_int=GAMMA)
rng = np.random.default_rng(1)
for episode in range(4):
    stack.reset(seed=episode)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = stack.step(int(rng.choice(4, p=policy[0])))
        ended = terminated or truncated
recording = stack.finish()
recording

# %% [markdown]
# ## What each method makes of it

# %%
methods = {
    "raw": ("none", {}),
    "PIES, half-way": ("pies", {"decay_updates": 2, "update_every": 10**6}),
    "ADOPS": ("adops", {"tie_tolerance": 1e-9}),
    "ADOPES, half-way": ("adopes", {"ramp_updates": 2, "update_every": 10**6}),
    "PBIM": ("pbim", {}),
    "PBIM, normalised": ("pbim-norm", {}),
    "GRM, D = 1": ("grm", {}),
    "GRM, D = 10": ("grm", {"delay": 10}),
}
shaped = reshape(recording, methods, updates=1)
plots.plot_methods(recording, shaped)

# %% [markdown]
# - **PIES** only fades the bonus, which still fights the task, just less.
# - **ADOPS** looks at each step separately. It keeps the bonus where it does no harm, takes away
#   what would make a bad action look good, and adds something where a good action would look bad.
# - **PBIM** gives the bonus and takes all of it back at the very end, with interest.
# - **GRM($D$)** takes each bonus back after $D$ steps.
#
# Which of them still contradict the critic?

# %%
advantage = recording.advantage_ext[recording.valid]
wrong = {}
for name, stream in shaped.items():
    total = recording.total(stream)[recording.valid]
    wrong[name] = np.mean(np.where(advantage < -1e-9, total >= 0, total < -1e-9))
figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
axis.barh(list(wrong), list(wrong.values()), color="#0072B2")
axis.set_xlim(0, 1)
axis.invert_yaxis()
axis.bar_label(axis.containers[0], fmt=lambda x: f"{100 * x:.0f} %", padding=3)
axis.set_xlabel("share of steps whose total advantage has the wrong sign")
assert wrong["ADOPS"] == 0.0 < wrong["raw"]

# %% [markdown]
# Only ADOPS never does, by construction. PBIM and GRM keep the optimal policies in another way:
# over a whole episode, their bonus sums to nothing, whatever the agent does. Step by step they
# still disagree with this critic, whose $V_I$ is that of the raw bonus.
#
# ## PBIM's explosion
#
# The *interest* is where PBIM breaks. A bonus of 1 at step $t$ has become a debt of
# $\gamma^{-(N-1-t)}$ when the episode ends with step $N - 1$. How large is the last $F'$, for a
# bonus of 1 per step?

# %%
lengths = np.unique(np.geomspace(2, 4500, 12 if SHORT else 40).astype(int))


def last_reward(shaper, length):
    """F′ of the last step of an episode that pays 1 per step, from the package's own shaper."""
    from adops_wrappers import Transition

    zeros, flags = np.zeros((length, 1)), np.zeros((length, 1), dtype=bool)
    end = flags.copy()
    end[-1] = True
    steps = Transition(zeros, zeros + 1.0, zeros, zeros, zeros, zeros, None, end, flags, ~flags)
    return shaper.rollout(steps)[-1, 0]


figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
styles = [("#D55E00", "-"), ("#E69F00", "--"), ("#0072B2", "-."), ("#009E73", ":")]
for gamma, (color, line) in zip([0.99, 0.995, 0.999, 0.9999], styles, strict=True):
    sizes = [-last_reward(PBIM(gamma=gamma), int(n)) for n in lengths]
    axis.plot(lengths, sizes, line, color=color, label=f"PBIM, γ = {gamma}")
grm = [-last_reward(GRM(gamma=0.99, delay=1), int(n)) for n in lengths]
axis.plot(lengths, grm, color="black", label="GRM(1), γ = 0.99")
axis.axhline(1e8, color="#767676", linewidth=1)
axis.text(2, 1.6e8, "float32 loses a reward of 1 beyond this", color="#767676", fontsize=8)
axis.axvline(640, color="#767676", linewidth=1, linestyle=":")
axis.text(
    610, 2e16, "longest episode on which\nPBIM was shown to help: 640", ha="right", fontsize=8
)
axis.set(xscale="log", yscale="log", xlabel="episode length N", ylabel="|last F′|")
_ = axis.legend(frameon=False)
# %% [markdown]
# RND plays Montezuma's Revenge with $N = 4500$ steps and $\gamma_I = 0.99$. The paper estimates
# the order of magnitude as $1/\gamma^N$. With a bonus at *every* step the debts add up, to about
# $1/(1 - \gamma) = 100$ times that.

# %%
paper = 0.99**-4500
ours = last_reward(PBIM(gamma=0.99), 4500)
print(f"1/0.99^4500 = {paper:.1e}   last F′ of PBIM = {ours:.1e}   ratio {-ours / paper:.0f}")
assert math.isclose(-ours, 0.99 * (0.99**-4499 - 1) / 0.01 / 0.99, rel_tol=1e-9)

# %% [markdown]
# ## The same, seen through the wrapper
#
# An agent that the TV has captured sits in front of it until the episode is cut off. Here are its
# 4500 steps with PBIM. The wrapper warns once, and the report of the recording says the same.

# %%
import warnings

from adops_wrappers.inspect import diagnosis

steps = 1500 if SHORT else 4500
env = gym.make("adops/TVCorridor-v0", horizon=steps)
stack = IntrinsicRewardWrapper(env, lambda s, a, after: bonus[state_of(s), a, state_of(after)])
stack = ShapingRecorder(PBIMWrapper(stack, gamma=0.99), "tv.npz", critic, gamma_ext=0.99)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    stack.reset(seed=0)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = stack.step(3)  # left, into the wall: the TV stays on
        ended = terminated or truncated
print(caught[-1].message)
watching = stack.finish()
plots.plot_methods(watching, reshape(watching, ["none", "pbim", "grm", "adops"]))

# %%
for finding in diagnosis.diagnose(watching):
    print(f"{finding.kind}: {finding.title}. {finding.text}\n")
assert diagnosis.diagnose(watching)[0].title == "F′ explodes"

# %% [markdown]
# PBIM's last reward outweighs everything before it by many orders of magnitude: nineteen at 4500
# steps. GRM with a short delay never owes more than $D$ steps. ADOPS owes nothing: it looks at one
# step at a time, and at the TV pays just so much that staying there looks no better than it is.
#
# The note is right, too: an agent that only watches is never paid by the task, so nothing in its
# recording can confirm the critic. A poor critic is the weak point of every method that asks one.
#
# **Next**: [notebook 5](05_reward_hacking_gallery.ipynb) shows six traps to try your own agent
# on.
