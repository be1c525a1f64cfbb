from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from adops_wrappers.training.distributed import Ranks, silence_other_ranks

if not torch.distributed.is_available():
    pytest.skip("this torch has no distributed package", allow_module_level=True)


@pytest.fixture
def launched(monkeypatch):
    """As one of three processes of torchrun, before any of them has met the others."""
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)


@pytest.mark.usefixtures("launched")
def test_runs_that_cannot_be_split_are_refused():
    with pytest.raises(SystemExit, match=r"--num-envs 4 cannot be split over 3 ranks\. Choose a"):
        Ranks(4)
    with pytest.raises(SystemExit, match="counts are kept in one process"):
        Ranks(6, indivisible="counts are kept in one process")
    assert Ranks(6).num_envs == 2


def test_what_cannot_be_split_runs_in_one_process():
    assert Ranks(4, indivisible="counts are kept in one process").world == 1


@pytest.mark.usefixtures("launched")
def test_missing_gpu_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SystemExit, match=r"rank 1 needs GPU 1 of this machine, which has 1"):
        Ranks(6)
    assert Ranks(6, cuda=False).device.type == "cpu"


@pytest.mark.usefixtures("launched")
def test_rows_of_the_ranks_are_those_of_the_whole(monkeypatch):
    """Each row of a shuffled minibatch goes to the one rank that holds its env."""
    steps, envs = 5, 6
    values = np.arange(steps * envs).reshape(steps, envs)
    rows = torch.randperm(steps * envs, generator=torch.Generator().manual_seed(0))[:17]
    found = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        ranks = Ranks(envs)
        own = torch.from_numpy(values[:, ranks.envs].copy()).flatten()
        found += own[ranks.own_rows(rows)].tolist()
    assert sorted(found) == sorted(rows.tolist())
    assert len(found) == 17


def test_one_process_leaves_all_as_it_is():
    ranks = Ranks(4)
    rows, array = torch.tensor([5, 3, 1]), np.ones((2, 4))
    assert ranks.own_rows(rows) is rows
    assert ranks.sum(rows) is rows
    assert ranks.gather("a") == ranks.gather_on_main("a") == ["a"]
    assert ranks.join_on_main([1, 2]) == [1, 2]
    assert ranks.side_by_side(array) is array
    np.testing.assert_array_equal(ranks.side_by_side_on_main(array)[0], array)
    assert (ranks.envs, ranks.main, ranks.world, ranks.mute) == (slice(0, 4), True, 1, None)


@pytest.mark.parametrize(("rank", "heard"), [("0", "said\n"), ("1", "")])
@pytest.mark.usefixtures("launched")
def test_the_first_rank_alone_speaks(monkeypatch, capsys, rank, heard):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards
    silence_other_ranks()
    silence_other_ranks()
    print("said")
    assert capsys.readouterr().out == heard
    if rank != "0":
        sys.stdout.close()
