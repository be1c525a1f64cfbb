"""The recorder for a vector env."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from adops_wrappers.inspect.recorder import RecorderTwin
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.vector.base import ShapingWrapper, VectorEnvWrapper

Step = tuple[Any, Any, Any, Any, dict[str, Any]]


class _Probe(ShapingWrapper):
    """A method that changes nothing, not even `info`, for a stack that has none."""

    passes_through = True

    def __init__(self, env: VectorEnv, autoreset_mode: AutoresetMode | str | None) -> None:
        super().__init__(env, NoShaping, needs_intrinsic=False, autoreset_mode=autoreset_mode)


class ShapingRecorder(RecorderTwin[VectorEnv], VectorEnvWrapper):
    """Writes R, F, F′, V_E, V_I, ends, actions and pictures of every row into one file.

    `adops_wrappers.inspect.single.ShapingRecorder` explains the arguments.

    Example:
        >>> import tempfile, gymnasium as gym, numpy as np
        >>> from adops_wrappers import IntrinsicRewardWrapper
        >>> from adops_wrappers.inspect import ShapingRecorder
        >>> folder = tempfile.TemporaryDirectory()
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=2)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: np.array([1.0, 2.0]))
        >>> env = ShapingRecorder(env, f"{folder.name}/cliff.npz")
        >>> _ = env.reset(seed=0)
        >>> _ = env.step(np.array([0, 0]))
        >>> env.finish().shaped
        array([[1., 2.]])
        >>> folder.cleanup()
    """

    _probe = _Probe

    def step(self, actions: Any) -> Step:
        """Step the env and record what happened."""
        self.recorder.before_step()
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self.recorder.after_step(np.logical_or(terminated, truncated))
        return obs, reward, terminated, truncated, info

    def close(self, **kwargs: Any) -> None:
        """Close the file and the env."""
        self.recorder.close()
        super().close(**kwargs)
