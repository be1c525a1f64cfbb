"""A Stable-Baselines3 replay buffer that stores R and F and shapes what it samples.

Needs Stable-Baselines3 (`pip install adops-wrappers[sb3]`); import it from `adops_wrappers.sb3`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

from adops_wrappers import _checks
from adops_wrappers.replay import ReplayBatch, ReplayShaper
from adops_wrappers.stack import find_layer
from adops_wrappers.wrappers.shaping import NO_HINDSIGHT, VectorShapingWrapper

_HINDSIGHT = ("goal_selection_strategy", "n_sampled_goal", "copy_info_dict")


class ShapedReplayBuffer(ReplayBuffer):
    """Stores R and F, and returns R + F′ with F′ computed at the time of sampling.

    Give it to DQN, SAC or TD3 as `replay_buffer_class`, with a `ReplayShaper` for the env's stack:

        shaper = ReplayShaper(env)
        model = DQN("MlpPolicy", env, replay_buffer_class=ShapedReplayBuffer,
                    replay_buffer_kwargs={"shaper": shaper})

    It reads `extrinsic_reward` and `raw_intrinsic_reward` in `infos`. With PBIM and GRM it stores
    F′ instead, because it depends on the episode and not on a critic. A critic that learns from
    replayed transitions (`QCritic`) gets a batch of its own whenever the agent samples one.

    Box, Discrete and Dict observations and several envs work as in SB3's own buffers, with the
    same draws from the same seed. Saving keeps R and F, not the live stack: after
    `load_replay_buffer` call `model.replay_buffer.bind(ReplayShaper(env))`.

    Args:
        buffer_size: As for SB3's `ReplayBuffer`, like all up to `n_envs`.
        observation_space: The space of the agent's observations.
        action_space: The space of actions.
        device: Where sampled tensors go.
        n_envs: The number of envs.
        optimize_memory_usage: SB3 then takes every end of an episode for a termination and
            forgets its last observation; the shaping does the same, and needs
            `int_bootstrap="none"`.
        handle_timeout_termination: False makes every end of an episode a termination, for SB3's
            return and for the shaping.
        shaper: What shapes; None to `bind` one before sampling.
        n_steps: More than 1 gives n-step returns (SB3's `NStepReplayBuffer`), each of their steps
            shaped by itself. Not for Dict observations.
        gamma: The discount of n-step returns.
        learn_every: A learning critic is shown a batch once in this many samplings.
        critic_batch_size: The size of that batch; None for the size that is sampled.

    Raises:
        ValueError: Wrong spaces, HER's arguments or `int_bootstrap="reset"`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> ShapedReplayBuffer:
        """Choose SB3's buffer by the observations and by `n_steps`."""
        space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
        chosen = cls
        if cls is ShapedReplayBuffer and isinstance(space, spaces.Dict):
            chosen = _ShapedDictReplayBuffer
        elif cls is ShapedReplayBuffer and kwargs.get("n_steps", 1) > 1:
            chosen = _ShapedNStepReplayBuffer
        return super().__new__(chosen)

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        shaper: ReplayShaper | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        learn_every: int = 1,
        critic_batch_size: int | None = None,
        **unknown: Any,
    ) -> None:
        _refuse(unknown)
        n_step: dict[str, Any] = {}
        if _checks.whole("n_steps", n_steps, least=1) > 1:
            if not isinstance(self, NStepReplayBuffer):
                raise ValueError(
                    f"n_steps={n_steps} is not offered for Dict observations, as in SB3. Use "
                    "n_steps=1, or flatten the observations."
                )
            n_step = {"n_steps": n_steps, "gamma": gamma}
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device=device,
            n_envs=n_envs,
            optimize_memory_usage=optimize_memory_usage,
            handle_timeout_termination=handle_timeout_termination,
            **n_step,
        )
        self.learn_every = _checks.whole("learn_every", learn_every, least=1)
        self.critic_batch_size = critic_batch_size
        shape = (self.buffer_size, self.n_envs)
        self.extrinsic = np.zeros(shape)
        """R in float64."""
        self.intrinsic = np.full(shape, np.nan)
        """F in float64, before `intrinsic_scale`; NaN where nothing is stored."""
        self.emitted = np.full(shape, np.nan)
        """F′ as the wrapper emitted it."""
        self.elapsed = np.full(shape, -1, dtype=np.int32)
        """t of Φ(s, t), for potentials; −1 where the stack told none."""
        self.rewards = _ShapedRewards(self)  # type: ignore[assignment]
        self._samplings = 0
        self.shaper: ReplayShaper | None = None
        if shaper is not None:
            self.bind(shaper)

    def bind(self, shaper: ReplayShaper) -> None:
        """Use this shaper from now on, for instance after loading the buffer."""
        core = shaper.core
        _check_spaces(self.observation_space, shaper.observation_space)
        if self.action_space != core.layout.action_space:
            raise ValueError(
                f"The buffer stores actions of {self.action_space}, the shaper's stack takes "
                f"{core.layout.action_space}. Make the ReplayShaper of the env that is trained on."
            )
        if shaper.critic is not None and core.int_bootstrap == "reset":
            raise ValueError(
                "int_bootstrap='reset' looks at the first observation of the next episode, which a "
                "replay buffer of SB3 does not keep with the step. Build the wrapper with "
                "int_bootstrap='none', which is also what SB3's return does at an end."
            )
        if (
            shaper.critic is not None
            and self.optimize_memory_usage
            and core.int_bootstrap == "final"
        ):
            raise ValueError(
                "optimize_memory_usage forgets an episode's last observation, at which "
                "int_bootstrap='final' looks. Build the wrapper with int_bootstrap='none', or "
                "leave optimize_memory_usage out."
            )
        self.shaper = shaper

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        done: npt.NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one step of all envs, with R and F from `infos`."""
        extrinsic = _read("extrinsic_reward", infos)
        _check_reward(np.asarray(reward, dtype=np.float64), extrinsic)
        position = self.pos
        self.intrinsic[position] = _read("raw_intrinsic_reward", infos)
        self.emitted[position] = _read("intrinsic_reward", infos)
        self.elapsed[position] = [info.get("potential_time", -1) for info in infos]
        super().add(obs, next_obs, action, extrinsic, done, infos)

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Sample like SB3, with rewards R + F′ computed now."""
        if self.shaper is None:
            raise RuntimeError(
                "This ShapedReplayBuffer has no shaper: a saved buffer keeps R and F, not the live "
                "stack. Call buffer.bind(ReplayShaper(env)) before training goes on."
            )
        if env is not None and env.norm_reward:
            raise ValueError(
                "VecNormalize would rescale R + F', and a rescaled F' no longer balances R. Build "
                "it with norm_reward=False, and normalise F at its source."
            )
        if self.shaper.learns and self._samplings % self.learn_every == 0:
            steps, rows = self._draw(self.critic_batch_size or batch_size)
            self.shaper.learn(self.transitions(steps, rows))
        self._samplings += 1
        return super().sample(batch_size, env)

    def transitions(self, steps: npt.NDArray[Any], rows: npt.NDArray[Any]) -> ReplayBatch:
        """Return what the shaper reads of the steps at these positions, as the wrapper saw them."""
        return self._transitions(steps * self.n_envs + rows)

    def _transitions(self, places: npt.NDArray[Any]) -> ReplayBatch:
        """Return the same for positions counted through steps and envs: one index is faster."""
        assert self.shaper is not None
        space = self.shaper.observation_space
        if self.optimize_memory_usage:
            after = self.observations, (places + self.n_envs) % (self.buffer_size * self.n_envs)
        else:
            after = self.next_observations, places
        ended = self.dones.take(places) > 0
        truncated = ended & (self.timeouts.take(places) > 0)
        return ReplayBatch(
            observation=_seen_by_wrapper(space, self.observations, places),
            action=self._action(places),
            next_observation=_seen_by_wrapper(space, *after),
            reward=self.extrinsic.take(places),
            intrinsic=self.intrinsic.take(places),
            terminated=ended & ~truncated,
            truncated=truncated,
            shaped=self.emitted.take(places) if self.shaper.keeps_stored else None,
            elapsed=None if self.shaper.potential is None else self.elapsed.take(places),
            # n-step returns look past the newest step, and mask what they find there.
            valid=None if self.full else places < self.pos * self.n_envs,
        )

    def _draw(self, size: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Draw with the generator that SB3 seeds; skip steps whose next observation is gone."""
        # As SB3 does: in place of the s of the oldest step, at `pos`, stands the newest one's s′.
        first = int(self.optimize_memory_usage and self.full)
        steps = np.random.randint(first, self.size(), size=size)  # noqa: NPY002
        rows = np.random.randint(0, self.n_envs, size=size)  # noqa: NPY002
        return (steps + first * self.pos) % self.buffer_size, rows

    def _action(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        action = _at(self.actions, places)
        space = self.action_space
        if isinstance(space, spaces.Box):
            # SB3 stores them scaled to [−1, 1].
            action = space.low.ravel() + 0.5 * (action + 1.0) * (space.high - space.low).ravel()
        return np.asarray(action.reshape(len(places), *(space.shape or ())))

    def _rewards_of_now(self, steps: Any, rows: Any) -> npt.NDArray[np.float32]:
        places = steps * self.n_envs + rows
        batch = self._transitions(places.ravel())
        assert self.shaper is not None
        reward = batch.reward if batch.valid is None else np.where(batch.valid, batch.reward, 0.0)
        total = reward + self.shaper.shape(batch)
        return np.asarray(total.reshape(places.shape), dtype=np.float32)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the live stack out of a saved buffer."""
        return {**self.__dict__, "shaper": None}


class _ShapedDictReplayBuffer(ShapedReplayBuffer, DictReplayBuffer):
    pass


class _ShapedNStepReplayBuffer(ShapedReplayBuffer, NStepReplayBuffer):
    pass


class _ShapedRewards:
    """Takes the place of SB3's reward array: stores R, and returns R + F′ with the current F′."""

    def __init__(self, buffer: ShapedReplayBuffer) -> None:
        self.buffer = buffer

    def __setitem__(self, index: Any, extrinsic: Any) -> None:
        self.buffer.extrinsic[index] = extrinsic

    def __getitem__(self, index: Any) -> npt.NDArray[np.float32]:
        return self.buffer._rewards_of_now(*index)


def refuse_hindsight(env: Any) -> None:
    """Raise if the reward of `env`'s stack is R + F′, which an env's `compute_reward` is not."""
    shaping = find_layer(env, VectorShapingWrapper)
    if shaping is not None and shaping.add_to_reward:
        raise ValueError(f"compute_reward: {NO_HINDSIGHT}")


def _refuse(unknown: dict[str, Any]) -> None:
    hindsight = [name for name in unknown if name in _HINDSIGHT]
    if hindsight:
        raise ValueError(f"{', '.join(hindsight)}: {NO_HINDSIGHT}")
    if unknown:
        raise TypeError(f"ShapedReplayBuffer takes no argument {', '.join(unknown)}.")


def _read(key: str, infos: list[dict[str, Any]]) -> npt.NDArray[np.float64]:
    for row, info in enumerate(infos):
        if key not in info:
            raise ValueError(
                f"infos[{row}] has no {key!r}, so this step cannot be shaped when it is sampled. "
                "Train on a stack with a source of F and a shaping wrapper: make_shaping(name, "
                "IntrinsicRewardWrapper(env, source), critic, add_to_reward=False)."
            )
    return np.array([info[key] for info in infos], dtype=np.float64)


def _check_reward(reward: npt.NDArray[Any], extrinsic: npt.NDArray[Any]) -> None:
    # Written out, because np.allclose takes seven times as long.
    difference = np.abs(reward - extrinsic)
    if not (difference <= 1e-6 + 1e-5 * np.abs(extrinsic)).all():
        row = int(np.argmax(difference))
        raise ValueError(
            f"The reward of environment {row} is {reward[row]:.6g} while its R is "
            f"{extrinsic[row]:.6g}: a wrapper adds F' to the reward, or rescales it, and F' would "
            "be counted twice. Build the shaping wrapper with add_to_reward=False and leave "
            "reward wrappers above it out."
        )


def _check_spaces(stored: gym.Space[Any], seen: gym.Space[Any]) -> None:
    if isinstance(stored, spaces.Dict) and isinstance(seen, spaces.Dict):
        if stored.spaces.keys() == seen.spaces.keys():
            for key, part in seen.spaces.items():
                _check_spaces(stored[key], part)
            return
    elif stored == seen or _transposed(stored.shape, seen.shape):
        return
    raise ValueError(
        f"The buffer stores observations of {stored}, the shaper's wrapper and critic work on "
        f"{seen}. Put what changes the observations below the shaping wrapper, so that agent and "
        "critic see the same."
    )


def _transposed(stored: Any, seen: Any) -> bool:
    """Whether SB3 has put an image's channels first (`VecTransposeImage`)."""
    return stored is not None and len(stored) == 3 and stored == (seen[2], *seen[:2])


def _at(stored: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows of an array of shape (steps, envs, ...)."""
    return stored.reshape(-1, *stored.shape[2:]).take(places, axis=0)


def _seen_by_wrapper(space: gym.Space[Any], stored: Any, places: npt.NDArray[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {
            key: _seen_by_wrapper(part, stored[key], places) for key, part in space.spaces.items()
        }
    batch = _at(stored, places)
    shape = space.shape or ()
    if batch.shape[1:] != shape and _transposed(batch.shape[1:], shape):
        return np.moveaxis(batch, 1, -1)
    return batch.reshape(len(batch), *shape)
