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
# # 1. Quickstart: does my bonus fight my task?
#
# An intrinsic bonus makes an agent explore. Does it also distract the agent from its task? To
# find out for your own env you need three things: the env, the bonus, and a critic, which
# estimates how good a state is. Here all three are as small as possible, so that you can follow
# every line.
#
# The five notebooks follow the path of the documentation's start page: wrap an env and look at it
# (this one), [audit it](02_optimality_audit.ipynb), [train and
# inspect](03_inspecting_shaped_rewards.ipynb), [choose a method](04_method_comparison.ipynb), and
# a [gallery](05_reward_hacking_gallery.ipynb) of traps for your own agent.
#
# `pip install adops-wrappers[notebooks]` installs everything that this notebook needs.

# %%
# %matplotlib inline
import os
from pathlib import Path

import gymnasium as gym
import numpy as np

from adops_wrappers import ADOPSWrapper, CriticHandle, IntrinsicRewardWrapper
from adops_wrappers.inspect import ShapingRecorder, conflicts, plots
from adops_wrappers.inspect.report import write_report

SHORT = os.environ.get("ADOPS_NOTEBOOKS_SHORT") == "1"  # for the tests

# %% [markdown]
# ## The env and the bonus
#
# In this corridor the agent starts four steps to the right of a TV, and thirteen steps to the left
# of the goal. The TV shows a new random picture at every step, so a bonus for new pictures never
# wears off there.


# %%
def new_picture(obs, action, next_obs):
    """F: 0.2 for a picture never seen before, which is every picture on the TV."""
    return 0.2 * np.abs(next_obs[-16:]).mean()


env = gym.make("adops/TVCorridor-v0", render_mode="rgb_array")
env = IntrinsicRewardWrapper(env, new_picture)

# %% [markdown]
# ## The critic
#
# ADOPS asks the agent's own critic how good an action is for the *task*. We create a handle
# first, because the wrapper needs it; the agent registers with it later. Any function from an
# observation to `(V_E, V_I)` will do: $V_E$ is the value of the task's reward, $V_I$ that of the
# shaped bonus. A deep agent would register its network. Ours is a table that learns by temporal
# differences: the wrapper passes every step that it sees to `observe`.

# %%
GAMMA_EXT, GAMMA_INT = 0.99, 0.95


class TableCritic:
    def __init__(self, state_of, states):
        self.state_of = state_of
        self.v_ext, self.v_int = np.zeros(states), np.zeros(states)
        self.learning_rate = 0.2

    def __call__(self, obs):
        state = self.state_of(obs)
        return self.v_ext[state], self.v_int[state]

    def observe(self, step):
        s, after = self.state_of(step.observation), self.state_of(step.next_observation)
        goes_on = 0.0 if step.terminated[0] else 1.0
        error_ext = step.reward[0] + GAMMA_EXT * goes_on * self.v_ext[after] - self.v_ext[s]
        error_int = step.shaped[0] + GAMMA_INT * self.v_int[after] - self.v_int[s]
        self.v_ext[s] += self.learning_rate * error_ext
        self.v_int[s] += self.learning_rate * error_int


critic = CriticHandle()
table = TableCritic(env.unwrapped.state_of, states=18)
critic.register(table)

# %% [markdown]
# ## Wrap, and let the critic learn
#
# One line shapes the bonus. The policy in this notebook wanders, slightly more to the right than to
# the left, so that it sees both the TV and the goal.

# %%
shaped_env = ADOPSWrapper(env, critic, gamma_ext=GAMMA_EXT, gamma_int=GAMMA_INT, epsilon=1e-3)
rng = np.random.default_rng(0)


def wander(env, episodes):
    for episode in range(episodes):
        env.reset(seed=episode)
        ended = False
        while not ended:
            action = int(rng.choice(4, p=[0.05, 0.5, 0.05, 0.4]))  # up, right, down, left
            _, _, terminated, truncated, _ = env.step(action)
            critic.updated()  # the table has just changed
            ended = terminated or truncated


wander(shaped_env, 40 if SHORT else 300)
column = env.unwrapped.to_mdp(GAMMA_EXT).grid.column
print("V_E from the TV to the goal:", np.round(table.v_ext[np.argsort(column)], 2))

# %% [markdown]
# $V_E$ rises towards the goal, so the critic knows the way. ADOPS needs no more than that.
#
# ## Look
#
# The recorder goes on top of the stack and changes nothing. It writes what the shaping wrapper saw,
# step by step, into one file that loads without the env.

# %%
table.learning_rate = 0.0  # from here on we only look
recorder = ShapingRecorder(shaped_env, "corridor.npz", critic, frames="render", frame_size=160)
wander(recorder, 5 if SHORT else 20)
recording = recorder.finish()
recording

# %% [markdown]
# **How often does the bonus fight the task, and what did ADOPS do about it?** The middle row shows
# the raw bonus (dashed) and what the agent gets (solid); what was taken away is hatched, what was
# added is green. The bottom row shows the task's advantage of each action (dotted), and the
# advantage that the agent would learn from.

# %%
plots.plot_streams(recording, window=80)

# %% [markdown]
# **The same for all steps at once.** Actions that lead away from the goal are to the left of the
# middle. With the raw bonus, many of them end up in a hatched corner: the agent is told that they
# are good. With $F'$, both hatched corners are empty.

# %%
plots.plot_sign_plane(recording)

# %%
worst = conflicts(recording, top=3)
for c in worst:
    print(f"step {c.step} of episode {c.episode}: {c.kind}, A_E = {c.advantage_ext:.3f}, ", end="")
    print(f"total with F: {c.total_raw:.3f}, with F′: {c.total_shaped:.3f}")
assert worst, "the TV is tempting"

# %% [markdown]
# **Where does this happen?** In front of the TV, as expected.

# %%
plots.plot_film_strip(recording, count=6)

# %% [markdown]
# ## All of this as one page
#
# `python -m adops_wrappers.inspect corridor.npz --out report.html` writes the same pictures, a
# summary in words and any warnings into one HTML file. The same from Python:

# %%
page = write_report("corridor.npz", "report.html")
print(page, f"{Path(page).stat().st_size / 1e3:.0f} kB")

# %% [markdown]
# **Next**: a recording shows some steps of one policy. [Notebook 2](02_optimality_audit.ipynb) asks
# about all policies: does the bonus change which of them are optimal?
