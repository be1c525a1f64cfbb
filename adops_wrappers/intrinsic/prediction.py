"""What a predictor has learned, as a measure of knowledge for BAMPF. Needs torch, as `RND` does."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray, to_numpy
from adops_wrappers.backends import is_tensor
from adops_wrappers.intrinsic.knowledge import of_every_row
from adops_wrappers.intrinsic.rnd import RND


class PredictionKnowledge(KeepsSettings):
    """φ = scale·share of the prediction error of RND that has been learned away, from 0 to scale.

    The first `probes` observations reached are kept, with the error that the predictor made on
    them then. The share is the mean over all probes of
    max(0, 1 − error now / error then); a probe that is not taken yet counts 0. φ is the largest
    share so far: it does not fall when the predictor forgets, and does not pay for relearning.

    A measure of knowledge for `BAMPFWrapper`, for single and vector envs alike.

    Args:
        rnd: The networks. They learn from what they are shown here: give them to no wrapper.
        probes: The number of observations kept.
        scale: The bound of φ.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import BAMPFWrapper, PredictionKnowledge, RND
        >>> env = gym.make("CartPole-v1")
        >>> knowledge = PredictionKnowledge(RND(env.observation_space, seed=0))
        >>> env = BAMPFWrapper(env, knowledge, episodic=True)
        >>> _ = env.reset(seed=0)
        >>> print(env.step(0)[4]["intrinsic_reward"])  # nothing is learned yet
        0.0
    """

    state_depends_on = ("probes",)

    def __init__(self, rnd: RND, *, probes: int = 256, scale: float = 1.0) -> None:
        if not isinstance(rnd, RND):
            raise TypeError(f"rnd must be an RND, got {rnd!r} of type {type(rnd).__name__}.")
        self.rnd = rnd
        self.probes = _checks.whole("probes", probes, least=1)
        self.scale = _checks.positive("scale", scale)
        self.largest = 0.0
        self.kept: list[torch.Tensor] = []
        """The probes, part by part."""
        self.first_errors = torch.zeros(0, device=rnd.device)

    @property
    def frozen(self) -> bool:
        """While True nothing is learned (`evaluation_mode` sets it)."""
        return self.rnd.frozen

    @frozen.setter
    def frozen(self, frozen: bool) -> None:
        self.rnd.frozen = frozen

    def __call__(
        self, obs: Any, action: Any, next_obs: Any, valid: bool | BoolArray = True
    ) -> float | FloatArray:
        """Return φ after these transitions, the same for every row."""
        if is_tensor(valid):
            valid = to_numpy(valid)
        if not self.frozen and np.any(valid):
            before = self.rnd.updates
            self.rnd(obs, action, next_obs, valid)
            if self.first_errors.device != self.rnd.device:  # it has followed the observations
                self.first_errors = self.first_errors.to(self.rnd.device)
                self.kept = [part.to(self.rnd.device) for part in self.kept]
            self._take_probes(next_obs, valid)
            if self.rnd.updates != before:  # the errors have changed
                self.largest = max(self.largest, self._share())
        return of_every_row(self.scale * self.largest, valid)

    def _take_probes(self, batch: Any, valid: bool | BoolArray) -> None:
        room = self.probes - len(self.first_errors)
        if room == 0:
            return
        packed, _ = self.rnd.packer.pack(batch)
        rows = np.flatnonzero(np.broadcast_to(valid, len(packed[0])))[:room]
        new = [torch.as_tensor(part[rows], device=self.rnd.device).clone() for part in packed]
        pairs = zip(self.kept, new, strict=True) if self.kept else ()
        self.kept = [torch.cat(pair) for pair in pairs] or new
        self.first_errors = torch.cat([self.first_errors, self._errors(new)])

    @torch.no_grad()
    def _errors(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return self.rnd._error(tensors)

    def _share(self) -> float:
        # A first error of 0 leaves nothing to learn.
        left = self._errors(self.kept) / self.first_errors.clamp(min=torch.finfo().tiny)
        return float((1.0 - left).clamp(min=0.0).sum() / self.probes)

    def state_dict(self) -> dict[str, Any]:
        """Return the networks, the probes and the largest share."""
        mine = {"kept": self.kept, "first_errors": self.first_errors, "largest": self.largest}
        return deepcopy({**self.settings_state(), "rnd": self.rnd.state_dict(), **mine})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        self.rnd.load_state_dict(state["rnd"])
        self.kept = [part.to(self.rnd.device, copy=True) for part in state["kept"]]
        self.first_errors = state["first_errors"].to(self.rnd.device, copy=True)
        self.largest = float(state["largest"])
