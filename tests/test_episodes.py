from __future__ import annotations

import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import Autoreset

from adops_wrappers import (
    SHAPINGS,
    WRAPPERS,
    ADOPSWrapper,
    CriticHandle,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    PIESWrapper,
    make_shaping,
)
from adops_wrappers.inspect import ShapingRecorder
from tests import toolkit as tk

SAME_STEP, NEXT_STEP = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP
ZERO = np.zeros(3, dtype=np.int64)
undeclared = pytest.mark.filterwarnings("ignore:.*does not declare its autoreset mode")


class Silent(VectorEnv):
    """A vector env that resets rows within their last step and declares nothing, as ManiSkill's.

    The final observations are a full batch, which counts only where the mask is True.

    Args:
        key: The key of the final observations.
        convert: Makes what it returns of arrays.
        masked: Whether it reports the mask of the rows that ended.
    """

    metadata = {}  # noqa: RUF012

    def __init__(
        self, key: str = "final_observation", convert: Any = np.array, *, masked: bool = True
    ) -> None:
        self._env = tk.make_vector("sync", SAME_STEP, longest=3)
        self.key, self.convert, self.masked, self.num_envs = key, convert, masked, 3
        for name in ("observation_space", "action_space"):
            setattr(self, name, getattr(self._env, name))
            setattr(self, f"single_{name}", getattr(self._env, f"single_{name}"))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.convert(self._env.reset(seed=seed)[0]), {}

    def step(self, actions: Any) -> Any:
        obs, *rest, info = self._env.step(np.asarray(actions))
        found = {}
        if "final_obs" in info:
            ended = info["_final_obs"]
            final = np.full_like(obs, np.nan)
            final[ended] = np.stack(info["final_obs"][ended])
            found = {self.key: self.convert(final)}
            if self.masked:
                found[f"_{self.key}"] = self.convert(ended)
        return self.convert(obs), *map(self.convert, rest), found


class ResetsItself(tk.ScriptedEnv):
    """A single env whose step after the last one resets it."""

    over = False

    def step(self, action: Any) -> Any:
        if self.over:
            self.over = False
            return self.reset()[0], 0.0, False, False, {}
        result = super().step(action)
        self.over = result[2] or result[3]
        return result


def shaped(env: Any, method: str, **inner: Any) -> Any:
    settings = {"pbrs": {"potential": tk.potential, "gamma": 0.9}}.get(method, {})
    env = IntrinsicRewardWrapper(env, tk.source, **inner)
    return make_shaping(method, env, CriticHandle(tk.critic), **settings)


def play(env: Any) -> list[Any]:
    env.reset(seed=5)
    steps = [env.step(np.full(3, t % 3)) for t in range(25)]
    return [[np.asarray(reward), info["intrinsic_reward"]] for _, reward, _, _, info in steps]


@undeclared
@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: IntrinsicRewardWrapper(env, tk.source),
        lambda env: NoShapingWrapper(IntrinsicRewardWrapper(env, tk.source)),
        lambda env: make_shaping("pbrs", env, potential=tk.potential, gamma=0.9),
    ],
)
def test_a_final_observation_of_an_env_that_declares_no_mode_is_an_error(
    wrap: Any, key: str
) -> None:
    env = wrap(Silent(key))
    env.reset(seed=0)
    message = rf"info\['{key}'\].*autoreset_mode=AutoresetMode.SAME_STEP.*metadata\[\"autoreset_mo"
    with pytest.raises(ValueError, match=message):
        [env.step(ZERO) for _ in range(3)]


@undeclared
def test_a_recorder_of_an_undeclared_env_notices_its_final_observations(tmp_path: Path) -> None:
    env = ShapingRecorder(Silent(), tmp_path / "never.npz")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"autoreset_mode=AutoresetMode\.SAME_STEP of the inn"):
        [env.step(ZERO) for _ in range(3)]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
@pytest.mark.parametrize("method", SHAPINGS)
def test_a_mode_given_to_the_innermost_wrapper_serves_the_whole_stack(
    method: str, key: str, masked: bool
) -> None:
    declared = shaped(tk.make_vector("sync", SAME_STEP, longest=3), method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = shaped(Silent(key, masked=masked), method, autoreset_mode=SAME_STEP)
    np.testing.assert_array_equal(play(given), play(declared))


def test_tensors_under_the_older_key() -> None:
    torch = pytest.importorskip("torch")
    env = shaped(Silent(convert=torch.as_tensor), "adops", autoreset_mode="SameStep")
    declared = shaped(tk.make_vector("sync", SAME_STEP, longest=3), "adops")
    np.testing.assert_array_equal(play(env), play(declared))


def test_a_mode_in_metadata_serves_both_keys_too() -> None:
    env = Silent()
    env.metadata = {"autoreset_mode": SAME_STEP}
    declared = shaped(tk.make_vector("sync", SAME_STEP, longest=3), "adops")
    np.testing.assert_array_equal(play(shaped(env, "adops")), play(declared))


def test_the_mode_reaches_wrappers_and_recorders_above_wrappers_of_others(tmp_path: Path) -> None:
    env: Any = IntrinsicRewardWrapper(Silent(), tk.source, autoreset_mode=SAME_STEP)
    env = gym.wrappers.vector.TransformReward(env, lambda reward: reward)
    env = ADOPSWrapper(env, CriticHandle(tk.critic), int_bootstrap="reset")
    assert env.core.layout.mode is env.autoreset_mode is SAME_STEP
    assert env.metadata["autoreset_mode"] is SAME_STEP
    env = ShapingRecorder(gym.wrappers.vector.TransformReward(env, abs), tmp_path / "some.npz")
    assert env.autoreset_mode is SAME_STEP
    env.reset(seed=0)
    for _ in range(9):
        env.step(ZERO)
    assert env.finish().valid.all()


def test_a_recorder_takes_the_mode_of_a_stack_without_wrappers(tmp_path: Path) -> None:
    env = ShapingRecorder(Silent(), tmp_path / "bare.npz", autoreset_mode=SAME_STEP)
    env.reset(seed=0)
    for _ in range(9):
        env.step(ZERO)
    assert env.finish().valid.all()


def test_sb3_finds_the_last_observation_under_the_older_key() -> None:
    pytest.importorskip("stable_baselines3")
    from adops_wrappers.sb3 import SB3VecEnv

    def last_observations(env: Any, **inner: Any) -> list[Any]:
        adapter = SB3VecEnv(shaped(env, "none", **inner))
        adapter.seed(5)
        adapter.reset()
        infos = [info for _ in range(9) for info in adapter.step(ZERO)[3]]
        assert not any("final_observation" in info for info in infos)
        return [info["terminal_observation"] for info in infos if "terminal_observation" in info]

    found = last_observations(Silent(), autoreset_mode=SAME_STEP)
    expected = last_observations(tk.make_vector("sync", SAME_STEP, longest=3))
    assert len(found) > 5
    np.testing.assert_array_equal(found, expected)


def test_a_row_that_ended_without_its_last_observation_is_an_error() -> None:
    class Forgets(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            *rest, info = self.env.step(actions)
            return *rest, {key: ~v if key[0] == "_" else v for key, v in info.items()}

    env = IntrinsicRewardWrapper(Forgets(Silent()), tk.source, autoreset_mode=SAME_STEP)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="has no last observation of it"):
        [env.step(ZERO) for _ in range(3)]


@pytest.mark.parametrize("wrap", [IntrinsicRewardWrapper, PIESWrapper])
def test_a_mode_that_contradicts_the_declared_one_is_refused(wrap: Any) -> None:
    arguments = [tk.source] if wrap is IntrinsicRewardWrapper else []
    for env in (tk.make_vector("sync", NEXT_STEP), Autoreset(tk.ScriptedEnv())):
        wrap(env, *arguments, autoreset_mode="NextStep")
        with pytest.raises(ValueError, match=r"is DISABLED here, but the env .* runs NEXT_STEP"):
            wrap(env, *arguments, autoreset_mode=AutoresetMode.DISABLED)


@undeclared
def test_a_mode_that_comes_above_the_innermost_wrapper_is_too_late(tmp_path: Path) -> None:
    env = IntrinsicRewardWrapper(Silent(), tk.source)
    for wrap in (PIESWrapper, lambda env, **mode: ShapingRecorder(env, tmp_path / "x", **mode)):
        with pytest.raises(ValueError, match="pass it to the innermost wrapper"):
            wrap(env, autoreset_mode=SAME_STEP)
    PIESWrapper(env).reset(seed=0)  # an assumption is taken over in silence


@pytest.mark.parametrize("mode", ["SAME_STEP", "next", 1])
def test_what_is_no_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match=r"one of \['NextStep', 'SameStep', 'Disabled'\]"):
        PIESWrapper(Silent(), autoreset_mode=mode)


def test_a_single_env_may_reset_itself_in_the_step_after_the_last_alone() -> None:
    with pytest.raises(ValueError, match="single env cannot run autoreset_mode SAME_STEP"):
        PIESWrapper(tk.ScriptedEnv(), autoreset_mode=SAME_STEP)
    env: Any = ResetsItself(longest=2)
    env = IntrinsicRewardWrapper(env, lambda s, a, next_s: 1.0, autoreset_mode=NEXT_STEP)
    env = PBIMWrapper(env, gamma=0.5)
    env.reset(seed=0)
    infos, ends = [], []
    for _ in range(12):
        _, _, terminated, truncated, info = env.step(0)
        infos.append("intrinsic_reward" in info)
        ends.append(terminated or truncated)
    assert infos == [True, *(not ended for ended in ends[:-1])]  # dummy steps have no bonus
    assert sum(ends) > 3


@pytest.mark.parametrize("mode", [NEXT_STEP, "NextStep"])
def test_the_mode_is_kept_in_the_spec(mode: Any) -> None:
    env = PIESWrapper(gym.make("CartPole-v1"), autoreset_mode=mode)
    assert json.loads(env.spec.to_json())["additional_wrappers"][-1]["kwargs"] == {
        "method": "pies",
        "autoreset_mode": "NextStep",
    }
    read = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    for spec in (env.spec, read):
        assert gym.make(spec).core.layout.mode is NEXT_STEP


def test_every_wrapper_takes_the_mode() -> None:
    for wrapper in (*WRAPPERS.values(), IntrinsicRewardWrapper, ShapingRecorder):
        assert "autoreset_mode" in inspect.signature(wrapper).parameters
    for name in SHAPINGS:
        extra = {"pbrs": {"potential": tk.potential, "gamma": 0.9}}.get(name, {})
        env = make_shaping(name, Silent(), tk.critic, autoreset_mode=SAME_STEP, **extra)
        assert env.core.layout.mode is SAME_STEP


@undeclared
def test_an_assumed_mode_is_not_announced_as_declared() -> None:
    env = PIESWrapper(IntrinsicRewardWrapper(Silent(), tk.source))
    assert "autoreset_mode" not in env.metadata
