"""How large the bonus of a recording is."""

from __future__ import annotations

import numpy as np

from adops_wrappers.inspect.recording import Recording


def return_size(recording: Recording) -> float:
    """Return the root mean square of G ← γ_I·G + scale·F; NaN for less than two horizons.

    This is what F would have to be divided by to have unit size. The filter starts empty: the
    first 1/(1 − γ_I) steps fill it and do not count.
    """
    gamma = float(recording.meta["gamma_int"])
    horizon = int(1.0 / max(1.0 - gamma, 1e-9))
    if recording.steps < 2 * horizon:
        return float("nan")
    returns, squares, count = np.zeros(recording.num_envs), 0.0, 0
    bonus = recording.scale * recording.intrinsic
    for t in range(recording.steps):
        valid = recording.valid[t]
        returns = np.where(valid, gamma * returns + bonus[t], returns)
        if t >= horizon:
            squares += float(np.square(returns[valid]).sum())
            count += int(valid.sum())
    return float(np.sqrt(squares / count)) if count else float("nan")
