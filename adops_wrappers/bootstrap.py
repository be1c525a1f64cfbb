"""V_I(s′) where an episode ends: one rule for wrappers, replay, learning critics and learners."""

from __future__ import annotations

from typing import Literal

from adops_wrappers.backends import cleared, namespace
from adops_wrappers.shaper import BoolArray, FloatArray

IntBootstrap = Literal["final", "reset", "none"]


def next_value_int(
    int_bootstrap: IntBootstrap | str | None,
    final: FloatArray,
    fresh: FloatArray | None,
    terminated: BoolArray,
    truncated: BoolArray,
) -> FloatArray:
    """Return the V_I(s′) that a step bootstraps from.

    Args:
        int_bootstrap: "final" takes `final` everywhere; "none" takes 0 where terminated, as for
            the extrinsic stream; "reset" takes `fresh` where the episode ended, as RND's learner
            does, whose intrinsic stream never ends.
        final: V_I of what was seen after the action, before any reset.
        fresh: V_I of the next episode's first observation where one begins, of the same shape;
            read for "reset" only.
        terminated: Whether the episode ended by the task's own rules.
        truncated: Whether it was cut off.
    """
    if int_bootstrap == "none":
        return cleared(final, terminated)  # type: ignore[no-any-return]
    if int_bootstrap == "reset":
        assert fresh is not None
        continued: FloatArray = namespace(final).where(terminated | truncated, fresh, final)
        return continued
    return final
