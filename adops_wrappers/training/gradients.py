"""Precision of the update, and gradient clipping that works for gradients of any size."""

from __future__ import annotations

import torch
from torch import nn


def allow_tf32(allowed: bool) -> None:
    """Let matrix products and convolutions on GPUs round their inputs to TensorFloat-32, or not.

    Torch allows it for convolutions by default. Values rounded like this flip signs of advantages,
    which the clamp of ADOPS reads: allow it only in an update.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


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
