"""How often parameters of torch have changed: by their versions and by steps of optimisers.

Versions alone do not do. They stay where optimisers step with `fused=True`, or on a GPU, where
`foreach=True` is the default.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

_version_of = attrgetter("_version")
_steps: WeakKeyDictionary[Any, tuple[int, frozenset[int]]] = WeakKeyDictionary()
"""The steps of each optimiser, and the identities of its parameters."""


@cache
def watch_optimizers() -> None:
    """Count the steps of all optimisers of torch from now on."""
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(_count)


def _count(optimizer: Any, *_: Any) -> None:
    held = frozenset(id(p) for group in optimizer.param_groups for p in group["params"])
    _steps[optimizer] = _steps.get(optimizer, (0, held))[0] + 1, held


def changes_of(parameters: Sequence[Any]) -> int:
    """Return a number that changes when parameters do: in place, or by an optimiser's step."""
    changes: int = sum(map(_version_of, parameters))
    for steps, held in _steps.values():
        if any(id(parameter) in held for parameter in parameters):
            changes += steps
    return changes
