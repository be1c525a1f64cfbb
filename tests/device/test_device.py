"""The GPU path on a machine without a GPU: runs the tests in gpu/ on the simulated device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.device import simulated_gpu
from tests.device.commands import ROOT, RUN, finish, start

reason = simulated_gpu.unavailable()
if reason:
    pytest.skip(reason, allow_module_level=True)

GPU_TESTS = sorted((Path(__file__).parent / "gpu").glob("test_*.py"))
RAN_ONLY_ON_CPUS = [
    "tests/test_sb3.py::test_callback_without_shaping_logs_nothing",
    "tests/train/test_evaluate.py::test_checkpoint_is_used_where_there_is_no_model",
    "tests/train/test_ppo_rnd.py::test_nan_stops_and_keeps_the_last_good_checkpoint",
    "tests/train/test_ppo_rnd.py::test_one_network_pass_per_vector_step",
]
"""Tests of other folders that once failed on machines with a GPU."""


def run_tests(*names: str) -> None:
    pytest_flags = ("-q", "-p", "no:cacheprovider", "--rootdir", ROOT)
    finish(start(RUN, "-m", "pytest", *pytest_flags, *names, SIMULATED_GPUS="2"))


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    simulated_gpu.build()


@pytest.mark.parametrize("file", [path.name for path in GPU_TESTS])
def test_on_the_simulated_gpu(file: str) -> None:
    run_tests(str(GPU_TESTS[0].with_name(file)))


def test_other_tests_pass_where_there_is_a_gpu() -> None:
    for package in ("minigrid", "stable_baselines3", "tyro"):
        pytest.importorskip(package)
    run_tests(*(str(ROOT / name) for name in RAN_ONLY_ON_CPUS))


def test_this_process_has_no_simulated_gpu() -> None:
    import torch

    assert not simulated_gpu.active()
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="before torch is imported"):
        simulated_gpu.activate()


def test_nothing_to_run_is_an_error() -> None:
    process = start(RUN)
    assert "nothing to run" in process.communicate(timeout=900)[0]
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("platform.system", lambda: "Plan 9", "on Linux alone, this is Plan 9"),
        ("importlib.util.find_spec", lambda name: None, "torch, which is not installed"),
        ("TORCH", "1.0", "written for torch 1.0, this is torch"),
        ("Path.exists", lambda path: path.name == "libtorch_cuda.so", "built for CUDA"),
        ("Path.exists", lambda path: False, "g++ was not found"),
    ],
)
def test_says_why_it_is_skipped(
    name: str, value: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.device.simulated_gpu.shutil.which", lambda program: None)
    monkeypatch.setattr(f"tests.device.simulated_gpu.{name}", value)
    assert expected in simulated_gpu.unavailable()


def test_a_build_that_fails_shows_the_compiler_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "broken.cpp"
    source.write_text("this is no C++")
    monkeypatch.setattr(simulated_gpu, "SOURCE", source)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"broken.cpp:1:1: error"):
        simulated_gpu.build()
    assert not list(tmp_path.glob("**/*.so"))


def test_processes_that_build_at_once_compile_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, a stand-in for the compiler that takes a while and leaves a mark."""
    compiler = tmp_path / "g++"
    compiler.write_text(
        "#!/bin/sh\n"
        f"echo started >> {tmp_path}/calls\n"
        "sleep 0.5\n"
        'while [ "$1" != -o ]; do shift; done\n'
        'echo library > "$2"\n'
    )
    compiler.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    code = (
        "from tests.device import simulated_gpu; print(simulated_gpu.build().read_text(), end='')"
    )
    both = [start("-c", code, PATH=path, XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]
    assert [finish(process) for process in both] == ["library\n", "library\n"]
    assert (tmp_path / "calls").read_text() == "started\n"
