"""The bonuses that the command line knows by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers.arrays import FloatArray
from adops_wrappers.tabular.bonuses import EpisodicCount, HistoryBonus
from adops_wrappers.tabular.mdp import FiniteMDP

BONUSES = {
    "noisy-tv": "scale for every arrival in one state, in the gallery in the tempting cells",
    "random": "scale times a standard normal number per transition",
    "reward": "scale times R itself",
    "episodic-count": "scale / sqrt(visits to s' in this episode); needs --horizon",
}


def named_bonus(
    name: str,
    mdp: FiniteMDP,
    env: Any = None,
    *,
    scale: float = 1.0,
    seed: int = 0,
    tv_state: int | None = None,
) -> FloatArray | HistoryBonus:
    """Return one of `BONUSES`, or the table in a file whose name ends in .npy.

    Args:
        name: A name or a path.
        mdp: The MDP that the bonus is for.
        env: The env behind it; a gallery env has tempting cells of its own.
        scale: A factor.
        seed: For the random bonus.
        tv_state: Where the noisy TV stands; None takes the first state that can be reached, but
            that no optimal trajectory visits.
    """
    if name == "noisy-tv":
        if tv_state is None and hasattr(env, "tempting_bonus"):
            return np.asarray(env.tempting_bonus(scale), dtype=np.float64)
        state = _quiet_state(mdp) if tv_state is None else mdp.state_index(tv_state)
        bonus = np.zeros(mdp.transition.shape)
        bonus[:, :, state] = scale
        return bonus
    if name == "random":
        return scale * np.random.default_rng(seed).normal(size=mdp.transition.shape)
    if name == "reward":
        return scale * mdp.reward
    if name == "episodic-count":
        return EpisodicCount(scale=scale)
    if name.endswith(".npy"):
        if not Path(name).is_file():
            raise ValueError(f"There is no file {name!r} to read the bonus from.")
        return scale * mdp.table("bonus", np.load(name))
    raise ValueError(
        f"There is no bonus {name!r}. The names are: {', '.join(BONUSES)}; a path that ends in "
        ".npy names a file with an array of shape (S, A) or (S, A, S)."
    )


def _quiet_state(mdp: FiniteMDP) -> int:
    possible = mdp.graph.reachable() & ~mdp.terminal
    quiet = possible & (mdp.occupancy() < 1e-12)
    return int(np.argmax(quiet if quiet.any() else possible))
