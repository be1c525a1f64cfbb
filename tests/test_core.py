from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import CriticHandle, IntrinsicRewardWrapper, Transition, make_shaping
from adops_wrappers.shaping import ADOPS
from tests import toolkit as tk

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
GAMMAS = {"gamma_ext": tk.GAMMA_EXT, "gamma_int": tk.GAMMA_INT}


class Ear:
    needs_observations = False

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def reset(self, mask: Any) -> None:
        self.heard.append(None if mask is None else mask.tolist())

    def observe(self, transition: Transition) -> None:
        self.heard.append(transition)


def stack(name: str, mode: AutoresetMode, critic: Any, **settings: Any) -> Any:
    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source)
    return make_shaping(name, env, critic, **settings)


def run(env: Any, mode: AutoresetMode, steps: int = 30) -> list[Any]:
    env.reset(seed=3)
    shaped = []
    for action in np.random.default_rng(0).integers(0, 3, (steps, 3)):
        _, _, terminated, truncated, info = env.step(action)
        shaped.append(info["intrinsic_reward"].tolist())
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
    return shaped


@pytest.mark.parametrize("mode", MODES)
def test_observer_is_shown_the_transition_that_the_method_acted_on(mode: AutoresetMode) -> None:
    env = stack("adops", mode, CriticHandle(tk.critic), **GAMMAS)
    ear = Ear()
    env.core.join(ear)
    shaped = run(env, mode)
    heard = [entry for entry in ear.heard if isinstance(entry, Transition)]
    again = [ADOPS(3, **GAMMAS).step(t).tolist() for t in heard]
    assert again == shaped == [t.shaped.tolist() for t in heard]
    assert ear.heard[0] is None
    partial = [entry for entry in ear.heard if isinstance(entry, list)]
    assert bool(partial) == (mode is AutoresetMode.DISABLED)
    actions = np.random.default_rng(0).integers(0, 3, (30, 3))
    np.testing.assert_array_equal([t.action for t in heard], actions)


@pytest.mark.parametrize("mode", MODES)
def test_consulting_gives_every_method_the_same_transition_and_leaves_f_as_it_is(
    mode: AutoresetMode,
) -> None:
    plain = run(stack("grm", mode, None), mode)
    env = stack("grm", mode, None)
    env.core.consult(tk.critic, potential=tk.potential)
    ear = Ear()
    env.core.join(ear)
    assert run(env, mode) == plain
    reference = stack("adops", mode, tk.critic)
    expected = Ear()
    reference.core.join(expected)
    run(reference, mode)
    for seen, want in zip(ear.heard, expected.heard, strict=True):
        if isinstance(want, Transition):
            for field in ("value_ext", "value_int", "next_value_ext", "next_value_int"):
                np.testing.assert_array_equal(getattr(seen, field), getattr(want, field))
            assert seen.potential is not None


def test_consulting_another_critic_than_the_method_is_refused() -> None:
    handle = CriticHandle(tk.critic)
    core = stack("adops", AutoresetMode.SAME_STEP, handle).core
    core.consult(handle)
    core.consult(None)
    core.consult(tk.critic)  # the very function that the handle holds
    assert core.critic is handle
    with pytest.raises(ValueError, match="a different critic"):
        core.consult(lambda obs: (0.0, 0.0))
    with pytest.raises(ValueError, match="int_bootstrap='final'"):
        core.consult(handle, int_bootstrap="none")
    core = stack("grm", AutoresetMode.NEXT_STEP, None).core
    with pytest.raises(ValueError, match="SAME_STEP"):
        core.consult(handle, int_bootstrap="reset")


class Looker(Ear):
    needs_observations = True


@pytest.mark.parametrize("mode", MODES)
def test_any_number_of_observers_may_listen_and_stop(mode: AutoresetMode) -> None:
    env = stack("pies", mode, None, intrinsic_scale=0.5, update_every=1, decay_updates=40)
    ear, looker = Ear(), Looker()
    env.core.join(ear)
    env.core.join(looker)
    bonus = []
    env.reset(seed=3)
    for action in np.random.default_rng(0).integers(0, 3, (6, 3)):
        _, _, terminated, truncated, info = env.step(action)
        bonus.append(info["raw_intrinsic_reward"].tolist())
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
        if len(bonus) == 3:
            env.core.observers.remove(ear)
    assert sum(isinstance(entry, Transition) for entry in ear.heard) == 3
    seen = [entry for entry in looker.heard if isinstance(entry, Transition)]
    assert [t.raw_intrinsic.tolist() for t in seen] == bonus
    for t in seen:
        np.testing.assert_array_equal(t.intrinsic, 0.5 * t.raw_intrinsic)
        expected = tk.source(t.observation, t.action, t.next_observation)
        np.testing.assert_allclose(t.raw_intrinsic, np.where(t.valid, expected, 0.0))
