"""The recorder for a vector env."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.core import IntBootstrap, Potential, ShapingCore
from adops_wrappers.critic import CriticHandle
from adops_wrappers.inspect.recorder import Frames, RecorderCore
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.shaping.base import Shaper
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.vector.base import AnyVectorWrapper, ShapingWrapper


class ShapingRecorder(AnyVectorWrapper):
    """Writes R, F, F′, V_E, V_I, ends, actions and pictures of every row into one file.

    Args: As for `adops_wrappers.inspect.single.ShapingRecorder`.

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

    def __init__(
        self,
        env: VectorEnv,
        path: str | os.PathLike[str],
        critic: CriticHandle | Callable[[Any], Any] | None = None,
        *,
        frames: Frames | None = None,
        frame_size: int = 84,
        frame_rows: int | None = None,
        gamma_ext: float | None = None,
        gamma_int: float | None = None,
        ext_coef: float | None = None,
        int_coef: float | None = None,
        int_bootstrap: IntBootstrap | None = None,
        potential: Potential | None = None,
    ) -> None:
        self.shaping = _outermost(env)
        if self.shaping is None:
            env = self.shaping = _Probe(env)
        super().__init__(env)
        self.core.consult(critic, int_bootstrap=int_bootstrap, potential=potential)
        self.recorder = RecorderCore(
            self.core,
            env,
            path,
            frames=frames,
            frame_size=frame_size,
            frame_rows=frame_rows,
            settings={
                "gamma_ext": gamma_ext,
                "gamma_int": gamma_int,
                "ext_coef": ext_coef,
                "int_coef": int_coef,
            },
        )

    @property
    def core(self) -> ShapingCore:
        """The recorded shaping wrapper's core."""
        assert self.shaping is not None
        return self.shaping.core

    @property
    def shaper(self) -> Shaper:
        """The recorded method's state."""
        return self.core.shaper

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the env and record what happened."""
        self.recorder.before_step()
        obs, reward, terminated, truncated, info = self.env.step(actions)
        seen = self.shaping.info if isinstance(self.shaping, _Probe) else info
        raw = np.asarray(seen["raw_intrinsic_reward"], dtype=np.float64)
        self.recorder.after_step(raw, np.logical_or(terminated, truncated))
        return obs, reward, terminated, truncated, info

    def finish(self) -> Recording:
        """Close the file, stop recording and return the recording; the env lives on."""
        return self.recorder.finish()

    def close(self, **kwargs: Any) -> None:
        """Close the file and the env."""
        self.recorder.close()
        super().close(**kwargs)


class _Probe(ShapingWrapper):
    """A method that changes nothing, for a stack that has none."""

    info: dict[str, Any]

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env, NoShaping, needs_intrinsic=False)
        self.info = {}

    def _shape(
        self,
        actions: Any,
        obs: Any,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> tuple[FloatArray, dict[str, Any]]:
        _, self.info = super()._shape(actions, obs, reward, terminated, truncated, info)
        return reward, info


def _outermost(env: Any) -> ShapingWrapper | None:
    while isinstance(env, VectorWrapper):
        if isinstance(env, ShapingWrapper):
            return env
        env = env.env
    return None
