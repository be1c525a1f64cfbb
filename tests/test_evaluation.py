from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from adops_wrappers import (
    ADOPSWrapper,
    CountBonus,
    CriticHandle,
    GRMWrapper,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PIESWrapper,
    evaluation_mode,
    make_shaping,
)
from adops_wrappers.evaluation import load_learned
from adops_wrappers.methods import METHODS, trainable_methods
from adops_wrappers.stack import stack_state_dict
from tests import toolkit as tk


def test_counts_means_scales_and_zeta_stand_still() -> None:
    bonus, normalizer = CountBonus(), IntrinsicReturnNormalizer(1, warm_up=1)
    source = IntrinsicRewardWrapper(gym.make(tk.CLIFF), bonus, normalizer=normalizer, quiet_steps=2)
    grm = GRMWrapper(source, normalize=True)
    env = PIESWrapper(grm, decay_updates=10, update_every=1)

    def learned() -> str:
        quiet = source.runner.steps
        return str([bonus.counts, normalizer.state_dict(), grm.shaper.mean, env.shaper.zeta, quiet])

    env.reset(seed=0)
    env.step(0)
    before = learned()
    with evaluation_mode(env) as same:
        assert same is env
        for _ in range(5):
            assert env.step(1)[4]["raw_intrinsic_reward"] == 0.0  # still quiet
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


@pytest.mark.parametrize("stack", ["bare", "workers"])
def test_a_stack_with_nothing_to_freeze_is_refused(stack):
    env = gym.make(tk.CLIFF)
    if stack == "workers":
        make = lambda: IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus())  # noqa: E731
        env = AsyncVectorEnv([make])
    with pytest.raises(ValueError, match=r"nothing to freeze in .*wrap the vector env"):
        evaluation_mode(env).__enter__()
    env.close()


def test_the_raw_bonus_is_frozen_too():
    with evaluation_mode(NoShapingWrapper(gym.make(tk.CLIFF))) as env:
        assert env.shaper.frozen


def test_stacks_in_the_sub_envs_of_this_process_are_frozen():
    bonuses = [CountBonus(), CountBonus()]
    makers = [
        lambda bonus=bonus: IntrinsicRewardWrapper(gym.make(tk.CLIFF), bonus) for bonus in bonuses
    ]
    with evaluation_mode(SyncVectorEnv(makers)):
        assert [bonus.frozen for bonus in bonuses] == [True, True]
    assert [bonus.frozen for bonus in bonuses] == [False, False]


class Agent:
    """An agent that learns from what the wrapper shows it."""

    shown = 0

    def __call__(self, obs):
        return 0.0, 0.0

    def observe(self, transition):
        self.shown += 1


def test_the_agents_own_learner_is_shown_nothing():
    agent = Agent()
    source = IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus())
    env = ADOPSWrapper(source, CriticHandle(agent))
    env.reset(seed=0)
    env.step(0)
    with evaluation_mode(env):
        env.step(0)
    assert agent.shown == 1


@pytest.mark.parametrize("handle", [lambda agent: agent, CriticHandle], ids=["bare", "handle"])
def test_an_agent_that_learns_is_one_learner_whatever_hands_it_over(handle):
    agent = Agent()

    def stack(critic):
        return ADOPSWrapper(IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus()), critic)

    def act(env):
        env.reset(seed=0)
        env.step(0)

    twice = ADOPSWrapper(stack(handle(agent)), handle(agent))
    act(twice)
    assert agent.shown == 1  # once, though two wrappers of the stack consult it
    other = stack(handle(agent))
    with pytest.raises(RuntimeError, match=r"learns from one.*CriticHandle\(function\)\.evaluate"):
        act(other)
    act(stack(CriticHandle(agent).evaluate))
    assert agent.shown == 1
    twice.close()
    act(other)
    assert agent.shown == 2


def trained_stack(method, num_envs, steps):
    envs = SyncVectorEnv(
        [partial(gym.make, tk.CLIFF)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
    normalizer = IntrinsicReturnNormalizer(num_envs, gamma=0.9)
    source = IntrinsicRewardWrapper(envs, CountBonus(), normalizer=normalizer)
    settings = {"update_every": 2} if "update_every" in METHODS[method].settings else {}
    stack = make_shaping(method, source, lambda obs: (np.zeros(len(obs)),) * 2, **settings)
    rng = np.random.default_rng(0)
    stack.reset(seed=0)
    for _ in range(steps):
        stack.step(rng.integers(0, 4, num_envs))
    return stack, source


@pytest.mark.parametrize("method", trainable_methods())
def test_what_was_learned_goes_to_a_stack_of_another_size(method):
    trained, source = trained_stack(method, 3, 20)
    fresh, fresh_source = trained_stack(method, 1, 0)
    load_learned(fresh, stack_state_dict(trained))
    assert fresh_source.runner.source.counts == source.runner.source.counts != {}
    assert fresh_source.runner.steps == 20
    assert fresh_source.runner.normalizer.scale == source.runner.normalizer.scale > 0.0
    assert fresh.shaper.zeta == trained.shaper.zeta
    # In a new episode, without debts: F' of its first step follows from what was learned alone.
    fresh.reset(seed=5)
    with evaluation_mode(fresh):
        info = fresh.step(np.array([0]))[4]
    f = fresh.core.intrinsic_scale * info["raw_intrinsic_reward"][0]
    saved = trained.shaper.state_dict()
    if method.endswith("-norm"):
        f -= saved["mean"].mean()
        assert saved["mean"].mean() > 0.0
    if not METHODS[method].clamps:
        assert info["intrinsic_reward"][0] == pytest.approx(fresh.shaper.zeta * f, rel=1e-12)
