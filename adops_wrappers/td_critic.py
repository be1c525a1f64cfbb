"""A critic that learns V_E and V_I alongside any agent, from the steps that the wrapper sees.

Needs torch (`pip install adops-wrappers[torch]`); the core never imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from adops_wrappers import _checks
from adops_wrappers._streams import LearnsStreams, Streams
from adops_wrappers.arrays import BoolArray, FloatArray, to_numpy
from adops_wrappers.bootstrap import next_value_int
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.episodes import EnvLayout
from adops_wrappers.networks import ValueNetwork
from adops_wrappers.packing import ObservationPacker, Packed
from adops_wrappers.regression import Regression
from adops_wrappers.shaper import Transition
from adops_wrappers.td_memory import Replay, Step
from adops_wrappers.td_targets import Squares, discrete
from adops_wrappers.td_targets import lambda_returns as lambda_returns

_BOOTSTRAPS = ("final", "reset", "none")
_TARGETS = ("raw", "shaped")
_MOST_TOGETHER = 16
_LARGEST_DRAW = 2**20
"""Numbers in the observations that are drawn at once, unless one batch has more."""


class TDCritic(CriticHandle, LearnsStreams):
    """Learns V_E and V_I, and on request Q_E, by TD(λ) from the last steps that it has seen.

    For an agent without separate critics: `ADOPSWrapper(env, TDCritic(env.observation_space))`.
    The agent need not know about it. After every vector step the wrapper shows it the
    transition; it keeps the last `replay_size` of them. Every `learn_every` vector steps it
    regresses its values, `replay_ratio` times per transition on average, on the λ-returns

        G_t = r_t + γ·((1 − λ)·V(s_{t+1}) + λ·G_{t+1}),

    cut after `segment` steps, of R with γ_E and of F (or F′) with γ_I. V_E(s′) is 0 where
    terminated. At an episode's end, V_I(s′) is what the wrapper's `int_bootstrap` says. Both
    discounts and `int_bootstrap` come from the wrapper unless they are given, and must then
    agree with it. V(s) and V(s′) of a transition always come from the same parameters. Learning is
    rare and in large portions because the values of `learn_every` steps then cost one pass a step.

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
        intrinsic_target: "raw" makes V_I the value of F. "shaped" makes it the value of F′, as the
            paper's two-headed agent learns it, kept within what F alone could pay: from
            min(F, 0)/(1 − γ_I) to max(F, 0)/(1 − γ_I), over the smallest and the largest F so
            far. Exact updates of ADOPS' V_I never leave that range; errors of a network do.
        lam: λ; 0 gives one-step targets.
        segment: The number of steps after which a λ-return is cut; 1 if `lam` is 0.
        hidden: The widths of the hidden layers; `()` makes values linear in the features.
        learning_rate: Adam's step size.
        replay_size: The number of transitions that are kept.
        replay_ratio: How often each transition is learned from, on average.
        batch_size: The number of transitions per gradient step.
        learn_every: The number of vector steps between two phases of learning; None for 64, and 16
            with a single environment. A phase makes all the gradient steps that are due; up to 16
            of them share the values in their targets.
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
        learn_every: int | None = None,
        max_grad_norm: float = 10.0,
        seed: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__()
        self.packer = ObservationPacker(observation_space)
        self._actions = discrete(action_space)
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
        if learn_every is not None:
            learn_every = _checks.whole("learn_every", learn_every, least=1)
        self.learn_every = learn_every
        self.max_grad_norm = _checks.positive("max_grad_norm", max_grad_norm)
        self.device = torch.device(device)
        self.generator = np.random.default_rng(seed)
        self.learning_rate = _checks.positive("learning_rate", learning_rate)
        widths = [_checks.whole("hidden", width, least=1) for width in hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.generator.integers(2**62)))
            self.network = ValueNetwork(self.packer, widths, self._outputs).to(self.device)
        self.regression = Regression(self.network, self.learning_rate, self.max_grad_norm)
        self.replay: Replay | None = None
        self._paid: tuple[float, float] | None = None
        self._clamped = True
        self.updates = 0
        """The number of gradient steps so far."""
        self._owed = 0.0
        self._unseen = 0
        self.register(self._evaluate)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of all weights."""
        return self.regression.optimizer

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
        # Only a clamp's F′ can pay no more than F: debts and potentials have other limits.
        self._clamped = discounts is not None
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

    def evaluate(self, obs: Any) -> Any:
        """Return the values of `obs`, even if they are in memory; forget those."""
        if self._fn != self._evaluate:
            return super().evaluate(obs)
        self._forget()  # and without a word to torch, which takes as long as a small network
        return self._evaluate(obs)

    def _evaluate(self, obs: Any) -> ValueEstimates:
        packed, _ = self.packer.pack(obs)
        values = self._values(packed)
        q_ext = values[:, 2:] if self._actions is not None else None
        return ValueEstimates(values[:, 0], self._payable(values[:, 1]), q_ext)

    def _payable(self, value_int: FloatArray) -> FloatArray:
        """Keep values of a clamped F′ within those that F alone could pay."""
        gamma = self._streams.gamma_int
        if self._paid is None or gamma is None or not self._clamped:
            return value_int
        least, most = (paid / max(1.0 - gamma, 1e-6) for paid in self._paid)
        return np.minimum(np.maximum(value_int, least), most)

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
        elif self._owed >= 1.0 and self._unseen >= self._wait():
            self._whiten()
            while self._owed >= 1.0:
                steps = min(int(self._owed), self._together)
                self._owed -= steps
                self._learn(steps)
            # The values have changed: V(s) of the next transition must be looked up again.
            self.updated()

    def _wait(self) -> int:
        """The number of vector steps to wait before learning again."""
        assert self.replay is not None
        wanted = self.learn_every or (64 if self.replay.rows > 1 else 16)
        return min(wanted, self.replay.length)  # every step is learned from before it goes

    def _whiten(self) -> None:
        """Update the whitening with what has been seen since the last gradient step."""
        assert self.replay is not None
        unseen = min(self._unseen, self.replay.stored)
        ages = np.arange(self.replay.stored - unseen, self.replay.stored)
        obs, valid = self.replay.observations(ages[:, None], np.arange(self.replay.rows))
        if valid.any():
            seen = [torch.from_numpy(part[valid]).to(self.device) for part in obs]
            self.network.encoder.update(seen)
        self._unseen = 0

    @property
    def _together(self) -> int:
        """The number of gradient steps that share one look at the values of their targets."""
        size = self.batch_size * self.network.encoder.features
        return min(_MOST_TOGETHER, max(1, _LARGEST_DRAW // size))

    def _available(self) -> int:
        """Return the number of stored vector steps whose targets are known."""
        assert self.replay is not None
        # int_bootstrap="reset" needs the observation that follows.
        return self.replay.stored - (self._streams.int_bootstrap == "reset")

    def _step(self, transition: Transition) -> Step:
        t = transition
        bonus = t.intrinsic if self.intrinsic_target == "raw" else t.shaped
        if self.intrinsic_target == "shaped":
            paid = np.where(t.valid, t.intrinsic, 0.0)
            least, most = self._paid or (0.0, 0.0)
            self._paid = min(least, float(paid.min())), max(most, float(paid.max()))
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
    def _learn(self, steps: int) -> None:
        """Make gradient steps on segments that are drawn at once."""
        assert self.replay is not None
        replay, length = self.replay, min(self.segment, self._available())
        segments = self.batch_size // self.segment
        row = self.generator.integers(replay.rows, size=steps * segments)
        first = self.generator.integers(self._available() - length + 1, size=steps * segments)
        age = first[:, None] + np.arange(length)
        batch, follows = replay.take(age, row[:, None])
        next_values = self._values(batch.next_obs).reshape(*follows.shape, -1)
        fresh = None
        if self._streams.int_bootstrap == "reset":
            follow, _ = replay.observations(age + 1, row[:, None])
            fresh = self._values(follow)[:, 1].reshape(follows.shape)
        targets = self._targets(batch, follows, next_values, fresh).reshape(-1, 2)
        targets[:, 1] = self._payable(targets[:, 1])
        action, valid = batch.action.ravel(), batch.valid.ravel()
        inputs = self.regression.inputs(batch.obs)
        for start in range(0, steps * segments * length, segments * length):
            rows = slice(start, start + segments * length)
            loss = Squares(targets[rows], action[rows], valid[rows])
            self.regression.step([part[rows] for part in inputs], loss.gradient)
        self.updates += steps

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
        # Both streams at once: time is what the loop over it takes, not the arithmetic.
        return np.moveaxis(
            lambda_returns(
                np.stack([batch.reward, batch.bonus]),
                np.stack([next_ext, next_int]),
                np.stack([follows, follows_int]),
                np.array([gamma_ext, gamma_int])[:, None, None],
                self.lam,
            ),
            0,
            -1,
        )

    def _values(self, packed: Packed) -> FloatArray:
        """Return the network's outputs: V_E, V_I and, if it is learned, Q_E of all actions."""
        return self.regression.values(self.regression.inputs(packed)).astype(np.float64)

    def state_dict(self, *, include_replay: bool = True) -> dict[str, Any]:
        """Return all that a resumed run needs; without the replay, which refills, it is small."""
        replay = self.replay.state_dict() if include_replay and self.replay is not None else None
        settings = self.state_settings()
        if replay is None:
            del settings["replay_size"]
        return {
            "settings": settings,
            "network": {k: v.clone() for k, v in self.network.state_dict().items()},
            "optimizer": self.regression.state_dict(),
            "generator": self.generator.bit_generator.state,
            "replay": replay,
            "updates": self.updates,
            "owed": self._owed,
            "unseen": self._unseen,
            "paid": self._paid,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.load_streams(state)
        self.network.load_state_dict(state["network"])
        self.regression.load_state_dict(state["optimizer"])
        self.generator.bit_generator.state = state["generator"]
        self.replay = None if state["replay"] is None else Replay.restore(state["replay"])
        self.updates = int(state["updates"])
        self._owed = float(state["owed"])
        self._unseen = int(state["unseen"])
        self._paid = state.get("paid")  # version 0.2 did not keep it
        self.updated()
