"""The processes of one run under torchrun."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn

from adops_wrappers.training.exit import fail

Array = npt.NDArray[Any]


def launched() -> bool:
    """Whether torchrun has started this process."""
    return dist.is_available() and dist.is_torchelastic_launched()


def silence_other_ranks() -> None:
    """Let only the first rank print."""
    silent = getattr(sys.stdout, "name", "") == os.devnull
    if launched() and os.environ["RANK"] != "0" and not silent:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)


class Ranks:
    """The processes of one run; without torchrun there is only one.

    Every rank steps its share of the envs and computes the gradient of its own rows. All ranks draw
    the same random numbers for actions, minibatches and masks of all envs, and each uses its part:
    up to rounding, the run equals that of a single process.

    Args:
        num_envs: The number of envs of all ranks together.
        cuda: Whether to use GPUs if there are any.
        timeout: Seconds to wait for a rank that does not answer before the run fails.
        indivisible: Why this run cannot be split over ranks; empty if it can.
    """

    def __init__(
        self, num_envs: int, *, cuda: bool = True, timeout: float = 600.0, indivisible: str = ""
    ) -> None:
        self.launched = launched()
        self.rank = int(os.environ["RANK"]) if self.launched else 0
        self.world = int(os.environ["WORLD_SIZE"]) if self.launched else 1
        self.main = self.rank == 0
        self.mute = None if self.main else True
        """For `tqdm(disable=...)`: a bar only on the first rank, in a terminal."""
        self.launcher = os.getppid()
        if num_envs % self.world:
            fail(
                f"--num-envs {num_envs} cannot be split over {self.world} ranks. Choose a "
                "multiple of the number of ranks."
            )
        if self.world > 1 and indivisible:
            fail(indivisible)
        self.all_envs = num_envs
        self.num_envs = num_envs // self.world
        self.first_env = self.rank * self.num_envs
        self.envs = slice(self.first_env, self.first_env + self.num_envs)
        self.device = torch.device("cpu")
        if cuda and torch.cuda.is_available():
            self.device = self._own_gpu()
        if self.world > 1:
            # Its functions have the group of the moment as a default argument. Imported later, as
            # optimisers do, it would keep the group alive after `close`, and a thread of gloo that
            # needs Python while the interpreter ends aborts the process.
            importlib.import_module("torch.distributed.nn.functional")
            # Objects go through gloo, gradients on GPUs through NCCL.
            dist.init_process_group(
                "gloo" if self.device.type == "cpu" else "cpu:gloo,cuda:nccl",
                timeout=timedelta(seconds=timeout),
            )

    def _own_gpu(self) -> torch.device:
        local = int(os.environ["LOCAL_RANK"]) if self.launched else 0
        if local >= torch.cuda.device_count():
            fail(
                f"rank {self.rank} needs GPU {local} of this machine, which has "
                f"{torch.cuda.device_count()}. Start fewer ranks here, or add --no-cuda."
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        return device

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks in order, on every rank."""
        if self.world == 1:
            return [value]
        values = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def gather_on_main(self, value: Any) -> list[Any]:
        """Return the values of all ranks on the first rank; elsewhere only the rank's own."""
        if self.world == 1:
            return [value]
        values = [None] * self.world if self.main else None
        dist.gather_object(value, values)
        return [value] if values is None else values

    def join_on_main(self, items: list[Any]) -> list[Any]:
        """Return the items of all ranks on the first rank; elsewhere only the rank's own."""
        return [item for part in self.gather_on_main(items) for item in part]

    def side_by_side(self, array: Array) -> Array:
        """Join arrays along their last axis, the envs, on every rank."""
        return array if self.world == 1 else np.concatenate(self.gather(array), -1)

    def side_by_side_on_main(self, *arrays: Array) -> list[Array]:
        """Join arrays along their last axis on the first rank; elsewhere return the rank's own."""
        parts = zip(*self.gather_on_main(arrays), strict=True)
        return [np.concatenate(part, -1) for part in parts]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: list[nn.Parameter], also: torch.Tensor) -> torch.Tensor:
        """Sum the gradients over all ranks in place, and return the sum of `also`."""
        if self.world == 1:
            return also
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([*(g.reshape(-1) for g in gradients), also]))
        *parts, total = torch.split(flat, [*(g.numel() for g in gradients), len(also)])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view(gradient.shape))
        return total

    def same_weights(self, networks: Iterable[nn.Module]) -> None:
        """Copy the first rank's weights to all ranks: initialisation may differ by machine."""
        if self.world == 1:
            return
        for network in networks:
            for weights in network.state_dict().values():
                dense = weights.contiguous()  # not channels last
                dist.broadcast(dense, 0)
                weights.copy_(dense)

    def own_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Select this rank's rows from rows of the whole rollout, numbered within its own."""
        if self.world == 1:
            return rows
        step, env = rows // self.all_envs, rows % self.all_envs - self.first_env
        own = (env >= 0) & (env < self.num_envs)
        return step[own] * self.num_envs + env[own]

    def close(self) -> None:
        """Leave the group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()
