from __future__ import annotations

from types import SimpleNamespace

import torch

from adops_wrappers.training.minibatches import order_of_other_codes, upload


def test_minibatches_of_whole_envs():
    torch.manual_seed(0)
    args = SimpleNamespace(minibatch_rows="whole-envs", num_envs=6)
    order = order_of_other_codes(args, 5 * 6)
    envs = [set((part % 6).tolist()) for part in order.split(10)]
    assert [len(part) for part in envs] == [2, 2, 2]
    assert sorted(env for part in envs for env in part) == [*range(6)]
    assert sorted(order.tolist()) == [*range(30)]


def test_minibatches_with_replacement():
    torch.manual_seed(0)
    args = SimpleNamespace(minibatch_rows="with-replacement", num_envs=8)
    rows = order_of_other_codes(args, 4000)
    assert len(rows) == 4000
    # A row is missed with probability 1/e.
    assert 4000 * 0.60 < len(rows.unique()) < 4000 * 0.66


def test_groups_arrive_as_they_were_sent():
    groups = [(torch.arange(3), torch.arange(0)), (torch.arange(2), torch.arange(5, 9))]
    arrived = list(upload(groups, torch.device("cpu")))
    assert [len(group) for group in arrived] == [2, 2]
    for sent, came in zip(groups, arrived, strict=True):
        assert all(torch.equal(*pair) for pair in zip(sent, came, strict=True))
