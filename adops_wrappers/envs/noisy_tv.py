"""A noisy TV for any env: a screen of noise in what the agent sees, which the task ignores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, to_numpy
from adops_wrappers.episodes import EnvLayout, EpisodeTracker, split_reset_mask
from adops_wrappers.wrappers.base import Layer, SingleEnvWrapper, VectorEnvWrapper
from adops_wrappers.wrappers.either import EitherWrapper
from adops_wrappers.wrappers.spec import from_spec

Place = Callable[[Any], Any]
"""Whether the TV is in sight in an observation, or in each one of a batch."""
Pixels = npt.NDArray[Any]


class Screen:
    """Draws the noise of n rows, each from a generator of its own."""

    def __init__(
        self,
        layout: EnvLayout,
        screen: Any,
        channels: int | None,
        low: float | None,
        high: float | None,
    ) -> None:
        space = layout.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(
                f"NoisyTV draws on Box observations, got {space}. Put "
                "gymnasium.wrappers.FlattenObservation, or a wrapper that picks an image, below it."
            )
        self.dtype = space.dtype
        self.pixels: BoolArray = np.zeros(space.shape, dtype=np.bool_)
        self.pixels[... if screen is None else screen] = True
        bounds = (space.low if low is None else low), (space.high if high is None else high)
        self.low, self.high = (np.broadcast_to(b, space.shape)[self.pixels] for b in bounds)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = self.high.astype(np.float64) - self.low
        if not (np.isfinite(spread) & (spread >= 0.0)).all():
            raise ValueError(
                f"The noise needs finite bounds, low ≤ high: pass low= and high= (got {low} and "
                f"{high}) for observations in {space}."
            )
        self.channels: list[Pixels] = []
        if channels is not None:
            number, generator = _checks.whole("channels", channels, least=1), self._generator(0)
            self.channels = [self._noise(generator) for _ in range(number)]
        self.generators = [self._generator(None) for _ in range(layout.num_envs)]

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Restart the noise of the rows that get a seed."""
        for row, seed in enumerate(seeds):
            if seed is not None:
                self.generators[row] = self._generator(seed)

    def draw(self, batch: Pixels, rows: BoolArray) -> Pixels:
        """Return a copy of a batch of observations, with noise in the given rows."""
        batch = batch.copy()
        for row in np.flatnonzero(rows).tolist():
            generator = self.generators[row]
            picture = self._noise(generator) if not self.channels else self._channel(generator)
            batch[row][self.pixels] = picture
        return batch

    @staticmethod
    def _generator(seed: int | None) -> np.random.Generator:
        # Not the numbers that an env draws from the same seed.
        return np.random.default_rng(None if seed is None else (seed, 0x7E1E))

    def _channel(self, generator: np.random.Generator) -> Pixels:
        return self.channels[int(generator.integers(len(self.channels)))]

    def _noise(self, generator: np.random.Generator) -> Pixels:
        if np.issubdtype(self.dtype, np.integer):
            return generator.integers(self.low, self.high, endpoint=True).astype(self.dtype)
        return generator.uniform(self.low, self.high).astype(self.dtype)


class ShowsNoise(Layer):
    """Shows noise in the observation when an action asks for it, or at a place.

    Rewards, episodes and the state of the env stay as they are: a noisy TV pays nothing and
    changes only what the agent sees. A bonus for novelty, however, never wears off in front of it
    (Burda et al. 2018, Large-Scale Study of Curiosity-Driven Learning).

    The noise has a generator of its own, which `reset(seed=…)` restarts: the env below draws the
    same numbers with a TV as without one. An action shows the noise once, in the observation that
    follows it; the first observation of an episode follows none.

    Args:
        env: An `Env` or a `VectorEnv` with Box observations.
        action: The action that switches the TV on, best one that the env ignores: in most of
            MiniGrid, 6.
        place: A function of an observation, or of a batch of them, that says whether the TV is in
            sight. Where observations do not tell, it may look into the env:
            `lambda obs: env.unwrapped.agent_pos == (3, 4)`. With an action too, both are needed.
        screen: The part of an observation that shows noise, as an index or a mask; None for all.
        channels: The number of different pictures: with few, the TV becomes boring. None: every
            picture is new.
        low: The smallest value of the noise; None for that of the observation space.
        high: The largest value of the noise; None for that of the observation space.
        autoreset_mode: When a vector env resets its rows, if it does not declare it.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers.envs import NoisyTV
        >>> env = gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1", is_slippery=False))
        >>> env = NoisyTV(env, place=lambda obs: obs[4] == 1, screen=slice(8, 12), high=9)
        >>> env.reset(seed=0)[0]
        array([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        >>> env.step(1)[0]  # down, to the cell that has a TV
        array([0, 0, 0, 0, 1, 0, 0, 0, 7, 1, 7, 1, 0, 0, 0, 0])
    """

    layer_name = "NoisyTV"

    def __init__(
        self,
        env: Any,
        *,
        action: int | None = None,
        place: Place | None = None,
        screen: Any = None,
        channels: int | None = None,
        low: float | None = None,
        high: float | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        given = dict(locals())
        if action is None and place is None:
            raise ValueError(
                "A NoisyTV needs an action that switches it on, a place where it is in sight, or "
                "both."
            )
        layout = self.layout_of(env, autoreset_mode)
        if action is not None and not layout.action_space.contains(np.int64(action)):
            raise ValueError(f"action must be one of {layout.action_space}, got {action!r}.")
        self.action, self.place = action, from_spec(place)
        self.screen = Screen(layout, from_spec(screen), channels, low, high)
        # Not `episodes`, which a wrapper above would follow: it must see what is shown.
        self.tracker = EpisodeTracker(layout)
        self._wrap(env, layout, ShowsNoise.__init__, given)

    def _show(self, batch: Pixels, rows: BoolArray, obs: Any) -> Pixels:
        """Draw on the rows in which the TV is on and in sight; `obs` is what `place` looks at."""
        if self.place is not None and rows.any():
            rows = rows & to_numpy(self.place(obs)).astype(np.bool_)
        return self.screen.draw(batch, rows)

    def _asked(self, actions: Any) -> BoolArray:
        """Return the rows whose action switches the TV on."""
        rows = self.tracker.layout.num_envs
        if self.action is None:
            return np.ones(rows, dtype=np.bool_)
        chosen: BoolArray = to_numpy(actions).reshape(rows) == self.action
        return self.tracker.valid & chosen

    def _unasked(self) -> BoolArray:
        """Return the rows in which the TV is on without an action, as after a reset."""
        return np.full(self.tracker.layout.num_envs, self.action is None)


class NoisyTVEnv(ShowsNoise, SingleEnvWrapper):
    """A noisy TV in one env; `ShowsNoise` explains the arguments."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env; a seed restarts the noise too."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.screen.seed([seed])
        self.tracker.reset(obs, None)
        return self._show(obs[None], self._unasked(), obs)[0], info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and look at the TV."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.tracker.advance(obs, np.array([bool(terminated or truncated)]), info)
        obs = self._show(obs[None], self._asked(action), obs)[0]
        return obs, reward, terminated, truncated, info


class NoisyTVVector(ShowsNoise, VectorEnvWrapper):
    """A noisy TV for every row of a vector env, each with noise of its own.

    `place` gets a batch and returns a mask. Under seed s, row i shows what a single env shows
    under seed s + i.
    """

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env, or the rows in `options["reset_mask"]`; seeds restart their noise too."""
        mask, options = split_reset_mask(options, self.num_envs)
        obs, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            one = isinstance(seed, int | np.integer)
            self.screen.seed([int(seed) + i for i in range(self.num_envs)] if one else seed)
        before: Any = self.tracker.last_obs
        self.tracker.reset(obs, mask)
        rows = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask
        shown = self._show(obs, self._unasked() & rows, obs)
        if mask is not None:
            shown[~mask] = before[~mask]
        return self._keep(shown), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the env and look at the TVs."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        ended = np.logical_or(to_numpy(terminated), to_numpy(truncated))
        self.tracker.advance(obs, ended, info)
        asked = self._asked(actions)
        if self.tracker.resets_within_step:
            # The last observation first, as in a single env that is reset after it.
            last = self.tracker.next_observations()
            last = self._show(last, asked & ended, last)
            info = {**info, "final_obs": _only(last, ended)}
            asked = np.where(ended, self._unasked(), asked)
        return self._keep(self._show(obs, asked, obs)), reward, terminated, truncated, info

    def _keep(self, obs: Any) -> Any:
        """Remember what was shown, for rows that a later reset leaves alone."""
        self.tracker.last_obs = obs.copy()
        return obs


def _only(batch: Pixels, rows: BoolArray) -> npt.NDArray[Any]:
    """Return the observations of `rows`, and None elsewhere, as Gymnasium reports final ones."""
    column: npt.NDArray[Any] = np.full(len(batch), None, dtype=object)
    for row in np.flatnonzero(rows).tolist():
        column[row] = batch[row]
    return column


NoisyTV = EitherWrapper(ShowsNoise, NoisyTVEnv, NoisyTVVector, "NoisyTV")
