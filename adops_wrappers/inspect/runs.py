"""A run directory of the training script: its metrics and settings."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adops_wrappers._files import read_json
from adops_wrappers.arrays import FloatArray


class Metrics:
    """The metrics of a run, a column each with one value per iteration; NaN for an empty cell.

    Args:
        config: The contents of config.json, which names the method and the env.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._columns: dict[str, array[float]] = {}

    def append(self, row: Mapping[str, float | None]) -> None:
        """Add an iteration; the first one decides which columns there are."""
        for name in self._columns or row:
            value = row.get(name)
            column = self._columns.setdefault(name, array("d"))
            column.append(math.nan if value is None else value)

    def __getitem__(self, name: str) -> FloatArray:
        return np.array(self._columns[name])

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def has(self, name: str) -> bool:
        """Whether the column is there and holds any finite value."""
        return name in self._columns and bool(np.isfinite(self._columns[name]).any())

    @property
    def x(self) -> FloatArray:
        """The environment steps, or else the iterations."""
        return self["global_step" if self.has("global_step") else "iteration"]

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
        return ": ".join(str(part) for part in parts if part)


class Run(Metrics):
    """The columns of `metrics.csv` in a run directory, and `config.json` beside it.

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
        super().__init__(_read_config(self.path / "config.json"))
        for name, column in cells.items():
            self._columns[name] = array("d", (float(cell or "nan") for cell in column))

    @property
    def title(self) -> str:
        """The env and the method, as far as they are known."""
        return super().title or self.path.name


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{error}. Restore it, or delete it to do without its labels.") from None
