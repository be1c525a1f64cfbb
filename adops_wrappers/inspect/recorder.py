"""Records what the outermost shaping wrapper sees: the rules that both recorders share."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, FloatArray, to_numpy
from adops_wrappers.core import ShapingCore
from adops_wrappers.inspect.frames import Frame, as_image, downscale
from adops_wrappers.inspect.methods import CLAMP, identify
from adops_wrappers.inspect.recording import VALUES, Recording
from adops_wrappers.inspect.storage import RecordingWriter
from adops_wrappers.shaping.adops import ADOPS
from adops_wrappers.shaping.base import Transition
from adops_wrappers.shaping.grm import RewardMatching

Frames = Literal["render", "observation"] | Callable[[Any, Any], Any]
_DEFAULTS = {
    "gamma_ext": 0.999,
    "gamma_int": 0.99,
    "ext_coef": 1.0,
    "int_coef": 1.0,
    "epsilon": 1e-7,
    "tie_tolerance": 0.0,
}


class RecorderCore:
    """Listens to a shaping core and writes each of its transitions.

    Args:
        core: The outermost shaping wrapper's.
        env: What is rendered and named in the file.
        path: The file to write.
        frames: Where pictures come from, or None for none.
        frame_size: The most pixels of a picture's longer side.
        frame_rows: How many environments are pictured, or None for all.
        settings: γ_E, γ_I, c_E and c_I that δ and the totals are computed with; None takes the
            method's own.
    """

    def __init__(
        self,
        core: ShapingCore,
        env: Any,
        path: str | os.PathLike[str],
        *,
        frames: Frames | None,
        frame_size: int,
        frame_rows: int | None,
        settings: dict[str, float | None],
    ) -> None:
        if frames is not None and frames not in ("render", "observation") and not callable(frames):
            raise ValueError(
                "frames must be 'render', 'observation', a function (env, obs) -> pictures, or "
                f"None; got {frames!r}."
            )
        if frames == "render" and env.render_mode not in ("rgb_array", "rgb_array_list"):
            raise ValueError(
                f"frames='render' needs an env made with render_mode='rgb_array', this one has "
                f"render_mode={env.render_mode!r}. Make it anew, or give frames='observation'."
            )
        self.core, self.env, self.frames = core, env, frames
        self.frame_size = _checks.whole("frame_size", frame_size, least=1)
        rows = core.layout.num_envs
        if frame_rows is not None:
            rows = min(rows, _checks.whole("frame_rows", frame_rows, least=1))
        self.frame_rows = rows
        self.settings = _discounts(core, settings)
        self.writer = RecordingWriter(path)
        self._begins = np.zeros(core.layout.num_envs, dtype=np.bool_)
        self._heard: Transition | None = None
        self._first: dict[str, Any] | None = None
        self._zeta = 1.0
        self._picture: Frame | None = None
        core.listener = self
        self._meta: dict[str, Any] = {}
        self._on_exit = weakref.finalize(self, _finish, self.writer, self._meta)

    @property
    def active(self) -> bool:
        """Whether steps are still recorded."""
        return self._on_exit.alive

    def reset(self, mask: BoolArray | None) -> None:
        """Note the rows in which an episode begins."""
        self._begins |= True if mask is None else mask

    def record(self, transition: Transition) -> None:
        """Hear one transition; it is written once the step's info is known."""
        self._heard = transition

    def before_step(self) -> None:
        """Look at the state in which the action is taken."""
        if not self.active:
            return
        self._heard = None
        self._zeta = self.core.shaper.zeta
        if self._first is None:
            self._first = self.core.shaper.state_dict()
            self._meta.update(self._describe())
        if self.frames is not None:
            self._picture = self._look()

    def after_step(self, raw: FloatArray, ended: BoolArray) -> None:
        """Write the step that the core has just told of, if it made one."""
        heard = self._heard
        if not self.active or heard is None:
            return
        hidden = ended & heard.valid & ~(heard.terminated | heard.truncated)
        self._meta["hidden_ends"] += int(np.count_nonzero(hidden))
        row: dict[str, Any] = {
            "reward": np.where(heard.valid, heard.reward, 0.0),
            "intrinsic": np.where(heard.valid, raw, 0.0),
            "shaped": heard.shaped,
            "terminated": heard.terminated,
            "truncated": heard.truncated,
            "valid": heard.valid,
            "begins": self._begins,
            "zeta": np.float64(self._zeta),
        }
        if self.core.consults_critic:
            row.update({name: getattr(heard, name) for name in VALUES})
        for name in ("advantage_ext", "potential", "next_potential"):
            if getattr(heard, name) is not None:
                row[name] = getattr(heard, name)
        if isinstance(
            self.core.layout.action_space,
            gym.spaces.Box
            | gym.spaces.Discrete
            | gym.spaces.MultiDiscrete
            | gym.spaces.MultiBinary,
        ):
            shape = (self.core.layout.num_envs, *(self.core.layout.action_space.shape or ()))
            row["action"] = to_numpy(heard.action).reshape(shape)
        if self._picture is not None:
            row["frames"] = self._picture
        self.writer.append(row)
        self._begins[:] = False

    def finish(self) -> Recording:
        """Close the file, stop recording and return what was recorded."""
        self._on_exit()
        self.core.listener = None
        return Recording.load(self.writer.path)

    def close(self) -> None:
        """Close the file, if it is not closed yet."""
        self._on_exit()
        self.core.listener = None

    def _look(self) -> Frame:
        batched = self.core.layout.batched
        obs = self.core.episodes.last_obs
        if self.frames == "render":
            pictures = self.env.render()
            if not batched and isinstance(pictures, list):  # rgb_array_list
                pictures = pictures[-1]
        elif self.frames == "observation":
            pictures = obs
        else:
            assert callable(self.frames)
            pictures = self.frames(self.env, obs)
        rows = list(pictures[: self.frame_rows]) if batched else [pictures]
        return np.stack([downscale(as_image(row), self.frame_size) for row in rows])

    def _describe(self) -> dict[str, Any]:
        core = self.core
        name, settings = identify(core.shaper, core.intrinsic_scale)
        # A vector env of copies is named after the first of them.
        named = (getattr(self.env.unwrapped, "envs", None) or [self.env])[0].unwrapped
        spec = getattr(self.env.unwrapped, "spec", None) or getattr(named, "spec", None)
        meanings = getattr(named, "get_action_meanings", None)
        return {
            "env": type(named).__name__ if spec is None else spec.id,
            "num_envs": core.layout.num_envs,
            "autoreset": core.layout.mode.name if core.layout.batched else None,
            "method": name,
            "description": core.shaper.describe(),
            "method_settings": settings,
            "initial_state": _plain(self._first),
            "frozen": core.shaper.frozen,
            "settles_debt": core.shaper.settles_debt,
            "intrinsic_scale": core.intrinsic_scale,
            "int_bootstrap": core.int_bootstrap,
            **self.settings,
            "frame_rows": self.frame_rows if self.frames is not None else 0,
            "action_meanings": list(meanings()) if callable(meanings) else None,
            "hidden_ends": 0,
        }


def _finish(writer: RecordingWriter, meta: dict[str, Any]) -> None:
    if writer.steps == 0:
        writer.abandon()
    else:
        writer.finish(meta)


def _discounts(core: ShapingCore, given: dict[str, float | None]) -> dict[str, float]:
    """Return what δ and the totals are computed with: given, else the method's, else RND's."""
    found = dict(_DEFAULTS)
    shaper = core.shaper
    if isinstance(shaper, ADOPS):
        found.update({name: shaper.clamp[name] for name in CLAMP})
    elif isinstance(shaper, RewardMatching):
        found["gamma_int"] = shaper.gamma
    checks = {
        "gamma_ext": _checks.discount,
        "gamma_int": _checks.discount,
        "ext_coef": _checks.positive,
        "int_coef": _checks.positive,
    }
    for name, value in given.items():
        if value is None:
            continue
        found[name] = checks[name](name, value)
        if isinstance(shaper, ADOPS) and found[name] != shaper.clamp[name]:
            raise ValueError(
                f"{shaper.name} below runs with {name}={shaper.clamp[name]}, not {value}. Leave it "
                "out here: the method's own is recorded."
            )
    return found


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state
