"""State loads under the settings it was saved under, and says so where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import (
    ADOPSWrapper,
    CountBonus,
    EpisodicCountBonus,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    LargestDisplacement,
    PBIMWrapper,
    SimHashCount,
    StatesSeen,
    make_shaping,
)
from adops_wrappers.evaluation import load_learned
from adops_wrappers.shaping import (
    ADOPES,
    ADOPS,
    BAMPF,
    GRM,
    METHODS,
    PBIM,
    PIES,
    GatedADOPS,
    GuardedScale,
    MatchedGRM,
)
from adops_wrappers.stack import load_stack_state_dict, stack_state_dict
from tests import toolkit as tk

at_the_end = tk.delay_weight(10**6)


def stack(mode: AutoresetMode = AutoresetMode.SAME_STEP, **settings: Any) -> Any:
    env = IntrinsicRewardWrapper(
        tk.make_vector("sync", mode), tk.source, quiet_steps=settings.pop("quiet_steps", 0)
    )
    return PBIMWrapper(env, **settings)


def source_of(*args: Any, **settings: Any) -> Any:
    return stack(*args, **settings).env


MAKERS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "PBIM, gamma": (PBIM, {"gamma": 0.99}, {"gamma": 0.9}),
    "PBIM, normalize": (PBIM, {"normalize": False}, {"normalize": True}),
    "GRM, alpha": (GRM, {"normalize": True, "alpha": 0.05}, {"normalize": True, "alpha": 0.5}),
    "GRM, delay": (GRM, {"delay": 2}, {"delay": 3}),
    "GRM, matching": (MatchedGRM, {"matching": tk.halves}, {"matching": at_the_end}),
    "PIES, update_every": (PIES, {"update_every": 128}, {"update_every": "episode"}),
    "PIES, decay_updates": (PIES, {"decay_updates": 10}, {"decay_updates": 20}),
    "ADOPES, update_every": (ADOPES, {"update_every": 128}, {"update_every": 1}),
    "ADOPES, ramp_updates": (ADOPES, {"ramp_updates": 10}, {"ramp_updates": 20}),
    "guarded, smoothing": (GuardedScale, {"smoothing": 0.2}, {"smoothing": 0.5}),
    "guarded, update_every": (GuardedScale, {"update_every": 128}, {"update_every": 1}),
    "gated, gamma_ext": (GatedADOPS, {"gamma_ext": 0.999}, {"gamma_ext": 0.99}),
    "normaliser, gamma": (IntrinsicReturnNormalizer, {"gamma": 0.99}, {"gamma": 0.9}),
    "normaliser, rule": (IntrinsicReturnNormalizer, {"rule": "std"}, {"rule": "rms"}),
    "counts, key": (CountBonus, {"key": None}, {"key": str}),
    "SimHash, bits": (SimHashCount, {"bits": 30}, {"bits": 31}),
    "SimHash, features": (SimHashCount, {"features": None}, {"features": abs}),
    "episodic counts, key": (EpisodicCountBonus, {"key": None}, {"key": str}),
    "BAMPF, gamma": (BAMPF, {"gamma": 0.99}, {"gamma": 0.9}),
    "BAMPF, episodic": (BAMPF, {"episodic": False}, {"episodic": True}),
    "states seen, most": (StatesSeen, {"most": 9}, {"most": 8}),
    "displacement, most": (LargestDisplacement, {"most": 9.0}, {"most": 8.0}),
    "wrapper, gamma": (stack, {"gamma": 0.99}, {"gamma": 0.9}),
    "wrapper, intrinsic_scale": (stack, {"intrinsic_scale": 1.0}, {"intrinsic_scale": 0.5}),
    "wrapper, autoreset mode": (
        stack,
        {"mode": AutoresetMode.NEXT_STEP},
        {"mode": AutoresetMode.SAME_STEP},
    ),
    "source, quiet_steps": (source_of, {"quiet_steps": 0}, {"quiet_steps": 10}),
}


def reset(part: Any) -> Any:
    if isinstance(part, gym.vector.VectorEnv):
        part.reset(seed=0)
    return part


@pytest.mark.parametrize("case", MAKERS)
def test_state_loads_under_equal_settings_only(case: str) -> None:
    make, saved_under, other = MAKERS[case]
    state = reset(make(**saved_under)).state_dict()
    reset(make(**saved_under)).load_state_dict(state)
    part = reset(make(**other))
    before = deepcopy(part.state_dict())
    with pytest.raises(ValueError, match=r"it was saved under .*Build it with "):
        part.load_state_dict(state)
    np.testing.assert_equal(part.state_dict(), before)


def test_the_error_names_the_setting_both_values_and_the_way_out() -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        PBIM(gamma=0.9, alpha=0.5).load_state_dict(PBIM(gamma=0.99, alpha=0.5).state_dict())
    assert str(error.value) == (
        "Cannot load this state into PBIM: it was saved under gamma=0.99, and the settings here "
        "are gamma=0.9, under which the saved numbers would mean something else. Build it with "
        "gamma=0.99, as it was when the state was saved."
    )


@pytest.mark.parametrize("case", MAKERS)
def test_state_without_settings_loads_as_before(case: str) -> None:
    """Version 0.2 saved no settings, so there is nothing to compare."""

    def without_settings(state: Any) -> Any:
        if not isinstance(state, dict):
            return state
        return {key: without_settings(part) for key, part in state.items() if key != "settings"}

    make, saved_under, other = MAKERS[case]
    part = reset(make(**saved_under))
    reset(make(**saved_under)).load_state_dict(without_settings(part.state_dict()))
    if "delay" not in case:
        reset(make(**other)).load_state_dict(without_settings(part.state_dict()))


@pytest.mark.parametrize("name", METHODS)
def test_every_shaper_with_a_state_names_the_settings_behind_it(name: str) -> None:
    method = METHODS[name]
    shaper = method.make(2, **({"gamma": 0.9} if name == "pbrs" else {}))
    state = shaper.state_dict()
    assert set(state) != {"settings"}
    assert ("settings" in state) == bool(state)
    for setting in shaper.state_depends_on:
        assert json.dumps(state["settings"][setting]) is not None
    for setting in method.schedule:
        assert setting in shaper.state_depends_on or setting == "gate"
    assert {"gamma", "delay"} & set(method.settings) <= {*shaper.state_depends_on, "gamma"}


def test_what_a_method_does_without_state_may_change() -> None:
    ADOPS(epsilon=0.5).load_state_dict(ADOPS().state_dict())
    GatedADOPS(gate=3.0).load_state_dict(GatedADOPS(gate=1.0).state_dict())


def test_an_evaluation_stack_takes_what_was_learned_under_its_own_settings_only() -> None:
    def make(rows: int, alpha: float) -> Any:
        env = SyncVectorEnv([partial(gym.make, tk.CLIFF)] * rows)
        env = IntrinsicRewardWrapper(env, CountBonus())
        return reset(make_shaping("pbim-norm", env, alpha=alpha))

    state = stack_state_dict(make(3, 0.05))
    load_learned(make(1, 0.05), state)
    with pytest.raises(ValueError, match=r"saved under alpha=0\.05"):
        load_learned(make(1, 0.5), state)


def test_a_whole_stack_goes_through_json_and_back() -> None:
    env = reset(stack(gamma=0.9))
    env.step(np.zeros(3, dtype=np.int64))
    state = json.loads(json.dumps(stack_state_dict(env), default=np.ndarray.tolist))
    twin = reset(stack(gamma=0.9))
    load_stack_state_dict(twin, state)
    np.testing.assert_array_equal(twin.shaper.debt, env.shaper.debt)
    with pytest.raises(ValueError, match=r"saved under gamma=0\.9"):
        load_stack_state_dict(reset(stack(gamma=0.8)), state)


def test_networks_keep_the_settings_that_their_weights_were_learned_under() -> None:
    pytest.importorskip("torch")
    from adops_wrappers import QCritic, TDCritic
    from adops_wrappers.intrinsic.rnd import RND

    env = gym.make("CartPole-v1")
    space, actions = env.observation_space, env.action_space
    streams = {"gamma_ext": 0.99, "gamma_int": 0.9, "int_bootstrap": "none"}
    small = {"replay_size": 512}
    for make, other in (
        (partial(RND, space), {"clip": 1.0}),
        (partial(RND, space), {"learning_rate": 0.5}),
        (partial(TDCritic, space, **streams), {"gamma_int": 0.95}),
        (partial(TDCritic, space, **streams), {"int_bootstrap": "final"}),
        (partial(TDCritic, space), {"intrinsic_target": "shaped"}),
        (partial(TDCritic, space), {"learning_rate": 0.5}),
        (partial(QCritic, space, actions, **streams), {"gamma_ext": 0.9}),
        (partial(QCritic, space, actions), {"tie_tolerance": 0.5}),
        (partial(QCritic, space, actions), {"ties": "max"}),
        (partial(QCritic, space, actions), {"policy": lambda obs: obs}),
        (partial(QCritic, space, actions), {"candidates": 3}),
    ):
        state = make().state_dict()
        make().load_state_dict(state)
        with pytest.raises(ValueError, match="it was saved under"):
            make(**other).load_state_dict(state)
        del state["settings"]
        make(**other).load_state_dict(state)
    # Without the replay its size does not matter.
    TDCritic(space).load_state_dict(TDCritic(space, **small).state_dict())
    critic = TDCritic(space, seed=0)
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, CountBonus(key=str)), critic)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValueError, match="saved under replay_size=4096"):
        TDCritic(space, **small).load_state_dict(critic.state_dict())
    TDCritic(space, **small).load_state_dict(critic.state_dict(include_replay=False))


@pytest.mark.parametrize("kind", ["TDCritic", "QCritic"])
def test_a_critic_loaded_before_its_wrapper_is_held_to_the_discounts_of_its_values(
    kind: str,
) -> None:
    pytest.importorskip("torch")
    from adops_wrappers import QCritic, TDCritic

    def make() -> Any:
        env = gym.make("CartPole-v1")
        spaces = [env.observation_space, env.action_space]
        return TDCritic(spaces[0]) if kind == "TDCritic" else QCritic(*spaces)

    def wrap(critic: Any, gamma_int: float) -> None:
        env = IntrinsicRewardWrapper(gym.make("CartPole-v1"), CountBonus(key=str))
        ADOPSWrapper(env, critic, gamma_int=gamma_int)

    saved, same, other, late = make(), make(), make(), make()
    wrap(saved, 0.9)
    for critic in (same, other):
        critic.load_state_dict(saved.state_dict())
    wrap(same, 0.9)
    with pytest.raises(ValueError, match=f"This {kind} already learns with"):
        wrap(other, 0.5)
    wrap(late, 0.5)
    with pytest.raises(ValueError, match=r"saved under gamma_int=0\.9, .* here are gamma_int=0\.5"):
        late.load_state_dict(saved.state_dict())
