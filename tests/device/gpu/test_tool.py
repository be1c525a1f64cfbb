"""The simulated device itself: lines that would fail on a GPU fail here, others work."""

from __future__ import annotations

import io
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from tests.device import simulated_gpu

GPU = torch.device("cuda", 0)


def on_gpu(*shape: int) -> torch.Tensor:
    return torch.arange(float(np.prod(shape))).view(*shape).to(GPU)


BROKEN: dict[str, Callable[[], object]] = {
    "batch not moved": lambda: nn.Linear(3, 2).to(GPU)(torch.ones(4, 3)),
    "network not moved": lambda: nn.Linear(3, 2)(on_gpu(4, 3)),
    "convolution not moved": lambda: nn.Conv2d(1, 2, 3)(on_gpu(1, 1, 5, 5)),
    "target not moved": lambda: nn.functional.mse_loss(on_gpu(3), torch.ones(3)),
    "part of a concatenation not moved": lambda: torch.cat([on_gpu(3), torch.ones(3)]),
    "part of a stack not moved": lambda: torch.stack([on_gpu(3), torch.ones(3)]),
    "numpy of a device tensor": lambda: on_gpu(3).numpy(),
    "numpy array of a device tensor": lambda: np.asarray(on_gpu(3)),
    "numpy reduction of a device tensor": lambda: np.logical_or(on_gpu(3), on_gpu(3)),
    "index_select by a CPU index": lambda: on_gpu(3).index_select(0, torch.tensor([0])),
    "gather by a CPU index": lambda: on_gpu(3, 1).gather(1, torch.tensor([[0]])),
    "CPU tensor indexed on the device": lambda: torch.ones(3)[torch.tensor([0], device=GPU)],
    "CPU generator": lambda: torch.empty(3, device=GPU).exponential_(generator=torch.Generator()),
    "device generator on the CPU": lambda: torch.rand(3, generator=torch.Generator(GPU)),
    "random state of a CPU": lambda: torch.Generator(GPU).set_state(torch.get_rng_state()),
    "two devices": lambda: on_gpu(3) + on_gpu(3).to("cuda:1"),
    "no such device": lambda: torch.ones(3, device="cuda:7"),
    "pinned on the device": lambda: on_gpu(3).pin_memory(),
    "written into a CPU tensor": lambda: torch.add(on_gpu(3), 1, out=torch.ones(3)),
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_broken_lines_are_caught(line: Callable[[], object]) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"(?i)device|cpu|RNG state|pinned"):
        line()


def test_a_moved_network_is_caught_in_a_training_step_that_forgets_one_tensor() -> None:
    network = nn.Linear(3, 1).to(GPU)
    weights = torch.ones(4)  # forgotten
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        (network(on_gpu(4, 3)).squeeze(1) * weights).mean().backward()


def test_fused_adam_refuses_gradients_of_another_layout() -> None:
    weight = nn.Parameter(on_gpu(2, 3, 4, 4).to(memory_format=torch.channels_last))
    weight.grad = torch.ones_like(weight, memory_format=torch.contiguous_format)
    with pytest.raises(RuntimeError, match="same dtype, device, and layout"):
        torch.optim.Adam([weight], fused=True).step()


def test_fresh_memory_is_nan() -> None:
    assert torch.isnan(torch.empty(5, device=GPU)).all()
    assert torch.isnan(on_gpu(2, 3).new_empty(7)).all()
    assert torch.isnan(torch.empty_like(on_gpu(3, 3), dtype=torch.bfloat16)).all()


def test_results_are_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten())
    network.append(nn.Linear(64, 3))
    x = torch.randn(5, 2, 6, 6)
    twin = deepcopy(network).to(GPU, memory_format=torch.channels_last)
    network = network.to(memory_format=torch.channels_last)
    losses = {}
    for model, data in ((network, x), (twin, x.to(GPU))):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            loss = model(data).log_softmax(-1)[:, 0].square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        losses[model] = loss.item()
    assert losses[network] == losses[twin]
    for one, other in zip(network.parameters(), twin.parameters(), strict=True):
        assert other.is_cuda
        assert torch.equal(one, other.cpu())


def test_views_share_memory_and_copies_do_not() -> None:
    x = on_gpu(4, 3)
    x[1:3, 0] = -1.0
    assert x[:, 0].tolist() == [0.0, -1.0, -1.0, 9.0]
    x.transpose(0, 1).flatten()[0] = 7.0
    assert x[0, 0].item() == 0.0
    x.view(2, 6).unfold(1, 2, 2).zero_()
    assert not x.any()
    assert x.resize_(5, 5).shape == (5, 5)
    cpu = torch.zeros(2)
    cpu.to(GPU).add_(1.0)
    assert not cpu.any()


def test_files_keep_the_device_and_open_on_the_cpu() -> None:
    file = io.BytesIO()
    torch.save({"x": on_gpu(3)}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["x"].is_cuda
    file.seek(0)
    loaded = torch.load(file, weights_only=True, map_location="cpu")["x"]
    assert loaded.numpy().tolist() == [0.0, 1.0, 2.0]


def test_autocast_rounds_to_bfloat16() -> None:
    network = nn.Linear(3, 2).to(GPU)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert network(on_gpu(4, 3)).dtype == torch.bfloat16
    assert network(on_gpu(4, 3)).dtype == torch.float32


def test_generators_repeat_after_a_seed_and_a_restored_state() -> None:
    generator = torch.Generator(GPU).manual_seed(3)
    first = torch.rand(4, device=GPU, generator=generator)
    state = generator.get_state()
    assert len(state) == 16
    second = torch.rand(4, device=GPU, generator=generator)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(torch.rand(4, device=GPU, generator=generator), second)
    torch.manual_seed(1)
    default = torch.rand(4, device=GPU)
    states = torch.cuda.get_rng_state_all()
    assert len(states) == 2
    more = torch.rand(4, device=GPU)
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(torch.rand(4, device=GPU), more)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(4, device=GPU), default)


def test_generators_can_draw_what_the_cpu_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(device: torch.device) -> list[float]:
        generator = torch.Generator(device).manual_seed(5)
        tensors = [torch.empty(3, device=device).exponential_(generator=generator) for _ in "ab"]
        return torch.cat(tensors).tolist()

    assert draw(GPU) != draw(torch.device("cpu"))
    monkeypatch.setenv("SIMULATED_GPU_RANDOM", "cpu")
    assert draw(GPU) == draw(torch.device("cpu"))


def test_each_kind_of_work_is_counted() -> None:
    x, mask = on_gpu(4), torch.tensor([True, False, True, False])
    pinned = torch.ones(4).pin_memory()
    with simulated_gpu.counting() as counts:
        total = (x + 1).sum()
        assert (counts.launches, counts.syncs) == (2, 0)
        total.item()
        assert counts.syncs == 1
        if total > 0:  # one launch, one sync
            assert (counts.launches, counts.syncs) == (3, 2)
        on_device = mask.to(GPU)
        assert counts.uploads == 1
        assert x[on_device].tolist() == [0.0, 2.0]
        assert (counts.syncs, counts.downloads) == (3, 1)
        pinned.to(GPU, non_blocking=True)
        torch.ones(4).to(GPU, non_blocking=True)  # pageable: the host waits all the same
        assert (counts.async_copies, counts.uploads) == (1, 2)
        x[torch.tensor([1])]
        assert counts.uploads == 3
        torch.cuda.synchronize()
        assert counts.syncs == 4
        before = counts.copy()
        x.cpu()
        assert counts - before == simulated_gpu.Counts(downloads=1, download_bytes=16)
    x.cpu()
    assert counts.downloads == 2
    assert any("tests/device/gpu/test_tool.py:" in line for line in counts.lines)


def test_an_operator_on_a_list_of_tensors_is_one_launch() -> None:
    tensors = [on_gpu(3), on_gpu(2, 2)]
    with simulated_gpu.counting() as counts:
        norms = torch._foreach_norm(tensors, 2, torch.float64)
        torch._foreach_mul_(tensors, norms[0].float())
    assert counts == simulated_gpu.Counts(launches=3)
    assert all(norm.is_cuda and norm.dtype == torch.float64 for norm in norms)
    assert [norm.item() for norm in norms] == pytest.approx([5**0.5, 14**0.5])
    assert tensors[1].tolist() == pytest.approx(np.array([[0.0, 1.0], [2.0, 3.0]]) * 5**0.5)


def test_a_backward_pass_is_counted() -> None:
    weight = nn.Parameter(on_gpu(3))
    loss = (weight * 2).sum()
    with simulated_gpu.counting() as counts:
        loss.backward()
    assert counts.launches >= 2
    assert counts.syncs == counts.uploads == counts.downloads == 0


def test_peak_memory() -> None:
    simulated_gpu.reset_peak_memory()
    before = simulated_gpu.peak_memory()
    x = torch.zeros(1000, device=GPU)
    y = x + 1
    assert simulated_gpu.peak_memory() - before == 8000
    del x, y
    torch.zeros(500, device=GPU)
    assert simulated_gpu.peak_memory() - before == 8000
