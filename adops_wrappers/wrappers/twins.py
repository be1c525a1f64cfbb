"""What a wrapper for one env and its vector twin share: arguments, state, episodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gymnasium.vector import AutoresetMode

from adops_wrappers.core import IntBootstrap, ShapingCore
from adops_wrappers.critic import CriticHandle
from adops_wrappers.episodes import EnvLayout, EpisodeTracker, tracker_below
from adops_wrappers.estimates import Potential
from adops_wrappers.shaping.base import Shaper
from adops_wrappers.wrappers.spec import from_spec

AnyEnv = TypeVar("AnyEnv")
"""A `gymnasium.Env`, or a `gymnasium.vector.VectorEnv`."""
AnyCritic = CriticHandle | Callable[[Any], Any]

INTRINSIC_MISSING = (
    "info has no 'intrinsic_reward' to shape. Put a source of F below this wrapper: "
    "IntrinsicRewardWrapper(env, source) with source(obs, action, next_obs) -> F, or an env that "
    "writes info['intrinsic_reward'] itself."
)


class Twin(Generic[AnyEnv]):
    """A wrapper of either kind; the single and the vector base class add what differs."""

    @abstractmethod
    def _layout(self, env: AnyEnv, autoreset_mode: AutoresetMode | str | None) -> EnvLayout:
        """Check the kind of `env` and describe it."""

    @abstractmethod
    def _wrap(self, env: AnyEnv, layout: EnvLayout) -> None:
        """Call the constructor of Gymnasium's wrapper."""


class ShapingTwin(Twin[AnyEnv]):
    """Base of all shaping wrappers: rewrites F in `info` into F′.

    Args:
        env: The env, with an `IntrinsicRewardWrapper` or another source of F below.
        make_shaper: Builds the method for a number of environments, with `settings`.
        needs_intrinsic: Whether a step without F is an error; otherwise F = 0 there.
        add_to_reward: Whether the reward is R + F′; otherwise it stays R.
        autoreset_mode: When the env resets itself, if it does not declare it.
        intrinsic_scale, critic, consults_critic, potential, int_bootstrap: See
            `adops_wrappers.core.ShapingCore`.
        **settings: The method's own.
    """

    passes_through = False
    """Whether a step returns what the env below returned: for watching, without any effect."""

    def __init__(
        self,
        env: AnyEnv,
        make_shaper: Callable[..., Shaper],
        *,
        needs_intrinsic: bool = True,
        add_to_reward: bool = True,
        intrinsic_scale: float = 1.0,
        critic: AnyCritic | None = None,
        consults_critic: bool = False,
        potential: Potential | None = None,
        int_bootstrap: IntBootstrap = "final",
        autoreset_mode: AutoresetMode | str | None = None,
        **settings: Any,
    ) -> None:
        layout = self._layout(env, autoreset_mode)
        self.core = ShapingCore(
            from_spec(make_shaper)(layout.num_envs, **settings),
            layout,
            consults_critic=consults_critic,
            critic=from_spec(critic),
            potential=from_spec(potential),
            int_bootstrap=int_bootstrap,
            intrinsic_scale=intrinsic_scale,
            episodes=tracker_below(env),
            base=env.unwrapped,  # type: ignore[attr-defined]
        )
        self.needs_intrinsic = needs_intrinsic
        self.add_to_reward = add_to_reward
        self._wrap(env, layout)

    @property
    def shaper(self) -> Shaper:
        """The method's state: debts, running mean, ζ."""
        return self.core.shaper

    @property
    def episodes(self) -> EpisodeTracker:
        """The position within the episodes."""
        return self.core.episodes

    def close(self, **settings: Any) -> None:
        """Close the env, and let a learning critic go on to another."""
        self.core.close()
        super().close(**settings)  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all that a resumed run needs: debts, running mean, ζ, counters."""
        return self.core.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.core.load_state_dict(state)
