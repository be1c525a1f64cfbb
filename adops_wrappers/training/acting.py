"""Acting with one pass of the networks and one copy to the host per step of the envs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adops_wrappers.critic import CriticHandle
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.progress import Clock

Array = npt.NDArray[Any]


class Answer(NamedTuple):
    """What the agent says of a batch of observations."""

    value_ext: Array
    value_int: Array
    action: Array
    """Its actions at one step of the rollout."""
    step: int
    """That step."""
    logits: torch.Tensor
    stored: torch.Tensor
    """The batch in the layout of storage."""


class Actor:
    """Looks at each batch of observations once, for whoever needs to know something of it.

    The shaping method asks for values, the agent for the same values and an action, and both ask
    about the observations that the bonus has just scored. A GPU is waited for once per step: all
    of this comes to the host in one copy.

    Args:
        forward: The agent, from features to logits and the two columns of values.
        sample: Draws actions from probabilities, given noise of the same shape.
        encoder: Knows the layouts.
        critic: Is told to ask here, and remembers what was seen ahead.
        clock: Counts the passes as "forward".
    """

    def __init__(
        self,
        forward: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
        sample: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        encoder: Encoder,
        critic: CriticHandle,
        clock: Clock,
    ) -> None:
        self.forward, self.sample, self.encoder, self.critic = forward, sample, encoder, critic
        critic.register(clock.timed("forward", self.evaluate))
        self._foresee = clock.timed("forward", self._foresee)  # type: ignore[method-assign]
        self.noise: torch.Tensor | None = None
        self.step = 0

    def start_rollout(self, noise: torch.Tensor) -> None:
        """Take the noise for the actions to come, shape (steps, envs, actions)."""
        self.noise, self.step = noise, 0

    def evaluate(self, obs: Array) -> Answer:
        """Look at a batch of observations."""
        return self.look(self.encoder.encode(obs))[0]

    @torch.inference_mode()
    def look(self, stored: torch.Tensor, *more: torch.Tensor) -> tuple[Answer, Array]:
        """Pass on encoded observations, in float32 whatever the update does: signs depend on it.

        What else is known of each row comes to the host in the same copy.
        """
        logits, values = self.forward(self.encoder.features(stored))
        if self.noise is None:
            noise = torch.ones_like(logits)
        else:
            noise = self.noise[self.step % len(self.noise)][: len(stored)]
        action = self.sample(logits.softmax(-1), noise)
        rows = torch.stack([*values.unbind(1), action, *more]).cpu().numpy()
        actions = rows[2].astype(np.int64)
        return Answer(rows[0], rows[1], actions, self.step, logits, stored), rows[3:]

    def bring(
        self, obs: Array, ended: Array | None, stored: torch.Tensor, scores: torch.Tensor
    ) -> Array:
        """Return the scores of observations, and look at these: the agent will act on them.

        Not at an end, where it goes on from another observation: that of the next episode.
        """
        if ended is None or ended.any():
            return bring_scores(obs, ended, stored, scores)
        return self._foresee(obs, stored, scores)

    def _foresee(self, obs: Array, stored: torch.Tensor, scores: torch.Tensor) -> Array:
        answer, (on_host,) = self.look(stored, scores)
        self.critic.remember(obs, answer, unchanging=True)
        return np.asarray(on_host)

    def act(self, answer: Answer) -> Array:
        """Return an action for each env, and move on to the next step."""
        if answer.step != self.step:  # the same observation as at an earlier step
            answer = self.look(answer.stored)[0]
        self.step += 1
        return answer.action


def bring_scores(
    obs: Array, ended: Array | None, stored: torch.Tensor, scores: torch.Tensor
) -> Array:
    """Return the scores alone: what `Actor.bring` is where nobody acts."""
    return np.asarray(scores.cpu().numpy())
