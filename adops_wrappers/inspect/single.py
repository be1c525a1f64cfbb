"""The recorder for one env."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers.inspect.recorder import RecorderTwin
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.wrappers.base import ShapingWrapper, SingleEnvWrapper

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class _Probe(ShapingWrapper):
    """A method that changes nothing, not even `info`, for a stack that has none."""

    passes_through = True

    def __init__(self, env: gym.Env[Any, Any], autoreset_mode: AutoresetMode | str | None) -> None:
        super().__init__(env, NoShaping, needs_intrinsic=False, autoreset_mode=autoreset_mode)


class ShapingRecorder(RecorderTwin[gym.Env[Any, Any]], SingleEnvWrapper):
    """Writes R, F, F′, V_E, V_I, ends, actions and pictures of every step into one file.

    It goes on top of the stack and changes nothing that the agent sees. It writes the very
    `Transition` that the outermost shaping wrapper acted on. A stack without one is
    recorded with F′ = F. The file appears, complete, after `close()`, `finish()`, or the
    end of the program. Memory does not grow with the recording.

    Args:
        env: The stack. A `TimeLimit` belongs below the shaping wrapper.
        path: The file to write, such as "episode.npz".
        critic: A `CriticHandle` or a function, for methods that consult none themselves. With
            None, values are recorded only where the method has a critic.
        frames: "render", "observation" (for image observations), a function
            (env, obs) -> picture, or None for no pictures.
        frame_size: The maximum length of a picture's longer side, in pixels.
        frame_rows: The number of environments whose pictures are kept; None for all.
        gamma_ext: γ_E of the recorded δ_E; None takes the method's, else 0.999.
        gamma_int: γ_I; None takes the method's, else 0.99.
        ext_coef: c_E of the total advantage; None takes the method's, else 1.
        int_coef: c_I.
        int_bootstrap: V_I(s′) at an episode's end; None takes the method's, else "final".
        potential: Φ(obs, t), recorded so that PBRS can be compared too.
        autoreset_mode: When the env resets itself, if neither it nor a wrapper below declares it.

    Raises:
        ValueError: A critic or a discount differs from the one that the method below uses.

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

    _probe = _Probe

    def step(self, action: Any) -> Step:
        """Step the env and record what happened."""
        self.recorder.before_step()
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.recorder.after_step(np.array([terminated or truncated]))
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the file and the env."""
        self.recorder.close()
        super().close()
