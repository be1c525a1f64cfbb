"""Recordings of streams that a test chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers.inspect import Recording
from adops_wrappers.inspect.storage import RecordingWriter

META = {
    "env": "Synthetic-v0",
    "num_envs": 1,
    "autoreset": None,
    "method": "adops",
    "description": "ADOPS (gamma_ext=0.9, gamma_int=0.9)",
    "method_settings": None,
    "initial_state": {},
    "frozen": False,
    "settles_debt": False,
    "intrinsic_scale": 1.0,
    "int_bootstrap": "final",
    "gamma_ext": 0.9,
    "gamma_int": 0.9,
    "ext_coef": 1.0,
    "int_coef": 1.0,
    "epsilon": 1e-7,
    "tie_tolerance": 0.0,
    "frame_rows": 0,
    "action_meanings": None,
    "hidden_ends": 0,
}
FLAGS = ("terminated", "truncated", "valid", "begins")
VALUES = ("value_ext", "value_int", "next_value_ext", "next_value_int")


def make(
    folder: Path, meta: dict[str, Any] | None = None, critic: bool = True, **columns: Any
) -> Recording:
    """Write a recording of one environment; columns that are not given are zero, F′ is F."""
    steps = max(len(np.atleast_1d(value)) for value in columns.values())
    full: dict[str, Any] = {
        name: np.zeros(steps) for name in ("reward", "intrinsic", *(VALUES if critic else ()))
    }
    full.update({name: np.zeros(steps, dtype=bool) for name in FLAGS})
    full["valid"][:] = True
    full["zeta"] = np.ones(steps)
    full["action"] = np.zeros(steps, dtype=np.int64)
    for name, value in columns.items():
        if name == "frames":
            full[name] = np.asarray(value, dtype=np.uint8)
        else:
            kind = bool if name in FLAGS else np.int64 if name == "action" else np.float64
            full[name] = np.broadcast_to(np.asarray(value, dtype=kind), steps)
    full.setdefault("shaped", full["intrinsic"])
    writer = RecordingWriter(folder / "synthetic.npz")
    for t in range(steps):
        row = {name: np.asarray(value[t])[None] for name, value in full.items() if name != "zeta"}
        writer.append({**row, "zeta": full["zeta"][t]})
    frame_rows = 1 if "frames" in full else 0
    writer.finish({**META, "frame_rows": frame_rows, **(meta or {})})
    return Recording.load(folder / "synthetic.npz")
