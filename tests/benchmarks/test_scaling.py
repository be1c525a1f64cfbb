from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scaling.py"


@pytest.fixture(scope="module")
def scaling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scaling", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scaling"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def costs(scaling):
    return scaling.count_costs()


@pytest.mark.parametrize(("envs", "ranks"), [(32, 2), (32, 8), (1024, 64)])
def test_largest_share_is_that_of_drawn_minibatches(scaling, envs, ranks):
    rng, steps, minibatches = np.random.default_rng(0), 128, 4
    owner = np.tile(np.arange(envs) // (envs // ranks), steps)
    found = []
    for _ in range(200):
        for part in np.split(rng.permutation(owner), minibatches):
            found.append(np.bincount(part, minlength=ranks).max() * ranks / len(part))
    expected = scaling.largest_share(envs * steps, ranks, minibatches)
    assert expected > 1.0
    # The excess over 1 within a tenth of its size.
    assert np.mean(found) - 1.0 == pytest.approx(expected - 1.0, rel=0.1)
    assert scaling.largest_share(envs * steps, 1, minibatches) == 1.0


def test_all_reduce_by_hand(scaling):
    settings = scaling.Settings(node_gb_per_s=100.0, network_gb_per_s=10.0, hop_us=10.0)
    assert scaling.all_reduce_seconds(settings, 1.0, 1) == 0.0
    assert scaling.all_reduce_seconds(settings, 1.0, 2) == pytest.approx(0.01 + 20e-6)
    assert scaling.all_reduce_seconds(settings, 1.0, 8) == pytest.approx(0.0175 + 60e-6)
    assert scaling.all_reduce_seconds(settings, 1.0, 16) == pytest.approx(0.1875 + 80e-6)


def test_model_by_hand(scaling):
    settings = scaling.Settings(
        env_steps_per_core=1000.0,
        cores_per_gpu=4,
        gpu_tflops=1.0,
        step_ms=1.0,
        minibatch_ms=10.0,
        gather_gb_per_s=1.0,
    )
    costs = scaling.Costs(1e9, 2e9, 4e9, 0)
    one = scaling.model(settings, costs, 64, 1)
    assert one.env == pytest.approx(128 * 64 / 4000)
    assert one.forward == pytest.approx(128 * (1e-3 + 64e-3))
    # Half of the rows train the predictor at 64 envs.
    assert one.update == pytest.approx(16 * 0.01 + 4 * 64 * 128 * (2e9 + 2e9) / 1e12)
    assert (one.all_reduce, one.statistics) == (0.0, 0.0)
    four = scaling.model(settings, costs, 64, 4)
    assert four.env == pytest.approx(one.env / 4)
    assert four.statistics == pytest.approx(64 * 128 * 88 / 1e9)
    largest = scaling.largest_share(64 * 128, 4, 4)
    assert four.update - 0.16 == pytest.approx((one.update - 0.16) / 4 * largest)


def test_gradients_and_operations_are_counted_as_by_hand(costs):
    convs = 32 * 64 * 4 + 32 + 64 * 32 * 16 + 64 + 64 * 64 * 9 + 64
    heads = 3136 * 256 + 256 + 256 * 448 + 448 + 2 * (448 * 448 + 448) + 448 * 20 + 20
    predictor = convs - 3 * 32 * 64 + 3136 * 512 + 512 + 2 * (512 * 512 + 512)
    assert costs.gradient_bytes == 4 * (convs + heads + predictor)
    conv_products = 400 * 32 * 256 + 81 * 64 * 512 + 49 * 64 * 576
    head_products = 3136 * 256 + 256 * 448 + 2 * 448 * 448 + 448 * 20
    forward = 2 * (conv_products + head_products)
    # Gradients of weights and of inputs, but for the images themselves.
    assert costs.agent_flops == pytest.approx(3 * forward - 2 * 400 * 32 * 256)


def test_table_has_a_row_for_every_split_that_is_whole(scaling, costs):
    table = scaling.model_table(scaling.Settings(), costs)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    sizes = [(int(row[0]), int(row[1])) for row in rows]
    assert (1024, 64) in sizes
    assert (32, 64) not in sizes
    for row in rows:
        parts, total = [float(cell) for cell in row[2:7]], float(row[7])
        assert sum(parts) == pytest.approx(total, abs=0.01)
        if row[1] == "1":
            assert row[-1] == "100 %"
