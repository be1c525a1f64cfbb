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
# # 3. Train and inspect: RND on Montezuma's Revenge
#
# "How do I know that the intrinsic reward is right?" With a real bonus, random network
# distillation, and a real agent, you look at what the bonus pays for, where it fights the task, and
# whether the critic can tell. This notebook trains a PPO agent with RND and ADOPS for a few
# minutes, lets it play, and inspects the recording.
#
# It needs a checkout of the repository (for `train/`) and
# `pip install adops-wrappers[atari,train,notebooks]`.

# %%
# %matplotlib inline
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import adops_wrappers
from adops_wrappers.inspect import Recording, conflicts, diagnosis, plots, reshape
from adops_wrappers.inspect.report import write_report
from adops_wrappers.inspect.runs import Run

SHORT = os.environ.get("ADOPS_NOTEBOOKS_SHORT") == "1"  # for the tests
REPOSITORY = Path(adops_wrappers.__file__).parents[1]

# %% [markdown]
# ## A briefly trained agent
#
# This is the repository's training script with the paper's settings, only smaller and shorter. For
# more, give it a GPU and a day.

# %%
size = "--num-envs 2 --num-steps 16 --total-iterations 2 --obs-norm-init-iterations 1"
if not SHORT:
    size = "--num-envs 8 --num-steps 128 --total-iterations 25 --obs-norm-init-iterations 2"
command = f"train/ppo_rnd.py --shaping adops --run-dir {Path('run').resolve()} --no-tensorboard"
environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
for script in (
    f"{command} {size} --torch-threads 1",
    f"train/record.py {Path('run').resolve()} --steps {40 if SHORT else 1000} --frame-size 105",
):
    done = subprocess.run(
        [sys.executable, *script.split()],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip().splitlines()[-1])

# %% [markdown]
# `train/record.py` let the agent play with everything frozen: its policy, its critic, RND's
# networks and scales. The recording loads without the game.

# %%
recording = Recording.load("run/recording.npz")
recording

# %% [markdown]
# ## What does RND pay for?
#
# These are the steps with the largest raw bonus, and what was on the screen.

# %%
import matplotlib.pyplot as plt

bonus = recording.intrinsic[:, 0]
picked: list[int] = []
for t in np.argsort(-bonus):
    if all(abs(t - other) >= (5 if SHORT else 40) for other in picked):
        picked.append(int(t))
    if len(picked) == 5:
        break
figure, axes = plt.subplots(1, 5, figsize=(7.2, 2.4), layout="constrained")
for axis, t in zip(axes, sorted(picked), strict=False):
    axis.imshow(recording.frame(t))
    axis.set_title(f"t = {recording.episode_step[t, 0]}\nF = {bonus[t]:.3f}", fontsize=8)
for axis in axes:
    axis.set_axis_off()

# %% [markdown]
# After a few minutes of training, the agent has not left the first room. RND pays most for rare
# places and poses in it, and the differences are small. New rooms come later.
#
# ## Streams

# %%
plots.plot_streams(recording, window=150)

# %% [markdown]
# The task has most likely paid nothing yet (top row), so $V_E$ is almost flat and $A_E$ almost
# zero: tiny numbers decide on which side of the clamp a step falls. How much that is worth
# depends on how good the critic is:

# %%
print("explained variance of V_E:", diagnosis.explained_variance(recording))
for line in diagnosis.summarize(recording):
    print("-", line)
for finding in diagnosis.diagnose(recording):
    print(f"{finding.kind.upper()}: {finding.title}. {finding.text}")

# %% [markdown]
# ## The film strip of conflicts
#
# These are the moments at which the raw bonus contradicts the critic most. With a trained critic,
# look at this picture first: is the bonus wrong, or the critic?

# %%
plots.plot_film_strip(recording, spacing=3 if SHORT else 25)

# %%
plots.plot_sign_plane(recording)

# %% [markdown]
# With raw $F$, a large share of the steps lies in the hatched quadrants; with $F'$, none do. That
# is what the clamp guarantees: it holds for *any* critic, but means something only for a good
# one.

# %%
valid = recording.valid
total = recording.total()[valid]
bad = recording.advantage_ext[valid] < 0
assert (total[bad] < 0).all()
assert (total[~bad] >= -1e-12).all()
print(len(conflicts(recording)), "conflicts in", int(valid.sum()), "steps")

# %% [markdown]
# ## What would the other methods have done?

# %%
plots.plot_methods(recording, reshape(recording, ["none", "adops", "pbim", "grm"]))

# %% [markdown]
# ## How did it go over training?

# %%
plots.plot_training(Run("run"))

# %% [markdown]
# All of this as one page, like `python -m adops_wrappers.inspect run --out report.html`:

# %%
print(write_report("run", "report.html"))

# %% [markdown]
# **What to look for in a longer run.** The explained variance of $V_E$ must rise before conflicts
# mean much. The conflict rate falls as the bonus fades or the policy turns to the task. If $F$
# fades and $F'$ does not, $V_I$ is ratcheting up, and the report says so.
#
# **Next**: [notebook 4](04_method_comparison.ipynb) compares the methods on the same steps.
