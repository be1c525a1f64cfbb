"""A guarded scale: the bonus is reduced while the extrinsic return falls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers import _checks
from adops_wrappers.shaping.base import BoolArray, FloatArray, Transition, TwoStreams, restore_array
from adops_wrappers.shaping.methods import Method, declare
from adops_wrappers.shaping.schedule import UpdateCounter, UpdateEvery

if TYPE_CHECKING:
    from typing_extensions import Self


class GuardedScale(TwoStreams):
    """F′ = β·F, with one β for all rows: explore, then learn the task, then explore with care.

    - Until an update contains an extrinsic reward, β = 1.
    - From then on, while there is no score yet, β is at most ρ·c_E·rms(δ_E) / (c_I·rms(δ_I)) of
      each update, ρ = `balance`: whatever its units, the bonus has TD errors a tenth the size of
      the task's, and smaller ones as the task's own TD errors vanish.
    - Once there is a score to guard, each update multiplies β by exp(`regrow`), up to 1, or by
      exp(−`shrink`) while the score has fallen: J < J* − `tolerance`·|J*|. J is the smoothed mean
      of each row's last finished return, J* its slowly forgetting maximum. J counts once every row
      has finished an episode, because the first to finish are the ones that succeeded. A J* below
      `tolerance`² times the largest return of any episode is a lucky hit, not yet a score.

    `balance=0` switches the bonus off for good at the first reward. This is a control loop, not a
    theorem: while β > 0 the shaped task can have other optimal policies, and nothing helps where
    the bonus captures the agent before the first reward.
    """

    name = "guarded scale"
    zeta_symbol = "β"

    def __init__(
        self,
        num_envs: int = 1,
        *,
        balance: float = 0.1,
        tolerance: float = 0.2,
        shrink: float = 0.5,
        regrow: float = 0.2,
        floor: float = 0.0001,
        smoothing: float = 0.2,
        forgetting: float = 0.02,
        update_every: UpdateEvery = 128,
        **streams: float,
    ) -> None:
        super().__init__(num_envs, **streams)
        self.balance = _checks.non_negative("balance", balance)
        self.tolerance = _checks.fraction("tolerance", tolerance)
        self.shrink = _checks.non_negative("shrink", shrink)
        self.regrow = _checks.non_negative("regrow", regrow)
        self.floor = _checks.fraction("floor", floor)
        self.smoothing = _checks.smoothing("smoothing", smoothing)
        self.forgetting = _checks.fraction("forgetting", forgetting)
        self.counter = UpdateCounter(update_every)
        self.beta = 1.0
        self.rewarded = False
        """Whether a finished update contained an extrinsic reward."""
        self.score: float | None = None
        """J, once every row has finished an episode."""
        self.best: float | None = None
        """J*."""
        self.largest = 0.0
        """The largest absolute return of any episode."""
        self._squares = np.zeros(2)
        """Sums over the running update of δ_E² and δ_I²."""
        self._reward_in_update = False
        self._returns = np.zeros(self.num_envs)
        self._last_returns = np.full(self.num_envs, np.nan)

    @property
    def zeta(self) -> float:
        """β."""
        return self.beta

    @property
    def update_every(self) -> UpdateEvery:
        """The number of steps between two updates, or "episode"."""
        return self.counter.setting

    def hold(self, zeta: float) -> None:
        """Keep β at this value, for an audit."""
        self.beta, self.frozen = zeta, True

    def reset(self, mask: BoolArray | None = None) -> None:
        """Forget the running returns of the rows in `mask`, or of all rows."""
        self._returns[slice(None) if mask is None else mask] = 0.0

    def frozen_view(self, rows: int) -> Self:
        """Return a frozen copy for `rows` transitions, with the β of this moment."""
        view = super().frozen_view(rows)
        view._returns = np.zeros(rows)
        return view

    def step(self, transition: Transition) -> FloatArray:
        """Return β·F, then learn from the step."""
        t = transition
        shaped = np.where(t.valid, self.beta * t.intrinsic, 0.0)
        self._returns += np.where(t.valid, t.reward, 0.0)
        ended = (t.terminated | t.truncated) & t.valid
        if not self.frozen:
            self._observe(t, ended)
        self._returns[ended] = 0.0
        return shaped

    def _observe(self, t: Transition, ended: BoolArray) -> None:
        next_value_ext = np.where(t.terminated, 0.0, t.next_value_ext)
        error_ext = t.reward + self.gamma_ext * next_value_ext - t.value_ext
        error_int = t.intrinsic + self.gamma_int * t.next_value_int - t.value_int
        self._squares += np.square([error_ext[t.valid], error_int[t.valid]]).sum(1)
        self._reward_in_update |= bool((t.reward[t.valid] != 0.0).any())
        if ended.any():
            self._last_returns[ended] = self._returns[ended]
            self.largest = max(self.largest, float(np.abs(self._returns[ended]).max()))
        updates = self.counter.updates
        self.counter.advance(t)
        if self.counter.updates > updates:
            self._update()
            self._squares[:] = 0.0
            self._reward_in_update = False

    def _update(self) -> None:
        self._follow_score()
        self.rewarded |= self._reward_in_update
        if not self.rewarded:
            return
        if not self._has_score():
            beta = min(self.beta, self._balanced())
        elif self._score_fell():
            beta = self.beta * float(np.exp(-self.shrink))
        else:
            beta = self.beta * float(np.exp(self.regrow))
        self.beta = min(1.0, max(beta, self.floor)) if self.balance else 0.0

    def _balanced(self) -> float:
        task, bonus = np.sqrt(self._squares) * (self.balance * self.ext_coef, self.int_coef)
        return float(min(1.0, task / bonus)) if bonus > 0.0 else 1.0

    def _follow_score(self) -> None:
        now = float(self._last_returns.mean())
        if np.isnan(now):
            return
        if self.score is None or self.best is None:
            self.score = self.best = now
            return
        self.score += self.smoothing * (now - self.score)
        self.best = max(self.score, self.best + self.forgetting * (self.score - self.best))

    def _has_score(self) -> bool:
        return self.best is not None and abs(self.best) > self.tolerance**2 * self.largest

    def _score_fell(self) -> bool:
        assert self.score is not None
        assert self.best is not None
        return self.score < self.best - self.tolerance * abs(self.best)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return {
            **self.counter.state_dict(),
            "beta": self.beta,
            "rewarded": self.rewarded,
            "score": self.score,
            "best": self.best,
            "largest": self.largest,
            "squares": self._squares.copy(),
            "reward_in_update": self._reward_in_update,
            "returns": self._returns.copy(),
            "last_returns": self._last_returns.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        returns = restore_array("returns", state["returns"], self._returns)
        last = restore_array("last_returns", state["last_returns"], self._last_returns)
        self.load_learned(state)
        self._returns, self._last_returns = returns, last

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore β, J and what they depend on, but no returns of running episodes."""
        self.counter.load_state_dict(state)
        self.beta, self.rewarded = float(state["beta"]), bool(state["rewarded"])
        self.score, self.best = state["score"], state["best"]
        self.largest = float(state["largest"])
        self._squares = restore_array("squares", state["squares"], self._squares)
        self._reward_in_update = bool(state["reward_in_update"])


declare(
    Method(
        "guarded",
        "guarded",
        GuardedScale,
        schedule=(
            *("balance", "tolerance", "shrink", "regrow", "floor"),
            *("smoothing", "forgetting", "update_every"),
        ),
        needs_critic=True,
        one_process_only=True,
    )
)
