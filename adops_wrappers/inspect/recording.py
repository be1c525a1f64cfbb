"""What a recorder has seen, without the env: columns of shape (T, n) and what follows from them."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.inspect.findings import counted
from adops_wrappers.inspect.storage import RecordingReader
from adops_wrappers.methods import METHODS
from adops_wrappers.shaper import Transition
from adops_wrappers.shaping.adops import adops_correction
from adops_wrappers.shaping.conflict import Advantages, advantages, contradicts

Frame = npt.NDArray[np.uint8]

CLAMP = ("gamma_ext", "gamma_int", "ext_coef", "int_coef", "epsilon", "tie_tolerance")
"""Discounts, weights and margins of the two streams, which every recording has."""
_META = (
    *("steps", "env", "method", "description", "method_settings", "initial_state", "frozen"),
    *("intrinsic_scale", *CLAMP, "frame_rows", "action_meanings", "hidden_ends"),
)
"""What is read from meta.json."""
VALUES = ("value_ext", "value_int", "next_value_ext", "next_value_int")


class Recording:
    """A rollout of n environments over T steps, as the outermost shaping wrapper saw it.

    Arrays have shape (T, n) and are float64 or bool. Where `valid` is False, a vector env only
    reset itself: no transition, and zeros in every stream. V_I is the value of F′.

    Example:
        >>> import tempfile, gymnasium as gym
        >>> from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
        >>> from adops_wrappers.inspect import Recording, ShapingRecorder
        >>> folder = tempfile.TemporaryDirectory()
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 3.0)
        >>> env = ADOPSWrapper(env, lambda obs: (0.0, 0.0), epsilon=0.0)
        >>> env = ShapingRecorder(env, f"{folder.name}/cliff.npz")
        >>> _ = env.reset(seed=0)
        >>> for action in (0, 1):
        ...     _ = env.step(action)
        >>> env.close()
        >>> recording = Recording.load(f"{folder.name}/cliff.npz")
        >>> recording.intrinsic[:, 0], recording.shaped[:, 0], recording.correction[:, 0]
        (array([3., 3.]), array([1., 1.]), array([-2., -2.]))
        >>> folder.cleanup()
    """

    def __init__(self, reader: RecordingReader) -> None:
        self._reader = reader
        self.meta: dict[str, Any] = reader.meta
        missing = [name for name in _META if name not in self.meta]
        if missing:
            raise reader.damaged(f"its meta.json lacks {missing[0]!r}")
        if reader.meta["steps"] == 0:
            raise ValueError(f"{reader.path} holds no steps: nothing was recorded.")
        self.reward: FloatArray = reader.read("reward")
        """R."""
        self.intrinsic: FloatArray = reader.read("intrinsic")
        """F as the source gave it, before `intrinsic_scale`."""
        self.shaped: FloatArray = reader.read("shaped")
        """F′."""
        self.terminated: BoolArray = reader.read("terminated")
        self.truncated: BoolArray = reader.read("truncated")
        self.valid: BoolArray = reader.read("valid")
        self.begins: BoolArray = reader.read("begins")
        """True where the user reset the row just before this step."""
        self.zeta: FloatArray = reader.read("zeta")
        """ζ at each step, shape (T,)."""
        self._values = {name: reader.read(name) for name in VALUES} if self.has_critic else {}

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Recording:
        """Read a recording; nothing in the file is executed."""
        return Recording(RecordingReader(path))

    def __repr__(self) -> str:
        return (
            f"<Recording of {self.meta['env']}: {counted(self.steps, 'step')} of "
            f"{counted(self.num_envs, 'environment')}, {self.description}>"
        )

    @property
    def steps(self) -> int:
        """T."""
        return len(self.reward)

    @property
    def num_envs(self) -> int:
        """The number of environments, n."""
        return int(self.reward.shape[1])

    @property
    def method(self) -> str:
        """The recorded method by the name that `make_shaping` takes, or the shaper's own name."""
        return str(self.meta["method"])

    @property
    def description(self) -> str:
        """The recorded method with its discounts; without a method, "the raw bonus"."""
        return "the raw bonus" if self.method == "none" else str(self.meta["description"])

    @property
    def has_critic(self) -> bool:
        """Whether V_E and V_I were recorded."""
        return "value_ext" in self._reader.columns

    @property
    def has_frames(self) -> bool:
        """Whether pictures were recorded."""
        return "frames" in self._reader.columns

    @property
    def value_ext(self) -> FloatArray:
        """V_E(s)."""
        return self._value("value_ext")

    @property
    def value_int(self) -> FloatArray:
        """V_I(s)."""
        return self._value("value_int")

    @property
    def next_value_ext(self) -> FloatArray:
        """V_E(s′) of the true next observation, not yet masked where terminated."""
        return self._value("next_value_ext")

    @property
    def next_value_int(self) -> FloatArray:
        """V_I(s′), at an episode's end as `int_bootstrap` said."""
        return self._value("next_value_int")

    def _value(self, name: str) -> FloatArray:
        if not self.has_critic:
            raise ValueError(
                f"{self._reader.path} was recorded without a critic, so it has no {name}. Record "
                "with ShapingRecorder(env, path, critic)."
            )
        return self._values[name]

    @cached_property
    def action(self) -> npt.NDArray[Any] | None:
        """The actions, shape (T, n, ...), or None where actions are not arrays."""
        return self._reader.read("action") if "action" in self._reader.columns else None

    @property
    def scale(self) -> float:
        """The recorded method's `intrinsic_scale`."""
        return float(self.meta["intrinsic_scale"])

    @property
    def base_scale(self) -> float:
        """The part of `intrinsic_scale` that the user chose: the method's name may halve it."""
        method = METHODS.get(self.method)
        return self.scale if method is None else self.scale / method.intrinsic_scale

    @property
    def ended(self) -> BoolArray:
        """True at the last step of an episode."""
        return (self.terminated | self.truncated) & self.valid

    @cached_property
    def correction(self) -> FloatArray:
        """F′ − intrinsic_scale·F: for ADOPS F₂, for ADOPES ζ·F₂."""
        return np.where(self.valid, self.shaped - self.scale * self.intrinsic, 0.0)

    @cached_property
    def delta_ext(self) -> FloatArray:
        """δ_E = R + γ_E·V_E(s′)·[not terminated] − V_E(s)."""
        return self._advantages(self.transitions()._replace(advantage_ext=None)).ext

    @cached_property
    def advantage_ext(self) -> FloatArray:
        """A_E: Q_E(s, a) − V_E(s) where the critic gave Q values, else δ_E."""
        return self._advantages(self.transitions()).ext

    @cached_property
    def delta_int(self) -> FloatArray:
        """δ_I of the raw bonus: intrinsic_scale·F + γ_I·V_I(s′) − V_I(s)."""
        after = float(self.meta["gamma_int"]) * self.next_value_int
        return self.scale * self.intrinsic + after - self.value_int

    def total(self, bonus: FloatArray | None = None) -> FloatArray:
        """c_E·A_E + c_I·δ_I with `bonus` instead of F; F′ by default."""
        bonus = self.shaped if bonus is None else bonus
        return self._advantages(self.transitions()._replace(intrinsic=bonus)).total

    @cached_property
    def total_raw(self) -> FloatArray:
        """The total advantage that the raw bonus alone would give."""
        return self.total(self.scale * self.intrinsic)

    def _advantages(self, transitions: Transition) -> Advantages:
        if not self.has_critic:
            self._value("value_ext")  # says how to record one
        names = ("gamma_ext", "gamma_int", "ext_coef", "int_coef")
        return advantages(transitions, **{name: float(self.meta[name]) for name in names})

    def contradicts(self, total: FloatArray, *, rounding: float = 0.0) -> BoolArray:
        """True where a total advantage has a different sign from A_E, by the clamp's own rule."""
        tolerance = float(self.meta["tie_tolerance"])
        wrong = contradicts(self.advantage_ext, total, tolerance, rounding=rounding)
        return wrong & self.valid

    @cached_property
    def f2(self) -> FloatArray:
        """F₂ of eq. f_2_weak: what ADOPS adds, whichever method was recorded."""
        clamp = {name: float(self.meta[name]) for name in CLAMP}
        return np.where(self.valid, adops_correction(self.transitions(self.scale), **clamp), 0.0)

    @cached_property
    def episode(self) -> npt.NDArray[np.int64]:
        """The number of the episode within its row, counted from 0; dummy steps belong to none."""
        starts = self.begins.copy()
        starts[0] = False
        # A reset after an end starts the episode that the end has already announced.
        after_end = np.zeros_like(starts)
        after_end[1:] = self.ended[:-1]
        numbers = np.cumsum(starts | after_end, axis=0)
        return np.where(self.valid, numbers, -1)

    @cached_property
    def episode_step(self) -> npt.NDArray[np.int64]:
        """The step t within the episode, or within its recorded part."""
        step = np.zeros(self.reward.shape, dtype=np.int64)
        for t in range(1, self.steps):
            same = (self.episode[t] == self.episode[t - 1]) & self.valid[t]
            step[t] = np.where(same, step[t - 1] + 1, 0)
        return step

    def transitions(self, intrinsic_scale: float = 1.0) -> Transition:
        """Return the rollout as shapers take it, with F multiplied by `intrinsic_scale`."""
        zeros = np.zeros(self.reward.shape)
        return Transition(
            reward=self.reward,
            intrinsic=intrinsic_scale * self.intrinsic,
            **{name: self._values.get(name, zeros) for name in VALUES},
            terminated=self.terminated,
            truncated=self.truncated,
            valid=self.valid,
            **self._optional,
        )

    @cached_property
    def _optional(self) -> dict[str, Any]:
        return {
            name: self._reader.read(name) if name in self._reader.columns else None
            for name in ("advantage_ext", "potential", "next_potential")
        }

    @property
    def has_potential(self) -> bool:
        """Whether Φ was recorded, which PBRS needs."""
        return "potential" in self._reader.columns

    def frame(self, time: int, row: int = 0) -> Frame:
        """Return the picture of the state in which the action of this step was chosen."""
        if not self.has_frames:
            raise ValueError(
                f"{self._reader.path} holds no pictures. Record with frames='render' or "
                "frames='observation'."
            )
        if not 0 <= time < self.steps or not 0 <= row < int(self.meta["frame_rows"]):
            raise IndexError(
                f"There is no picture of step {time} in environment {row}: the recording has "
                f"{counted(self.steps, 'step')} and pictures of "
                f"{counted(int(self.meta['frame_rows']), 'environment')}."
            )
        frames = self._reader.read_row("frames", time)
        return np.asarray(frames[row], dtype=np.uint8)

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return all real steps as flat columns of one length, ready for a data frame."""
        names = ["reward", "intrinsic", "shaped", "correction", "terminated", "truncated"]
        names += ["episode", "episode_step"]
        if self.has_critic:
            names += [*VALUES, "delta_ext", "delta_int", "advantage_ext", "total_raw", "f2"]
        time, row = np.nonzero(self.valid)
        columns = {name: getattr(self, name)[time, row] for name in names}
        if self.action is not None:
            columns["action"] = self.action[time, row]
        return {"time": time, "row": row, **columns}
