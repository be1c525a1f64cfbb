"""Parts of an update: its precision, the order and upload of its rows, gradient clipping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from adops_wrappers.training.args import ScriptArgs


def allow_tf32(allowed: bool) -> None:
    """Let matrix products and convolutions on GPUs round their inputs to TensorFloat-32, or not.

    Torch allows it for convolutions by default. Values rounded like this flip signs of advantages,
    which the clamp of ADOPS reads: allow it only in an update.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


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


def clip_gradients(parameters: list[nn.Parameter], largest: float) -> torch.Tensor:
    """Scale all gradients down to a common norm of at most `largest`; return their norm.

    The norm is computed in float64: PBIM's debts make gradients whose squares overflow float32,
    and a norm of infinity would clip them to zero. The host never waits for the result.

    Args:
        parameters: Those without a gradient are left out.
        largest: 0 leaves the gradients as they are.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch._foreach_norm(gradients, 2, torch.float64)
    norm: torch.Tensor = torch.norm(torch.stack(norms))
    if largest:
        scale = torch.clamp(largest / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients, scale.float())
    return norm.float()
