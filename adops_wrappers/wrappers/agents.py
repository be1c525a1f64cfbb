"""The two kinds of agent: one critic that values R + F′, or one value head for each stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from adops_wrappers.bootstrap import IntBootstrap
from adops_wrappers.methods import Method


class AgentSettings(NamedTuple):
    """What follows from the kind of agent."""

    add_to_reward: bool
    int_bootstrap: IntBootstrap
    own: dict[str, Any]
    """The settings of the method itself."""


def settings_for_agent(
    method: Method,
    add_to_reward: bool | None,
    int_bootstrap: IntBootstrap | None,
    settings: dict[str, Any],
) -> AgentSettings:
    """Fill in what the user left out, and refuse what contradicts itself.

    An agent with one critic gives its `gamma`: both streams have this discount and end where the
    episode terminates, and the reward is R + F′. An agent with two heads gives γ_E and γ_I, reads
    both streams from `info`, and gets R untouched.
    """
    own, gamma = dict(settings), None
    if method.needs_critic:
        gamma = own.pop("gamma", None)
    discounts = {name: own[name] for name in ("gamma_ext", "gamma_int") if name in own}
    if gamma is not None:
        if discounts:
            raise ValueError(
                f"gamma={gamma} is the one discount of an agent with one critic, but "
                f"{_written(discounts)} is given too. Leave {' and '.join(discounts)} out; or, for "
                "an agent with two value heads, leave out gamma."
            )
        if int_bootstrap not in (None, "none"):
            raise ValueError(
                f"An agent with one critic (gamma={gamma}) values R + F', which ends where the "
                f"episode terminates, so int_bootstrap={int_bootstrap!r} would not be its own. "
                "Leave int_bootstrap out; or, for an agent with two value heads, give gamma_ext "
                "and gamma_int instead of gamma."
            )
        own |= {"gamma_ext": gamma, "gamma_int": gamma}
        return AgentSettings(add_to_reward is not False, "none", own)
    if add_to_reward is None and discounts:
        used = {name: own.get(name, method.settings[name]) for name in ("gamma_ext", "gamma_int")}
        if used["gamma_ext"] == used["gamma_int"]:
            raise ValueError(
                f"{_written(used)} fit an agent with one critic, whose reward is R + F', and an "
                "agent with two value heads, whose reward stays R. Say which: "
                f"gamma={used['gamma_ext']} for one critic, add_to_reward=False for two heads."
            )
        add_to_reward = False
    return AgentSettings(add_to_reward is not False, int_bootstrap or "final", own)


def _written(settings: Mapping[Any, Any]) -> str:
    return " and ".join(f"{name}={value}" for name, value in settings.items())
