from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tyro")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "train_speed.py"


@pytest.fixture(scope="module")
def train_speed():
    spec = importlib.util.spec_from_file_location("train_speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_speed"] = module
    spec.loader.exec_module(module)
    return module


def test_operations_are_counted_as_by_hand(train_speed):
    layer = torch.nn.Linear(6, 5)
    assert train_speed.count_flops(layer, torch.rand(4, 6), backward=False) == 2 * 6 * 5
    # The input needs no gradient: one product for the weights.
    assert train_speed.count_flops(layer, torch.rand(4, 6), backward=True) == 2 * 2 * 6 * 5


def test_kernels_are_all_operations_of_a_pass(train_speed):
    conv = torch.nn.Conv2d(3, 4, 2)
    network = torch.nn.Sequential(
        conv, torch.nn.ReLU(inplace=True), torch.nn.Flatten(), torch.nn.Linear(16, 5)
    )
    images = torch.rand(6, 3, 3, 3)
    for backward in (False, True):
        kernels = train_speed.time_kernels(network, images, backward)
        counted = train_speed.count_flops(network, images, backward)
        assert sum(kernel.operations for kernel in kernels) == 6 * counted
        assert all(kernel.seconds > 0 for kernel in kernels)
    # The images need no gradient.
    found = [(kernel.layer, kernel.direction) for kernel in kernels]
    assert found == [
        *(("4×3×2×2", direction) for direction in ("forward", "weights")),
        *(("5×16", direction) for direction in ("forward", "data", "weights")),
    ]
    assert not conv._forward_hooks
    network.requires_grad_(False)  # like RND's target
    kernels = train_speed.time_kernels(network, images, backward=True)
    assert [kernel.direction for kernel in kernels] == ["forward", "forward"]


def test_limit_of_torch_is_the_time_of_its_kernels_and_the_envs(train_speed):
    kernels = [train_speed.Kernel("5×16", "forward", 4e9, seconds) for seconds in (1.0, 3.0)]
    limits = train_speed.Limits(
        env_seconds=0.5, operations=8e9, sgemm=4e9, kernels={"agent": kernels}
    )
    assert limits.hardware == 0.5 + 8 / 4
    assert limits.kernels_alone == 0.5 + 1 + 3
    assert train_speed.gflops(kernels) == (4 + 4) / (1 + 3)


def test_table_of_methods():
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    flags = "--env-id CartPole-v1 --num-envs 4 --num-steps 16"
    result = subprocess.run(
        [
            *(sys.executable, str(SCRIPT), "--methods", "none", "adops", "--repetitions", "1"),
            *("--iterations", "2", f"--flags={flags}"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=900,
    )
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"\| (none|adops) \| (\d+) \|", result.stdout)
    assert [name for name, _ in rows] == ["none", "adops"]
    assert all(int(speed) > 0 for _, speed in rows)
    assert re.search(r"\| none .* \+0\.0 % \|", result.stdout)
    assert re.search(r"adops reaches \d+ % of the first and \d+ % of the second", result.stdout)
    assert re.search(r"\| predictor, update \| all \| \d", result.stdout)
