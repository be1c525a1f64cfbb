"""rllte's intrinsic-reward modules as sources.

Needs torch and rllte. A plain `pip install rllte-core` brings an old Gymnasium and a CUDA
torch; to keep the versions that this package works with:

    pip install --no-deps rllte-core termcolor pynvml==11.5.0
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from adops_wrappers.arrays import BoolArray, FloatArray, to_float64, to_numpy
from adops_wrappers.backends import is_tensor


class RLLTESource:
    """Asks an rllte reward module for F of each step, and lets it learn from that step.

    Works through the interface that rllte documents: `watch` with every step, then
    `compute(samples, sync=True)` with samples of shape (1, n, ...). With rllte 1.0.1 this works
    for RND, ICM, E3B and Disagreement; RE3, RIDE, PseudoCounts and NGU need a longer history in
    their first `compute` than one step, and raise. Build the module with
    `obs_norm_type="none"`, or its constructor steps your env thousands of times; the module's
    `n_envs` must be the env's.

    rllte does not know dummy reset steps: vector envs must run SAME_STEP or DISABLED. Rewards
    are passed as 0, since no module reads them; `terminateds` says where an episode ended,
    for either reason. In `evaluation_mode` a copy of the module answers, and the module itself
    does not change. Tensors on a device are copied to the host.

    Args:
        module: An rllte reward module, such as `rllte.xplore.reward.RND(envs, ...)`.

    Raises:
        TypeError: The module has no `compute` and `watch`.
    """

    def __init__(self, module: Any) -> None:
        if not callable(getattr(module, "compute", None)) or not callable(
            getattr(module, "watch", None)
        ):
            raise TypeError(
                f"module must be an rllte reward module with compute() and watch(), got {module!r} "
                f"of type {type(module).__name__}."
            )
        self.module = module
        self.frozen = False
        """While True a copy of the module answers (`evaluation_mode` sets it)."""
        self._copy: Any = None

    def __call__(
        self,
        obs: Any,
        action: Any,
        next_obs: Any,
        valid: bool | BoolArray = True,
        ended: bool | BoolArray = False,
    ) -> FloatArray:
        """Return F of one step of all environments."""
        valid, ended = (to_numpy(m) if is_tensor(m) else m for m in (valid, ended))
        rows = np.atleast_1d(valid)
        if not rows.all():
            raise ValueError(
                "rllte's modules cannot skip dummy reset steps. Build the vector env with "
                "autoreset_mode=AutoresetMode.SAME_STEP."
            )
        single = not isinstance(valid, np.ndarray)
        ends = torch.as_tensor(np.broadcast_to(ended, rows.shape).astype(np.float32))
        step = {
            "observations": _tensor(obs, single),
            "actions": _tensor(action, single),
            "rewards": torch.zeros(len(rows)),
            "terminateds": ends,
            "truncateds": torch.zeros(len(rows)),
            "next_observations": _tensor(next_obs, single),
        }
        module = self._current()
        module.watch(**step)
        answer = module.compute({key: value[None] for key, value in step.items()}, sync=True)
        return to_float64(answer).reshape(len(rows))

    def _current(self) -> Any:
        if not self.frozen:
            self._copy = None
            return self.module
        if self._copy is None:
            envs = getattr(self.module, "envs", None)
            self._copy = deepcopy(self.module, {} if envs is None else {id(envs): envs})
        return self._copy


def _tensor(values: Any, single: bool) -> torch.Tensor:
    array = to_numpy(values)
    if array.dtype == object:
        raise TypeError("rllte's modules take array observations, not Dict or Tuple ones.")
    # A copy: envs with copy=False overwrite what a module may keep.
    return torch.tensor(array[None] if single else array, dtype=torch.float32)
