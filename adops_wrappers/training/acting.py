"""Acting with one pass of the networks and one copy to the host per step of the envs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv

from adops_wrappers.critic import CriticHandle
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.progress import Clock
from adops_wrappers.wrappers.base import VectorBase

Array = npt.NDArray[Any]


class Answer(NamedTuple):
    """The agent's output for a batch of observations."""

    value_ext: Array
    value_int: Array
    action: Array
    """The actions, drawn with the noise of one step of the rollout."""
    step: int
    """The step whose noise was used."""
    logits: torch.Tensor
    stored: torch.Tensor
    """The observations in the layout of storage."""


class Actor:
    """Runs the agent once on each batch of observations and shares the result.

    The shaping method needs values, the agent the same values and an action, and both for the
    observations that the bonus scores. All of this reaches the host in one copy, so that it waits
    for the GPU once per step: see `prepare`.

    Args:
        forward: The agent; maps features to logits and two columns of values.
        sample: Draws actions from probabilities, given noise of the same shape.
        encoder: Turns observations into tensors.
        critic: Gets its values from here, and remembers those computed ahead of time.
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
        self._timed_look = clock.timed("forward", lambda *tensors: self.look(*tensors))
        self.noise: torch.Tensor | None = None
        self.step = 0

    def start_rollout(self, noise: torch.Tensor) -> None:
        """Set the noise for the actions of a rollout, shape (steps, envs, actions)."""
        self.noise, self.step = noise, 0

    def evaluate(self, obs: Array) -> Answer:
        """Run the agent on a batch of observations."""
        return self.look(self.encoder.encode(obs))[0]

    @torch.inference_mode()
    def look(self, stored: torch.Tensor, *more: torch.Tensor) -> tuple[Answer, Array]:
        """Run the agent on encoded observations, in float32 even if the update is not.

        Rounded values would flip signs of advantages. `more` holds further columns, one number per
        row, which reach the host in the same copy.
        """
        logits, values = self.forward(self.encoder.features(stored))
        if self.noise is None:
            noise = torch.ones_like(logits)
        else:
            noise = self.noise[self.step % len(self.noise)][: len(stored)]
        action = self.sample(logits.softmax(-1), noise)
        # One tensor, since every copy to the host waits for the device; actions are exact in it.
        rows = torch.stack([*values.unbind(1), action, *more]).cpu().numpy()
        actions = rows[2].astype(np.int64)
        return Answer(rows[0], rows[1], actions, self.step, logits, stored), rows[3:]

    def prepare(self, obs: Array, stored: torch.Tensor, scores: torch.Tensor) -> Array:
        """Run the agent on the observations that it will act on, and return their scores."""
        answer, (on_host,) = self._timed_look(stored, scores)
        # Without a copy: the envs of `make_vector_env` return new arrays in every step.
        self.critic.remember(obs, answer, unchanging=True)
        return np.asarray(on_host)

    def act(self, answer: Answer) -> Array:
        """Return an action for each env, and advance to the next step."""
        if answer.step != self.step:  # remembered from an equal observation of an earlier step
            answer = self.look(answer.stored)[0]
        self.step += 1
        return answer.action


class LooksAhead(VectorBase):
    """Shows a learner the new observations within the step, before the stack above asks for them.

    Where an episode ends it does not: the bonus is for the last observation of that episode, the
    agent acts on the first of the next.

    Args:
        env: The envs.
        prepare: Called with the observations that a step has returned.
    """

    def __init__(self, env: VectorEnv, prepare: Callable[[Array], object]) -> None:
        super().__init__(env)
        self.prepare = prepare

    def step(self, actions: Any) -> Any:
        """Step, and look."""
        result = self.env.step(actions)
        if not np.logical_or(result[2], result[3]).any():
            self.prepare(result[0])
        return result
