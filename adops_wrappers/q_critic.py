"""A critic for off-policy agents: Q_E and Q_I, learned from replayed transitions.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from adops_wrappers import _checks
from adops_wrappers.arrays import to_numpy
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.networks import Encoder, ObservationPacker, Packed, mlp
from adops_wrappers.replay import ReplayBatch
from adops_wrappers.td_critic import _Streams

_TIES = ("mean", "max")
_WHITEN_ALWAYS, _WHITEN_EVERY = 100, 10
"""Whitening uses all of the first batches and then one in ten: it is costly and hardly changes."""


class QCritic(CriticHandle):
    """Learns Q_E and Q_I of (s, a) from the transitions of any policy.

    `TDCritic` learns from the steps as they come, and so learns the values of whatever policy made
    the latest ones, exploration included. A replay buffer holds the steps of many old policies;
    learning the value of a single policy from them takes backups over actions:

        Q_E(s, a) ← R + γ_E·V_E(s′),    Q_I(s, a) ← F + γ_I·V_I(s′).

    - By default V_E(s) = max_a Q_E(s, a): what the task is worth to its best policy, whoever
      collected the data. V_I(s) is the mean of Q_I(s, a) over the actions within `tie_tolerance`
      of that maximum: what the bonus is worth to that policy. With `ties="max"` it is
      the largest of them, as in ideal ADOPS (eq. f_2_strong); then actions that tie are made to
      tie again, and before the first reward, when all tie, the bonus says nothing.
    - With `policy`, V is the mean of Q over that policy's actions: the values of the agent's own
      current policy, as the paper's agent learns them on-policy (eq. f_2_weak).

    `ReplayShaper.learn` passes it the batches. Estimates come from an average of the weights, which
    the backups use as well. γ_E, γ_I and `int_bootstrap` come from the wrapper.

    With `Discrete` actions the estimates have `q_ext`, and A_E is Q_E(s, a) − V_E(s). With `Box`
    actions the maximum is over `candidates` fixed points of the box, or over what `policy` gives,
    and A_E is the one-step TD error of V_E.

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
        count = _checks.whole("candidates", candidates, least=1)
        self.actions = _ActionCodes(action_space, count, generator)
        self._given = _Streams(gamma_ext, gamma_int, int_bootstrap)
        self._streams = self._given
        widths = [_checks.whole("hidden", width, least=1) for width in hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**62)))
            self.network = _QNetwork(self.packer, self.actions, widths).to(self.device)
        self.average = deepcopy(self.network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=_checks.positive("learning_rate", learning_rate)
        )
        self.updates = 0
        """The number of gradient steps so far."""
        self.frozen = False
        """While True nothing is learned (`evaluation_mode` sets it)."""
        self.register(self._evaluate)

    def attach(
        self, layout: EnvLayout, discounts: tuple[float, float] | None, int_bootstrap: str
    ) -> None:
        """Receive the discounts and the end-of-episode rule of the wrapper that consults this."""
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
        self._streams = self._given.filled_by(_Streams(gamma_ext, gamma_int, int_bootstrap))

    @torch.no_grad()
    def _evaluate(self, obs: Any) -> ValueEstimates:
        packed, _ = self.packer.pack(obs)
        tensors = self._tensors(packed)
        actions, weights = self._options(obs, len(packed[0]))
        q = self.average(tensors, actions)
        value = self._values(q, q, weights).double().cpu().numpy()
        q_ext = q[..., 0].double().cpu().numpy() if self.actions.discrete else None
        return ValueEstimates(value[:, 0], value[:, 1], q_ext)

    def learn(self, batch: ReplayBatch) -> None:
        """Make one gradient step on a batch; V_I becomes the value of `batch.intrinsic`."""
        if self.frozen:
            return
        if not self._streams.complete:
            raise RuntimeError(
                f"QCritic does not know what to learn: {self._streams}. Give it to a wrapper, or "
                "pass gamma_ext, gamma_int and int_bootstrap."
            )
        obs, _ = self.packer.pack(batch.observation)
        tensors = self._tensors(obs)
        if self.updates < _WHITEN_ALWAYS or self.updates % _WHITEN_EVERY == 0:
            self.network.encoder.update(tensors)
            self._average_weights(0.0)
        target = self._targets(batch, len(obs[0]))
        taken = self.actions.encode(to_numpy(batch.action))
        chosen = self.network.chosen(tensors, torch.as_tensor(taken, device=self.device))
        # Squares, though most DQNs take Huber's loss: that has its minimum near the median, and a
        # median knows nothing of an end that comes one time in five.
        error = ((chosen - target) ** 2).sum(dim=1)
        if batch.valid is not None:
            error = error[torch.as_tensor(to_numpy(batch.valid).reshape(-1), device=self.device)]
        self.optimizer.zero_grad()
        error.mean().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
        self.optimizer.step()
        self._average_weights(self.averaging)
        self.updates += 1
        self.updated()

    @torch.no_grad()
    def _targets(self, batch: ReplayBatch, rows: int) -> torch.Tensor:
        gamma_ext, gamma_int, int_bootstrap = self._streams
        terminated = to_numpy(batch.terminated).reshape(rows).astype(np.bool_)
        truncated = to_numpy(batch.truncated).reshape(rows).astype(np.bool_)
        following = self._next_values(batch.next_observation)
        goes_on = torch.as_tensor(~terminated, dtype=torch.float32, device=self.device)
        next_ext, next_int = following[:, 0] * goes_on, following[:, 1]
        if int_bootstrap == "none":
            next_int = next_int * goes_on
        elif int_bootstrap == "reset":
            if batch.reset_observation is None:
                raise ValueError(
                    "int_bootstrap='reset' needs ReplayBatch.reset_observation, the observation "
                    "with which the next episode begins."
                )
            ended = torch.as_tensor(terminated | truncated, device=self.device)
            fresh = self._next_values(batch.reset_observation)[:, 1]
            next_int = torch.where(ended, fresh, next_int)
        reward, bonus = (
            torch.as_tensor(to_numpy(values).reshape(rows), dtype=torch.float32, device=self.device)
            for values in (batch.reward, batch.intrinsic)
        )
        assert gamma_ext is not None
        assert gamma_int is not None
        return torch.stack([reward + gamma_ext * next_ext, bonus + gamma_int * next_int], dim=1)

    def _next_values(self, obs: Any) -> torch.Tensor:
        packed, _ = self.packer.pack(obs)
        tensors = self._tensors(packed)
        actions, weights = self._options(obs, len(packed[0]))
        # Chosen by one network and valued by the other (van Hasselt et al. 2016): the maximum of
        # noisy estimates is too large, and a value that is too large ties nothing.
        choosing = self.network(tensors, actions) if weights is None else None
        valuing = self.average(tensors, actions)
        return self._values(valuing if choosing is None else choosing, valuing, weights)

    def _values(
        self, choosing: torch.Tensor, valuing: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """Return V_E and V_I, of shape (rows, 2), for Q of shape (rows, actions, 2)."""
        if weights is not None:
            return (weights[..., None] * valuing).sum(dim=1)
        best, index = choosing[..., 0].max(dim=1, keepdim=True)
        value_ext = valuing[..., 0].gather(1, index)[:, 0]
        tied = choosing[..., 0] >= best - self.tie_tolerance
        if self.ties == "max":
            value_int = valuing[..., 1].masked_fill(~tied, -torch.inf).max(dim=1).values
        else:
            value_int = (valuing[..., 1] * tied).sum(dim=1) / tied.sum(dim=1)
        return torch.stack([value_ext, value_int], dim=1)

    def _options(self, obs: Any, rows: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the actions to value (None for all) and their weights (None for the best)."""
        if self.policy is None:
            return self._candidates(rows), None
        answer = to_numpy(self.policy(obs))
        if self.actions.discrete:
            return None, torch.as_tensor(
                self.actions.probabilities(answer, rows), device=self.device
            )
        chosen = self.actions.encode_many(answer, rows)
        weights = torch.full(chosen.shape[:2], 1.0 / chosen.shape[1], device=self.device)
        return torch.as_tensor(chosen, device=self.device), weights

    def _candidates(self, rows: int) -> torch.Tensor | None:
        if self.actions.discrete:
            return None
        codes = torch.as_tensor(self.actions.candidates, device=self.device)
        return codes.expand(rows, *codes.shape)

    def _average_weights(self, share: float) -> None:
        with torch.no_grad():
            for mean, new in zip(self.average.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(new, share)
            for moments, newer in zip(self.average.buffers(), self.network.buffers(), strict=True):
                moments.copy_(newer)

    def _tensors(self, packed: Packed) -> list[torch.Tensor]:
        return [torch.as_tensor(part, device=self.device) for part in packed]

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {
            "network": deepcopy(self.network.state_dict()),
            "average": deepcopy(self.average.state_dict()),
            "optimizer": deepcopy(self.optimizer.state_dict()),
            "candidates": self.actions.candidates.copy(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))  # torch would share it
        self.actions.candidates = state["candidates"].copy()
        self.updates = int(state["updates"])
        self.updated()


class _ActionCodes:
    """Actions in the network's form: columns for a Discrete space, a Box scaled to [−1, 1]."""

    def __init__(self, space: gym.Space[Any], count: int, generator: np.random.Generator) -> None:
        self.space = space
        self.discrete = isinstance(space, spaces.Discrete)
        if isinstance(space, spaces.Discrete):
            self.start, self.size = int(space.start), int(space.n)
            self.candidates: npt.NDArray[np.float32] = np.zeros((0, 0), dtype=np.float32)
            return
        if not isinstance(space, spaces.Box) or not space.is_bounded():
            raise TypeError(
                f"QCritic learns for Discrete actions and for bounded Box actions; action_space "
                f"is {space}."
            )
        self.low, self.high = (np.float64(bound).reshape(-1) for bound in (space.low, space.high))
        self.size = len(self.low)
        self.candidates = generator.uniform(-1.0, 1.0, (count, self.size)).astype(np.float32)

    def encode(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return columns of shape (n,), or codes of shape (n, size)."""
        if self.discrete:
            return np.asarray(action.reshape(-1).astype(np.int64) - self.start)
        flat = action.reshape(len(action), self.size)
        return np.asarray((2.0 * (flat - self.low) / (self.high - self.low) - 1.0), np.float32)

    def encode_many(self, actions: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
        """Return the codes of k actions for each of `rows`: shape (rows, k, size)."""
        return self.encode(actions.reshape(-1, self.size)).reshape(rows, -1, self.size)

    def probabilities(self, answer: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
        """Return the policy's output as probabilities of shape (rows, actions)."""
        if answer.ndim == 2 and answer.shape == (rows, self.size):
            return np.asarray(answer, dtype=np.float32)
        if answer.size != rows:
            raise ValueError(
                f"policy(obs) must return {rows} actions, or probabilities of shape "
                f"({rows}, {self.size}); got shape {answer.shape}."
            )
        return np.asarray(np.eye(self.size, dtype=np.float32)[self.encode(answer)])


class _QNetwork(nn.Module):
    def __init__(self, packer: ObservationPacker, actions: _ActionCodes, hidden: list[int]) -> None:
        super().__init__()
        self.encoder = Encoder(packer, clip=10.0)
        self.discrete, self.size = actions.discrete, actions.size
        inputs = self.encoder.features + (0 if self.discrete else self.size)
        self.body = mlp([inputs, *hidden], 2 * self.size if self.discrete else 2)
        last = self.body[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, packed: list[torch.Tensor], actions: torch.Tensor | None) -> torch.Tensor:
        """Return Q_E and Q_I of the given codes (rows, k, size), or of all: (rows, k, 2)."""
        features = self.encoder(packed)
        if actions is None:
            return self.body(features).view(len(features), self.size, 2)  # type: ignore[no-any-return]
        repeated = features[:, None].expand(-1, actions.shape[1], -1)
        return self.body(torch.cat([repeated, actions], dim=2))  # type: ignore[no-any-return]

    def chosen(self, packed: list[torch.Tensor], action: torch.Tensor) -> torch.Tensor:
        """Return Q_E and Q_I of one action for each row: (rows, 2)."""
        if self.discrete:
            q = self(packed, None)
            return q[torch.arange(len(q), device=q.device), action]  # type: ignore[no-any-return]
        return self(packed, action[:, None])[:, 0]  # type: ignore[no-any-return]
