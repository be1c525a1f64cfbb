"""A critic for off-policy agents: Q_E and Q_I, learned from replayed transitions.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from adops_wrappers import _checks
from adops_wrappers._streams import LearnsStreams, Streams
from adops_wrappers.arrays import FloatArray, to_numpy
from adops_wrappers.bootstrap import next_value_int
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.networks import Whitening
from adops_wrappers.packing import ObservationPacker, Packed
from adops_wrappers.q_networks import ActionCodes, QOfAction, QTable
from adops_wrappers.regression import Array32, Evaluated, Regression
from adops_wrappers.replay import ReplayBatch

_TIES = ("mean", "max")
_WHITEN_ALWAYS, _WHITEN_EVERY = 100, 10
"""Whitening uses all of the first batches and then one in ten: it is costly and hardly changes."""


class QCritic(CriticHandle, LearnsStreams):
    """Learns Q_E and Q_I of (s, a) from the transitions of any policy.

    `TDCritic` learns from the steps as they come, and so learns the values of whatever policy made
    the latest ones, exploration included. A replay buffer holds the steps of many old policies;
    learning the value of a single policy from them takes backups over actions:

        Q_E(s, a) ← R + γ_E·V_E(s′)
        Q_I(s, a) ← F + γ_I·V_I(s′)

    - By default V_E(s) is the largest Q_E(s, a): what the task is worth to its best policy,
      whoever collected the data. V_I(s) is the mean of Q_I(s, a) over the actions within
      `tie_tolerance` of that maximum: what the bonus is worth to that policy. With `ties="max"` it
      is the largest of them, as in ideal ADOPS (eq. f_2_strong); then actions that tie are made to
      tie again, and before the first reward, when all tie, the bonus says nothing.
    - With `policy`, V is the mean of Q over that policy's actions: the values of the agent's own
      current policy, as the paper's agent learns them on-policy (eq. f_2_weak).

    `ReplayShaper.learn` passes it the batches. Estimates come from an average of the weights, which
    the backups use as well. γ_E, γ_I and `int_bootstrap` come from the wrapper.

    A_E is Q_E(s, a) − V_E(s). With `Discrete` actions the estimates have `q_ext`. With `Box`
    actions the maximum is over `candidates` fixed points of the box, or over what `policy` gives,
    and Q_E of the action taken costs one more pass. Q_E is then the smaller of two estimates, and
    learns the same whatever the bonus is.

    Args:
        observation_space: The space of one observation.
        action_space: The space of one action, `Discrete` or a bounded `Box`.
        policy: The agent's policy, `policy(obs)` for a batch of n. `Discrete`: probabilities of
            shape (n, actions), or n actions. `Box`: actions of shape (n, *box) or (n, k, *box).
        tie_tolerance: How far below the best an action may be and still count as one of the best.
            Give the wrapper the same.
        ties: "mean" or "max", how V_I sums up the best actions.
        candidates: The number of actions that stand for a `Box`.
        gamma_ext: γ_E; None for the wrapper's, as for the two below.
        gamma_int: γ_I.
        int_bootstrap: V_I(s′) at an episode's end.
        hidden: The widths of the hidden layers.
        learning_rate: Adam's step size.
        averaging: The share of the new weights in the average, at each gradient step.
        max_grad_norm: The norm to which gradients are clipped.
        seed: Seeds the weights and the candidates.
        device: Where the networks live.
    """

    state_depends_on = ("tie_tolerance", "ties", "candidates", "has_policy", "learning_rate")

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        policy: Callable[[Any], Any] | None = None,
        tie_tolerance: float = 0.0,
        ties: str = "mean",
        candidates: int = 64,
        gamma_ext: float | None = None,
        gamma_int: float | None = None,
        int_bootstrap: str | None = None,
        hidden: Sequence[int] = (64, 64),
        learning_rate: float = 1e-3,
        averaging: float = 0.01,
        max_grad_norm: float = 10.0,
        seed: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__()
        self.packer = ObservationPacker(observation_space)
        self.policy = policy
        self.tie_tolerance = _checks.non_negative("tie_tolerance", tie_tolerance)
        if ties not in _TIES:
            raise ValueError(f"ties must be one of {_TIES}, got {ties!r}.")
        self.ties = ties
        self.averaging = _checks.smoothing("averaging", averaging)
        self.max_grad_norm = _checks.positive("max_grad_norm", max_grad_norm)
        self.device = torch.device(device)
        generator = np.random.default_rng(seed)
        self.candidates = _checks.whole("candidates", candidates, least=1)
        self.has_policy = policy is not None
        self.learning_rate = _checks.positive("learning_rate", learning_rate)
        self.actions = ActionCodes(action_space, self.candidates, generator)
        self._given = Streams(gamma_ext, gamma_int, int_bootstrap)
        self._streams = self._given
        widths = [_checks.whole("hidden", width, least=1) for width in hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**62)))
            kind = QTable if self.actions.discrete else QOfAction
            self.network = kind(self.packer, self.actions.size, widths).to(self.device)
        # One whitening serves both networks, so that it is applied once for both.
        shared = {id(m): m for m in self.network.modules() if isinstance(m, Whitening)}
        self.average = deepcopy(self.network, shared).requires_grad_(False)
        self.regression = Regression(
            self.network, self.learning_rate, self.max_grad_norm, self.network.clipped_together()
        )
        self.averaged = Evaluated(self.average, self.average.clipped_together())
        self.updates = 0
        """The number of gradient steps so far."""
        self.register(self._evaluate)

    def attach(
        self, layout: EnvLayout, discounts: tuple[float, float] | None, int_bootstrap: str
    ) -> None:
        """Take discounts and `int_bootstrap` from the wrapper that consults this critic."""
        for name, mine, theirs in (
            ("observations of", self.packer.space, layout.observation_space),
            ("actions of", self.actions.space, layout.action_space),
        ):
            if mine != theirs:
                raise ValueError(
                    f"This QCritic was made for {name} {mine}, the env has {theirs}. Pass "
                    "env.observation_space and env.action_space of an Env, or "
                    "single_observation_space and single_action_space of a VectorEnv."
                )
        gamma_ext, gamma_int = discounts or (None, None)
        merged = self._given.filled_by(Streams(gamma_ext, gamma_int, int_bootstrap))
        if self._streams.complete and merged != self._streams:
            raise ValueError(
                f"This QCritic already learns with {self._streams}, another wrapper now asks for "
                f"{merged}. Use one QCritic for each kind of stack."
            )
        self._streams = merged

    def _evaluate(self, obs: Any) -> ValueEstimates:
        packed, _ = self.packer.pack(obs)
        actions, weights = self._options(obs, len(packed[0]))
        (q,) = self._q_by([self.averaged], packed, actions)
        value_ext, value_int = self._values(q, q, weights)
        return ValueEstimates(value_ext, value_int, q[0].T if self.actions.discrete else None)

    def q_ext_of(self, obs: Any, action: Any) -> FloatArray | None:
        """Return Q_E of the actions taken, for `Box` actions; for `Discrete` ones see `q_ext`."""
        if self.actions.discrete:
            return None
        packed, _ = self.packer.pack(obs)
        codes = torch.as_tensor(self.actions.encode_many(to_numpy(action), len(packed[0])))
        (q,) = self._q_by([self.averaged], packed, codes.to(self.device))
        return np.asarray(q[0, 0])

    def learn(self, batch: ReplayBatch) -> None:
        """Make one gradient step on a batch; V_I becomes the value of `batch.intrinsic`."""
        if self.frozen:
            return
        if not self._streams.complete:
            raise RuntimeError(
                f"QCritic does not know what to learn: {self._streams}. Give it to a wrapper, or "
                "pass gamma_ext, gamma_int and int_bootstrap."
            )
        packed, _ = self.packer.pack(batch.observation)
        rows = len(packed[0])
        valid = np.arange(rows) if batch.valid is None else np.flatnonzero(to_numpy(batch.valid))
        if not len(valid):
            return
        if self.updates < _WHITEN_ALWAYS or self.updates % _WHITEN_EVERY == 0:
            tensors = [torch.from_numpy(part).to(self.device) for part in packed]
            self.network.encoder.update(tensors)
        targets, taken = self._targets(batch, rows), self.actions.encode(to_numpy(batch.action))
        inputs = self.regression.inputs(packed)
        if not self.actions.discrete:
            inputs.append(torch.from_numpy(taken[:, None]).to(self.device))

        def gradient_of(outputs: Array32) -> Array32:
            # Squares, though most DQNs take Huber's loss: that has its minimum near the median,
            # and a median knows nothing of an end that comes one time in five.
            errors: Array32 = self.network.errors(outputs, taken, targets)
            if len(valid) < rows:
                spoilt = np.ones(rows, dtype=np.bool_)
                spoilt[valid] = False
                errors[spoilt] = 0.0  # whatever they are: NaN as well
            errors *= 2.0 / len(valid)
            return errors

        self.regression.step(inputs, gradient_of)
        self.averaged.follow(self.regression, self.averaging)
        self.updates += 1
        self.updated()

    def _targets(self, batch: ReplayBatch, rows: int) -> Array32:
        gamma_ext, gamma_int, int_bootstrap = self._streams
        reward, bonus, terminated, truncated = (
            to_numpy(values).reshape(rows)
            for values in (batch.reward, batch.intrinsic, batch.terminated, batch.truncated)
        )
        goes_on = ~terminated.astype(np.bool_)
        next_ext, next_int = self._next_values(batch.next_observation)
        fresh = None
        if int_bootstrap == "reset":
            if batch.reset_observation is None:
                raise ValueError(
                    "int_bootstrap='reset' needs ReplayBatch.reset_observation, the observation "
                    "with which the next episode begins."
                )
            _, fresh = self._next_values(batch.reset_observation)
        assert gamma_ext is not None
        assert gamma_int is not None
        next_int = next_value_int(
            int_bootstrap, next_int, fresh, ~goes_on, truncated.astype(np.bool_)
        )
        targets = reward + gamma_ext * next_ext * goes_on, bonus + gamma_int * next_int
        return np.asarray(np.stack(targets, axis=1), dtype=np.float32)

    def _next_values(self, obs: Any) -> tuple[FloatArray, FloatArray]:
        packed, _ = self.packer.pack(obs)
        actions, weights = self._options(obs, len(packed[0]))
        if weights is not None:
            (valuing,) = self._q_by([self.averaged], packed, actions)
            return self._values(valuing, valuing, weights)
        # Chosen by one network and valued by the other (van Hasselt et al. 2016): the maximum of
        # noisy estimates is too large, and a value that is too large ties nothing.
        choosing, valuing = self._q_by([self.regression, self.averaged], packed, actions)
        return self._values(choosing, valuing, None)

    def _q_by(
        self, networks: Sequence[Evaluated], packed: Packed, actions: torch.Tensor | None
    ) -> list[FloatArray]:
        """Return Q of shape (2, actions, rows) by each of the networks."""
        inputs = self.regression.inputs(packed)
        if actions is not None:
            inputs.append(actions)
        return [self.network.q_of(network.values(inputs)) for network in networks]

    def _values(
        self, choosing: FloatArray, valuing: FloatArray, weights: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return V_E and V_I, each of shape (rows,), for Q of shape (2, actions, rows)."""
        q_ext, q_int = valuing
        if weights is not None:
            return (weights * q_ext).sum(axis=0), (weights * q_int).sum(axis=0)
        choice = choosing[0]
        best, row = choice.argmax(axis=0), np.arange(choice.shape[1])
        tied = choice >= choice[best, row] - self.tie_tolerance
        value_ext, value_int = q_ext[best, row], q_int[best, row]
        if np.count_nonzero(tied) > len(row):
            if self.ties == "max":
                value_int = np.where(tied, q_int, -np.inf).max(axis=0)
            else:
                value_int = (q_int * tied).sum(axis=0) / tied.sum(axis=0)
        return value_ext, value_int

    def _options(self, obs: Any, rows: int) -> tuple[torch.Tensor | None, FloatArray | None]:
        """Return the actions to value (None for all) and their weights (None for the best)."""
        if self.policy is None:
            return self._candidates(rows), None
        with torch.no_grad():
            answer = to_numpy(self.policy(obs))
        if self.actions.discrete:
            return None, self.actions.probabilities(answer, rows).T
        chosen = self.actions.encode_many(answer, rows)
        count = chosen.shape[1]
        return torch.as_tensor(chosen, device=self.device), np.full((count, 1), 1.0 / count)

    def _candidates(self, rows: int) -> torch.Tensor | None:
        if self.actions.discrete:
            return None
        codes = torch.as_tensor(self.actions.candidates, device=self.device)
        return codes.expand(rows, *codes.shape)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {
            **self.settings_state(),
            "network": deepcopy(self.network.state_dict()),
            "average": deepcopy(self.average.state_dict()),
            "optimizer": self.regression.state_dict(),
            "candidates": self.actions.candidates.copy(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.load_streams(state)
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.regression.load_state_dict(state["optimizer"])
        self.actions.candidates = state["candidates"].copy()
        self.updates = int(state["updates"])
        self.updated()
