from __future__ import annotations

import copy
import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import Autoreset, TimeLimit

from adops_wrappers import (
    ADOPESWrapper,
    ADOPSWrapper,
    BAMPFWrapper,
    BSRSWrapper,
    CriticHandle,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    PBRSWrapper,
    PIESWrapper,
    ShapingWrapper,
    make_shaping,
)
from adops_wrappers.shaping import GRM
from tests import toolkit as tk

KEYS = ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward", "shaping_correction")


def constant(value: float) -> Any:
    return lambda obs, action, next_obs: value


WRAPPERS: dict[str, Any] = {
    "none": NoShapingWrapper,
    "adops": lambda env: ADOPSWrapper(env, lambda obs: (0.0, 0.0), gamma=0.99),
    "adopes": lambda env: ADOPESWrapper(env, lambda obs: (0.0, 0.0), update_every="episode"),
    "pies": lambda env: PIESWrapper(env, decay_updates=3),
    "pbim": lambda env: PBIMWrapper(env, gamma=0.9),
    "grm": lambda env: GRMWrapper(env, delay=2),
    "grm-matching": lambda env: GRMWrapper(env, matching=tk.halves),
    "pbrs": lambda env: PBRSWrapper(env, lambda obs, t: float(t), gamma=0.9),
    "bsrs": lambda env: BSRSWrapper(env, lambda obs: (0.0, 0.0), gamma=0.9, eta=-0.5),
    "bampf": lambda env: BAMPFWrapper(env.env, constant(1.0), gamma=0.9, initial=1.0),
    "own method": lambda env: ShapingWrapper(env, GRM, delay=3),
}


@pytest.mark.filterwarnings("ignore:.*A Box observation space (min|max)imum value is:UserWarning")
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version:UserWarning")
@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasium_checks_pass_and_the_spec_is_json(name: str) -> None:
    env = WRAPPERS[name](IntrinsicRewardWrapper(gym.make("CartPole-v1"), constant(0.5)))
    check_env(env, skip_render_check=True)
    assert env.spec is not None
    written = json.loads(env.spec.to_json())
    last = written["additional_wrappers"][-1]
    assert last["entry_point"] == f"{type(env).__module__}:{type(env).__name__}"
    rebuilt = gym.make(env.spec)
    assert type(rebuilt) is type(env)
    assert rebuilt.shaper.describe() == env.shaper.describe()


def test_spec_in_json_holds_the_settings_and_only_names_of_callables() -> None:
    env = PIESWrapper(gym.make("CartPole-v1"), decay_updates=np.int64(7), update_every=3)
    rebuilt = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert isinstance(rebuilt, PIESWrapper)
    assert rebuilt.shaper.decay_updates == 7
    assert rebuilt.shaper.counter.update_every == 3
    env = ADOPSWrapper(gym.make("CartPole-v1"), tk.critic, epsilon=0.5)
    read = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert read.additional_wrappers[-1].kwargs == {
        "method": "adops",
        "critic": "<critic>",
        "epsilon": 0.5,
    }
    with pytest.raises(TypeError, match=r"critic must be a CriticHandle or a function.*<critic>"):
        gym.make(read)


def test_wrong_arguments_are_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilom'"):
        ADOPSWrapper(tk.ScriptedEnv(), tk.critic, epsilom=1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", WRAPPERS)
def test_info_holds_float64_scalars_and_the_reward_is_a_float(name: str) -> None:
    source = IntrinsicRewardWrapper(tk.ScriptedEnv(), constant(2))
    source.reset(seed=0)
    assert type(source.step(0)[4]["intrinsic_reward"]) is np.float64
    env = WRAPPERS[name](source)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(0)
    assert type(reward) is float
    assert type(terminated) is type(truncated) is bool
    assert all(type(info[key]) is np.float64 for key in KEYS)
    assert reward == info["extrinsic_reward"] + info["intrinsic_reward"]
    assert info["shaping_correction"] == info["intrinsic_reward"] - info["raw_intrinsic_reward"]


def test_the_time_of_a_potential_has_a_dtype_too() -> None:
    env = PBRSWrapper(gym.make(tk.CLIFF), tk.potential, gamma=0.9)
    env.reset(seed=0)
    times = [env.step(0)[4]["potential_time"] for _ in range(3)]
    assert times == [0, 1, 2]
    assert all(type(time) is np.int64 for time in times)


def test_reward_is_r_with_add_to_reward_false() -> None:
    env = IntrinsicRewardWrapper(gym.make(tk.CLIFF), constant(3.0))
    env = NoShapingWrapper(env, add_to_reward=False)
    env.reset(seed=0)
    assert env.step(0)[1] == -1.0


def test_stacked_wrappers_keep_r_and_the_raw_bonus() -> None:
    env = IntrinsicRewardWrapper(gym.make(tk.CLIFF), constant(2.0))
    env = NoShapingWrapper(NoShapingWrapper(env, intrinsic_scale=0.5), intrinsic_scale=0.5)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(0)
    assert reward == -1.0 + 0.5
    assert [info[key] for key in KEYS] == [-1.0, 2.0, 0.5, -0.5]


def test_mid_episode_reset_drops_the_debt() -> None:
    env = TimeLimit(tk.ScriptedEnv(longest=10**6), 3)
    env = PBIMWrapper(IntrinsicRewardWrapper(env, constant(1.0)), gamma=0.5)
    env.reset(seed=0)
    env.step(0)
    env.reset(seed=0)
    assert [env.step(0)[4]["intrinsic_reward"] for _ in range(3)] == [1.0, 1.0, -6.0]


def test_time_limit_outside_is_noticed_when_it_cuts_twice_alike() -> None:
    def play(env: Any, episodes: int) -> None:
        for _ in range(episodes):
            env.reset(seed=0)
            while not env.step(0)[3]:
                pass

    def stack(method: Any) -> Any:
        env = tk.ScriptedEnv(longest=10**6)
        return TimeLimit(method(IntrinsicRewardWrapper(env, constant(1.0))), 3)

    env = stack(PBIMWrapper)
    play(env, 2)
    with pytest.warns(RuntimeWarning, match="after exactly 3 steps.*put the TimeLimit below"):
        play(env, 1)
    play(env, 3)
    play(stack(NoShapingWrapper), 4)


def test_dummy_step_of_an_autoreset_below() -> None:
    env: Any = Autoreset(TimeLimit(tk.ScriptedEnv(longest=10**6), 2))
    env = PBIMWrapper(IntrinsicRewardWrapper(env, constant(1.0)), gamma=0.5)
    env.reset(seed=0)
    infos = [env.step(0) for _ in range(6)]
    shaped = [info.get("intrinsic_reward") for *_, info in infos]
    assert shaped == [1.0, -2.0, None, 1.0, -2.0, None]
    assert infos[2][1] == 0.0


def test_info_dict_of_the_env_is_not_written_to() -> None:
    class Keeps(gym.Wrapper):
        info: dict[str, Any] = {"intrinsic_reward": 1.0}  # noqa: RUF012

        def step(self, action: Any) -> Any:
            return (*self.env.step(action)[:4], self.info)

    env = NoShapingWrapper(Keeps(tk.ScriptedEnv()), intrinsic_scale=2.0)
    env.reset(seed=0)
    assert env.step(0)[4]["intrinsic_reward"] == 2.0
    assert Keeps.info == {"intrinsic_reward": 1.0}


@pytest.mark.parametrize("name", ["adops", "adopes", "pies", "pbim-norm", "grm-norm", "none"])
def test_state_dict_in_mid_episode(name: str) -> None:
    def build(env: Any) -> Any:
        env = IntrinsicRewardWrapper(env, tk.source)
        return make_shaping(name, env, CriticHandle(tk.critic))

    def steps(env: Any, actions: list[int]) -> list[Any]:
        out = []
        for action in actions:
            _, reward, terminated, truncated, info = env.step(action)
            out.append((reward, info["intrinsic_reward"]))
            if terminated or truncated:
                env.reset()
        return out

    base = tk.ScriptedEnv()
    first = build(base)
    first.reset(seed=3)
    steps(first, [0, 1, 2, 1])
    second = build(copy.deepcopy(base))
    second.load_state_dict(first.state_dict())
    second.env.load_state_dict(first.env.state_dict())
    more = [1, 2, 0, 1, 1, 0, 2, 2]
    assert steps(first, more) == steps(second, more)


def test_errors_and_life_after_them() -> None:
    values = [1.0, np.nan, 1.0]
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(longest=10**6), lambda s, a, ns: values.pop(0))
    env = PBIMWrapper(env)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValueError, match="nan for environment 0 at step 1 of its episode"):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    assert env.step(0)[4]["intrinsic_reward"] == 1.0


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.inf, "environment 0 is inf at step 0"), (np.zeros(2), "must be one number, got shape")],
)
def test_bad_bonus_in_info(value: Any, message: str) -> None:
    class Writes(gym.Wrapper):
        def step(self, action: Any) -> Any:
            return (*self.env.step(action)[:4], {"intrinsic_reward": value})

    env = PIESWrapper(Writes(tk.ScriptedEnv()))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", WRAPPERS)
def test_reward_that_is_not_finite(name: str, value: float) -> None:
    env = gym.wrappers.TransformReward(tk.ScriptedEnv(), lambda reward: value)
    env = WRAPPERS[name](IntrinsicRewardWrapper(env, constant(1.0)))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"The extrinsic reward of environment 0 is {value} at"):
        env.step(0)


def test_reward_and_end_flags_of_shape_1() -> None:
    class Arrays(gym.Wrapper):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, np.array([reward]), np.array([terminated]), np.array([truncated]), info

    env = NoShapingWrapper(IntrinsicRewardWrapper(Arrays(tk.ScriptedEnv()), constant(1.0)))
    plain = NoShapingWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), constant(1.0)))
    env.reset(seed=0)
    plain.reset(seed=0)
    step, expected = env.step(0), plain.step(0)
    assert step[1:4] == expected[1:4]
    assert type(step[1]) is float
    assert type(step[2]) is bool


def test_missing_bonus_names_the_way_out() -> None:
    env = GRMWrapper(tk.ScriptedEnv())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"IntrinsicRewardWrapper\(env, source\)"):
        env.step(0)


def test_time_dependent_potential_of_one_env() -> None:
    seen: list[Any] = []
    env = PBRSWrapper(tk.ScriptedEnv(longest=10**6), lambda o, t: seen.append(t) or t, gamma=0.5)
    env.reset(seed=0)
    assert env.step(0)[4]["intrinsic_reward"] == 0.5
    assert env.step(0)[4]["intrinsic_reward"] == 0.5 * 2 - 1
    assert seen == [0, 1, 2]
    assert all(type(t) is int for t in seen)
