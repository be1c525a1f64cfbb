"""BAMPF: a potential of all that has been learned (Lidayan, Dennis & Russell 2025)."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import cleared, kept, namespace
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Shaper, Transition, restore_array, saved_array
from adops_wrappers.wrappers.named import PlainSettings, wrapper_of


class BAMPF(Shaper):
    """F′ = γ·φ(h′) − φ(h), where h is the history of all learning and φ its potential.

    The F of a `Transition` is φ(h′) here. φ(h) is the φ(h′) of the row's step before, also over
    the end of an episode and a reset: so Σ γ^t F′_t telescopes over the whole life of a row, and
    what other rows have added to a shared φ in between is part of it.
    """

    name = "BAMPF"
    described = ("gamma",)
    row_state = ("known",)
    state_depends_on = ("gamma", "episodic")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gamma: float = 0.99,
        episodic: bool = False,
        initial: float = 0.0,
    ) -> None:
        super().__init__(num_envs)
        self.gamma = _checks.discount("gamma", gamma)
        self.episodic = bool(episodic)
        self.initial = _checks.number("initial", initial, "a finite number")
        self.known = np.full(self.num_envs, self.initial)
        """φ(h)."""

    def step(self, transition: Transition) -> FloatArray:
        """Return γ·φ(h′) − φ(h), and remember φ(h′)."""
        t = transition
        after = cleared(t.intrinsic, t.terminated) if self.episodic else t.intrinsic
        shaped: FloatArray = kept(self.gamma * after - self.known, t.valid)
        self.known = namespace(shaped).where(t.valid, t.intrinsic, self.known)
        return shaped

    def state_dict(self) -> dict[str, Any]:
        """Return φ(h) of every row."""
        return {**super().state_dict(), "known": saved_array(self.known)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.known = restore_array("the potentials", state["known"], self.known)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore φ(h) as the largest of the saved rows: of a φ that grows, the newest."""
        super().load_learned(state)
        self.known = cleared(self.known, None, float(np.max(state["known"])))


declare(Method("bampf", "BAMPF", BAMPF, needs_knowledge=True, remembers_episode=True))


@wrapper_of("bampf")
def BAMPFWrapper(
    env: Any,
    knowledge: Any,
    *,
    gamma: float = 0.99,
    episodic: bool = False,
    initial: float = 0.0,
    **settings: Unpack[PlainSettings],
) -> None:
    """F′ = γ·φ(h′) − φ(h): a reward for knowing more, φ being a measure of all knowledge so far.

    φ continues over the ends of episodes, so a discovery pays once in a life. A φ that is bounded
    and never falls settles, and then F′ is the constant −(1 − γ)·φ. No bonus is added.

    Args:
        env: The env.
        knowledge: `knowledge(obs, action, next_obs)` returns φ after this transition, for a
            vector env one value for each row: `StatesSeen`, `LargestDisplacement`,
            `PredictionKnowledge` or a function or object of your own, which may do what a source
            of `IntrinsicRewardWrapper` may.
        gamma: The discount of the learner's return.
        episodic: Whether the learner's value ends where an episode terminates, as that of most
            agents does. φ(h′) then counts as 0 there, so that a task's end is not worth the φ
            that it saves. False: the learner's return goes on into the next episode.
        initial: φ before the first step, after `intrinsic_scale`.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import BAMPFWrapper, StatesSeen
        >>> env = BAMPFWrapper(gym.make("CliffWalking-v1"), StatesSeen(most=4), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> for action in (0, 2, 0, 0):  # up, back down, up again, further up
        ...     print(float(env.step(action)[4]["intrinsic_reward"]))
        1.0
        -1.0
        -1.0
        -0.5
    """
