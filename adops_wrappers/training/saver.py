"""Writing the checkpoints of a run on a disk that may fail for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adops_wrappers.training.checkpoint import Packed, pack, write
from adops_wrappers.training.log import Mark


class Saver:
    """Writes the checkpoints of a run, of which the last two are kept.

    One that cannot be written stays in memory until the next is due. Then it is tried again.

    Args:
        run_dir: Directory of the run.
        before: The iteration of the checkpoint from which the run continues, if there is one.
    """

    def __init__(self, run_dir: Path, before: int | None = None) -> None:
        self.run_dir = run_dir
        self._before = before
        self._unwritten: Packed | None = None

    def save(
        self, iteration: int, state: dict[str, Any], envs: list[bytes | None], metrics: Mark
    ) -> bool:
        """Write a checkpoint with this content (see `pack`); print why if that fails.

        Returns:
            Whether it is on disk.
        """
        new, late = pack(iteration, state, envs, metrics, self._before), self._unwritten
        self._before = iteration
        # The new one first: space may be left for only one of them.
        self._unwritten = None if self._write(new, iteration) else new
        if late is not None and self._write(late, iteration):
            print(f"The checkpoint of iteration {late.iteration} is written now.")
        return self._unwritten is None

    def _write(self, packed: Packed, newest: int) -> bool:
        try:
            write(self.run_dir, packed, newest)
        except OSError as error:
            said = f"Cannot write the checkpoint of iteration {packed.iteration}: {error}."
            print(f"{said} Earlier ones are kept.")
            return False
        return True
