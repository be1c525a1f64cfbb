"""Checkpoints: complete or absent, checksummed, consistent with metrics.csv, loadable anywhere.

A checkpoint is a folder `checkpoints/ITERATION` with `manifest.json` (format, checksums, a mark of
metrics.csv, the iteration of the checkpoint before), `state.pt`, which loads without running code,
and the pickled envs of each rank.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import shutil
import zipfile
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from adops_wrappers._files import read_json, sync_folder, write_atomically, write_json
from adops_wrappers.training.exit import fail
from adops_wrappers.training.log import Mark, agrees
from adops_wrappers.training.rundir import read_config

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


class Packed(NamedTuple):
    """A checkpoint as bytes, to be written now or later."""

    iteration: int
    files: dict[str, bytes]
    manifest: dict[str, Any]


class Unusable(Exception):
    """A checkpoint that cannot be used; the text says why."""


def pack(
    iteration: int,
    state: dict[str, Any],
    envs: list[bytes | None],
    metrics: Mark,
    before: int | None = None,
) -> Packed:
    """Return a checkpoint as bytes.

    Args:
        iteration: The number of iterations done.
        state: Tensors, numbers, strings, lists and dicts; `to_plain` converts other types.
        envs: The pickled envs of each rank, or None where they cannot be pickled.
        metrics: The mark that `Log.sync` has just returned.
        before: The iteration of the checkpoint before this one.
    """
    files = {"state.pt": _to_bytes(state)}
    files |= {_env_file(rank): data for rank, data in enumerate(envs) if data is not None}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = {"format": FORMAT, "sha256": hashes, "metrics": metrics, "before": before}
    return Packed(iteration, files, manifest)


def write(run_dir: Path, packed: Packed, newest: int) -> None:
    """Write checkpoints/ITERATION atomically, then drop all but the last two up to `newest`.

    Raises:
        OSError: It could not be written; earlier ones are still there.
    """
    folder = run_dir / "checkpoints"
    folder.mkdir(exist_ok=True)
    sync_folder(run_dir)
    temporary = folder / ".writing"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, data in packed.files.items():
        write_atomically(temporary / name, data)
    write_json(temporary / _MANIFEST, packed.manifest)
    final = _folder(run_dir, packed.iteration)
    if final.exists():  # from before a resume that went back further
        _drop(final)
    os.replace(temporary, final)
    sync_folder(folder)
    kept = [path for path in _found(run_dir) if int(path.name) <= newest][:KEPT]
    for path in set(_found(run_dir)) - set(kept):
        with contextlib.suppress(OSError):
            _drop(path)


def _drop(path: Path) -> None:
    """Remove a checkpoint; if killed meanwhile, the rest no longer looks like one."""
    dropped = path.with_name(".dropped")
    shutil.rmtree(dropped, ignore_errors=True)
    os.replace(path, dropped)
    shutil.rmtree(dropped, ignore_errors=True)


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
        if hashlib.sha256(data).hexdigest() != manifest["sha256"][name]:
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


def read_settings(
    run_dir: Path, checkpoint: Checkpoint | None, free: Container[str]
) -> dict[str, Any]:
    """Return the settings (`args`) of a run to resume.

    They are those of the checkpoint, `state["args"]`. A config.json that differs or is damaged is
    reported; the caller rewrites it.

    Args:
        run_dir: Directory of the run.
        checkpoint: The result of `load`.
        free: Settings that an earlier resume may have changed; for these, config.json counts.
    """
    config: dict[str, Any] = {}
    problem = ""
    try:
        config = read_config(run_dir)["args"]
    except FileNotFoundError as error:
        problem = f"{error.filename} is missing"
    except (OSError, ValueError) as error:
        problem = str(error)
    if checkpoint is None:
        if problem:
            fail(f"--resume {run_dir}: {problem}, and there is no checkpoint. Start a new run.")
        return config
    saved = checkpoint.state["args"]
    changed = [
        f"{name} is {config.get(name)!r} there and {value!r} in the checkpoint"
        for name, value in saved.items()
        if config and name not in free and config.get(name) != value
    ]
    if changed:
        problem = f"{run_dir / 'config.json'} was changed: {'; '.join(changed)}"
    if problem:
        print(f"{problem}. Using the checkpoint's settings and rewriting config.json.")
    return {k: config.get(k, v) if k in free else v for k, v in saved.items()}


# Contents of a checkpoint


def to_plain(value: Any) -> Any:
    """Replace numpy arrays and bytes keys with tensors, so that loading runs no code."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict) and value and all(isinstance(key, bytes) for key in value):
        lengths = torch.tensor([len(key) for key in value])
        joined = torch.frombuffer(bytearray(b"".join(value)), dtype=torch.uint8)
        return {"bytes": joined, "lengths": lengths, "counts": torch.tensor(list(value.values()))}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(value: Any) -> Any:
    """Undo `to_plain`; tuples come back as lists."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict) and value.keys() == {"bytes", "lengths", "counts"}:
        joined, ends = value["bytes"].numpy().tobytes(), value["lengths"].cumsum(0).tolist()
        keys = (joined[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True))
        return dict(zip(keys, value["counts"].tolist(), strict=True))
    if isinstance(value, dict):
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
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
    data = _to_bytes({"args": args, "agent": agent.state_dict()})
    try:
        write_atomically(run_dir / "model.pt", data)
    except OSError as error:
        fail(
            f"cannot write {run_dir / 'model.pt'}: {error.strerror}. The checkpoint also holds the "
            f"policy: free some space and write it with --resume {run_dir}"
        )


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


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on_cpu(item) for item in value)
    return value
