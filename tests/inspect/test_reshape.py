from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import SHAPINGS, IntrinsicRewardWrapper, evaluation_mode, make_shaping
from adops_wrappers.inspect import Recording, ShapingRecorder, reshape
from adops_wrappers.shaping import METHODS as NAMES
from tests import toolkit as tk
from tests.inspect.stacks import CLAMP, GAMMAS, METHODS, MODES, run, stack


def rollout(mode: AutoresetMode, path: Path, critic: Any = tk.critic) -> Recording:
    """The same actions and resets as `run`, recorded under no shaping at all."""
    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source)
    env = ShapingRecorder(env, path, critic, **GAMMAS, potential=tk.potential)
    run(env, mode)
    return env.finish()


def test_every_method_of_the_package_can_be_reshaped() -> None:
    assert tuple(NAMES) == SHAPINGS
    assert {name for name, _ in METHODS.values()} == set(SHAPINGS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", METHODS)
def test_equal_in_float64_to_what_the_wrapper_emits(
    case: str, mode: AutoresetMode, tmp_path: Path
) -> None:
    expected = run(stack(case, tk.make_vector("sync", mode)), mode)["shaped"]
    name, settings = METHODS[case]
    settings = {key: value for key, value in settings.items() if key != "potential"}
    shaped = reshape(rollout(mode, tmp_path / "a.npz"), {"x": (name, settings)})["x"]
    np.testing.assert_array_equal(shaped, expected)
    assert np.abs(expected).max() > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", [case for case in METHODS if case != "grm-halves"])
def test_the_recorded_method_gives_itself_back_from_any_state(
    case: str, mode: AutoresetMode, tmp_path: Path
) -> None:
    inner = stack(case, tk.make_vector("sync", mode))
    run(inner, mode, steps=17)  # debts, F̄ and ζ are under way
    env = ShapingRecorder(inner, tmp_path / "a.npz")
    for _ in range(2):
        run(env, mode, steps=25)
    recording = env.finish()
    np.testing.assert_array_equal(
        reshape(recording, [recording.method])[recording.method], recording.shaped
    )


def test_frozen_methods_give_themselves_back(tmp_path: Path) -> None:
    mode = AutoresetMode.SAME_STEP
    inner = stack("pbim-norm", tk.make_vector("sync", mode))
    run(inner, mode, steps=17)
    env = ShapingRecorder(inner, tmp_path / "a.npz")
    with evaluation_mode(env):
        run(env, mode, steps=25)
    recording = env.finish()
    np.testing.assert_array_equal(reshape(recording, ["pbim-norm"])["pbim-norm"], recording.shaped)


def test_the_scale_is_recorded_apart_from_the_name(tmp_path: Path) -> None:
    mode = AutoresetMode.SAME_STEP
    by_setting = stack("adopes", tk.make_vector("sync", mode), intrinsic_scale=0.5)
    by_name = make_shaping(
        "adopes-half",
        IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source),
        tk.critic,
        **METHODS["adopes"][1],
    )
    half, whole = (
        run(stack("adops", tk.make_vector("sync", mode), intrinsic_scale=scale), mode)["shaped"]
        for scale in (0.5, 1.0)
    )
    for inner, name, adops in ((by_setting, "adopes", half), (by_name, "adopes-half", whole)):
        env = ShapingRecorder(inner, tmp_path / f"{name}.npz")
        run(env, mode)
        recording = env.finish()
        assert (recording.method, recording.scale) == (name, 0.5)
        reshaped = reshape(recording, ["adops", name])
        np.testing.assert_array_equal(reshaped[name], recording.shaped)
        np.testing.assert_array_equal(reshaped["adops"], adops)


def test_q_values_take_part(tmp_path: Path) -> None:
    mode = AutoresetMode.SAME_STEP
    env = stack("adops", tk.make_vector("sync", mode), tk.critic_with_q)
    expected = run(env, mode)["shaped"]
    recording = rollout(mode, tmp_path / "a.npz", tk.critic_with_q)
    np.testing.assert_array_equal(reshape(recording, ["adops"])["adops"], expected)


@pytest.mark.parametrize("int_bootstrap", ["final", "reset", "none"])
def test_int_bootstrap_of_the_recorder_is_that_of_the_wrapper(
    int_bootstrap: Any, tmp_path: Path
) -> None:
    mode = AutoresetMode.SAME_STEP
    env = stack("adops", tk.make_vector("sync", mode), int_bootstrap=int_bootstrap)
    expected = run(env, mode)["shaped"]
    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source)
    env = ShapingRecorder(env, tmp_path / "a.npz", tk.critic, **GAMMAS, int_bootstrap=int_bootstrap)
    run(env, mode)
    np.testing.assert_array_equal(reshape(env.finish(), ["adops"])["adops"], expected)


def test_defaults_take_over_the_recorded_discounts_and_coefficients(tmp_path: Path) -> None:
    mode = AutoresetMode.NEXT_STEP
    env = ShapingRecorder(stack("adops-weighted", tk.make_vector("sync", mode)), tmp_path / "a.npz")
    run(env, mode)
    recording = env.finish()
    shaped = reshape(recording, updates=10**9)
    assert set(shaped) == set(SHAPINGS) - {"pbrs", "bampf"}
    np.testing.assert_array_equal(shaped["none"], recording.intrinsic)
    np.testing.assert_array_equal(shaped["adopes"], recording.shaped)  # ζ = 1
    np.testing.assert_array_equal(shaped["pies"], np.zeros_like(recording.shaped))  # ζ = 0
    same = reshape(recording, {"x": ("adops", CLAMP), "y": ("pbim", {"gamma": tk.GAMMA_INT})})
    np.testing.assert_array_equal(same["x"], recording.shaped)
    np.testing.assert_array_equal(same["y"], shaped["pbim"])
    env = stack("adopes-half", tk.make_vector("sync", mode), intrinsic_scale=3.0)
    expected = run(env, mode)["shaped"]
    settings = {**METHODS["adopes-half"][1], "intrinsic_scale": 3.0}
    again = reshape(recording, {"x": ("adopes-half", settings)})["x"]
    np.testing.assert_array_equal(again, expected)


def test_a_debt_beyond_float64_is_infinite(tmp_path: Path) -> None:
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(longest=10**6), lambda s, a, ns: 1.0)
    env = ShapingRecorder(make_shaping("none", env), tmp_path / "a.npz")
    env.reset(seed=0)
    for _ in range(40):
        env.step(0)
    recording = env.finish()
    recording.terminated[-1] = True
    assert reshape(recording, {"x": ("pbim", {"gamma": 1e-9})})["x"][-1, 0] == -np.inf


def test_refusals(tmp_path: Path) -> None:
    env = ShapingRecorder(stack("grm", tk.ScriptedEnv(), None), tmp_path / "a.npz")
    env.reset(seed=0)
    env.step(0)
    recording = env.finish()
    without_critic = {"none", "pies", "pbim", "pbim-norm", "grm", "grm-norm", "guarded"}
    assert set(reshape(recording)) == without_critic
    with pytest.raises(ValueError, match="needs critic values"):
        reshape(recording, ["adops"])
    with pytest.raises(ValueError, match="needs a potential"):
        reshape(recording, ["pbrs"])
    with pytest.raises(ValueError, match="Did you mean 'pbim'"):
        reshape(recording, ["pbmi"])
    with pytest.raises(TypeError, match=r"did you mean \['grm'\]"):
        reshape(recording, "grm")
    with pytest.raises(ValueError, match="updates"):
        reshape(recording, updates=-1)
