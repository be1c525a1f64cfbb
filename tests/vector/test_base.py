from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from adops_wrappers import (
    SHAPINGS,
    ADOPSWrapper,
    CriticHandle,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    PBRSWrapper,
    PIESWrapper,
    ShapingWrapper,
    VectorShapingWrapper,
    make_shaping,
)
from tests import toolkit as tk

ZERO = np.zeros(3, dtype=np.int64)
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def counting_source(value: float = 1.0) -> Any:
    return lambda obs, action, next_obs: np.full(len(action), value)


def endless(
    n: int = 3, mode: AutoresetMode = AutoresetMode.DISABLED, kind: Any = SyncVectorEnv
) -> Any:
    return kind([partial(tk.ScriptedEnv, longest=10**6)] * n, autoreset_mode=mode)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", MODES)
def test_partial_reset_clears_only_its_rows(kind: Any, mode: AutoresetMode) -> None:
    env = PBIMWrapper(IntrinsicRewardWrapper(endless(3, mode, kind), counting_source()), gamma=0.5)
    env.reset(seed=0)
    for _ in range(3):
        env.step(ZERO)
    options = {"reset_mask": np.array([False, True, False]), "other": 1}
    env.reset(options=options)
    env.close()
    assert set(options) == {"reset_mask", "other"}  # the caller's dict is not touched
    assert env.shaper.debt.tolist() == [14.0, 0.0, 14.0]  # 1/γ + 1/γ² + 1/γ³
    assert env.core.episodes.elapsed.tolist() == [3, 0, 3]


def test_partial_reset_refreshes_the_values_of_its_rows() -> None:
    env = ADOPSWrapper(IntrinsicRewardWrapper(endless(), tk.source), CriticHandle(tk.critic))
    obs, _ = env.reset(seed=0)
    obs, *_ = env.step(ZERO)
    obs, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    seen = []
    env.core.critic.register(lambda o: seen.append(np.array(o)) or tk.critic(o))
    env.step(ZERO)
    np.testing.assert_array_equal(seen[0], obs)


def test_partial_reset_in_the_dummy_step_of_next_step() -> None:
    env = IntrinsicRewardWrapper(tk.make_vector("sync", AutoresetMode.NEXT_STEP), tk.source)
    env = NoShapingWrapper(env)
    env.reset(seed=11)
    for _ in range(20):
        _, _, terminated, truncated, _ = env.step(ZERO)
        ended = terminated | truncated
        if ended.any():
            break
    env.reset(options={"reset_mask": ended})
    assert env.step(ZERO)[4]["_intrinsic_reward"].all()  # no dummy step is left


def test_envpool_partial_reset_returns_only_its_rows() -> None:
    envpool = pytest.importorskip("envpool")
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=0)
    env = IntrinsicRewardWrapper(env, counting_source())
    seen: list[Any] = []
    critic = CriticHandle(lambda obs: seen.append(np.array(obs)) or (np.zeros(3), np.zeros(3)))
    env = ADOPSWrapper(env, critic)
    env.reset()
    before = env.step(ZERO)[0]
    fresh, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert fresh.shape == (1, 4)
    env.step(ZERO)
    np.testing.assert_array_equal(seen[-2], np.stack([before[0], fresh[0], before[2]]))
    assert env.core.episodes.elapsed.tolist() == [2, 1, 2]


@pytest.mark.parametrize("mask", [np.array([1, 0, 0]), np.array([True]), [True, False, 0]])
def test_bad_reset_masks(mask: Any) -> None:
    env = NoShapingWrapper(IntrinsicRewardWrapper(endless(), tk.source))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"boolean array of shape \(3,\)"):
        env.reset(options={"reset_mask": mask})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "method", ["adops", "adopes", "pies", "pbim", "pbim-norm", "grm", "grm-norm", "pbrs", "none"]
)
def test_state_dict_in_mid_episode(method: str, mode: AutoresetMode) -> None:
    """A run that is saved and continued by new wrappers equals one that went on."""
    settings: dict[str, Any] = {
        "adopes": {"ramp_updates": 9, "update_every": 3},
        "pies": {"decay_updates": 9, "update_every": 3},
        "pbrs": {"potential": tk.potential, "gamma": 0.9},
        "grm": {"delay": 3},
    }.get(method, {})

    def build(env: Any) -> Any:
        return make_shaping(
            method, IntrinsicRewardWrapper(env, tk.source), CriticHandle(tk.critic), **settings
        )

    def steps(env: Any, acts: Any) -> list[Any]:
        out = []
        for action in acts:
            _, reward, terminated, truncated, info = env.step(action)
            out.append([reward, info["intrinsic_reward"], info["_intrinsic_reward"]])
            ended = terminated | truncated
            if mode is AutoresetMode.DISABLED and ended.any():
                env.reset(options={"reset_mask": ended})
        return out

    acts = np.random.default_rng(1).integers(0, 3, (40, 3))
    base = tk.make_vector("sync", mode)
    first = build(base)
    first.reset(seed=2)
    steps(first, acts[:17])
    saved, saved_source = first.state_dict(), first.env.state_dict()
    import copy

    second = build(copy.deepcopy(base))
    second.env.load_state_dict(copy.deepcopy(saved_source))
    second.load_state_dict(copy.deepcopy(saved))
    for a, b in zip(steps(first, acts[17:]), steps(second, acts[17:]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_of_another_method_or_size_is_refused() -> None:
    env = PBIMWrapper(IntrinsicRewardWrapper(endless(), tk.source))
    other = GRMWrapper(IntrinsicRewardWrapper(endless(), tk.source))
    with pytest.raises(ValueError, match="method 'GRM' into a 'PBIM' wrapper"):
        env.load_state_dict(other.state_dict())
    small = PBIMWrapper(IntrinsicRewardWrapper(endless(2), tk.source))
    with pytest.raises(ValueError, match="num_envs and settings of the saved one"):
        env.load_state_dict(small.state_dict())


def test_info_is_float64_and_the_reward_is_cast() -> None:
    class IntReward(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            obs, _, *rest = self.env.step(actions)
            return (obs, np.array([1, 2, 3], dtype=np.int32), *rest)

    env = IntrinsicRewardWrapper(IntReward(endless()), lambda s, a, ns: np.full((3, 1), 0.5))
    env = NoShapingWrapper(env)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(ZERO)
    assert reward.tolist() == [1.5, 2.5, 3.5]
    for key in ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward"):
        assert info[key].dtype == np.float64
        assert info[key].shape == (3,)
        assert info[f"_{key}"].all()
    assert info["shaping_correction"].tolist() == [0.0, 0.0, 0.0]


def test_add_to_reward_false_keeps_r() -> None:
    env = IntrinsicRewardWrapper(endless(), counting_source())
    env = NoShapingWrapper(env, add_to_reward=False)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(ZERO)
    np.testing.assert_array_equal(reward, info["extrinsic_reward"])


@pytest.mark.parametrize("inner_adds", [True, False])
def test_stacked_wrappers(inner_adds: bool) -> None:
    """R and the raw F survive; the reward is R plus the outermost F′."""
    env = IntrinsicRewardWrapper(endless(), counting_source(2.0))
    env = NoShapingWrapper(env, intrinsic_scale=0.5, add_to_reward=inner_adds)
    env = PIESWrapper(env, decay_updates=2, update_every=1)
    env.reset(seed=0)
    bare = endless()
    bare.reset(seed=0)
    for zeta in (1.0, 0.5):
        _, reward, _, _, info = env.step(ZERO)
        r = bare.step(ZERO)[1]
        np.testing.assert_array_equal(info["extrinsic_reward"], r)
        assert info["raw_intrinsic_reward"].tolist() == [2.0] * 3
        assert info["intrinsic_reward"].tolist() == [zeta] * 3
        assert info["shaping_correction"].tolist() == [zeta - 2.0] * 3
        np.testing.assert_array_equal(reward, r + zeta)


def test_final_values_for_methods_that_do_not_consult_the_critic() -> None:
    env = IntrinsicRewardWrapper(tk.make_vector("sync", AutoresetMode.SAME_STEP), tk.source)
    calls: list[int] = []
    critic = CriticHandle(lambda obs: calls.append(len(obs)) or tk.critic(obs))
    env = PIESWrapper(env, critic=critic)
    env.reset(seed=1)
    ends = 0
    for _ in range(20):
        _, _, terminated, truncated, info = env.step(ZERO)
        ended = terminated | truncated
        ends += ended.any()
        assert ("final_value_ext" in info) == ended.any()
        if ended.any():
            final = np.stack([info["final_obs"][i] for i in np.flatnonzero(ended)])
            np.testing.assert_array_equal(info["final_value_ext"][ended], tk.critic(final)[0])
    assert len(calls) == ends > 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0.0, np.nan, 0.0]), "intrinsic reward of environment 1 is nan at step 0"),
        (np.array([0.0, 0.0, np.inf]), "environment 2 is inf at step 0"),
        (np.zeros(2), r"each of 3 environments.*got shape \(2,\) at step 0"),
        (np.zeros((3, 2)), r"got shape \(3, 2\)"),
    ],
)
def test_bad_bonus_in_info_and_life_after_it(values: Any, message: str) -> None:
    class Writes(gym.vector.VectorWrapper):
        bad = True

        def step(self, actions: Any) -> Any:
            *rest, info = self.env.step(actions)
            return (*rest, {**info, "intrinsic_reward": values if self.bad else np.ones(3)})

    inner = Writes(endless())
    env = PBIMWrapper(inner, gamma=0.5)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(ZERO)
    inner.bad = False
    with pytest.raises(gym.error.ResetNeeded, match="full reset"):
        env.step(ZERO)
    with pytest.raises(gym.error.ResetNeeded):
        env.reset(options={"reset_mask": np.array([True, False, False])})
    env.reset(seed=0)
    assert env.step(ZERO)[4]["intrinsic_reward"].tolist() == [1.0, 1.0, 1.0]


def test_missing_bonus() -> None:
    env = PIESWrapper(endless())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"IntrinsicRewardWrapper\(env, source\)"):
        env.step(ZERO)

    class OnlyFirst(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            *rest, info = self.env.step(actions)
            mask = np.array([True, False, True])
            return (*rest, {**info, "intrinsic_reward": np.ones(3), "_intrinsic_reward": mask})

    env = PIESWrapper(OnlyFirst(endless()))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="Environment 1 wrote no 'intrinsic_reward' at step 0"):
        env.step(ZERO)
    env = PBRSWrapper(OnlyFirst(endless()), lambda obs, t: np.zeros(3), gamma=0.9)
    env.reset(seed=0)
    assert env.step(ZERO)[4]["intrinsic_reward"].tolist() == [1.0, 0.0, 1.0]


def test_step_before_reset() -> None:
    env = NoShapingWrapper(IntrinsicRewardWrapper(endless(), tk.source))
    with pytest.raises(gym.error.ResetNeeded, match=r"Call env\.reset\(\) first"):
        env.step(ZERO)


class Forgets(gym.vector.VectorWrapper):
    """Resets within the step, and does not say what it saw last: IsaacLab's default."""

    def step(self, actions: Any) -> Any:
        *rest, info = self.env.step(actions)
        return (*rest, {k: v for k, v in info.items() if "final" not in k})


@pytest.mark.parametrize("int_bootstrap", ["final", "none"])
def test_ends_that_the_env_does_not_show_are_valued_as_rsl_rl_does(int_bootstrap: str) -> None:
    """Where the episode was truncated V(s′) is V(s), where it terminated 0; a source pays 0."""

    def critic(obs: Any) -> Any:
        return obs[:, 0] + 2.0, obs[:, 0] + 1.0

    env = Forgets(tk.make_vector("sync", AutoresetMode.SAME_STEP, longest=3))
    env = IntrinsicRewardWrapper(env, tk.source)
    settings: Any = {"int_bootstrap": int_bootstrap, "add_to_reward": False}
    env = ADOPSWrapper(env, critic, gamma_ext=0.9, gamma_int=0.5, **settings)
    obs, _ = env.reset(seed=0)
    seen = {"terminated": 0, "truncated": 0}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(60):
            v_ext, v_int = critic(obs)
            obs, reward, terminated, truncated, info = env.step(np.zeros(3, dtype=np.int64))
            for row in np.flatnonzero(terminated | truncated):
                cut_off = truncated[row] and not terminated[row]
                next_ext, next_int = (v_ext[row], v_int[row]) if cut_off else (0.0, 0.0)
                seen["truncated" if cut_off else "terminated"] += 1
                total = reward[row] + 0.9 * next_ext - v_ext[row] + 0.5 * next_int - v_int[row]
                bad = reward[row] + 0.9 * next_ext - v_ext[row] < 0.0
                f2 = min(0.0, -total - 1e-7) if bad else max(0.0, -total)
                assert info["raw_intrinsic_reward"][row] == 0.0
                assert info["intrinsic_reward"][row] == pytest.approx(f2, abs=1e-12)
                assert info["final_value_ext"][row] == next_ext
    assert ["as rsl_rl does" in str(one.message) for one in warned] == [True]
    assert min(seen.values()) > 3


def test_mode_of_the_instance_wins_over_shared_metadata() -> None:
    """AtariVectorEnv writes its mode into the metadata that all vector envs share."""
    pytest.importorskip("ale_py")
    make = partial(gym.make_vec, "ALE/Pong-v5", num_envs=1, img_height=8, img_width=8)
    same = make(autoreset_mode=AutoresetMode.SAME_STEP)
    make(autoreset_mode=AutoresetMode.NEXT_STEP)
    wrapped = NoShapingWrapper(IntrinsicRewardWrapper(same, counting_source()))
    assert wrapped.core.layout.mode is AutoresetMode.SAME_STEP


class Undeclared(gym.vector.VectorEnv):
    """A vector env that does not say when it resets, around one that does."""

    metadata = {}  # noqa: RUF012

    def __init__(self, mode: AutoresetMode) -> None:
        self._env = tk.make_vector("sync", mode, longest=2)
        self.num_envs = 3
        self.single_observation_space = self._env.single_observation_space
        self.single_action_space = self._env.single_action_space

    def reset(self, **kwargs: Any) -> Any:
        return self._env.reset(**kwargs)

    def step(self, actions: Any) -> Any:
        return self._env.step(actions)


def test_mode_falls_back_to_metadata_and_then_to_next_step_with_a_warning() -> None:
    env = Undeclared(AutoresetMode.NEXT_STEP)
    env.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    assert NoShapingWrapper(env).core.layout.mode is AutoresetMode.SAME_STEP
    env.metadata = {}
    with pytest.warns(UserWarning, match="does not declare its autoreset mode; NEXT_STEP"):
        source = IntrinsicRewardWrapper(env, tk.source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the innermost wrapper has said it
        wrapped = NoShapingWrapper(source)
    wrapped.reset(seed=0)
    masks = [wrapped.step(ZERO)[4]["_intrinsic_reward"] for _ in range(6)]
    assert not np.all(masks)


class FailsOnce(gym.vector.VectorWrapper):
    """Raises once, after the env below has made its step."""

    fails = False

    def step(self, actions: Any) -> Any:
        result = self.env.step(actions)
        if self.fails:
            self.fails = False
            raise ConnectionError("the simulator hung up")
        return result


@pytest.mark.parametrize("below_source", [True, False])
def test_error_below_after_the_env_has_advanced_forces_a_reset(below_source: bool) -> None:
    if below_source:
        broken = FailsOnce(endless())
        env: Any = IntrinsicRewardWrapper(broken, tk.source)
    else:
        env = broken = FailsOnce(IntrinsicRewardWrapper(endless(), tk.source))
    source = env
    env = ADOPSWrapper(env, CriticHandle(tk.critic))
    env.reset(seed=0)
    env.step(ZERO)
    broken.fails = True
    with pytest.raises(ConnectionError):
        env.step(ZERO)
    with pytest.raises(gym.error.ResetNeeded, match="After an error in step"):
        env.step(ZERO)
    if below_source:
        with pytest.raises(gym.error.ResetNeeded):
            source.step(ZERO)
    env.reset(seed=0)
    env.step(ZERO)


@pytest.mark.parametrize("with_source", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_observation_changed_in_place_by_the_agent(mode: AutoresetMode, with_source: bool) -> None:
    class Bonus(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            *rest, info = self.env.step(actions)
            return (*rest, {**info, "intrinsic_reward": np.ones(3)})

    def run(change: bool) -> list[Any]:
        critic = CriticHandle(tk.critic)
        env: Any = tk.make_vector("sync", mode, longest=10**6)
        env = IntrinsicRewardWrapper(env, tk.source) if with_source else Bonus(env)
        env = ADOPSWrapper(env, critic, gamma_ext=0.97, gamma_int=0.9)
        obs, _ = env.reset(seed=0)
        shaped = []
        for _ in range(5):
            if change:
                obs *= 100.0
            critic.updated()
            obs, _, _, _, info = env.step(ZERO)
            shaped.append(info["intrinsic_reward"].tolist())
        return shaped

    assert run(change=True) == run(change=False)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", SHAPINGS)
def test_reward_that_is_not_finite_is_an_error_for_every_method(method: str, value: float) -> None:
    class Bad(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            obs, reward, *rest = self.env.step(actions)
            return (obs, np.where([False, True, False], value, reward), *rest)

    extra = {"potential": tk.potential, "gamma": 0.9} if method == "pbrs" else {}
    env = IntrinsicRewardWrapper(Bad(endless()), tk.source)
    env = make_shaping(method, env, CriticHandle(tk.critic), **extra)
    env.reset(seed=0)
    message = f"The extrinsic reward of environment 1 is {value} at step 0 of its episode"
    with pytest.raises(ValueError, match=message):
        env.step(ZERO)


def test_rewards_of_shape_n_1_and_of_a_wrong_shape() -> None:
    class Shaped(gym.vector.VectorWrapper):
        shape = (3, 1)

        def step(self, actions: Any) -> Any:
            obs, reward, *rest = self.env.step(actions)
            return (obs, np.resize(reward, self.shape), *rest)

    env = NoShapingWrapper(IntrinsicRewardWrapper(Shaped(endless()), tk.source))
    env.reset(seed=0)
    _, reward, _, _, info = env.step(ZERO)
    assert reward.shape == info["extrinsic_reward"].shape == (3,)
    env.env.env.shape = (2,)
    with pytest.raises(ValueError, match=r"The reward must hold one value for each of 3 env"):
        env.step(ZERO)


class Structured(tk.ScriptedEnv):
    """Observations whose batches are tuples: graphs, sequences, one of several."""

    def __init__(self, kind: str) -> None:
        super().__init__(longest=10**6)
        box, two = gym.spaces.Box(-9.0, 9.0, (2,), np.float64), gym.spaces.Discrete(2)
        self.kind = kind
        self.observation_space = {
            "graph": gym.spaces.Graph(box, two),
            "sequence": gym.spaces.Sequence(two),
            "one of": gym.spaces.OneOf((two, box)),
            "dict": gym.spaces.Dict({"s": gym.spaces.Sequence(two), "b": box}),
        }[kind]

    def _obs(self) -> Any:
        low = int(self.state[0] > 0)
        x = np.clip(self.state[:2], -9.0, 9.0)
        nodes, links = np.stack([x, x, x]), np.array([0, 1])
        return {
            "graph": gym.spaces.GraphInstance(nodes, links, np.array([[0, 1], [1, 2]])),
            "sequence": (low,) * 5,
            "one of": (np.int64(1), x) if low else (np.int64(0), np.int64(low)),
            "dict": {"s": (low,) * 5, "b": x},
        }[self.kind]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["graph", "sequence", "one of", "dict"])
def test_partial_resets_with_observations_of_every_structure(
    kind: str, mode: AutoresetMode
) -> None:
    env = SyncVectorEnv([partial(Structured, kind)] * 3, autoreset_mode=mode)
    seen: list[Any] = []
    critic = CriticHandle(lambda obs: seen.append(obs) or (np.zeros(3), np.zeros(3)))
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, counting_source()), critic)
    env.reset(seed=0)
    env.step(ZERO)
    obs, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    env.step(ZERO)
    assert str(seen[-2]) == str(obs)
    assert env.core.episodes.elapsed.tolist() == [2, 1, 2]


def test_one_tracker_follows_the_episodes_of_a_whole_stack() -> None:
    env = PIESWrapper(GRMWrapper(IntrinsicRewardWrapper(endless(), tk.source)))
    assert env.core.episodes is env.env.core.episodes is env.env.env.runner.episodes
    limited = gym.wrappers.vector.TransformReward(IntrinsicRewardWrapper(endless(), tk.source), abs)
    assert GRMWrapper(limited).core.episodes is not limited.env.runner.episodes


def test_batches_smaller_than_the_vector_env_are_refused() -> None:
    envpool = pytest.importorskip("envpool")
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, batch_size=2)
    with pytest.raises(ValueError, match="batch_size=2 of its num_envs=4"):
        PIESWrapper(env)
    with pytest.raises(ValueError, match="batch_size equal to num_envs"):
        IntrinsicRewardWrapper(env, tk.source)


def adops_in_worker() -> gym.Env[Any, Any]:
    return ADOPSWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), tk.critic)


@pytest.mark.filterwarnings("ignore")
def test_critic_inside_an_async_worker_is_refused() -> None:
    env = AsyncVectorEnv([adops_in_worker] * 2)
    with pytest.raises(RuntimeError, match="Wrap the vector env instead"):
        env.reset()
    env.close(terminate=True)


def test_large_rewards_are_warned_about_once_and_overflow_is_an_error() -> None:
    env = PBIMWrapper(IntrinsicRewardWrapper(endless(1), counting_source()), gamma=0.01)
    env.reset(seed=0)
    inner = env.unwrapped.envs[0].unwrapped
    step = np.zeros(1, dtype=np.int64)

    def episode(length: int) -> Any:
        inner.left = length
        return [env.step(step) for _ in range(length)][-1]

    with pytest.warns(RuntimeWarning, match=r"PBIM \(gamma=0.01\) emitted .* 6 steps into"):
        shaped = episode(6)[4]["intrinsic_reward"]
    assert shaped[0] == pytest.approx(-sum(100.0**k for k in range(1, 6)))
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        episode(7)
    env.reset(seed=0)
    with pytest.raises(OverflowError, match=r"PBIM \(gamma=0.01\) emitted F' = -inf .* 200 steps"):
        episode(200)
    env.reset(seed=0)
    assert episode(1)[4]["intrinsic_reward"].tolist() == [0.0]


def test_potential_is_checked() -> None:
    for potential, message in (
        (lambda obs, t: np.zeros(2), "one value for each of 3 observations"),
        (lambda obs, t: np.full(3, np.inf), "must be finite"),
    ):
        env = PBRSWrapper(endless(), potential, gamma=0.9)
        env.reset(seed=0)
        with pytest.raises(ValueError, match=message):
            env.step(ZERO)


def test_bad_int_bootstrap() -> None:
    with pytest.raises(ValueError, match="int_bootstrap must be one of"):
        ADOPSWrapper(endless(), tk.critic, int_bootstrap="episodic")  # type: ignore[arg-type]


def test_base_classes_refuse_the_other_kind_of_env() -> None:
    with pytest.raises(TypeError, match=r"must be a gymnasium\.vector\.VectorEnv.*accepts both"):
        VectorShapingWrapper(tk.ScriptedEnv(), "none")
    with pytest.raises(TypeError, match=r"must be a gymnasium\.Env.*accepts both"):
        ShapingWrapper(endless(), "none")


def test_frozen_bonus_scale() -> None:
    with pytest.raises(ValueError, match="intrinsic_scale must be a number of at least 0"):
        PIESWrapper(endless(), intrinsic_scale=-1.0)
