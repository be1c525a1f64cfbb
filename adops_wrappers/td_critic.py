"""A critic that learns V_E and V_I alongside any agent, from the steps that the wrapper sees.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from adops_wrappers import _checks
from adops_wrappers._streams import LearnsStreams, Streams
from adops_wrappers.arrays import BoolArray, FloatArray, to_numpy
from adops_wrappers.bootstrap import next_value_int
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.networks import ObservationPacker, Packed, ValueNetwork
from adops_wrappers.shaper import Transition
from adops_wrappers.td_memory import Replay, Step

_BOOTSTRAPS = ("final", "reset", "none")
_TARGETS = ("raw", "shaped")


class TDCritic(CriticHandle, LearnsStreams):
    """Learns V_E and V_I, and on request Q_E, by TD(λ) from the last steps that it has seen.

    For an agent without separate critics: `ADOPSWrapper(env, TDCritic(env.observation_space))`.
    The agent need not know about it. After every vector step the wrapper shows it the
    transition; it keeps the last `replay_size` of them and, `replay_ratio` times per transition
    on average, regresses its values on the λ-returns

        G_t = r_t + γ·((1 − λ)·V(s_{t+1}) + λ·G_{t+1}),

    cut after `segment` steps, of R with γ_E and of F (or F′) with γ_I. V_E(s′) is 0 where
    terminated. At an episode's end, V_I(s′) is what the wrapper's `int_bootstrap` says. Both
    discounts and `int_bootstrap` come from the wrapper unless they are given, and must then
    agree with it. V(s) and V(s′) of a transition always come from the same parameters.

    It learns from one stack. Another one may read its values: pass it `critic.evaluate`.

    Networks follow the space: a CNN for images, an MLP for the rest, one-hot codes for discrete
    parts, hashed words for texts; Dict and Tuple observations are encoded part by part. The
    last layer starts at 0, and so do all values.

    Args:
        observation_space: The space of one observation (`single_observation_space` of a
            `VectorEnv`).
        action_space: A `Discrete` space, to learn Q_E too (`q_ext`). Without it A_E is the
            one-step TD error, which breaks the guarantee in stochastic environments.
        gamma_ext: γ_E.
        gamma_int: γ_I.
        int_bootstrap: V_I(s′) at an episode's end, as for `ADOPSWrapper`.
        intrinsic_target: "raw" makes V_I the value of F, which is bounded whatever the clamp
            does. "shaped" makes it the value of F′, as the paper's two-headed agent learns it:
            while all extrinsic advantages tie, as they do before the first reward, the clamp
            only ever raises F′, V_I follows, and with function approximation both can diverge.
        lam: λ; 0 gives one-step targets.
        segment: The number of steps after which a λ-return is cut; 1 if `lam` is 0.
        hidden: The widths of the hidden layers; `()` makes values linear in the features.
        learning_rate: Adam's step size.
        replay_size: The number of transitions that are kept.
        replay_ratio: How often each transition is learned from, on average.
        batch_size: The number of transitions per gradient step.
        max_grad_norm: The norm to which gradients are clipped.
        seed: Seeds the initial weights and the draws from the replay.
        device: Where the networks live.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPSWrapper, CountBonus, IntrinsicRewardWrapper, TDCritic
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> env = ADOPSWrapper(env, TDCritic(env.observation_space, seed=0))
        >>> _ = env.reset(seed=0)
        >>> sorted(env.step(0)[4])[:2]
        ['extrinsic_reward', 'intrinsic_reward']
    """

    state_depends_on = ("intrinsic_target", "learning_rate", "replay_size")

    learns_itself = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        *,
        action_space: gym.Space[Any] | None = None,
        gamma_ext: float | None = None,
        gamma_int: float | None = None,
        int_bootstrap: str | None = None,
        intrinsic_target: str = "raw",
        lam: float = 0.9,
        segment: int = 16,
        hidden: Sequence[int] = (64, 64),
        learning_rate: float = 1e-3,
        replay_size: int = 4096,
        replay_ratio: float = 4.0,
        batch_size: int = 256,
        max_grad_norm: float = 10.0,
        seed: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__()
        self.packer = ObservationPacker(observation_space)
        self._actions = _discrete(action_space)
        self._given = Streams(gamma_ext, gamma_int, int_bootstrap)
        self._streams = self._given
        if gamma_ext is not None:
            _checks.discount("gamma_ext", gamma_ext)
        if gamma_int is not None:
            _checks.discount("gamma_int", gamma_int)
        if int_bootstrap not in (None, *_BOOTSTRAPS):
            raise ValueError(f"int_bootstrap must be one of {_BOOTSTRAPS}, got {int_bootstrap!r}.")
        if intrinsic_target not in _TARGETS:
            raise ValueError(
                f"intrinsic_target must be one of {_TARGETS}, got {intrinsic_target!r}."
            )
        self.intrinsic_target = intrinsic_target
        self.lam = _checks.fraction("lam", lam)
        segment = _checks.whole("segment", segment, least=1)
        self.segment = segment if self.lam > 0.0 else 1
        self.batch_size = _checks.whole("batch_size", batch_size, least=self.segment)
        self.replay_size = _checks.whole("replay_size", replay_size, least=self.batch_size)
        self.replay_ratio = _checks.positive("replay_ratio", replay_ratio)
        self.max_grad_norm = _checks.positive("max_grad_norm", max_grad_norm)
        self.device = torch.device(device)
        self.generator = np.random.default_rng(seed)
        self.learning_rate = _checks.positive("learning_rate", learning_rate)
        widths = [_checks.whole("hidden", width, least=1) for width in hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.generator.integers(2**62)))
            self.network = ValueNetwork(self.packer, widths, self._outputs).to(self.device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)
        self.replay: Replay | None = None
        self.updates = 0
        """The number of gradient steps so far."""
        self._owed = 0.0
        self._unseen = 0
        self.register(self._evaluate)

    @property
    def _outputs(self) -> int:
        return 2 + (0 if self._actions is None else int(self._actions.n))

    def attach(
        self, layout: EnvLayout, discounts: tuple[float, float] | None, int_bootstrap: str
    ) -> None:
        """Take discounts and `int_bootstrap` from the wrapper that consults this critic."""
        if layout.observation_space != self.packer.space:
            raise ValueError(
                f"This TDCritic was made for observations of {self.packer.space}, the env gives "
                f"{layout.observation_space}. Pass env.observation_space of an Env, or "
                "env.single_observation_space of a VectorEnv."
            )
        if self._actions is not None and layout.action_space != self._actions:
            raise ValueError(
                f"This TDCritic learns Q_E for {self._actions}, the env takes "
                f"{layout.action_space}. Pass env.action_space of an Env, or "
                "env.single_action_space of a VectorEnv."
            )
        gamma_ext, gamma_int = discounts or (None, None)
        wrapper = Streams(gamma_ext, gamma_int, int_bootstrap)
        for name, mine, wanted in zip(Streams._fields, self._given, wrapper, strict=True):
            if mine is not None and wanted is not None and mine != wanted:
                raise ValueError(
                    f"TDCritic was given {name}={mine!r}, the wrapper works with {wanted!r}. "
                    "Leave it out: TDCritic then takes the wrapper's."
                )
        merged = self._given.filled_by(wrapper)
        if self._streams.complete and merged != self._streams:
            raise ValueError(
                f"This TDCritic already learns with {self._streams}, another wrapper now asks for "
                f"{merged}. Use one TDCritic for each kind of stack."
            )
        self._streams = merged

    @torch.no_grad()
    def _evaluate(self, obs: Any) -> ValueEstimates:
        packed, _ = self.packer.pack(obs)
        values: FloatArray = self.network(self._tensors(packed)).double().cpu().numpy()
        q_ext = values[:, 2:] if self._actions is not None else None
        return ValueEstimates(values[:, 0], values[:, 1], q_ext)

    def observe(self, transition: Transition) -> None:
        """Keep a transition, and learn from the kept ones when it is time."""
        if self.frozen:
            return
        if not self._streams.complete:
            raise RuntimeError(
                f"TDCritic does not know what to learn: {self._streams}. Give it to a wrapper, or "
                "pass gamma_ext, gamma_int and int_bootstrap."
            )
        step = self._step(transition)
        if self.replay is None:
            rows = len(step.reward)
            length = max(self.replay_size // rows, self.segment + 1)
            self.replay = Replay(length, step)
        self.replay.add(step)
        self._unseen += 1
        self._owed += self.replay_ratio * np.count_nonzero(step.valid) / self.batch_size
        if self._available() * len(step.reward) < self.batch_size:
            self._owed = min(self._owed, 1.0)
        elif self._owed >= 1.0:
            self._whiten()
            while self._owed >= 1.0:
                self._owed -= 1.0
                self._learn()
            # The values have changed: V(s) of the next transition must be looked up again.
            self.updated()

    def _whiten(self) -> None:
        """Update the whitening with what has been seen since the last gradient step."""
        assert self.replay is not None
        unseen = min(self._unseen, self.replay.stored)
        ages = np.arange(self.replay.stored - unseen, self.replay.stored)
        obs, valid = self.replay.observations(ages[:, None], np.arange(self.replay.rows))
        if valid.any():
            self.network.encoder.update(self._tensors([part[valid] for part in obs]))
        self._unseen = 0

    def _available(self) -> int:
        """Return the number of stored vector steps whose targets are known."""
        assert self.replay is not None
        # int_bootstrap="reset" needs the observation that follows.
        return self.replay.stored - (self._streams.int_bootstrap == "reset")

    def _step(self, transition: Transition) -> Step:
        t = transition
        bonus = t.intrinsic if self.intrinsic_target == "raw" else t.shaped
        if bonus is None or t.observation is None:
            raise ValueError(
                "TDCritic.observe needs the fields shaped, observation, action and "
                "next_observation of the Transition, which the wrapper sets."
            )
        rows = len(t.reward)
        obs, _ = self.packer.pack(t.observation)
        next_obs, _ = self.packer.pack(t.next_observation)
        action = np.zeros(rows, dtype=np.int64)
        if self._actions is not None:
            action = to_numpy(t.action).reshape(rows).astype(np.int64) - int(self._actions.start)
            action = np.where(t.valid, action, 0)
        if self.replay is not None and self.replay.rows != rows:
            raise ValueError(
                f"This TDCritic learns from {self.replay.rows} environments and was shown "
                f"{rows}. Set critic.frozen = True (or use evaluation_mode) for another env."
            )
        return Step(obs, next_obs, action, t.reward, bonus, t.terminated, t.truncated, t.valid)

    @torch.inference_mode(False)  # an agent acts, and so steps the env, within it or no_grad
    def _learn(self) -> None:
        assert self.replay is not None
        replay, length = self.replay, self.segment
        segments = self.batch_size // length
        available = self._available()
        row = self.generator.integers(replay.rows, size=segments)
        length = min(length, available)
        first = self.generator.integers(available - length + 1, size=segments)
        age = first[:, None] + np.arange(length)
        batch, follows = replay.take(age, row[:, None])
        obs = self._tensors(batch.obs)
        with torch.no_grad():
            next_values = self._on_host(self.network(self._tensors(batch.next_obs)), follows)
            fresh = None
            if self._streams.int_bootstrap == "reset":
                follow, _ = replay.observations(age + 1, row[:, None])
                fresh = self._on_host(self.network(self._tensors(follow)), follows)[..., 1]
        targets = self._targets(batch, follows, next_values, fresh)
        values = self.network(obs)
        target = torch.as_tensor(targets.reshape(-1, 2), dtype=torch.float32, device=self.device)
        error = (values[:, :2] - target) ** 2
        if self._actions is not None:
            action = torch.as_tensor(batch.action.ravel(), device=self.device)
            chosen = values[:, 2:].gather(1, action[:, None])
            error = torch.cat([error, (chosen - target[:, :1]) ** 2], dim=1)
        valid = torch.as_tensor(batch.valid.ravel(), dtype=torch.float32, device=self.device)
        loss = (error.sum(dim=1) * valid).sum() / valid.sum().clamp(min=1.0)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
        self.optimizer.step()
        self.updates += 1

    def _targets(
        self,
        batch: Step,
        follows: BoolArray,
        next_values: FloatArray,
        fresh: FloatArray | None,
    ) -> FloatArray:
        gamma_ext, gamma_int, int_bootstrap = self._streams
        assert gamma_ext is not None
        assert gamma_int is not None
        next_ext = np.where(batch.terminated, 0.0, next_values[..., 0])
        next_int = next_value_int(
            int_bootstrap, next_values[..., 1], fresh, batch.terminated, batch.truncated
        )
        follows_int = follows
        if int_bootstrap == "reset":
            follows_int = follows | batch.terminated | batch.truncated
        return np.stack(
            [
                lambda_returns(batch.reward, next_ext, follows, gamma_ext, self.lam),
                lambda_returns(batch.bonus, next_int, follows_int, gamma_int, self.lam),
            ],
            axis=-1,
        )

    def _on_host(self, values: torch.Tensor, like: BoolArray) -> FloatArray:
        """Return values as an array of shape (segments, length, outputs)."""
        array: FloatArray = values.double().cpu().numpy().reshape(*like.shape, -1)
        return array

    def _tensors(self, packed: Packed) -> list[torch.Tensor]:
        # as_tensor shares memory with numpy: nothing here is kept beyond the call.
        return [torch.as_tensor(part, device=self.device) for part in packed]

    def state_dict(self, *, include_replay: bool = True) -> dict[str, Any]:
        """Return all that a resumed run needs; without the replay, which refills, it is small."""
        replay = self.replay.state_dict() if include_replay and self.replay is not None else None
        settings = self.state_settings()
        if replay is None:
            del settings["replay_size"]
        return {
            "settings": settings,
            "network": {k: v.clone() for k, v in self.network.state_dict().items()},
            "optimizer": deepcopy(self.optimizer.state_dict()),
            "generator": self.generator.bit_generator.state,
            "replay": replay,
            "updates": self.updates,
            "owed": self._owed,
            "unseen": self._unseen,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.load_streams(state)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))  # torch would share it
        self.generator.bit_generator.state = state["generator"]
        self.replay = None if state["replay"] is None else Replay.restore(state["replay"])
        self.updates = int(state["updates"])
        self._owed = float(state["owed"])
        self._unseen = int(state["unseen"])
        self.updated()


def lambda_returns(
    reward: FloatArray,
    next_value: FloatArray,
    follows: BoolArray,
    gamma: float,
    lam: float,
) -> FloatArray:
    """Return the λ-returns along the last axis.

        G_t = r_t + γ·((1 − λ)·V(s_{t+1}) + λ·G_{t+1})

    Where the next column is not the step that follows (`follows` is False), and at the last
    column:

        G_t = r_t + γ·V(s_{t+1})
    """
    returns = reward + gamma * next_value
    for t in range(reward.shape[-1] - 2, -1, -1):
        mixed = (1.0 - lam) * next_value[..., t] + lam * returns[..., t + 1]
        returns[..., t] = np.where(follows[..., t], reward[..., t] + gamma * mixed, returns[..., t])
    return returns


def _discrete(space: gym.Space[Any] | None) -> gym.spaces.Discrete | None:
    if space is None or isinstance(space, gym.spaces.Discrete):
        return space
    raise TypeError(
        f"Q_E is learned for Discrete actions; action_space is {space}. Leave it out: V_E and V_I "
        "need no actions."
    )
