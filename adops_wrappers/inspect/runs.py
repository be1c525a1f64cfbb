"""A run directory of the training script: its metrics and settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers._files import read_json
from adops_wrappers.arrays import FloatArray


class Run:
    """The columns of `metrics.csv` in a run directory, one value per iteration.

    Empty cells are NaN. `config.json` beside it, if there is one, names the method and the env.

    Args:
        path: The run directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        file = self.path / "metrics.csv"
        if not file.is_file():
            raise FileNotFoundError(
                f"{self.path} has no metrics.csv. Pass the run directory of a training script, or "
                "a recording of ShapingRecorder."
            )
        from adops_wrappers.training.log import read_metrics

        cells = read_metrics(self.path)
        if not any(cells.values()):
            raise ValueError(f"{file} holds no complete iteration yet.")
        self._columns = {
            name: np.array([float(cell) if cell else np.nan for cell in column])
            for name, column in cells.items()
        }
        self.config = _read_config(self.path / "config.json")

    def __getitem__(self, name: str) -> FloatArray:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def has(self, name: str) -> bool:
        """Whether the column is there and holds any finite value."""
        return name in self._columns and bool(np.isfinite(self._columns[name]).any())

    @property
    def x(self) -> FloatArray:
        """The environment steps, or else the iterations."""
        return self._columns["global_step" if self.has("global_step") else "iteration"]

    @property
    def x_label(self) -> str:
        """What `x` counts."""
        return "environment steps" if self.has("global_step") else "iteration"

    def setting(self, name: str, otherwise: Any = None) -> Any:
        """Return a setting of the run, wherever the config keeps it."""
        for place in (self.config, self.config.get("args", {})):
            if isinstance(place, dict) and name in place:
                return place[name]
        return otherwise

    @property
    def title(self) -> str:
        """The env and the method, as far as they are known."""
        parts = [self.setting("env_id"), self.setting("method") or self.setting("shaping")]
        return ": ".join(str(part) for part in parts if part) or self.path.name


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{error}. Restore it, or delete it to do without its labels.") from None
