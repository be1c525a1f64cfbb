"""Checkpoints: complete or absent, checksummed, consistent with metrics.csv, loadable anywhere.

A checkpoint is a folder `checkpoints/ITERATION` with `manifest.json` (format, checksums, a mark of
metrics.csv, the iteration of the checkpoint before), `state.pt`, which loads without running code,
and the pickled envs of each rank.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from adops_wrappers._files import (
    digest,
    read_json,
    remove_folder,
    signed_json,
    sync_folder,
    write_atomically,
    write_folder,
)
from adops_wrappers.training.exit import exit_on_disk_error, fail
from adops_wrappers.training.log import Mark, agrees

FORMAT = 2
"""Format 1 had no number and no mark of metrics.csv."""
KEPT = 2
_MANIFEST = "manifest.json"


class Checkpoint(NamedTuple):
    """What `load` returns."""

    iteration: int
    state: dict[str, Any]
    """As passed to `pack`, with tensors on the CPU."""
    envs: bytes | None
    """The pickled envs of this rank, or None if they could not be pickled."""
    metrics: Mark
    """The mark of metrics.csv, for `Log`."""


class Unusable(Exception):
    """A checkpoint that cannot be used; the text says why."""


class Saver:
    """Writes the checkpoints of a run, of which the last two are kept.

    One that cannot be written, on a disk that is full for a while, stays in memory until the next
    is due. Then it is tried again.

    Args:
        run_dir: Directory of the run.
        before: The iteration of the checkpoint from which the run continues, if there is one.
    """

    def __init__(self, run_dir: Path, before: int | None = None) -> None:
        self.run_dir = run_dir
        self._before = before
        self._unwritten: tuple[int, dict[str, bytes]] | None = None

    def save(
        self, iteration: int, state: dict[str, Any], envs: list[bytes | None], metrics: Mark
    ) -> bool:
        """Write a checkpoint with this content (see `pack`); print why if that fails.

        Returns:
            Whether it is on disk.
        """
        new, late = (iteration, pack(state, envs, metrics, self._before)), self._unwritten
        self._before = iteration
        # The new one first: space may be left for only one of them.
        self._unwritten = None if self._write(*new, iteration) else new
        if late is not None and self._write(*late, iteration):
            print(f"The checkpoint of iteration {late[0]} is written now.")
        return self._unwritten is None

    def _write(self, iteration: int, files: dict[str, bytes], newest: int) -> bool:
        try:
            write(self.run_dir, iteration, files, newest)
        except OSError as error:
            said = f"Cannot write the checkpoint of iteration {iteration}: {error}."
            print(f"{said} Earlier ones are kept.")
            return False
        return True


def pack(
    state: dict[str, Any], envs: list[bytes | None], metrics: Mark, before: int | None = None
) -> dict[str, bytes]:
    """Return the files of a checkpoint.

    Args:
        state: Tensors, numbers, strings, lists and dicts; `to_plain` converts other types.
        envs: The pickled envs of each rank, or None where they cannot be pickled.
        metrics: The mark that `Log.sync` has just returned.
        before: The iteration of the checkpoint before this one.
    """
    files = {"state.pt": _to_bytes(state)}
    files |= {_env_file(rank): data for rank, data in enumerate(envs) if data is not None}
    hashes = {name: digest(data) for name, data in files.items()}
    manifest = {"format": FORMAT, "sha256": hashes, "metrics": metrics, "before": before}
    return {**files, _MANIFEST: signed_json(manifest)}


def write(run_dir: Path, iteration: int, files: dict[str, bytes], newest: int) -> None:
    """Write checkpoints/ITERATION atomically, then drop all but the last two up to `newest`.

    Raises:
        OSError: It could not be written; earlier ones are still there.
    """
    final = _folder(run_dir, iteration)
    final.parent.mkdir(exist_ok=True)
    sync_folder(run_dir)
    write_folder(final, files)
    # Later ones are from before a resume that went back further.
    kept = [path for path in _found(run_dir) if int(path.name) <= newest][:KEPT]
    for path in set(_found(run_dir)) - set(kept):
        with contextlib.suppress(OSError):
            remove_folder(path)


def load(run_dir: Path, rank: int = 0) -> Checkpoint | None:
    """Return the newest checkpoint that is undamaged and consistent with metrics.csv.

    Prints which checkpoints it skips and why. Ends the script if none is usable; returns None if
    there never was one.
    """
    found = _found(run_dir)
    reasons = []
    for path in found:
        try:
            return _read(run_dir, path, rank)
        except Unusable as reason:
            reasons.append(str(reason))
            print(f"Checkpoint {path} {reason}; trying the one before.")
    if found:
        fail(
            f"no checkpoint in {run_dir / 'checkpoints'} can be used: the newest {reasons[0]}. "
            "Restore the files, or start a new run."
        )
    return None


def find_loss(run_dir: Path) -> str:
    """Return what is wrong with the last two checkpoints; empty if both are there and whole."""
    found = _found(run_dir)
    if not found:
        return ""
    path = found[0]
    try:
        before = _verify(run_dir, path)[0].get("before")
        if before is not None:
            path = _folder(run_dir, before)
            _verify(run_dir, path)
    except Unusable as reason:
        return f"checkpoints/{path.name} {reason}"
    return ""


def _read(run_dir: Path, path: Path, rank: int) -> Checkpoint:
    manifest, files = _verify(run_dir, path)
    state = torch.load(io.BytesIO(files["state.pt"]), weights_only=True, map_location="cpu")
    return Checkpoint(int(path.name), state, files.get(_env_file(rank)), manifest["metrics"])


def _verify(run_dir: Path, path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest and the files of a checkpoint, or raise `Unusable`."""
    if not path.exists():
        raise Unusable("is missing")
    try:
        manifest = read_json(path / _MANIFEST)
    except (OSError, ValueError) as error:
        if (path / "sha256.json").exists():
            raise Unusable(_other_format(1)) from None
        raise Unusable(f"is damaged ({error})") from None
    if manifest.get("format") != FORMAT:
        raise Unusable(_other_format(manifest.get("format")))
    try:
        files = {name: (path / name).read_bytes() for name in manifest["sha256"]}
    except OSError as error:
        raise Unusable(f"is damaged ({error})") from None
    for name, data in files.items():
        if digest(data) != manifest["sha256"][name]:
            raise Unusable(f"is damaged ({name} does not match its checksum)")
    if not agrees(run_dir, manifest["metrics"]):
        raise Unusable("does not fit metrics.csv, in which rows were lost or changed")
    return manifest, files


def _other_format(number: Any) -> str:
    return (
        f"has format {number}, but this version reads format {FORMAT}. Continue the run with the "
        "version that wrote it, which config.json names"
    )


def _found(run_dir: Path) -> list[Path]:
    """Return the checkpoint folders, newest first."""
    folder = run_dir / "checkpoints"
    return sorted((p for p in folder.glob("*") if p.name.isdigit()), reverse=True)


def _folder(run_dir: Path, iteration: int) -> Path:
    return run_dir / "checkpoints" / f"{iteration:08d}"


def _env_file(rank: int) -> str:
    return f"envs{rank or ''}.pkl"


# Contents of a checkpoint


def to_plain(value: Any) -> Any:
    """Replace numpy arrays and bytes keys with tensors, so that loading runs no code."""

    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            # A copy: torch refuses negative strides and warns of read-only arrays.
            return torch.from_numpy(item.copy())
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, dict) and item and all(isinstance(key, bytes) for key in item):
            lengths = torch.tensor([len(key) for key in item])
            joined = torch.frombuffer(bytearray(b"".join(item)), dtype=torch.uint8)
            counts = torch.tensor(list(item.values()))
            return {"bytes": joined, "lengths": lengths, "counts": counts}
        return item

    return _rebuild(value, plain)


def from_plain(value: Any) -> Any:
    """Undo `to_plain`."""

    def rich(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return item.numpy()
        if isinstance(item, dict) and item.keys() == {"bytes", "lengths", "counts"}:
            joined, ends = item["bytes"].numpy().tobytes(), item["lengths"].cumsum(0).tolist()
            keys = (joined[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True))
            return dict(zip(keys, item["counts"].tolist(), strict=True))
        return item

    return _rebuild(value, rich)


def _on_cpu(value: Any) -> Any:
    return _rebuild(value, lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x)


def _rebuild(value: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild nested dicts, lists and tuples with `change` applied to every part.

    A part that `change` has replaced is not entered.
    """
    changed = change(value)
    if changed is not value:
        return changed
    if isinstance(value, dict):
        return {key: _rebuild(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_rebuild(item, change) for item in value)
    return value


def random_states(generator: torch.Generator) -> dict[str, Any]:
    """Return the states of all random number generators that this process uses."""
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    words_of_numpy = torch.from_numpy(np.asarray(keys).astype(np.int64))
    device = generator.device
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, words_of_numpy, *rest],
        "torch": torch.get_rng_state(),
        "device": device.type,
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "actions": generator.get_state(),
    }


def restore_random_states(state: dict[str, Any], generator: torch.Generator) -> None:
    """Restore `random_states()`.

    Generators on another kind of device cannot continue from this state. They start from a seed
    derived from it, and a message says so.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    device = generator.device
    if state["device"] == device.type:
        if state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"], device)
        generator.set_state(state["actions"])
        return
    digest = hashlib.sha256(state["actions"].numpy().tobytes()).digest()
    seed = int.from_bytes(digest[:7], "big")
    generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    print(
        f"The checkpoint was written on {state['device']} and this run uses {device.type}: random "
        "actions will differ from those of an uninterrupted run."
    )


def pickle_envs(envs: Any) -> bytes | None:
    """Return vector envs as bytes, or None if they cannot be restored exactly.

    Those that derive from `EzPickle`, as ale-py's do, pickle without an error but come back in
    another state.
    """
    import cloudpickle  # type: ignore[import-untyped]
    import gymnasium as gym

    base = envs.unwrapped
    parts = [base, *(env.unwrapped for env in getattr(base, "envs", []))]
    if any(isinstance(part, gym.utils.EzPickle) for part in parts):
        return None
    try:
        return bytes(cloudpickle.dumps(envs))
    except Exception:
        return None


# The policy on its own


def save_model(run_dir: Path, args: dict[str, Any], agent: torch.nn.Module) -> None:
    """Write only the policy, as model.pt, for evaluate.py and for sharing."""
    safe = "The checkpoint also holds the policy: free some space and write it with --resume"
    with exit_on_disk_error(path := run_dir / "model.pt", f"{safe} {run_dir}"):
        write_atomically(path, _to_bytes({"args": args, "agent": agent.state_dict()}))


def load_model(path: Path) -> dict[str, Any]:
    """Return `args` and `agent` from a model.pt or a checkpoint's state.pt, running no code.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged or not a model.
    """
    data = path.read_bytes()
    try:
        # torch writes checksums but does not verify them.
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            damaged = file.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} does not match its checksum")
        model = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        return {"args": model["args"], "agent": (model.get("shared") or model)["agent"]}
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded as weights of a run: {error}") from error


def _to_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(_on_cpu(value), buffer)
    return buffer.getvalue()
