"""No shaping: the raw intrinsic reward, with the bookkeeping of the other methods."""

from __future__ import annotations

import numpy as np

from adops_wrappers.shaping.base import FloatArray, Shaper, Transition
from adops_wrappers.shaping.methods import Method, declare


class NoShaping(Shaper):
    """F′ = F."""

    name = "none"

    def step(self, transition: Transition) -> FloatArray:
        """Return F where the step is a real transition."""
        return np.where(transition.valid, transition.intrinsic, 0.0)


declare(Method("none", "raw", NoShaping))
