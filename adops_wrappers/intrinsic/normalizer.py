"""Brings F to unit size: divides it by the running size of its discounted return."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np

from adops_wrappers import _checks
from adops_wrappers._saved import KeepsSettings
from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.backends import HOST, backend_of, cleared, kept, namespace, root
from adops_wrappers.shaper import restore_array, saved_array

Rule = Literal["std", "rms"]
Update = Literal["step", "manual"]
LONGEST_WARM_UP = 1000
"""Steps after which a filter that hardly forgets counts as filled."""


class IntrinsicReturnNormalizer(KeepsSettings):
    """Divides F by the running size of the discounted intrinsic return.

    Per environment a filter runs forward in time, G ← γ·G + F, without a stop at episode ends.
    G feeds the size alone; what comes out is F / size(G). F and a·F, a > 0, come out alike.

    Until the size is known nothing is paid: F comes out as 0. Otherwise the first steps would be
    the largest of all, and an agent that they have captured may not come back.

    Args:
        num_envs: The number of environments side by side.
        gamma: The filter's discount.
        update: "step" takes every G into the size at once, the first ones after `warm_up` steps;
            "manual" collects them until `update()` is called, so that the scale stays fixed
            within a rollout, as in RND.
        rule: "std" divides by the standard deviation of G (Burda et al. 2019); "rms" by its root
            mean square. They differ for a bonus that never dries up: its return is large and
            nearly constant, so its standard deviation is small and leaves the bonus large.
        warm_up: With update="step": the steps over which G is collected before it counts. None:
            one horizon of the filter, 1/(1 − γ) steps, at most 1,000.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import IntrinsicReturnNormalizer
        >>> normalizer = IntrinsicReturnNormalizer(2, gamma=0.5, rule="rms")  # warm_up: 2 steps
        >>> normalizer(np.array([3.0, 4.0]))  # G = (3, 4)
        array([0., 0.])
        >>> normalizer(np.array([-2.5, -2.0]))  # G = (-1, 0), root mean square √(26/4)
        array([-0.98058068, -0.78446454])
    """

    state_depends_on = ("gamma", "rule")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gamma: float = 0.99,
        update: Update = "step",
        rule: Rule = "std",
        warm_up: int | None = None,
    ) -> None:
        for name, value, known in (("update", update, Update), ("rule", rule, Rule)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {get_args(known)}, got {value!r}.")
        self.num_envs = _checks.whole("num_envs", num_envs, least=1)
        self.gamma = _checks.discount("gamma", gamma)
        self.update_mode, self.rule = update, rule
        if warm_up is None:
            warm_up = round(1.0 / max(1.0 - self.gamma, 1.0 / LONGEST_WARM_UP))
        self.warm_up = _checks.whole("warm_up", warm_up, least=1)
        self.frozen = False
        """While True neither the filter nor the scale moves."""
        self.returns = np.zeros(self.num_envs)
        self._moments = _Moments()
        self._collected = _Moments()
        self._provisional = False
        self._counts_from: float | None = None
        """On a device, where every G goes into the moments at once: how many must be there."""

    @property
    def scale(self) -> Any:
        """What F is divided by; 0 while it is not known. On a device, a tensor."""
        moments = self._moments
        size = moments.std if self.rule == "std" else moments.rms
        if self._counts_from is None:
            return size
        return kept(size, moments.count >= self._counts_from)

    def __call__(self, intrinsic: Any, valid: BoolArray | None = None) -> FloatArray:
        """Return F / scale for one step of all environments; rows not `valid` leave no trace."""
        backend = backend_of(intrinsic)
        values = backend.floats("F", intrinsic).reshape(-1)
        if len(values) != self.num_envs:
            raise ValueError(
                f"Expected {self.num_envs} intrinsic rewards, one for each environment, got "
                f"{len(values)}."
            )
        if not self.frozen:
            old = self.returns = backend.moved(self.returns)
            rows = backend.masks(np.ones(self.num_envs)) if valid is None else valid
            returns = backend.xp.where(rows, self.gamma * old + values, old)
            new = _Moments.of(returns, rows)
            unseen = backend is not HOST and self.update_mode == "step"
            if unseen:
                self._begin_on_device()
            (self._moments if unseen else self._collected).merge(new)
            self.returns = returns
            if not unseen and self.update_mode == "step":
                self._update_when_warm()
        scale = self.scale
        paid: FloatArray
        if isinstance(scale, float):
            paid = values / scale if scale > 0.0 else backend.xp.zeros_like(values)
        else:
            # Nobody has looked whether the scale has left float64. If so this is not a number,
            # which the checks of the stack find: it must not pay 0 in silence.
            paid = cleared(values / scale + (scale - scale), scale == 0.0)
        return paid

    def _update_when_warm(self) -> None:
        self._look()
        if self._moments.count > 0 or self._collected.count >= self.warm_up * self.num_envs:
            self.update()

    def _begin_on_device(self) -> None:
        """Let every G go into the moments, since nobody looks whether the warm-up is over."""
        if self._counts_from is None:
            known = self._moments.count > 0
            self._counts_from = 1.0 if known else float(self.warm_up * self.num_envs)
            self._moments.merge(self._collected)
            self._collected = _Moments()
        if self._provisional:
            self._moments, self._provisional = _Moments(), False

    def _look(self) -> None:
        """Bring to the host what a device has, and tell whether it counts yet."""
        if self._counts_from is not None:
            seen, empty = _Moments(*self._moments.as_list()), _Moments()
            counts = seen.count >= self._counts_from
            self._moments, self._collected = (seen, empty) if counts else (empty, seen)
            self._counts_from = None

    @property
    def collected(self) -> list[float]:
        """Count, mean and sum of squared deviations of the returns since the last update."""
        self._look()
        return self._collected.as_list()

    def update(self, collected: Iterable[Sequence[float]] | None = None) -> None:
        """Take the returns collected since the last update into the scale.

        Args:
            collected: What to take instead of this object's own `collected`. Processes that
                share a run give `collected` of all of them, in one order, and so scale alike.
        """
        self._look()
        new = _Moments()
        if collected is None:
            new.merge(self._collected)
        else:
            for moments in collected:
                new.merge(_Moments(*moments))
        if self._provisional and new.count:
            self._moments, self._provisional = _Moments(), False
        merged = _Moments(*self._moments)
        merged.merge(new)
        self._moments, self._collected = merged, _Moments()

    def restart(self) -> None:
        """Begin anew, but divide by the present scale until the next `update()`.

        For a scale that random actions have started: as soon as there are returns of the agent,
        those alone count.
        """
        self._look()
        self.returns = np.zeros(self.num_envs)
        self._collected, self._provisional = _Moments(), True

    def state_dict(self) -> dict[str, Any]:
        """Return the filter and the moments."""
        self._look()
        return {
            **self.settings_state(),
            "returns": saved_array(self.returns),
            "moments": self._moments.as_list(),
            "collected": self._collected.as_list(),
            "provisional": self._provisional,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.require_settings_of(state)
        self.returns = restore_array("the filtered returns", state["returns"], self.returns)
        self.load_learned(state)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Restore the scale of a `state_dict()`, which may be of another number of envs."""
        self.require_settings_of(state)
        self._moments = _Moments(*state["moments"])
        self._collected = _Moments(*state["collected"])
        self._provisional = bool(state.get("provisional", False))
        self._counts_from = None


class _Moments:
    """Count, mean and sum of squared deviations, merged pairwise (Chan et al. 1979).

    Numbers, or tensors on a device, where nothing is decided by looking at them.
    """

    def __init__(self, count: Any = 0.0, mean: Any = 0.0, deviation: Any = 0.0) -> None:
        self.count, self.mean, self.deviation = count, mean, deviation

    def __iter__(self) -> Iterator[Any]:
        return iter((self.count, self.mean, self.deviation))

    @property
    def std(self) -> Any:
        if isinstance(self.count, float):
            return math.sqrt(self.deviation / self.count) if self.count else 0.0
        return root(self.deviation / self.count.clip(1.0))

    @property
    def rms(self) -> Any:
        if isinstance(self.count, float):
            return math.hypot(self.std, self.mean)
        return namespace(self.count).hypot(self.std, self.mean)

    @classmethod
    def of(cls, values: Any, rows: BoolArray) -> _Moments:
        """Return the moments of the values of some rows."""
        if type(values) is not np.ndarray:
            count = namespace(values).sum(rows, dtype=values.dtype)
            mean = (values * rows).sum() / count.clip(1)
            gaps = namespace(values).where(rows, values, mean) - mean
            return cls(count, mean, gaps @ gaps)
        if not len(values := values[rows]):
            return cls()
        with np.errstate(over="ignore", invalid="ignore"):  # `merge` says it in words
            mean = float(values.mean())
            return cls(float(len(values)), mean, float(((values - mean) ** 2).sum()))

    def merge(self, other: _Moments) -> None:
        """Take in the moments of other values."""
        count = self.count + other.count
        if not isinstance(count, float):
            self._merge_on_device(count, other)
            return
        if count == 0.0:
            return
        gap = other.mean - self.mean
        between = gap * gap * self.count * other.count / count
        # In this order, as 0.2 added them: runs are compared to the last digit.
        deviation = self.deviation + (other.deviation + between)
        if not math.isfinite(deviation):
            raise OverflowError(
                f"The discounted return of F is about {other.mean:.3g} now, and its square leaves "
                "float64, so that it cannot be brought to unit size. Divide F by its order of "
                "magnitude in the source; check the source if F should not be that large."
            )
        self.deviation = deviation
        self.mean = self.mean + gap * other.count / count
        self.count = count

    def _merge_on_device(self, count: Any, other: _Moments) -> None:
        gap = other.mean - self.mean
        step = gap * (other.count / count.clip(1))
        self.deviation = self.deviation + other.deviation + gap * step * self.count
        self.mean = self.mean + step
        self.count = count

    def as_list(self) -> list[float]:
        return [float(value) for value in self]
