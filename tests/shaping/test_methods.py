from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    SHAPINGS,
    IntrinsicRewardWrapper,
    ShapingWrapper,
    VectorShapingWrapper,
    make_shaping,
)
from adops_wrappers.methods import REQUIRED, method_of
from adops_wrappers.shaping import ADOPES, GRM, METHODS, PBIM, Method, Shaper, declare, find_method
from tests import toolkit as tk
from tests.shaping.transitions import random_transitions

NEEDED: dict[str, dict[str, Any]] = {"pbrs": {"gamma": 0.9}}


class Damped(Shaper):
    name = "damped"

    def __init__(self, num_envs: int = 1, *, factor: float = 0.5, margin: float) -> None:
        super().__init__(num_envs)
        self.factor, self.margin = factor, margin

    def step(self, transition: Any) -> Any:
        return np.where(transition.valid, self.factor * transition.intrinsic - self.margin, 0.0)


@pytest.fixture
def damped() -> Iterator[Method]:
    yield declare(Method("damped", "damped", Damped))
    del METHODS["damped"]


@pytest.mark.parametrize("name", METHODS)
def test_a_shaper_is_rebuilt_from_its_declaration_and_settings(name: str) -> None:
    method = METHODS[name]
    shaper = method.make(3, **NEEDED.get(name, {}))
    assert type(shaper) is method.shaper
    assert method_of(shaper) is method
    assert set(method.settings) - {"matching"} <= set(shaper.settings)
    again = method.shaper(3, **shaper.settings)
    assert again.settings == shaper.settings
    assert method.settles_debt == shaper.settles_debt


@pytest.mark.parametrize("name", METHODS)
def test_defaults_in_the_declaration_are_those_in_force(name: str) -> None:
    method = METHODS[name]
    in_force = method.make(**NEEDED.get(name, {})).settings
    for setting, default in method.settings.items():
        if setting != "matching" and default is not REQUIRED:
            assert in_force[setting] == default


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_remembers_no_episode_is_a_function_of_the_step(name: str) -> None:
    method = METHODS[name]
    if method.remembers_episode:
        return
    transitions = random_transitions(np.random.default_rng(1), 40, 2)
    transitions = transitions._replace(
        potential=transitions.value_ext, next_potential=transitions.next_value_ext
    )
    shaper: Any = method.make(2, **NEEDED.get(name, {}))
    if method.schedule:
        shaper.hold(0.5)
    whole = shaper.rollout(transitions)
    for t in (39, 7, 0):
        row = type(transitions)(*[None if x is None else x[t] for x in transitions])
        np.testing.assert_array_equal(shaper.step(row), whole[t])


def test_which_settings_a_name_reads() -> None:
    readers = {
        setting: [name for name in SHAPINGS if setting in METHODS[name].settings]
        for setting in ("epsilon", "update_every", "delay", "alpha", "pause", "gamma")
    }
    assert readers == {
        "epsilon": ["adops", "adopes", "adopes-half", "adops-gated"],
        "update_every": ["adopes", "adopes-half", "pies", "guarded"],
        "delay": ["grm", "grm-norm"],
        "alpha": ["pbim-norm", "grm-norm"],
        "pause": ["guarded"],
        "gamma": ["pbim", "pbim-norm", "grm", "grm-norm", "pbrs", "bampf"],
    }
    assert METHODS["pbrs"].settings["gamma"] is REQUIRED
    assert [m.name for m in METHODS.values() if m.one_process_only] == ["guarded", "adops-gated"]
    others = [m.name for m in METHODS.values() if not m.offered_in_training]
    assert others == ["pbrs", "bsrs", "bampf"]
    assert len({m.label for m in METHODS.values()}) == len(METHODS)


def test_the_name_that_built_a_shaper_is_kept() -> None:
    assert method_of(ADOPES()) is METHODS["adopes"]
    assert method_of(METHODS["adopes-half"].make()) is METHODS["adopes-half"]
    assert method_of(GRM(normalize=True)) is METHODS["grm-norm"]
    assert method_of(METHODS["grm"].make(delay=float("inf"))) is METHODS["pbim"]
    assert method_of(type("Own", (PBIM,), {})()) is None


def test_a_declared_method_needs_no_wrapper_of_its_own(damped: Method) -> None:
    assert find_method("damped") is damped
    assert damped.settings == {"factor": 0.5, "margin": REQUIRED}
    one = make_shaping(
        "damped", IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), margin=1.0, factor=0.25
    )
    many = IntrinsicRewardWrapper(tk.make_vector("sync", AutoresetMode.SAME_STEP), tk.source)
    many = make_shaping("damped", many, margin=1.0, intrinsic_scale=2.0, add_to_reward=False)
    assert type(one) is ShapingWrapper
    assert type(many) is VectorShapingWrapper
    one.reset(seed=0)
    info = one.step(1)[4]
    assert info["intrinsic_reward"] == 0.25 * info["raw_intrinsic_reward"] - 1.0
    many.reset(seed=0)
    _, reward, _, _, info = many.step(np.array([1, 1, 1]))
    np.testing.assert_array_equal(info["intrinsic_reward"], info["raw_intrinsic_reward"] - 1.0)
    np.testing.assert_array_equal(reward, info["extrinsic_reward"])
    with pytest.raises(TypeError, match="wings"):
        make_shaping("damped", tk.ScriptedEnv(), margin=1.0, wings=2)


def test_a_name_belongs_to_one_shaper(damped: Method) -> None:
    again = declare(Method("damped", "damped", Damped))  # as a notebook's cell that runs twice
    assert METHODS["damped"] is again
    for taken in ("adops", "raw", "damped"):
        with pytest.raises(ValueError, match=f"already a shaping method '{taken}'"):
            declare(Method(taken, "mine", PBIM))


def test_a_declaration_that_its_shaper_cannot_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="names the setting 'delay', which Damped does not take"):
        Method("damped", "damped", Damped, presets={"delay": 3})
    with pytest.raises(TypeError, match=r"give Damped a method hold\(zeta\)"):
        Method("damped", "damped", Damped, schedule=("factor",))


def test_a_setting_that_is_not_kept_is_named() -> None:
    class Forgetful(PBIM):
        def __init__(self, num_envs: int = 1, *, weight: float = 1.0, **matching: Any) -> None:
            super().__init__(num_envs, **matching)

    with pytest.raises(AttributeError, match=r"takes 'weight' but does not keep it.*self\.weight"):
        _ = Forgetful().settings
