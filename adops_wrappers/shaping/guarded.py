"""A guarded scale: the bonus is reduced while the extrinsic return falls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import cleared, kept, may_hold, namespace
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import (
    BoolArray,
    FloatArray,
    Shaper,
    Transition,
    restore_array,
    saved_array,
)
from adops_wrappers.shaping.schedule import UpdateCounter, UpdateEvery
from adops_wrappers.wrappers.named import PlainSettings, wrapper_of

if TYPE_CHECKING:
    from typing_extensions import Self


class GuardedScale(Shaper):
    """F′ = β·F, with one β for all rows, which falls while the agent does worse than before.

    β starts at 1, and every update changes it:

    - The score has fallen, J < J* − `tolerance`·|J*|: β shrinks by exp(−`shrink`), down to `floor`.
    - The task has paid, but there is no score yet: β is at most `pause`. The agent learns what it
      was paid for before the bonus draws it elsewhere.
    - Otherwise β regrows by exp(`regrow`), up to 1.

    J is the smoothed mean of each row's last finished return, J* its slowly forgetting maximum. J
    counts once every row has finished an episode, because the first to finish are the ones that
    succeeded. Where returns are positive, a J* below `tolerance`² times the largest return of any
    episode is a lucky hit, not yet a score.

    This is a control loop, not a theorem: while β > 0 the shaped task can have other optimal
    policies.
    """

    name = "guarded scale"
    row_state = ("_returns", "_last_returns")
    zeta_symbol = "β"
    state_depends_on = (
        *("pause", "tolerance", "shrink", "regrow", "floor"),
        *("smoothing", "forgetting", "update_every"),
    )

    def __init__(
        self,
        num_envs: int = 1,
        *,
        pause: float = 0.05,
        tolerance: float = 0.2,
        shrink: float = 0.5,
        regrow: float = 0.2,
        floor: float = 0.0001,
        smoothing: float = 0.2,
        forgetting: float = 0.02,
        update_every: UpdateEvery = 128,
    ) -> None:
        super().__init__(num_envs)
        self.pause = _checks.fraction("pause", pause)
        self.tolerance = _checks.fraction("tolerance", tolerance)
        self.shrink = _checks.non_negative("shrink", shrink)
        self.regrow = _checks.non_negative("regrow", regrow)
        self.floor = _checks.fraction("floor", floor)
        self.smoothing = _checks.smoothing("smoothing", smoothing)
        self.forgetting = _checks.fraction("forgetting", forgetting)
        self.counter = UpdateCounter(update_every)
        self.beta = 1.0
        self.score: float | None = None
        """J, once every row has finished an episode."""
        self.best: float | None = None
        """J*."""
        self.largest: Any = -math.inf
        """The largest return of any episode."""
        self._paid: Any = False
        """Whether the running update contains an extrinsic reward."""
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
        self._returns = cleared(self._returns, mask)

    def frozen_view(self, rows: int) -> Self:
        """Return a frozen copy for `rows` transitions, with the β of this moment."""
        view = super().frozen_view(rows)
        view._returns = np.zeros(rows)
        return view

    def step(self, transition: Transition) -> FloatArray:
        """Return β·F, then learn from the step."""
        t = transition
        shaped: FloatArray = kept(self.beta * t.intrinsic, t.valid)
        self._returns = self._returns + kept(t.reward, t.valid)
        ended = (t.terminated | t.truncated) & t.valid
        if not self.frozen:
            self._observe(t, ended)
        if may_hold(ended):
            self._returns = cleared(self._returns, ended)
        return shaped

    def _observe(self, t: Transition, ended: BoolArray) -> None:
        # Both stay on the device until an update looks at them.
        self._paid = self._paid | ((t.reward != 0.0) & t.valid).any()
        if may_hold(ended):
            where = namespace(t.reward).where
            self._last_returns = where(ended, self._returns, self._last_returns)
            finished = cleared(self._returns, ~ended, -math.inf).max()
            self.largest = finished.clip(min=self.largest)
        updates = self.counter.updates
        self.counter.advance(t)
        if self.counter.updates > updates:
            self._update()
            self._paid = False

    def _update(self) -> None:
        self._follow_score()
        if self._has_score() and self._score_fell():
            beta = self.beta * float(np.exp(-self.shrink))
        elif self._paid and not self._has_score():
            beta = min(self.beta, self.pause)
        else:
            beta = self.beta * float(np.exp(self.regrow))
        self.beta = min(1.0, max(beta, self.floor))

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
        if self.best is None:
            return False
        largest = float(self.largest)
        return largest <= 0.0 or self.best > self.tolerance**2 * largest

    def _score_fell(self) -> bool:
        assert self.score is not None
        assert self.best is not None
        return self.score < self.best - self.tolerance * abs(self.best)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs."""
        return {
            **super().state_dict(),
            **self.counter.state_dict(),
            "beta": self.beta,
            "score": self.score,
            "best": self.best,
            "largest": float(self.largest),
            "paid": bool(self._paid),
            "returns": saved_array(self._returns),
            "last_returns": saved_array(self._last_returns),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        returns = restore_array("returns", state["returns"], self._returns)
        last = restore_array("last_returns", state["last_returns"], self._last_returns)
        self.load_learned(state)
        self._returns, self._last_returns = returns, last

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore β, J and what they depend on, but no returns of running episodes."""
        super().load_learned(state)
        self.counter.load_state_dict(state)
        self.beta = float(state["beta"])
        self.score, self.best = state["score"], state["best"]
        self.largest = float(state["largest"])
        self._paid = bool(state["paid"])


declare(
    Method(
        "guarded",
        "guarded",
        GuardedScale,
        schedule=GuardedScale.state_depends_on,
        one_process_only=True,
    )
)


@wrapper_of("guarded")
def GuardedScaleWrapper(
    env: Any,
    *,
    pause: float = 0.05,
    tolerance: float = 0.2,
    shrink: float = 0.5,
    regrow: float = 0.2,
    floor: float = 0.0001,
    smoothing: float = 0.2,
    forgetting: float = 0.02,
    update_every: UpdateEvery = 128,
    **settings: Unpack[PlainSettings],
) -> None:
    """F′ = β·F: the bonus is reduced while the extrinsic return falls.

    β is 1 as long as the agent does not do worse than before. It shrinks while the smoothed return
    is below its best, pauses when the task pays for the first time, and regrows otherwise. It needs
    no critic. Give it a bonus of unit size (`IntrinsicRewardWrapper(..., normalizer="rms")`). An
    empirical method without a theorem: see the documentation's study.

    Args:
        env: The env, with a source of F below.
        pause: The largest β after an update in which the task has paid, until there is a score.
        tolerance: How far the return may fall below its best, as a fraction of it.
        shrink: β is multiplied by e^−shrink at each update while the return has fallen.
        regrow: β is multiplied by e^regrow at each other update, up to 1.
        floor: β does not shrink below it.
        smoothing: Weight of the newest update in the smoothed return.
        forgetting: Fraction by which the best return moves towards the current one at each update.
        update_every: The number of steps between two updates, or "episode" to count episodes.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import GuardedScaleWrapper, IntrinsicRewardWrapper
        >>> env = gym.make("CliffWalking-v1", max_episode_steps=1)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: 2.0)
        >>> env = GuardedScaleWrapper(env, update_every="episode")
        >>> for action in (0, 1, 0):  # up, over the cliff, up
        ...     _ = env.reset(seed=0)
        ...     print(round(env.step(action)[4]["intrinsic_reward"], 2))
        2.0
        2.0
        1.21
    """
