"""The two recorders: on top of a stack around one env, and around a vector env."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from adops_wrappers.bootstrap import IntBootstrap
from adops_wrappers.core import ShapingCore
from adops_wrappers.critic import AnyCritic
from adops_wrappers.estimates import Potential
from adops_wrappers.inspect.recorder import Frames, RecorderCore
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.shaper import Shaper
from adops_wrappers.stack import find_layer
from adops_wrappers.wrappers.base import Layer, SingleEnvWrapper, VectorEnvWrapper
from adops_wrappers.wrappers.either import EitherWrapper
from adops_wrappers.wrappers.named import make_shaping
from adops_wrappers.wrappers.shaping import ComposesShaper
from adops_wrappers.wrappers.spec import from_spec

Step = tuple[Any, Any, Any, Any, dict[str, Any]]


class Records(Layer):
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

    layer_name = "ShapingRecorder"

    def __init__(
        self,
        env: Any,
        path: str | os.PathLike[str],
        critic: AnyCritic | None = None,
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
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        given = dict(locals())
        shaping: Any = find_layer(env, ComposesShaper)
        if shaping is None:
            env = shaping = make_shaping("none", env, autoreset_mode=autoreset_mode)
            shaping.passes_through, shaping.needs_intrinsic = True, False
        self._wrap(env, self.layout_of(env, autoreset_mode), Records.__init__, given)
        shaping.core.consult(
            from_spec(critic), int_bootstrap=int_bootstrap, potential=from_spec(potential)
        )
        self.recorder = RecorderCore(
            shaping.core,
            env,
            str(from_spec(path)),
            frames=from_spec(frames),
            frame_size=frame_size,
            frame_rows=frame_rows,
            gamma_ext=gamma_ext,
            gamma_int=gamma_int,
            ext_coef=ext_coef,
            int_coef=int_coef,
        )

    @property
    def core(self) -> ShapingCore:
        """The recorded shaping wrapper's core."""
        return self.recorder.core

    @property
    def shaper(self) -> Shaper:
        """The recorded method's state."""
        return self.core.shaper

    def finish(self) -> Recording:
        """Close the file, stop recording and return the recording; the env lives on."""
        return self.recorder.finish()


class SingleShapingRecorder(Records, SingleEnvWrapper):
    """The recorder around one env; `Records` explains the arguments."""

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


class VectorShapingRecorder(Records, VectorEnvWrapper):
    """The recorder around a vector env; `Records` explains the arguments.

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


ShapingRecorder = EitherWrapper(
    Records, SingleShapingRecorder, VectorShapingRecorder, "ShapingRecorder"
)
