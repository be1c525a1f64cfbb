"""The link to an agent with a hidden state, such as an LSTM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adops_wrappers.arrays import copy_observation
from adops_wrappers.critic import CriticHandle, without_gradients
from adops_wrappers.episodes import EpisodeTracker


class RecurrentCritic(CriticHandle):
    """A `CriticHandle` for an agent with a hidden state, which advances once per step.

    The registered function takes the state and returns the next one:

        output, next_state = fn(obs, state, begins)

    `output` is what a `CriticHandle` takes. `begins` is True where `obs` is the first observation
    of an episode (a bool for an `Env`, an array for a `VectorEnv`): there `fn` must start from its
    initial state, as CleanRL's PPO-LSTM does by `(1 - done) * state`. `state` is None at first.

    `handle(obs)` returns the output for the current observations. It is an error to ask about
    others. What a SAME_STEP env saw last before its reset is valued without advancing the state, as
    a full batch of n, and after `updated()` the current observations are valued again from the
    state before them.

    One handle follows one wrapper: for an evaluation env make another with the same function.

    Args:
        fn: The agent's function, if it is known already.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import RecurrentCritic
        >>> def fn(obs, state, begins):  # counts the steps of the episode
        ...     count = 1 if begins else state + 1
        ...     return (count, 0.0), count
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPSWrapper, CountBonus, IntrinsicRewardWrapper
        >>> critic = RecurrentCritic(fn)
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), CountBonus())
        >>> env = ADOPSWrapper(env, critic)
        >>> obs, _ = env.reset(seed=0)
        >>> for _ in range(3):
        ...     print(obs, critic(obs), critic.state)
        ...     obs, *_ = env.step(3)  # against the wall: it stays where it is
        36 (1, 0.0) None
        36 (2, 0.0) 1
        36 (3, 0.0) 2
    """

    has_hidden_state = True

    def __init__(self, fn: Callable[[Any, Any, Any], Any] | None = None) -> None:
        self.state: Any = None
        """The state before the current observations: what a recurrent learner starts from."""
        self._next_state: Any = None
        self._begins: Any = None
        self._owner: object = None
        super().__init__(fixed_batch=True)
        if fn is not None:
            self.register(fn)

    def register(self, fn: Callable[..., Any]) -> None:
        """Bind the agent's function; the hidden state is kept."""
        if hasattr(fn, "q_ext_of"):
            raise TypeError(
                "A RecurrentCritic cannot use q_ext_of(obs, action), which knows no hidden state. "
                "Return q_ext with the values, or leave Q_E out."
            )
        super().register(fn)

    def follow(
        self, owner: object, episodes: EpisodeTracker, *, acted_on: Any = None, anew: bool = False
    ) -> None:
        """Advance the state if a step was made, and learn where episodes begin."""
        begins = episodes.elapsed == 0
        if anew:
            self._owner = owner
        elif owner is not self._owner:
            raise RuntimeError(
                "Two wrappers consult one RecurrentCritic, so its hidden state would advance "
                "twice. Make one handle for each, RecurrentCritic(fn) with the same function."
            )
        if acted_on is not None:
            # Usually in memory. Not if nobody asked, or `updated` came since: then the new network
            # makes the next state, from the same state before.
            self._answer_to(acted_on, unchanging=True)
            self.state = self._next_state
        elif anew and begins.all():  # not after a loaded state, which is in mid-episode
            self.state = None
        self._begins = begins if episodes.layout.batched else bool(begins[0])
        self._forget()

    def evaluate(self, obs: Any) -> Any:
        """Return the output for observations that continue all episodes; advance nothing."""
        self._forget()
        # `& False` keeps the kind: a bool for an Env, an array for a VectorEnv.
        return self._run(obs, self._begins & False)[0]

    def remember(
        self, obs: Any, answer: Any, *, unchanging: bool = False, given: Any = None
    ) -> None:
        """Raise: an answer alone does not say what the next state is."""
        raise TypeError("A RecurrentCritic computes every answer itself, with the next state.")

    def _answer_to(self, obs: Any, *, unchanging: bool, given: Any = None) -> Any:
        if not self._has_answer:
            answer, self._next_state = self._run(obs, self._begins)
            super().remember(obs, answer, unchanging=unchanging, given=given)
        elif not self._recognises(obs, given):
            raise ValueError(
                "A RecurrentCritic was asked about observations that are not those that its "
                "wrapper sees now. Pass what env.reset or env.step has just returned, as it is; "
                "for others call your own function, with a state of your choice."
            )
        return self._answer

    def _run(self, obs: Any, begins: Any) -> tuple[Any, Any]:
        if self._fn is None or self._owner is None:
            raise RuntimeError(
                "A RecurrentCritic needs an agent and an env: call critic.register(fn) with "
                "fn(obs, state, begins) -> (output, next_state), wrap an env with this critic, "
                "and reset it."
            )
        # Copies both ways: a network may write into the state that it gets, or has returned.
        fn: Callable[..., Any] = self._fn
        pair = without_gradients(fn, obs, copy_observation(self.state), copy_observation(begins))
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise TypeError(
                "The function of a RecurrentCritic must return (output, next_state); it returned a "
                f"{type(pair).__name__}."
            )
        return pair[0], copy_observation(pair[1])

    def state_dict(self) -> dict[str, Any]:
        """Return the hidden state before the current observations."""
        return {"state": copy_observation(self.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`; restore the env's too."""
        self.state = copy_observation(state["state"])
        self._forget()
