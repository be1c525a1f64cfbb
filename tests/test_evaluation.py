from __future__ import annotations

import gymnasium as gym
import pytest

from adops_wrappers import (
    CountBonus,
    GRMWrapper,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    PIESWrapper,
    evaluation_mode,
)
from tests import toolkit as tk


def test_counts_means_scales_and_zeta_stand_still() -> None:
    bonus, normalizer = CountBonus(), IntrinsicReturnNormalizer(1)
    source = IntrinsicRewardWrapper(gym.make(tk.CLIFF), bonus, normalizer=normalizer)
    grm = GRMWrapper(source, normalize=True)
    env = PIESWrapper(grm, decay_updates=10, update_every=1)

    def learned() -> str:
        return str([bonus.counts, normalizer.state_dict(), grm.shaper.mean, env.shaper.zeta])

    env.reset(seed=0)
    env.step(0)
    before = learned()
    with evaluation_mode(env) as same:
        assert same is env
        for _ in range(5):
            env.step(1)
        assert learned() == before
    env.step(1)
    assert learned() != before
    assert not bonus.frozen


def test_thaws_after_an_error_and_keeps_what_was_frozen() -> None:
    bonus = CountBonus()
    env = PIESWrapper(IntrinsicRewardWrapper(gym.make(tk.CLIFF), bonus))
    env.shaper.frozen = True
    with pytest.raises(ZeroDivisionError), evaluation_mode(env):
        1 / bonus.counts.get(b"never", 0 if bonus.frozen else 1)
    assert not bonus.frozen
    assert env.shaper.frozen
