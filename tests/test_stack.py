from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    CountBonus,
    GRMWrapper,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    PIESWrapper,
    VectorShapingWrapper,
)
from adops_wrappers.stack import find_layer, layers, load_stack_state_dict, stack_state_dict
from tests import toolkit as tk


def make_stack(mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:
    env = tk.make_vector("sync", mode, obs_kind="discrete")
    env = IntrinsicRewardWrapper(
        env, CountBonus(), normalizer=IntrinsicReturnNormalizer(3, warm_up=2)
    )
    return PIESWrapper(GRMWrapper(env, delay=3, normalize=True), update_every=5)


def test_layers_run_from_the_outermost_wrapper_to_the_base_env() -> None:
    env = make_stack()
    shown = str(env)
    assert shown.startswith("<PIESWrapper<GRMWrapper<IntrinsicRewardWrapper")
    kinds = [type(layer).__name__ for layer in layers(env)]
    shaping = ["VectorShapingWrapper"] * 2
    assert kinds == [*shaping, "VectorIntrinsicReward", "SyncVectorEnv"]
    assert find_layer(env, VectorShapingWrapper) is env
    assert find_layer(env, GRMWrapper) is env.env
    assert find_layer(env, gym.Wrapper) is None
    assert list(layers(gym.make(tk.CLIFF).unwrapped)) != []


def test_layers_go_on_below_stable_baselines3() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    from adops_wrappers.sb3 import SB3VecEnv

    env = make_stack()
    wrapped = vec_env.VecCheckNan(SB3VecEnv(env))
    assert find_layer(wrapped, PIESWrapper) is env


def test_one_call_saves_and_restores_the_whole_stack() -> None:
    actions = np.random.default_rng(0).integers(0, 3, (40, 3))
    env = make_stack()
    env.reset(seed=0)
    for action in actions[:20]:
        env.step(action)
    state = stack_state_dict(env)
    assert list(state) == ["PIESWrapper", "GRMWrapper", "IntrinsicRewardWrapper"]
    base = env.env.env.env
    saved_base = deepcopy(base)
    expected = [env.step(action)[4]["intrinsic_reward"].tolist() for action in actions[20:]]
    twin = make_stack()
    twin.env.env.env = saved_base
    load_stack_state_dict(twin, state)
    assert [
        twin.step(action)[4]["intrinsic_reward"].tolist() for action in actions[20:]
    ] == expected


def test_layers_of_the_same_name_are_told_apart_and_other_stacks_refused() -> None:
    env = GRMWrapper(make_stack(), delay=1)
    state = stack_state_dict(env)
    assert list(state) == ["GRMWrapper", "PIESWrapper", "GRMWrapper 2", "IntrinsicRewardWrapper"]
    with pytest.raises(ValueError, match=r"saved from a stack of GRMWrapper, PIES.* this one has"):
        load_stack_state_dict(make_stack(), state)
