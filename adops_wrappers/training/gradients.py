"""How exactly gradients are computed, and clipping that those of any size survive."""

from __future__ import annotations

import torch
from torch import nn

TINY = 2.0**-80
"""Any finite float32 times this has a square within float32; powers of two lose no digits."""


def allow_tf32(allowed: bool) -> None:
    """Let matrix products and convolutions on GPUs round their inputs to TensorFloat-32, or not.

    Torch's own default allows it for convolutions. Values that are rounded like this turn signs
    of advantages, which is what the clamp of ADOPS reads: only an update should allow it.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def clip_gradients(parameters: list[nn.Parameter], largest: float) -> torch.Tensor:
    """Scale all gradients down to a common norm of at most `largest`; return their norm.

    PBIM's debts make gradients whose squares leave float32: those are first multiplied by `TINY`,
    else clipping would turn them into zeros. Which case it is, is decided on the device, so that
    the host never waits for it.

    Args:
        parameters: Those without a gradient are left out.
        largest: 0 leaves the gradients as they are.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if largest:
        huge = norm.isinf()
        torch._foreach_mul_(gradients, torch.where(huge, TINY, 1.0))
        scale_of_huge = largest / nn.utils.get_total_norm(gradients)
        scale = torch.clamp(largest / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients, torch.where(huge, scale_of_huge, scale))
    return norm
