"""Stacks to record, on the scripted envs of the toolkit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers import IntrinsicRewardWrapper, make_shaping
from tests import toolkit as tk
from tests.declared import Cases, with_declared

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
GAMMAS = {"gamma_ext": tk.GAMMA_EXT, "gamma_int": tk.GAMMA_INT}
CLAMP = {**GAMMAS, "ext_coef": 2.0, "int_coef": 0.5, "epsilon": 0.01, "tie_tolerance": 0.02}
RAMP = {"ramp_updates": 7, "update_every": 3}
CASES: Cases = {
    "none": ("none", {"intrinsic_scale": 0.3}),
    "adops": ("adops", GAMMAS),
    "adops-weighted": ("adops", CLAMP),
    "adopes": ("adopes", {**GAMMAS, **RAMP}),
    "adopes-half": ("adopes-half", {**CLAMP, **RAMP}),
    "adopes-episodes": ("adopes", {**GAMMAS, "ramp_updates": 9, "update_every": "episode"}),
    "pies": ("pies", {"decay_updates": 7, "update_every": 3}),
    "pbim": ("pbim", {"gamma": tk.GAMMA_INT}),
    "pbim-norm": ("pbim-norm", {"gamma": tk.GAMMA_INT, "alpha": 0.2}),
    "grm": ("grm", {"gamma": tk.GAMMA_INT}),
    "grm-3-norm": ("grm-norm", {"gamma": 0.8, "delay": 3, "alpha": 0.2}),
    "grm-inf": ("grm", {"gamma": tk.GAMMA_INT, "delay": math.inf}),
    "grm-halves": ("grm", {"gamma": tk.GAMMA_INT, "matching": tk.halves}),
    "pbrs": ("pbrs", {"gamma": tk.GAMMA_INT, "potential": tk.potential}),
    "bsrs": ("bsrs", {**GAMMAS, "eta": -0.5}),
    "bampf": ("bampf", {"gamma": tk.GAMMA_INT, "episodic": True}),
    "guarded": ("guarded", {"update_every": 3}),
    "adops-gated": ("adops-gated", {**CLAMP, "gate": 0.5, "smoothing": 0.2}),
}
METHODS = with_declared(CASES)


def stack(case: str, env: Any, critic: Any = tk.critic, **more: Any) -> Any:
    name, settings = METHODS[case]
    return make_shaping(
        name, IntrinsicRewardWrapper(env, tk.source), critic, **{**settings, **more}
    )


def run(env: Any, mode: AutoresetMode, steps: int = 60, interrupt: bool = True) -> dict[str, Any]:
    """Step a vector env, now and then resetting some rows in mid-episode; return the streams."""
    rng = np.random.default_rng(5)
    env.reset(seed=11)
    log: dict[str, list[Any]] = {"shaped": [], "raw": [], "reward": [], "valid": [], "done": []}
    for time in range(steps):
        _, reward, terminated, truncated, info = env.step(rng.integers(0, 3, env.num_envs))
        done = terminated | truncated
        log["reward"].append(reward)
        log["done"].append(done)
        if "shaping_correction" in info:
            log["shaped"].append(info["intrinsic_reward"])
            log["raw"].append(info["raw_intrinsic_reward"])
            log["valid"].append(info["_intrinsic_reward"])
        mask = done.copy() if mode is AutoresetMode.DISABLED else np.zeros(len(done), bool)
        if interrupt and time % 11 == 10:
            mask[time % len(mask)] = True
        if mask.any():
            env.reset(options={"reset_mask": mask})
    return {key: np.array(value) for key, value in log.items()}
