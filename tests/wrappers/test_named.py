from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

import adops_wrappers as package
from adops_wrappers import (
    SHAPINGS,
    WRAPPERS,
    CriticHandle,
    IntrinsicRewardWrapper,
    ShapingRecorder,
    ShapingWrapper,
    VectorShapingWrapper,
    make_shaping,
)
from adops_wrappers.envs import NoisyTV
from adops_wrappers.shaper import constructor_settings, restore_array
from adops_wrappers.wrappers.bonus import SourceRunner
from adops_wrappers.wrappers.shaping import ComposesShaper
from tests import toolkit as tk

NAMES = [*WRAPPERS, "IntrinsicRewardWrapper"]
EXTRA: dict[str, dict[str, Any]] = {
    "ADOPSWrapper": {"critic": tk.critic},
    "ADOPESWrapper": {"critic": tk.critic},
    "GuardedScaleWrapper": {"critic": tk.critic},
    "PBRSWrapper": {"potential": tk.potential, "gamma": 0.9},
    "BSRSWrapper": {"critic": tk.critic},
    "BAMPFWrapper": {"knowledge": tk.source},
    "IntrinsicRewardWrapper": {"source": tk.source},
}


def with_source(env: Any) -> Any:
    return IntrinsicRewardWrapper(env, tk.source)


def both_kinds(name: str) -> list[Any]:
    envs = tk.ScriptedEnv(), tk.make_vector("sync", AutoresetMode.SAME_STEP)
    return [getattr(package, name)(env, **EXTRA.get(name, {})) for env in envs]


def test_every_method_of_the_paper_has_a_name() -> None:
    assert list(WRAPPERS) == [
        "NoShapingWrapper", "ADOPSWrapper", "ADOPESWrapper", "PIESWrapper", "PBIMWrapper",
        "GRMWrapper", "PBRSWrapper", "BSRSWrapper", "BAMPFWrapper", "GuardedScaleWrapper",
    ]  # fmt: skip
    for name, wrapper in WRAPPERS.items():
        assert getattr(package, name) is wrapper
        assert wrapper.__module__.startswith("adops_wrappers.shaping.")


@pytest.mark.parametrize("name", NAMES)
def test_one_name_wraps_either_kind_of_env(name: str) -> None:
    factory = getattr(package, name)
    one, many = both_kinds(name)
    assert isinstance(many, VectorEnv)
    assert not isinstance(one, VectorEnv)
    assert isinstance(one, factory)
    assert isinstance(many, factory)
    assert not isinstance(tk.ScriptedEnv(), factory)
    assert str(one).startswith(f"<{name}<")
    assert repr(factory) == f"<{name} for Env and VectorEnv>"
    with pytest.raises(TypeError, match=f"{name} wraps a gymnasium.Env or .* got 'CartPole-v1'"):
        factory("CartPole-v1", **EXTRA.get(name, {}))


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_name_stands_for_its_own_method_alone(name: str) -> None:
    for env in both_kinds(name):
        assert [other for other in WRAPPERS if isinstance(env, WRAPPERS[other])] == [name]
        assert type(env) in (ShapingWrapper, VectorShapingWrapper)


def test_names_include_the_variants_of_their_methods() -> None:
    env = tk.ScriptedEnv()
    assert isinstance(make_shaping("adopes-half", env, tk.critic), package.ADOPESWrapper)
    assert isinstance(make_shaping("grm-norm", env, delay=float("inf")), package.GRMWrapper)
    assert not isinstance(make_shaping("pbim-norm", env), package.GRMWrapper)


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_signature_that_users_see_is_that_of_shaper_and_wrapper(name: str) -> None:
    wrapper = WRAPPERS[name]
    shown = dict(wrapper.__signature__.parameters)
    shaper = constructor_settings(wrapper.method.make_shaper)
    common = constructor_settings(ComposesShaper)
    if wrapper.method.needs_critic:
        common["gamma"] = None  # of an agent with one critic: both discounts in one
    assert shown.keys() - {"env"} - common.keys() == shaper.keys()
    needed = {"critic"} if wrapper.method.needs_critic else set()
    needed |= {"potential"} if wrapper.method.needs_potential else set()
    needed |= {"knowledge"} if wrapper.method.needs_knowledge else set()
    for setting, parameter in shown.items():
        if setting in needed:
            assert parameter.default is parameter.empty
        elif setting != "env":
            assert parameter.default == {**common, **shaper}[setting]
    make: Any = wrapper.method.make_shaper
    constructor = inspect.get_annotations(getattr(make, "__init__", make), eval_str=True)
    written = {n: p.annotation for n, p in shown.items() if n in constructor}
    assert written == {n: constructor[n] for n in written}, "types differ"


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_signature_formula_and_every_argument(name: str) -> None:
    factory = getattr(package, name)
    shown = pydoc.plain(pydoc.render_doc(factory))
    for argument, parameter in inspect.signature(factory).parameters.items():
        assert f"  {argument}: " in shown
        first = argument if argument == "env" else f", {argument}"
        assert f"{first}={parameter.default!r}" in shown or parameter.default is parameter.empty
    assert f"{name}(env" in shown
    assert "Example:\n" in shown


@pytest.mark.parametrize("name", NAMES)
def test_subclassing_a_name_names_the_classes(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} stands for two classes .*Subclass adops_wrapp"):

        class Mine(getattr(package, name)):  # type: ignore[misc]
            pass


@pytest.mark.parametrize("kind", [ShapingWrapper, VectorShapingWrapper])
def test_the_two_classes_can_be_subclassed(kind: Any) -> None:
    class Halved(kind):  # type: ignore[misc]
        def __init__(self, env: Any) -> None:
            super().__init__(env, "adops", tk.critic, epsilon=0.5, intrinsic_scale=0.5)

    one, many = tk.ScriptedEnv(), tk.make_vector("sync", AutoresetMode.SAME_STEP)
    env = Halved(with_source(one if kind is ShapingWrapper else many))
    assert isinstance(env, package.ADOPSWrapper)
    assert (env.shaper.epsilon, env.core.intrinsic_scale) == (0.5, 0.5)


@pytest.mark.parametrize("wrap", [*(WRAPPERS[n] for n in WRAPPERS), IntrinsicRewardWrapper])
def test_no_wrapper_has_more_than_eight_classes(wrap: Any) -> None:
    for env in both_kinds(wrap.__name__):
        assert len(type(env).__mro__) <= 8


def test_other_names_for_both_kinds_document_themselves_too() -> None:
    for name in (ShapingRecorder, NoisyTV):
        assert name.__doc__.startswith(f"{name.__name__}(env")
        assert "Args:" in name.__doc__


def test_shaping_names() -> None:
    assert set(SHAPINGS) == {
        "none", "adops", "adopes", "adopes-half", "pies", "pbim", "pbim-norm", "grm",
        "grm-norm", "pbrs", "bsrs", "bampf", "guarded", "adops-gated",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "described", "scale"),
    [
        ("none", "none", 1.0),
        ("raw", "none", 1.0),
        ("adops", "ADOPS (gamma_ext=0.999, gamma_int=0.99)", 1.0),
        ("adopes", "ADOPES (gamma_ext=0.999, gamma_int=0.99)", 1.0),
        ("adopes-half", "ADOPES (gamma_ext=0.999, gamma_int=0.99)", 0.5),
        ("pies", "PIES", 1.0),
        ("pbim", "PBIM (gamma=0.99)", 1.0),
        ("grm-norm", "GRM (delay=1, gamma=0.99)", 1.0),
        ("guarded", "guarded scale", 1.0),
    ],
)
def test_make_shaping(name: str, described: str, scale: float) -> None:
    env = make_shaping(name, with_source(tk.ScriptedEnv()), CriticHandle(tk.critic))
    assert env.shaper.describe() == described
    assert env.core.intrinsic_scale == scale
    assert getattr(env.shaper, "normalize", False) == name.endswith("-norm")
    assert env.shaper.settles_debt == (name.split("-")[0] in ("pbim", "grm"))


def test_presets_combine_with_settings() -> None:
    env = make_shaping("adopes-half", tk.ScriptedEnv(), tk.critic, intrinsic_scale=0.2)
    assert env.core.intrinsic_scale == 0.1
    env = make_shaping("grm-norm", tk.ScriptedEnv(), delay=4, alpha=0.5)
    assert (env.shaper.delay, env.shaper.alpha, env.shaper.normalize) == (4, 0.5, True)


def test_critic_methods_need_a_critic() -> None:
    with pytest.raises(TypeError, match="consults a critic"):
        make_shaping("adops", tk.ScriptedEnv())
    with pytest.raises(TypeError, match="consults a critic"):
        package.ADOPSWrapper(tk.ScriptedEnv())  # type: ignore[call-arg]


@pytest.mark.parametrize(("typed", "meant"), [("adop", "adops"), ("PIES", "pies"), ("grn", "grm")])
def test_unknown_names_suggest_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"no shaping method '{typed}'. Did you mean '{meant}'"):
        make_shaping(typed, tk.ScriptedEnv())
    with pytest.raises(ValueError, match="The names are: none, adops"):
        make_shaping(7, tk.ScriptedEnv())  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("module", "name", "now"),
    [
        ("vector", "GRMWrapper", package.GRMWrapper),
        ("vector", "ShapingWrapper", VectorShapingWrapper),
        ("wrappers", "ShapingWrapper", ShapingWrapper),
        ("wrappers", "IntrinsicRewardWrapper", IntrinsicRewardWrapper),
        ("factories", "make_shaping", make_shaping),
        ("shaping.base", "Transition", package.Transition),
        ("shaping.base", "restore_array", restore_array),
        ("shaping.methods", "declare", package.declare),
        ("inspect.single", "ShapingRecorder", ShapingRecorder),
        ("intrinsic.source", "SourceRunner", SourceRunner),
    ],
)
def test_old_homes_of_names_work_with_a_warning_at_the_users_line(
    module: str, name: str, now: Any
) -> None:
    scope: dict[str, Any] = {}
    told = rf"use adops_wrappers\..*{now.__name__}\.$"
    with pytest.warns(DeprecationWarning, match=told) as seen:
        exec(f"from adops_wrappers.{module} import {name} as found", scope)
    assert scope["found"] is now
    assert seen[0].filename == "<string>"
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec(f"from adops_wrappers.{module} import Nothing")
