"""The one link between agent and env stack: the agent registers, the wrappers look up values."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from multiprocessing import current_process
from typing import Any

import numpy as np

from adops_wrappers._changes import changes_of, watch_optimizers
from adops_wrappers.arrays import (
    BoolArray,
    copy_observation,
    same_observation,
    token_of,
)
from adops_wrappers.backends import HOST, Backend
from adops_wrappers.episodes import EnvLayout, EpisodeTracker
from adops_wrappers.estimates import ValueEstimates as ValueEstimates
from adops_wrappers.estimates import value_estimates as value_estimates
from adops_wrappers.reward_checks import RewardChecks
from adops_wrappers.shaper import Transition


class CriticHandle:
    """Hands an agent's value estimates to the shaping wrappers, one network pass per observation.

    Make the handle first, wrap the env with it, then `register` the agent's function, which
    takes an observation as the env gives it (one, or a batch of n) and returns an object with
    `.value_ext` and `.value_int` (optionally `.q_ext`), or a tuple `(v_ext, v_int[, q_ext])`,
    of numpy arrays or torch tensors. `handle(obs)` returns that very object, logits included:
    if a wrapper has already looked at this observation, without another network pass. It is
    computed without gradients; to learn, call the network itself.

    For continuous actions the function may have a method `q_ext_of(obs, action)`, which returns Q_E
    of the action taken.

    Where a SAME_STEP vector env ends episodes, the function is also called with the final
    observations of the k rows that ended: a batch of k, unless `fixed_batch` is set.

    Call `updated()` after each phase of optimisation. If it is forgotten, a `torch.nn.Module`, or a
    method of one, is seen to have changed; of a function around a network nobody can tell.

    Args:
        fn: The agent's function, if it is known already.
        fixed_batch: Always evaluate batches of n, for a network with a fixed batch size or under
            `torch.compile`. The rows that did not end are then evaluated again.

    Example:
        >>> import numpy as np
        >>> from adops_wrappers import CriticHandle
        >>> critic = CriticHandle()
        >>> critic.register(lambda obs: (obs.sum(-1), np.zeros(len(obs))))
        >>> critic.estimate(np.ones((2, 3)), num_envs=2).value_ext
        array([3., 3.])
    """

    remembers = True
    """False for a bare callable: nothing announces that its parameters have changed."""
    gives_q_of_actions = False
    """Whether the registered function has a method `q_ext_of(obs, action)`."""
    learns_itself = False
    """Whether it learns whatever function is registered; see `TDCritic`."""
    has_hidden_state = False
    """Whether it must `follow` every step; see `RecurrentCritic`."""

    def __init__(
        self, fn: Callable[[Any], Any] | None = None, *, fixed_batch: bool = False
    ) -> None:
        self.fixed_batch = fixed_batch
        self.frozen = False
        """While True nothing is learned and nothing is kept (`evaluation_mode` sets it)."""
        self._process = os.getpid()
        self.needs_observations = False
        """Whether the registered function learns: whether it has a method `observe(transition)`."""
        self._checks: list[weakref.ref[RewardChecks]] = []
        self._q_ext_of: Callable[[Any, Any], Any] | None = None
        self._fn: Callable[[Any], Any] | None = None
        self._seen: Any = None
        self._answer: Any = None
        self._has_answer = False
        self._is_past = False
        """Whether the env has stepped since, so that the answer is about an older observation."""
        self._tokens: tuple[Any, ...] = ()
        """Tensors on a device to which the answer belongs; see `token_of`."""
        self.parameters: list[Any] = []
        """The network's, where they can be found: whether they have changed can be seen."""
        self._parameter_changes = 0
        self.version = 0
        """Grows with every call of `register` and `updated`."""
        if fn is not None:
            self.register(fn)

    def register(self, fn: Callable[[Any], Any]) -> None:
        """Bind the agent's function; a later call replaces an earlier one."""
        if not callable(fn):
            raise TypeError(
                f"CriticHandle.register takes a function of an observation, got {fn!r} of type "
                f"{type(fn).__name__}."
            )
        _TEACHERS.pop(id(self._learns), None)
        self._fn = fn
        self.needs_observations = self.learns_itself or hasattr(fn, "observe")
        self._q_ext_of = getattr(fn, "q_ext_of", None)
        self.gives_q_of_actions = self._q_ext_of is not None
        self._process = os.getpid()
        self.parameters = _parameters_of(fn)
        self.updated()

    def updated(self) -> None:
        """Forget every earlier estimate, because the agent's parameters have changed.

        What was wrong on a device since the last time is reported here.
        """
        for checks in [ref() for ref in self._checks]:
            if checks is not None:
                checks.report()
        self.version += 1
        if self.parameters:
            self._parameter_changes = changes_of(self.parameters)
        self._forget()

    def notice_update(self) -> None:
        """Call `updated` if the network's parameters have changed and nobody has said so."""
        if changes_of(self.parameters) != self._parameter_changes:
            self.updated()

    def _forget(self) -> None:
        self._seen = self._answer = None
        self._has_answer, self._tokens = False, ()

    def observations_change(self) -> None:
        """Hear that the env is about to step: what is in memory is not about what comes next.

        The env may also write into tensors that it has given out.
        """
        self._is_past, self._tokens = True, ()

    def __call__(self, obs: Any) -> Any:
        """Return the agent's own output for `obs`, from memory if it is the last one seen."""
        if self.parameters:
            self.notice_update()
        return self._answer_to(obs, unchanging=False)

    def _answer_to(self, obs: Any, *, unchanging: bool, given: Any = None) -> Any:
        if (
            self._has_answer
            and not self._is_past
            and (
                same_observation(self._seen, obs)
                if type(obs) is np.ndarray
                else self._recognises(obs, given)
            )
        ):
            return self._answer
        answer = self.evaluate(obs)
        if self.remembers:
            CriticHandle.remember(self, obs, answer, unchanging=unchanging, given=given)
        return answer

    def _recognises(self, obs: Any, given: Any) -> bool:
        token = token_of(obs)
        if token is None:
            return same_observation(self._seen, obs)
        known = token in self._tokens or (given is not None and token_of(given) in self._tokens)
        if known and given is not None:
            self._tokens = (token, token_of(given))
        return known

    def remember(
        self, obs: Any, answer: Any, *, unchanging: bool = False, given: Any = None
    ) -> None:
        """Remember the agent's output for `obs`, so that no wrapper asks for it again.

        With `unchanging` the caller promises never to write into `obs`: no copy is kept. Of a
        tensor on a device none ever is: the tensor itself is recognised until the env's next step,
        and with it `given`, the tensor that the agent has of the same observation.
        """
        self._answer, self._has_answer, self._is_past = answer, True, False
        if type(obs) is not np.ndarray and (token := token_of(obs)) is not None:
            self._seen, self._tokens = (obs, given), (token, token_of(given))
        else:
            # A copy: envs with copy=False write the next observation into the same array.
            self._seen = obs if unchanging else copy_observation(obs)

    def require_agent_in_this_process(self) -> None:
        """Raise if this is a copy of a critic whose agent learns in another process."""
        if self._process != os.getpid() or (_in_vector_worker() and not self.needs_observations):
            raise RuntimeError(
                "A shaping wrapper with a critic runs in a worker process, where the critic is a "
                "copy that does not learn. Wrap the vector env instead, with the same wrappers; "
                "adops_wrappers.sb3.SB3VecEnv hands such a stack to Stable-Baselines3. If the "
                "agent itself lives in this process, call critic.register(fn) here."
            )

    def attach(
        self, layout: EnvLayout, discounts: tuple[float, float] | None, int_bootstrap: str
    ) -> None:
        """Receive the discounts and the end-of-episode rule of the wrapper that uses this critic.

        Only a critic that learns needs them.
        """

    def report_with(self, checks: RewardChecks) -> None:
        """Let checks that wait for a device be made at the next `updated()`."""
        self._checks.append(weakref.ref(checks))

    @property
    def _learns(self) -> Any:
        """What learns: two handles of one function share it, as two wrappers of a bare one do."""
        return self if self.learns_itself else self._fn

    @property
    def learner(self) -> Any:
        """The shaping core whose steps this critic is shown, if it learns; None before the first.

        Where wrappers of one stack share the critic, this is the innermost: it sees a step first.
        """
        return _TEACHERS.get(id(self._learns))

    def learn_from(self, core: Any) -> None:
        """Be shown the steps of this core from now on, unless frozen or shown another stack's."""
        learner = self.learner
        if learner is core or self.frozen:
            return
        if learner is not None and learner.base is not core.base:
            raise RuntimeError(
                "This critic already learns from another stack, and one critic learns from one. "
                "A stack that should only read its values, as for evaluation, takes "
                "critic.evaluate in its place (of a function, CriticHandle(function).evaluate), or "
                "is stepped within evaluation_mode(env). To learn from many environments, wrap "
                "them as one vector env; to continue with a new stack, close() the old one."
            )
        _TEACHERS[id(self._learns)] = core

    def leave(self, core: Any) -> None:
        """Learn from another stack next, if this core's was the one."""
        if self.learner is core:
            del _TEACHERS[id(self._learns)]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the stacks out of a copy, which serves copies of them."""
        return {**self.__dict__, "_checks": []}

    def follow(
        self, owner: object, episodes: EpisodeTracker, *, acted_on: Any = None, anew: bool = False
    ) -> None:
        """Hear that a stack has other observations now; only a critic with a hidden state cares.

        Args:
            owner: Who consults this critic.
            episodes: The position within the episodes, at the new observations.
            acted_on: The observations before a step; None after a reset.
            anew: Whether nothing before counts: after a full reset or a loaded state.
        """

    def reset(self, mask: BoolArray | None) -> None:
        """Ignore that new episodes begin; a critic that keeps track of them overrides this."""

    def observe(self, transition: Transition) -> None:
        """Show the registered function what the wrapper has seen, if it learns from it."""
        if self.needs_observations and not self.frozen:
            self._fn.observe(transition)  # type: ignore[union-attr]

    def q_ext_of(self, obs: Any, action: Any) -> Any:
        """Return Q_E of the actions taken, or None if the registered function cannot tell.

        It can if it has a method `q_ext_of(obs, action)`. This is for continuous actions, of which
        `q_ext` cannot list all; without either, A_E is the one-step TD error of V_E.
        """
        if self._q_ext_of is None:
            return None
        self._forget()
        return self._q_ext_of(obs, action)

    def wraps(self, fn: Any) -> bool:
        """Whether `fn` is the registered function itself."""
        return self._fn is not None and fn is self._fn

    def evaluate(self, obs: Any) -> Any:
        """Run the agent's function on `obs`, even if the answer is in memory; forget that one."""
        if self._fn is None:
            raise RuntimeError(
                "No agent is registered with this CriticHandle. Call critic.register(fn) with "
                "fn(obs) -> (value_ext, value_int) before stepping the env."
            )
        # A network with preallocated outputs is about to overwrite the answer in memory.
        self._has_answer, self._seen, self._answer, self._tokens = False, None, None, ()
        return without_gradients(self._fn, obs)

    def estimate(
        self,
        obs: Any,
        num_envs: int,
        *,
        unchanging: bool = False,
        given: Any = None,
        backend: Backend | None = HOST,
    ) -> ValueEstimates:
        """Return the checked estimates for `obs`, a batch of `num_envs` (1 for a single env).

        With `unchanging` the caller promises never to write into `obs`: no copy is kept. `given` is
        what the agent has of the same observation. The estimates are in `backend`, or with None
        wherever the answer is.
        """
        answer = self._answer_to(obs, unchanging=unchanging, given=given)
        return value_estimates(answer, num_envs, backend)


_TEACHERS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The core that shows its steps to a learner, by the learner's id, which no other object gets while
the core's handle holds it. A copy of a learner has another id, and learns from its own stack."""


class _BareCritic(CriticHandle):
    remembers = False


AnyCritic = CriticHandle | Callable[[Any], Any]
"""What a wrapper takes as its critic."""


def without_gradients(fn: Callable[..., Any], *args: Any) -> Any:
    """Call an agent's function: an answer that is kept must not keep its graph."""
    torch = sys.modules.get("torch")  # not imported: an agent without it needs none
    if torch is None:
        return fn(*args)
    with torch.no_grad():
        return fn(*args)


def _parameters_of(fn: Any) -> list[Any]:
    """Return the parameters of a torch module, or of the one whose method `fn` is."""
    torch = sys.modules.get("torch")
    module = getattr(fn, "__self__", fn)
    if torch is None or not isinstance(module, torch.nn.Module):
        return []
    watch_optimizers()
    # Parameters made in inference mode count no changes.
    return [weight for weight in module.parameters() if not weight.is_inference()]


def as_handle(critic: Any) -> CriticHandle:
    """Return `critic` as a handle; a bare callable is evaluated afresh each time."""
    if isinstance(critic, CriticHandle):
        return critic
    if critic is None:
        raise TypeError(
            "This method consults a critic, but critic is None. Pass a CriticHandle() and "
            "register the agent with it, or a function obs -> (value_ext, value_int)."
        )
    if not callable(critic):
        raise TypeError(
            f"critic must be a CriticHandle or a function obs -> (value_ext, value_int), got "
            f"{critic!r} of type {type(critic).__name__}."
        )
    return _BareCritic(critic)


def _in_vector_worker() -> bool:
    """Whether this process steps envs for Gymnasium's AsyncVectorEnv or SB3's SubprocVecEnv."""
    process = current_process()
    runs = getattr(getattr(process, "_target", None), "__module__", "")
    return process.name.startswith("Worker<") or runs.startswith("stable_baselines3.")
