"""Row orders of other codebases, and the upload of rows to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from adops_wrappers.training.args import ScriptArgs


def order_of_other_codes(args: ScriptArgs, batch: int) -> torch.Tensor:
    """Return the `batch` rows of an epoch if --minibatch-rows is not `shuffled`.

    `with-replacement` draws every row independently (PPO-RND); `whole-envs` assigns whole envs to
    minibatches (Burda et al.).
    """
    if args.minibatch_rows == "with-replacement":
        return torch.randint(batch, (batch,))
    envs = args.num_envs
    return torch.arange(batch).view(-1, envs)[:, torch.randperm(envs)].T.flatten()


def upload(
    groups: Sequence[tuple[torch.Tensor, ...]], device: torch.device
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield groups of vectors on the device, all sent in one copy."""
    vectors = [vector for group in groups for vector in group]
    uploaded = torch.cat(vectors).to(device)
    parts = iter(torch.split(uploaded, [len(vector) for vector in vectors]))
    for group in groups:
        yield tuple(next(parts) for _ in group)
