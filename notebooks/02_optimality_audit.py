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
# # 2. The optimality audit: does shaping keep the optimal policies?
#
# On a finite MDP this question has an exact answer, before any training: solve the task, solve it
# again with the shaped bonus added, and compare the optimal actions in every state.
# `python -m adops_wrappers.tabular` does the same on the command line.

# %%
# %matplotlib inline
import os

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
from adops_wrappers.inspect import ShapingRecorder, plots
from adops_wrappers.tabular import FiniteMDP, audit, ideal_critic, mdp_from_env
from adops_wrappers.tabular.plot import plot_audit

SHORT = os.environ.get("ADOPS_NOTEBOOKS_SHORT") == "1"  # for the tests

# %% [markdown]
# ## A TV beside the cliff
#
# In cliff walking each step costs 1, and falling costs 100. A TV in the upper left corner pays a
# bonus of 1 for every arrival, forever. Does the raw bonus change what is optimal?

# %%
mdp = mdp_from_env(gym.make("CliffWalking-v1"), gamma=0.99)
bonus = np.zeros((48, 4, 48))
bonus[:, :, 0] = 1.0
raw = audit(mdp, bonus, "raw")
print(raw)

# %%
plot_audit(raw, "raw.png", bonus, "raw bonus")
Image("raw.png", width=640)

# %% [markdown]
# It does, in 21 states: from there it is now best to walk to the TV and stay. The upper picture
# shows the optimal actions for the task, the lower one those with the bonus; changed states are
# marked. The regret is what the worst of the newly optimal policies loses on the task.
#
# ## Every method

# %%
settings = {"pbim": {"horizon": 5}, "pbim-norm": {"horizon": 4}}
methods = ["raw", "pies", "adopes", "grm", "pbim", "adops"]
if SHORT:
    settings["pbim"]["horizon"] = 4
for method in methods:
    report = audit(mdp, bonus, method, **settings.get(method, {}))
    verdict = "kept" if report.preserved else f"CHANGED in {len(report.changed_states)} states"
    print(f"{report.label:12} {verdict:22} regret {report.regret:.3g}")

# %% [markdown]
# PIES and ADOPES are audited half-way through their schedules, at $\zeta = 0.5$, where they promise
# nothing yet. PIES gets away with it here, because half of this bonus is too small to do harm; half
# a correction, as in ADOPES, is not enough. GRM keeps the optimal policies because a bonus that is
# taken back one step later cannot pay for staying. So does PBIM, on episodes short enough to
# enumerate; long episodes are another story, told in [notebook 4](04_method_comparison.ipynb).
# ADOPS keeps them by asking an exact critic.

# %%
kept = audit(mdp, bonus, "adops")
plot_audit(kept, "adops.png", bonus, "ADOPS")
Image("adops.png", width=640)

# %% [markdown]
# ## The smallest MDPs that tell the methods apart
#
# Where does each guarantee end? One state with two actions is enough to break the raw bonus. A task
# that never ends breaks PBIM, which then never has to pay anything back.

# %%
one_way = np.zeros((2, 2, 2))
one_way[:, :, 1] = 1.0
bandit = FiniteMDP(one_way, [[1.0, 0.0], [0.0, 0.0]], gamma=0.9, terminal=[1])
strong, weak = [[0.0, 2.0], [0.0, 0.0]], [[0.0, 0.3], [0.0, 0.0]]
stay = np.ones((1, 2, 1))
television = FiniteMDP(stay, [[1.0, 0.0]], gamma=0.9)
table = {
    "bandit, bonus 2 for the worse arm": (bandit, strong, {}),
    "bandit, bonus 0.3 for that arm": (bandit, weak, {}),
    "TV that never ends": (television, [[0.0, 2.0]], {}),
}
print(f"{'':36}" + "".join(f"{method:>8}" for method in ("raw", "pbim", "grm", "adops")))
verdicts = {}
for name, (task, extra, more) in table.items():
    row = []
    for method in ("raw", "pbim", "grm", "adops"):
        if method == "pbim" and task is television:
            row.append(audit(task, extra, "raw").preserved)  # no end: PBIM is the raw bonus
        else:
            row.append(audit(task, extra, method, **more).preserved)
    verdicts[name] = row
    print(f"{name:36}" + "".join(f"{'kept' if ok else 'no':>8}" for ok in row))
assert verdicts["bandit, bonus 2 for the worse arm"] == [False, True, True, True]
assert verdicts["TV that never ends"] == [False, False, True, True]

# %% [markdown]
# ## How strong must a bonus be to do harm?
#
# The plot shows the regret against the size of the bonus, on the cliff. Below a threshold nothing
# happens; above it the task is lost at once. Nobody knows this threshold in advance, which is why
# scaling a bonus down is not a cure by itself.

# %%
sizes = np.geomspace(0.01, 10, 7 if SHORT else 25)
figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
for method, color, line in (("raw", "#D55E00", "-"), ("adops", "#0072B2", "--")):
    regrets = [audit(mdp, size * bonus, method).regret for size in sizes]
    axis.plot(sizes, regrets, line, color=color, label=method)
axis.set(xscale="log", xlabel="bonus of the TV", ylabel="regret on the task")
_ = axis.legend(frameon=False)
# %% [markdown]
# ## The same guarantee on the code path of training
#
# An oracle critic gives the wrapper exact values, through the same interface that an agent uses.
# The wrapper with this critic is what we have just audited.

# %%
oracle = ideal_critic(mdp, bonus)
env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, after: bonus[s, a, after])
env = ShapingRecorder(ADOPSWrapper(env, oracle, **oracle.settings), "cliff.npz", oracle)
rng = np.random.default_rng(0)
env.reset(seed=0)
for _ in range(300 if SHORT else 2000):
    _, _, terminated, truncated, _ = env.step(int(rng.choice(4, p=[0.4, 0.15, 0.05, 0.4])))
    if terminated or truncated:
        env.reset()
recording = env.finish()
plots.plot_sign_plane(recording)

# %% [markdown]
# With $F'$ (right), the optimal actions, at $A_E = 0$, have a total at or above 0, and all others
# are below. **What this does not say**: the guarantee is for an exact critic. An agent that is
# still learning its critic has no guarantee, and with ties even an exact critic only guarantees
# that no bad action becomes optimal.
#
# **Next**: [notebook 3](03_inspecting_shaped_rewards.ipynb) trains an agent, whose critic is
# learned.
