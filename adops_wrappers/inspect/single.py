"""The recorder for one env."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from adops_wrappers.core import IntBootstrap, Potential, ShapingCore
from adops_wrappers.critic import CriticHandle
from adops_wrappers.inspect.recorder import Frames, RecorderCore
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.shaping.base import Shaper
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.wrappers.base import AnyWrapper, ShapingWrapper
from adops_wrappers.wrappers.spec import RecordsSettings, from_spec


class ShapingRecorder(RecordsSettings, AnyWrapper):
    """Writes R, F, F′, V_E, V_I, ends, actions and pictures of every step into one file.

    It goes on top of the stack and changes nothing that the agent sees. What it writes is the
    very `Transition` that the outermost shaping wrapper acted on. A stack without one is
    recorded with F′ = F. The file is complete as soon as it has its name: after `close()`,
    `finish()`, or the end of the program. Memory does not grow with the recording.

    Args:
        env: The stack. A `TimeLimit` belongs below the shaping wrapper.
        path: The file to write, such as "episode.npz".
        critic: A `CriticHandle` or a function, for methods that consult none themselves. With
            None, values are recorded only where the method has a critic.
        frames: "render", "observation" (for image observations), a function
            (env, obs) -> picture, or None for no pictures.
        frame_size: The most pixels of a picture's longer side.
        frame_rows: Of how many environments pictures are kept; None for all.
        gamma_ext: γ_E of the recorded δ_E; None takes the method's, else 0.999.
        gamma_int: γ_I; None takes the method's, else 0.99.
        ext_coef: c_E of the total advantage; None takes the method's, else 1.
        int_coef: c_I.
        int_bootstrap: V_I(s′) at an episode's end; None takes the method's, else "final".
        potential: Φ(obs, t), recorded so that PBRS can be compared too.

    Raises:
        ValueError: A critic or a discount differs from what the method below works with.

    Example:
        >>> import tempfile, gymnasium as gym
        >>> from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper
        >>> from adops_wrappers.inspect import ShapingRecorder
        >>> folder = tempfile.TemporaryDirectory()
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 1.0)
        >>> env = ShapingRecorder(GRMWrapper(env, gamma=0.5), f"{folder.name}/cliff.npz")
        >>> _ = env.reset(seed=0)
        >>> for _ in range(3):
        ...     _ = env.step(0)
        >>> recording = env.finish()
        >>> recording.intrinsic[:, 0], recording.shaped[:, 0]
        (array([1., 1., 1.]), array([ 1., -1., -1.]))
        >>> folder.cleanup()
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
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
        gym.Wrapper.__init__(self, env)
        self.core.consult(
            from_spec(critic), int_bootstrap=int_bootstrap, potential=from_spec(potential)
        )
        self.recorder = RecorderCore(
            self.core,
            env,
            str(from_spec(path)),
            frames=from_spec(frames),
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

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and record what happened."""
        self.recorder.before_step()
        obs, reward, terminated, truncated, info = self.env.step(action)
        seen = self.shaping.info if isinstance(self.shaping, _Probe) else info
        raw = np.array([seen.get("raw_intrinsic_reward", 0.0)], dtype=np.float64)
        self.recorder.after_step(raw, np.array([terminated or truncated]))
        return obs, reward, terminated, truncated, info

    def finish(self) -> Recording:
        """Close the file, stop recording and return the recording; the env lives on."""
        return self.recorder.finish()

    def close(self) -> None:
        """Close the file and the env."""
        self.recorder.close()
        super().close()


class _Probe(ShapingWrapper):
    """A method that changes nothing, for a stack that has none."""

    info: dict[str, Any]

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env, NoShaping, needs_intrinsic=False)
        self.info = {}

    def _shape(
        self, action: Any, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> tuple[float, dict[str, Any]]:
        _, self.info = super()._shape(action, obs, reward, terminated, truncated, info)
        return reward, info


def _outermost(env: Any) -> ShapingWrapper | None:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, ShapingWrapper):
            return env
        env = env.env
    return None
