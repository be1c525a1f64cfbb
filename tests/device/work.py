"""What a training script asks of the GPU, per vector step, per minibatch and per iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.device.commands import call
from tests.device.simulated_gpu import Counts, counting


class Work(NamedTuple):
    """Counts of one run."""

    vector_step: Counts
    """From one step of the vector env to the next; the most frequent one, without ends."""
    minibatch: Counts
    """From one step of the optimiser to the next, the most frequent one."""
    iteration: Counts
    """From the first step of one rollout to the first of the next."""


def measure(script: str, *flags: Any) -> Work:
    """Run a script of train/ on the simulated device, for at least three iterations.

    The env's and the optimiser's steps mark the time, so that nothing is assumed of the script.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    marks: list[tuple[str, Counts]] = []
    with counting() as counts:
        hook = register_optimizer_step_post_hook(lambda *_: marks.append(("update", counts.copy())))
        try:
            with _on_env_step(lambda: marks.append(("env", counts.copy()))):
                call(script, *flags)
        finally:
            hook.remove()
    # The first iteration begins with the warm-up.
    while marks[0][0] == "env":
        del marks[0]
    rollouts = [
        now for (before, _), (kind, now) in pairwise(marks) if (before, kind) == ("update", "env")
    ]
    return Work(
        _most_frequent([b - a for (k, a), (j, b) in pairwise(marks) if k == j == "env"]),
        _most_frequent([b - a for (k, a), (j, b) in pairwise(marks) if k == j == "update"]),
        rollouts[-1] - rollouts[-2],
    )


def _most_frequent(counts: list[Counts]) -> Counts:
    key = Counter(map(repr, counts)).most_common(1)[0][0]
    return next(one for one in counts if repr(one) == key)


@contextmanager
def _on_env_step(mark: Callable[[], None]) -> Iterator[None]:
    """Call `mark` before every step of a vector env at the bottom of a stack."""
    from gymnasium.vector import SyncVectorEnv

    classes: list[Any] = [SyncVectorEnv]
    try:
        from ale_py.vector_env import AtariVectorEnv

        classes.append(AtariVectorEnv)
    except ImportError:
        pass

    def marked(step: Any) -> Any:
        def marked_step(self: Any, actions: Any) -> Any:
            mark()
            return step(self, actions)

        return marked_step

    patches = [patch.object(kind, "step", marked(kind.step)) for kind in classes]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
