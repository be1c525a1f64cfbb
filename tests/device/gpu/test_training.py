"""The training scripts on a GPU: metrics equal to the CPU's, flags, files, two ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from adops_wrappers.methods import trainable_methods
from tests.device import simulated_gpu
from tests.device.commands import RUN, SMALL, TRAIN, call, finish, metrics, start

pytest.importorskip("minigrid")
pytest.importorskip("tyro")

METHODS = trainable_methods()
STEPS = 4
PIXELS = (
    *("--env-id", "ALE/MontezumaRevenge-v5", "--num-envs", "2", "--num-steps", str(STEPS)),
    *("--obs-norm-init-iterations", "1", "--total-iterations", "2", "--no-tensorboard"),
    *("--update-epochs", "2", "--num-minibatches", "2", "--torch-threads", "1"),
    *("--shaping", "adops"),
)


@pytest.fixture(autouse=True)
def _random_numbers_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_GPU_RANDOM", "cpu")


def train(run_dir: Path, *flags: str) -> list[dict[str, str]]:
    """Run a few iterations and return the metrics."""
    if "--total-iterations" not in flags:
        flags = (*flags, "--total-iterations", "3")
    call("ppo_rnd.py", *flags, "--run-dir", run_dir)
    return metrics(run_dir)


def numbers(rows: list[dict[str, str]]) -> np.ndarray:
    return np.array([[float(cell or 0.0) for cell in row.values()] for row in rows])


def on_both(tmp_path: Path, *flags: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    with simulated_gpu.counting() as counts:
        gpu = train(tmp_path / "gpu", *flags)
    assert counts.launches > 100
    return gpu, train(tmp_path / "cpu", *flags, "--no-cuda")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_metrics_of_the_cpu(method: str, tmp_path: Path) -> None:
    gpu, cpu = on_both(tmp_path, *SMALL, "--shaping", method)
    assert len(gpu) == 3
    assert np.isfinite(numbers(gpu)).all()
    assert gpu == cpu


@pytest.mark.parametrize(
    "flags",
    [
        ("--bonus", "count"),
        ("--bonus", "none", "--shaping", "adops"),
        ("--update-proportion", "0.5", "--norm-adv"),
        ("--scale-adv", "--minigrid-obs", "flat", "--int-bootstrap", "final"),
        ("--env-id", "FrozenLake-v1", "--normalize-intrinsic", "no"),
    ],
    ids=" ".join,
)
def test_other_settings_have_the_metrics_of_the_cpu(flags: tuple[str, ...], tmp_path: Path) -> None:
    gpu, cpu = on_both(tmp_path, *SMALL, *flags)
    assert gpu == cpu


def test_pixels_have_the_metrics_of_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    gpu, cpu = on_both(tmp_path, *PIXELS)
    assert gpu == cpu
    with simulated_gpu.counting() as counts:
        pinned = train(tmp_path / "pinned", *PIXELS, "--pin-memory")
    assert pinned == gpu
    assert counts.async_copies >= 2 * STEPS


def test_pinned_memory_changes_nothing_but_the_copies(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", *SMALL)
    with simulated_gpu.counting() as counts:
        pinned = train(tmp_path / "pinned", *SMALL, "--pin-memory")
    assert pinned == plain
    assert counts.async_copies >= 3 * 16


def test_amp_stays_near_full_precision(tmp_path: Path) -> None:
    flags = (*SMALL, "--shaping", "adops", "--total-iterations", "1")
    full, half = train(tmp_path / "full", *flags), train(tmp_path / "half", *flags, "--amp")
    assert half != full
    for name in ("losses/entropy", "losses/fwd_loss", "charts/intrinsic_scale"):
        assert float(half[0][name]) == pytest.approx(float(full[0][name]), rel=0.1), name


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_networks_have_the_metrics_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the backend aot_eager: inductor would need Triton."""
    plain = train(tmp_path / "plain", *SMALL)
    compile_, compiled = torch.compile, []

    def aot_eager(model: torch.nn.Module) -> torch.nn.Module:
        compiled.append(model)
        return compile_(model, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", aot_eager)
    found = train(tmp_path / "compiled", *SMALL, "--compile")
    torch.compiler.reset()
    assert len(compiled) == 2
    np.testing.assert_allclose(numbers(found), numbers(plain), rtol=1e-4, atol=1e-6)


def test_no_cuda_does_not_touch_the_gpu(tmp_path: Path) -> None:
    simulated_gpu.reset_peak_memory()
    before = simulated_gpu.peak_memory()
    with simulated_gpu.counting() as counts:
        train(tmp_path, *SMALL, "--no-cuda", "--save-model")
    assert counts == simulated_gpu.Counts(), counts.lines
    assert simulated_gpu.peak_memory() == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same run on the GPU and on the CPU, with its policy saved."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMULATED_GPU_RANDOM", "cpu")
        for name, flags in {"gpu": (), "cpu": ("--no-cuda",)}.items():
            train(folder / name, *SMALL, "--shaping", "adops", "--save-model", *flags)
    return {name: folder / name for name in ("gpu", "cpu")}


def test_saved_policies_open_without_a_gpu(finished: dict[str, Path]) -> None:
    saved = torch.load(finished["gpu"] / "model.pt", weights_only=True)
    assert {weights.device.type for weights in saved["agent"].values()} == {"cpu"}


def test_evaluate_plays_as_on_the_cpu(
    finished: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    output = {}
    for name, run_dir in finished.items():
        for weights in (run_dir, sorted(run_dir.glob("checkpoints/*/state.pt"))[-1]):
            call("evaluate.py", weights, "--episodes", "3")
            output[name, weights.name] = capsys.readouterr().out.replace(f"/{name}", "")
    assert "return" in output["gpu", "gpu"]
    assert output["gpu", "gpu"] == output["cpu", "cpu"]
    assert output["gpu", "state.pt"] == output["cpu", "state.pt"]


def test_record_writes_what_it_does_on_the_cpu(finished: dict[str, Path]) -> None:
    recordings = {}
    for name, run_dir in finished.items():
        call("record.py", run_dir, "--steps", "60", "--no-frames")
        with np.load(run_dir / "recording.npz") as file:
            arrays = {key: file[key] for key in file}
        recordings[name] = {k: a for k, a in arrays.items() if isinstance(a, np.ndarray)}
    assert recordings["gpu"].keys() == recordings["cpu"].keys()
    assert any(array.dtype.kind == "f" for array in recordings["gpu"].values())
    for key, array in recordings["gpu"].items():
        np.testing.assert_array_equal(array, recordings["cpu"][key], err_msg=key)


def test_two_ranks_on_two_gpus_make_the_run_of_one(tmp_path: Path) -> None:
    flags = (*SMALL, "--shaping", "adops", "--total-iterations", "3", "--checkpoint-every", "2")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    script = TRAIN / "ppo_rnd.py"
    output = finish(start(*torchrun, RUN, script, *flags, "--run-dir", tmp_path / "two"))
    assert "cuda:0, 2 ranks" in output
    two, one = metrics(tmp_path / "two"), train(tmp_path / "one", *flags)
    assert len(two) == 3
    np.testing.assert_allclose(numbers(two), numbers(one), rtol=1e-3, atol=1e-5)
    assert json.loads((tmp_path / "two" / "status.json").read_text())["finished"]
