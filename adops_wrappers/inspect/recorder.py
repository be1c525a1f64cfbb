"""Observes a shaping wrapper and writes each of its transitions into a file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from adops_wrappers import _checks
from adops_wrappers.arrays import BoolArray, to_numpy
from adops_wrappers.core import ShapingCore
from adops_wrappers.inspect.recording import CLAMP, VALUES, Frame, Recording
from adops_wrappers.inspect.storage import RecordingWriter
from adops_wrappers.methods import method_of
from adops_wrappers.shaper import Shaper, Transition, constructor_settings
from adops_wrappers.shaping.adops import ADOPS

Frames = Literal["render", "observation"] | Callable[[Any, Any], Any]
ARRAY_SPACES = (
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
)
"""The action spaces whose actions are recorded."""


class RecorderCore:
    """Observes a shaping core and writes each of its transitions.

    Args:
        core: The outermost shaping wrapper's.
        env: What is rendered and named in the file.
        path: The file to write.
        frames: Where pictures come from, or None for none.
        frame_size: The maximum length of a picture's longer side, in pixels.
        frame_rows: How many environments are pictured, or None for all.
        **settings: γ_E, γ_I, c_E and c_I that δ and the totals are computed with; None takes the
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
        **settings: float | None,
    ) -> None:
        if frames is not None and frames not in ("render", "observation") and not callable(frames):
            raise ValueError(
                "frames must be 'render', 'observation', a function (env, obs) -> pictures, or "
                f"None; got {frames!r}."
            )
        if frames == "render" and env.render_mode not in ("rgb_array", "rgb_array_list"):
            raise ValueError(
                f"frames='render' needs an env made with render_mode='rgb_array', this one has "
                f"render_mode={env.render_mode!r}. Make it with that mode, or pass "
                "frames='observation'."
            )
        self.core, self.env, self.frames = core, env, frames
        self.frame_size = _checks.whole("frame_size", frame_size, least=1)
        rows = core.layout.num_envs
        if frame_rows is not None:
            rows = min(rows, _checks.whole("frame_rows", frame_rows, least=1))
        self.frame_rows = rows
        self.settings = _discounts(core.shaper, settings)
        self.writer = RecordingWriter(path)
        self._begins = np.zeros(core.layout.num_envs, dtype=np.bool_)
        self._seen: Transition | None = None
        self._zeta = 1.0
        self._picture: Frame | None = None
        self._columns: list[str] = []
        """Optional fields of the `Transition` that this recording has."""
        self._meta: dict[str, Any] = {}
        core.join(self)
        # Also when the recorder is dropped, or the interpreter ends: what was recorded is kept.
        self._on_exit = weakref.finalize(self, _finish, self.writer, self._meta)

    @property
    def needs_observations(self) -> bool:
        """Whether it looks at the observation before the action, to take a picture of it."""
        return self.frames not in (None, "render")

    @property
    def active(self) -> bool:
        """Whether steps are still recorded."""
        return self._on_exit.alive and self.writer.open

    def reset(self, mask: BoolArray | None) -> None:
        """Note the rows in which an episode begins."""
        self._begins |= True if mask is None else mask

    def observe(self, transition: Transition) -> None:
        """See one transition; it is written once the whole stack has made the step."""
        self._seen = transition

    def before_step(self) -> None:
        """Look at the state in which the action is taken."""
        if not self.active:
            return
        self._seen = None
        self._zeta = self.core.shaper.zeta
        if not self._meta:
            self._meta.update(self._describe())
            # Another recorder may add a critic later: this file keeps its columns.
            self._columns = [*VALUES] if self.core.consults_critic else []
            self._columns += ["potential", "next_potential"] if self.core.potential else []
        if self.frames is not None:
            self._picture = self._look()

    def after_step(self, ended: BoolArray) -> None:
        """Write the transition that was seen, if there was one."""
        seen = self._seen
        if seen is None or not self.active:
            return
        # Ends that wrappers above the shaping wrapper cause, which it cannot see.
        hidden = ended & seen.valid & ~(seen.terminated | seen.truncated)
        self._meta["hidden_ends"] += int(np.count_nonzero(hidden))
        row: dict[str, Any] = {
            "reward": np.where(seen.valid, seen.reward, 0.0),
            "intrinsic": seen.raw_intrinsic,
            "shaped": seen.shaped,
            "terminated": seen.terminated,
            "truncated": seen.truncated,
            "valid": seen.valid,
            "begins": self._begins,
            "zeta": np.float64(self._zeta),
            **{name: getattr(seen, name) for name in self._columns},
        }
        if seen.advantage_ext is not None and "value_ext" in self._columns:
            row["advantage_ext"] = seen.advantage_ext
        layout = self.core.layout
        if isinstance(layout.action_space, ARRAY_SPACES):
            shape = (layout.num_envs, *(layout.action_space.shape or ()))
            actions = to_numpy(seen.action).reshape(shape)
            row["action"] = actions.astype(layout.action_space.dtype)
        if self._picture is not None:
            row["frames"] = self._picture
        self.writer.append(row)
        self._begins[:] = False

    def finish(self) -> Recording:
        """Close the file, stop recording and return what was recorded."""
        self.close()
        if not self.writer.finished:
            raise ValueError(
                f"There is no recording to return: nothing was written to {self.writer.path}, "
                "because no step was recorded, or because an error ended the recording."
            )
        return Recording.load(self.writer.path)

    def close(self) -> None:
        """Close the file, if it is not closed yet."""
        if self in self.core.observers:
            self.core.observers.remove(self)
        self._on_exit()

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
        name, settings = _identify(core.shaper)
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
            "initial_state": _plain(core.shaper.state_dict()),
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


def _identify(shaper: Shaper) -> tuple[str, dict[str, Any] | None]:
    """Return a shaper's name and the settings that build it again; None for a user's functions."""
    method = method_of(shaper)
    if method is None:
        return shaper.name, None
    settings = _plain(shaper.settings)
    written = all(isinstance(value, int | float | str | None) for value in settings.values())
    return method.name, settings if written else None


def _discounts(shaper: Shaper, given: dict[str, float | None]) -> dict[str, float]:
    """Return what δ and the totals are computed with: given, else the method's, else ADOPS'."""
    own = {
        name: getattr(shaper, name)
        for name in constructor_settings(type(shaper))
        if hasattr(shaper, name)
    }
    if shaper.discounts is not None:
        own |= dict(zip(("gamma_ext", "gamma_int"), shaper.discounts, strict=True))
    found = {name: own.get(name, constructor_settings(ADOPS)[name]) for name in CLAMP}
    if "gamma" in own:
        found["gamma_int"] = own["gamma"]
    for name, value in given.items():
        if value is None:
            continue
        check = _checks.discount if name.startswith("gamma") else _checks.positive
        found[name] = check(name, value)
        if name in own and found[name] != own[name]:
            raise ValueError(
                f"{shaper.name} below runs with {name}={own[name]}, not {value}. Leave it out "
                "here: the method's own is recorded."
            )
    return found


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def as_image(array: Any) -> npt.NDArray[Any]:
    """Return an observation as (H, W) or (H, W, 3): the last picture of a stack of grey ones."""
    image: npt.NDArray[Any] = np.asarray(array)
    if image.ndim == 3 and image.shape[-1] == 3:
        return image
    if image.ndim == 3 and image.shape[-1] <= 4:
        return np.asarray(image[..., -1])
    if image.ndim == 3 and image.shape[0] <= 4:
        return np.asarray(image[-1])
    if image.ndim == 2:
        return image
    raise ValueError(
        f"An array of shape {image.shape} is not a picture: expected (H, W), (H, W, 3), or a stack "
        "of at most 4 grey pictures. Pass frames='render', or a function (env, obs) -> pictures."
    )


def downscale(image: npt.NDArray[Any], largest: int) -> Frame:
    """Return an RGB copy whose longer side has at most `largest` pixels, by means over blocks."""
    if image.ndim == 2:
        image = np.repeat(image[..., None], 3, axis=-1)
    factor = -(-max(image.shape[:2]) // largest)
    if factor > 1:
        padding = [(0, -side % factor) for side in image.shape[:2]]
        image = np.pad(image, [*padding, (0, 0)], mode="edge")
        height, width = image.shape[0] // factor, image.shape[1] // factor
        blocks = image.reshape(height, factor, width, factor, 3)
        image = np.rint(blocks.mean(axis=(1, 3), dtype=np.float32))
    return np.array(image, dtype=np.uint8)
