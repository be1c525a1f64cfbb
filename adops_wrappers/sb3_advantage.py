"""ADOPS on the advantage for Stable-Baselines3's PPO and A2C."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.shaper import Transition
from adops_wrappers.shaping.advantage import AdvantageFloor, clamp_by_sign
from adops_wrappers.shaping.conflict import contradicts
from adops_wrappers.stack import find_layer
from adops_wrappers.wrappers.shaping import VectorShapingWrapper


class AdvantageClampCallback(BaseCallback):
    """Keeps the advantages of each rollout from contradicting the task, before SB3 learns.

    SB3's own critic values R + F, so its advantages are those of the sum. This callback computes
    A_E by GAE from V_E of a second critic, and sets an advantage to 0 wherever its sign is not
    that of A_E, from the first extrinsic reward on. What SB3's critic learns stays as it is.

    Logs `shaping/advantage_conflict_rate`, the share of advantages that contradicted the task,
    and `shaping/advantage_intervention_rate`, the share that was set to 0.

    Args:
        critic: Gives V_E: a `TDCritic`, a `CriticHandle` or a function of observations, as a
            shaping wrapper takes it.
        scale: Whether to divide the advantages by their root mean square, with a floor
            (`AdvantageFloor`). SB3's own `normalize_advantage` subtracts their mean, which flips
            signs: switch it off.
        verbose: SB3's verbosity.

    Raises:
        ValueError: The algorithm normalises advantages or has no rollouts, or its env is not
            an `SB3VecEnv` of a stack with a shaping wrapper; raised when learning starts.

    Example:
        >>> import gymnasium as gym
        >>> from gymnasium.vector import AutoresetMode
        >>> from stable_baselines3 import PPO
        >>> from adops_wrappers import CountBonus, IntrinsicRewardWrapper, TDCritic, make_shaping
        >>> from adops_wrappers.sb3 import AdvantageClampCallback, SB3VecEnv
        >>> env = gym.make_vec(
        ...     "adops/LoopFarm-v0", num_envs=4, autoreset_mode=AutoresetMode.SAME_STEP
        ... )
        >>> env = IntrinsicRewardWrapper(env, CountBonus(), normalizer="rms")
        >>> env = make_shaping("none", env)
        >>> critic = TDCritic(env.single_observation_space, gamma_ext=0.99, gamma_int=0.99, seed=0)
        >>> model = PPO(
        ...     "MlpPolicy", SB3VecEnv(env), n_steps=32, batch_size=64, normalize_advantage=False
        ... )
        >>> clamp = AdvantageClampCallback(critic)
        >>> model.learn(256, callback=clamp).num_timesteps
        256
    """

    needs_observations = False

    def __init__(self, critic: Any, *, scale: bool = True, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.critic, self.scale = critic, scale
        self.floor = AdvantageFloor()
        self.rewarded = False
        """Whether an extrinsic reward has been seen."""
        self._steps: list[tuple[FloatArray, BoolArray]] = []

    def _init_callback(self) -> None:
        if not hasattr(self.model, "rollout_buffer"):
            raise ValueError(
                f"{type(self.model).__name__} learns from a replay buffer and has no advantages to "
                "clamp. Use PPO or A2C, or shape replayed transitions with ShapedReplayBuffer."
            )
        if getattr(self.model, "normalize_advantage", False):
            raise ValueError(
                "normalize_advantage subtracts the mean of the advantages, which turns signs that "
                "this callback keeps. Build the model with normalize_advantage=False."
            )
        stack = find_layer(self.training_env, VectorShapingWrapper)
        if stack is None:
            raise ValueError(
                "AdvantageClampCallback reads the steps of a shaping wrapper around a vector env. "
                "Build SB3VecEnv(NoShapingWrapper(IntrinsicRewardWrapper(env, source)))."
            )
        self._core = stack.core
        self._core.consult(
            self.critic, int_bootstrap=None if self._core.consults_critic else "none"
        )
        if self not in self._core.observers:
            self._core.join(self)

    def reset(self, mask: BoolArray | None) -> None:
        """Do nothing: a reset by hand ends no step of the rollout."""

    def observe(self, transition: Transition) -> None:
        """Keep δ_E of a step, and where the episode goes on after it."""
        t = transition
        after = np.where(t.terminated, 0.0, t.next_value_ext)
        delta = t.reward + self.model.gamma * after - t.value_ext  # type: ignore[attr-defined]
        self._steps.append((delta, ~(t.terminated | t.truncated)))
        self.rewarded = self.rewarded or bool(t.reward.any())

    def _on_rollout_start(self) -> None:
        self._steps.clear()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        buffer = model.rollout_buffer
        total, advantage_ext = buffer.advantages, np.empty(buffer.advantages.shape)
        running = np.zeros(total.shape[1])
        for t in reversed(range(len(total))):
            delta, goes_on = self._steps[t]
            running = delta + model.gamma * model.gae_lambda * goes_on * running
            advantage_ext[t] = running
        conflicts = contradicts(advantage_ext, total)
        if self.rewarded:
            buffer.advantages = clamp_by_sign(total, advantage_ext)
        self.logger.record("shaping/advantage_conflict_rate", float(conflicts.mean()))
        changed = float(np.mean(buffer.advantages != total))
        self.logger.record("shaping/advantage_intervention_rate", changed)
        if self.scale:
            least = self.floor.after(buffer.advantages)
            buffer.advantages /= max(float(np.sqrt(np.square(buffer.advantages).mean())), least)

    def _on_training_end(self) -> None:
        self._core.observers.remove(self)
