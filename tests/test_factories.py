from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode

import adops_wrappers as package
from adops_wrappers import SHAPINGS, CriticHandle, IntrinsicRewardWrapper, make_shaping
from tests import toolkit as tk

NAMES = [name for name in package.__all__ if name.endswith("Wrapper")]


def with_source(env: Any) -> Any:
    return IntrinsicRewardWrapper(env, tk.source)


@pytest.mark.parametrize("name", NAMES)
def test_one_name_wraps_either_kind_of_env(name: str) -> None:
    factory = getattr(package, name)
    extra = {
        "ADOPSWrapper": {"critic": tk.critic},
        "ADOPESWrapper": {"critic": tk.critic},
        "GuardedScaleWrapper": {"critic": tk.critic},
        "PBRSWrapper": {"potential": tk.potential, "gamma": 0.9},
        "IntrinsicRewardWrapper": {"source": tk.source},
    }.get(name, {})
    one = factory(tk.ScriptedEnv(), **extra)
    many = factory(tk.make_vector("sync", AutoresetMode.SAME_STEP), **extra)
    assert type(one) is getattr(package.wrappers, name)
    assert type(many) is getattr(package.vector, name)
    assert isinstance(one, factory)
    assert isinstance(many, factory)
    assert not isinstance(tk.ScriptedEnv(), factory)
    assert factory.__name__ == name
    assert factory.__doc__ == getattr(package.wrappers, name).__doc__
    assert repr(factory) == f"<{name} for Env and VectorEnv>"
    with pytest.raises(TypeError, match=f"{name} wraps a gymnasium.Env or .* got 'CartPole-v1'"):
        factory("CartPole-v1", **extra)


@pytest.mark.parametrize("name", NAMES)
def test_twins_have_the_same_arguments(name: str) -> None:
    one, many = (getattr(kind, name) for kind in (package.wrappers, package.vector))

    def arguments(cls: Any) -> list[Any]:
        parameters = inspect.signature(cls).parameters.values()
        return [(p.name, p.default, p.kind) for p in parameters]

    assert arguments(one) == arguments(many) == arguments(getattr(package, name))


@pytest.mark.parametrize("name", NAMES)
def test_subclassing_names_the_two_classes(name: str) -> None:
    factory = getattr(package, name)
    with pytest.raises(TypeError, match=rf"adops_wrappers\.wrappers\.{name} for an Env, or from"):

        class Mine(factory):  # type: ignore[misc, valid-type]
            pass

    class Works(getattr(package.wrappers, name)):  # type: ignore[misc]
        pass


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_the_formula_and_the_arguments(name: str) -> None:
    for kind in (package.wrappers, package.vector):
        cls = getattr(kind, name)
        shown = pydoc.plain(pydoc.render_doc(cls))
        assert cls.__doc__.split("\n")[0] in shown
        for argument in inspect.signature(cls).parameters:
            assert f"{argument}: " in shown


def test_names() -> None:
    assert set(SHAPINGS) == {
        "none", "adops", "adopes", "adopes-half", "pies", "pbim", "pbim-norm", "grm",
        "grm-norm", "pbrs", "guarded", "adops-gated",
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


@pytest.mark.parametrize(("typed", "meant"), [("adop", "adops"), ("PIES", "pies"), ("grn", "grm")])
def test_unknown_names_suggest_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"no shaping method '{typed}'. Did you mean '{meant}'"):
        make_shaping(typed, tk.ScriptedEnv())
    with pytest.raises(ValueError, match="The names are: none, adops"):
        make_shaping(7, tk.ScriptedEnv())  # type: ignore[call-overload]
