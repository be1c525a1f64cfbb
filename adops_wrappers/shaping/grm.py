"""Generalised reward matching: every bonus is taken back later, with interest.

`GRM` matches after a delay of D steps or at the episode's end (eq. hyperparam_tuning), `PBIM`
at the end alone (eq. pbim_norm), `MatchedGRM` as any matching function says (eq. drawer). All
keep Σ γ^t F′_t = 0 over an episode, so that no choice of actions changes the intrinsic return.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import (
    HOST,
    backend_of,
    cleared,
    kept,
    may_hold,
    namespace,
    with_entry,
    with_rows,
)
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Shaper, Transition, restore_array, saved_array
from adops_wrappers.shaping.matching import (
    PROBED_LENGTHS,
    TOLERANCE,
    MatchingFunction,
    check_matching,
    not_fully_matching,
    weights_of,
)
from adops_wrappers.wrappers.named import PlainSettings, wrapper_of

SHORT_RING = 128
"""Steps that GRM makes room for at the start; the ring of a longer delay grows when needed."""


class RewardMatching(Shaper):
    """What the family shares: γ, and with `normalize` the centred bonus f = F − F̄.

    F̄ is an exponential mean per environment that starts at 0, is updated with every real step
    before it is used, and persists across episodes. The f that was emitted is the f taken back.
    """

    settles_debt = True
    described: ClassVar[tuple[str, ...]] = ("gamma",)
    state_depends_on: ClassVar[tuple[str, ...]] = ("gamma", "normalize", "alpha")
    row_state: ClassVar[tuple[str, ...]] = ("mean",)

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gamma: float = 0.99,
        normalize: bool = False,
        alpha: float = 0.05,
    ) -> None:
        super().__init__(num_envs)
        self.gamma = _checks.discount("gamma", gamma)
        self.normalize = bool(normalize)
        self.alpha = _checks.smoothing("alpha", alpha)
        self.mean = np.zeros(self.num_envs)

    def _centred(self, transition: Transition) -> FloatArray:
        if not self.normalize:
            return transition.intrinsic
        if not self.frozen:
            step = self.alpha * (transition.intrinsic - self.mean)
            self.mean = self.mean + kept(step, transition.valid)
        return transition.intrinsic - self.mean

    def state_dict(self) -> dict[str, Any]:
        """Return F̄."""
        return {**super().state_dict(), "mean": saved_array(self.mean)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.mean = restore_array("the running mean", state["mean"], self.mean)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore F̄ as the mean over the saved rows: the rows here are other envs."""
        super().load_learned(state)
        self.mean = cleared(self.mean, None, float(np.mean(state["mean"])))


class PBIM(RewardMatching):
    """Emit f, and at the episode's last step −S, the debt grown at the rate 1/γ (eq. pbim_norm).

    S ← (S + f)/γ needs O(1) memory and gives the exponent i − (N − 1), with which the
    discounted sum cancels; the printed i − N is a misprint.
    """

    name = "PBIM"
    row_state = ("mean", "debt")

    def __init__(self, num_envs: int = 1, **matching: Any) -> None:
        super().__init__(num_envs, **matching)
        self.debt = np.zeros(self.num_envs)

    def reset(self, mask: npt.NDArray[np.bool_] | None = None) -> None:
        """Drop the debt of the rows in `mask`."""
        self.debt = cleared(self.debt, mask)

    def step(self, transition: Transition) -> FloatArray:
        """Return f, or the settlement where the episode ends."""
        f = self._centred(transition)
        where = namespace(f).where
        ended = transition.terminated | transition.truncated
        shaped = where(ended, -self.debt, f)
        with np.errstate(over="ignore"):
            grown = cleared((self.debt + f) / self.gamma, ended)
        self.debt = where(transition.valid, grown, self.debt)
        return kept(shaped, transition.valid)  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """Return F̄ and the debts."""
        return {**super().state_dict(), "debt": saved_array(self.debt)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.debt = restore_array("the debts", state["debt"], self.debt)


class GRM(RewardMatching):
    """Emit f_t − γ^{−D}·f_{t−D}, and at the last step minus all that is still unmatched.

    The last D values of f per environment are kept in a ring (eq. hyperparam_tuning), with
    zeros for what lies before the episode: so indices below 0 drop out. The terminal case wins
    over t < D. While no episode is as long as D, the ring is as long as the longest.
    """

    name = "GRM"
    described = ("delay", "gamma")
    state_depends_on = (*RewardMatching.state_depends_on, "delay")
    row_state = ("mean", "ring", "_interest")

    def __init__(self, num_envs: int = 1, *, delay: int = 1, **matching: Any) -> None:
        super().__init__(num_envs, **matching)
        self.delay = _checks.whole("delay", delay, least=0)
        if -self.delay * math.log(self.gamma) > math.log(np.finfo(np.float64).max):
            raise ValueError(
                f"gamma**-delay overflows a float64 at gamma={self.gamma}, delay={self.delay}. "
                "Choose a shorter delay, or delay=math.inf, which is PBIM."
            )
        # All rows share one slot: a dummy row, which lies between two episodes, holds zeros.
        self._fill(np.zeros((min(self.delay, SHORT_RING), self.num_envs)), slot=0)

    def _fill(self, ring: FloatArray, *, slot: int) -> None:
        self.ring, self.slot = ring, slot
        self._interest = self.gamma ** -np.arange(1.0, len(ring) + 1.0)

    def _grow(self) -> None:
        """Double the ring, up to the delay, behind the values that it holds."""
        length = len(self.ring)
        longer = np.zeros((min(2 * length, self.delay), self.num_envs))
        backend = backend_of(self.ring)
        longer[:length] = HOST.moved(self._oldest_first())
        self._fill(backend.moved(longer), slot=length)
        self.move_to(backend)

    def _oldest_first(self) -> FloatArray:
        parts = [self.ring[self.slot :], self.ring[: self.slot]]
        ring: FloatArray = namespace(self.ring).concatenate(parts)
        return ring

    def reset(self, mask: npt.NDArray[np.bool_] | None = None) -> None:
        """Forget the episodes of the rows in `mask`."""
        if mask is not None and type(self.ring) is np.ndarray:
            self.ring[:, mask] = 0  # in place: the ring may be long
        else:
            self.ring = cleared(self.ring, mask)

    def step(self, transition: Transition) -> FloatArray:
        """Return f less what is matched now."""
        f = self._centred(transition)
        xp = namespace(f)
        if self.delay == 0:
            return xp.zeros_like(f)  # type: ignore[no-any-return]
        # With a delay above SHORT_RING, a device is waited for here.
        if len(self.ring) < self.delay and bool(self.ring[self.slot].any()):
            self._grow()
        shaped = f - self._interest[-1] * self.ring[self.slot]
        ended = (transition.terminated | transition.truncated) & transition.valid
        any_ended = may_hold(ended)
        if any_ended:
            rows = ended if xp is np else slice(None)
            newest_first = xp.flip(self._oldest_first()[:, rows], (0,))
            shaped = with_rows(shaped, ended, -(self._interest[:, None] * newest_first).sum(0))
        self.ring = with_entry(self.ring, self.slot, kept(f, transition.valid))
        self.slot = (self.slot + 1) % len(self.ring)
        if any_ended:
            self.reset(ended)
        return kept(shaped, transition.valid)  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """Return F̄ and the ring, oldest value first."""
        return {**super().state_dict(), "ring": saved_array(self._oldest_first())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        length = np.clip(len(state["ring"]), min(self.delay, SHORT_RING), self.delay)
        room, backend = np.zeros((length, self.num_envs)), backend_of(self.ring)
        self._fill(restore_array("the ring of past bonuses", state["ring"], room), slot=0)
        self.move_to(backend)


class MatchedGRM(RewardMatching):
    """F′_t = f_t − Σ_{i ≤ t} γ^{i−t}·m(t, i)·f_i for any matching function m (eq. drawer).

    m must be fully matching (the weights of each i sum to 1 by the episode's end) and
    future-agnostic (0 for i > t). Both are probed here for all episodes of up to 64 steps,
    the first again at the end of every episode. Keeps the whole episode in memory.
    """

    name = "GRM"
    numpy_only = True  # a function of the user gives the weights, step by step
    state_depends_on = (*RewardMatching.state_depends_on, "matching_weights")

    def __init__(self, num_envs: int = 1, *, matching: MatchingFunction, **common: Any) -> None:
        super().__init__(num_envs, **common)
        self.matching_weights = check_matching(matching)
        """A fingerprint of the weights: functions themselves cannot be compared."""
        self.matching = matching
        self.elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self.history = np.zeros((self.num_envs, PROBED_LENGTHS))
        self.matched = np.zeros((self.num_envs, PROBED_LENGTHS))

    def reset(self, mask: npt.NDArray[np.bool_] | None = None) -> None:
        """Forget the episodes of the rows in `mask`."""
        rows = slice(None) if mask is None else mask
        self.elapsed[rows] = 0
        self.matched[rows] = 0.0

    def step(self, transition: Transition) -> FloatArray:
        """Return f less what the matching function takes back now."""
        f = self._centred(transition)
        ended = transition.terminated | transition.truncated
        shaped = np.zeros(self.num_envs)
        longest = int(self.elapsed.max())
        if longest == self.history.shape[1]:
            self.history = np.concatenate([self.history, np.zeros_like(self.history)], axis=1)
            self.matched = np.concatenate([self.matched, np.zeros_like(self.matched)], axis=1)
        for final in (False, True):
            group = transition.valid & (ended == final)
            for t in np.unique(self.elapsed[group]).tolist():
                rows = np.flatnonzero(group & (self.elapsed == t))
                self.history[rows, t] = f[rows]
                weights = weights_of(self.matching, t, final)
                given_back = np.flatnonzero(weights)
                with np.errstate(over="ignore"):
                    interest = weights[given_back] * self.gamma ** (given_back - float(t))
                    shaped[rows] = f[rows] - self.history[rows][:, given_back] @ interest
                self.matched[rows, : t + 1] += weights
                if final:
                    self._check_fully_matched(rows, t + 1)
        finished = ended & transition.valid
        self.reset(finished)
        self.elapsed += transition.valid & ~finished
        return shaped

    def _check_fully_matched(self, rows: npt.NDArray[np.intp], length: int) -> None:
        totals = self.matched[rows, :length]
        wrong = np.argwhere(np.abs(totals - 1.0) > TOLERANCE)
        if len(wrong):
            row, t_prime = wrong[0]
            raise not_fully_matching(int(t_prime), length, float(totals[row, t_prime]))

    def state_dict(self) -> dict[str, Any]:
        """Return F̄ and the running episodes."""
        longest = int(self.elapsed.max())
        return {
            **super().state_dict(),
            "elapsed": self.elapsed.copy(),
            "history": self.history[:, :longest].copy(),
            "matched": self.matched[:, :longest].copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.elapsed = restore_array("the episode steps", state["elapsed"], self.elapsed)
        longest = int(self.elapsed.max())
        capacity = max(PROBED_LENGTHS, longest)
        part = np.zeros((self.num_envs, longest))
        self.history = np.zeros((self.num_envs, capacity))
        self.matched = np.zeros((self.num_envs, capacity))
        self.history[:, :longest] = restore_array("the episodes", state["history"], part)
        self.matched[:, :longest] = restore_array("the matched shares", state["matched"], part)

    def describe(self) -> str:
        """Name the method and its discount."""
        return f"GRM (matching function, gamma={self.gamma})"


def make_grm(
    num_envs: int = 1,
    *,
    delay: float = 1,
    gamma: float = 0.99,
    normalize: bool = False,
    alpha: float = 0.05,
    matching: MatchingFunction | None = None,
) -> RewardMatching:
    """Build the lightest shaper for a delay, an infinite delay (PBIM) or a matching function."""
    common: dict[str, Any] = {"gamma": gamma, "normalize": normalize, "alpha": alpha}
    if matching is not None:
        return MatchedGRM(num_envs, matching=matching, **common)
    if isinstance(delay, float) and math.isinf(delay) and delay > 0:
        return PBIM(num_envs, **common)
    return GRM(num_envs, delay=delay, **common)  # type: ignore[arg-type]


_NORMALIZED: dict[str, Any] = {"presets": {"normalize": True}, "remembers_episode": True}
_PLAIN: dict[str, Any] = {"inactive": ("normalize", "alpha"), "remembers_episode": True}
declare(Method("pbim", "PBIM", PBIM, **_PLAIN))
declare(Method("pbim-norm", "PBIM-norm", PBIM, **_NORMALIZED))
declare(Method("grm", "GRM", GRM, build=make_grm, **_PLAIN))
declare(Method("grm-norm", "GRM-norm", GRM, build=make_grm, **_NORMALIZED))


class MatchingSettings(PlainSettings, total=False):
    """What PBIM and GRM take.

    Args:
        gamma: The discount of the learner's intrinsic return.
        normalize: Subtract F̄, an exponential mean of F; F̄ is 0 otherwise.
        alpha: The smoothing factor of F̄.
    """

    gamma: float
    normalize: bool
    alpha: float


@wrapper_of("pbim")
def PBIMWrapper(env: Any, **settings: Unpack[MatchingSettings]) -> None:
    """F′ = F − F̄, and at an episode's last step minus all that was given, with interest.

    The settlement is −Σ_{i<N−1} γ^{i−(N−1)}·F′_i (eq. pbim_norm, its exponent corrected), so
    that Σ γ^t F′_t = 0. It grows like γ^−N, so use it with short episodes. Truncation settles
    the debt too; the learner's intrinsic return must not bootstrap over that end.

    Args:
        env: The env, with a source of F below. A `TimeLimit` belongs below this wrapper too:
            outside, it would hide the episode's end, and the debt would never be paid.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import IntrinsicRewardWrapper, PBIMWrapper
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=3)
        >>> env = PBIMWrapper(IntrinsicRewardWrapper(env, lambda s, a, next_s: 1.0), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(3)]  # 1 + 0.5 - 0.25 * 6 = 0
        [1.0, 1.0, -6.0]
    """


@wrapper_of("grm")
def GRMWrapper(
    env: Any,
    *,
    delay: float = 1,
    matching: MatchingFunction | None = None,
    **settings: Unpack[MatchingSettings],
) -> None:
    """F′_t = f_t − γ^−D·f_{t−D}: each bonus is taken back D steps later, or at the end.

    f = F − F̄ as in `PBIMWrapper`; at the last step all that is still unmatched is taken back
    (eq. hyperparam_tuning). D = 0 gives no bonus, D = ∞ is PBIM. A `matching` function in place
    of the delay gives the general form F′_t = f_t − Σ_{i≤t} γ^{i−t}·m(t, i)·f_i (eq. drawer).

    Args:
        env: The env, with a source of F below, and a `TimeLimit` below as well.
        delay: D, a whole number or `math.inf`.
        matching: `matching(t, t_prime, final) -> weight` in [0, 1], used instead of `delay`;
            `final` says that t is the episode's last step. The weights of each t′ must sum to
            1 by then, and be 0 for t′ > t.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=4)
        >>> env = GRMWrapper(IntrinsicRewardWrapper(env, lambda s, a, next_s: 1.0), gamma=0.5)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(4)]
        [1.0, -1.0, -1.0, -2.0]
    """
