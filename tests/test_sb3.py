from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

pytest.importorskip("stable_baselines3")
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor

from adops_wrappers import (
    ADOPSWrapper,
    CountBonus,
    CriticHandle,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PIESWrapper,
    TDCritic,
    make_shaping,
    vector,
    wrappers,
)
from adops_wrappers.sb3 import SB3VecEnv, ShapingCallback
from tests import toolkit as tk

GAMMA = 0.95


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Bandit(gym.Env[Any, Any]):
    """Five steps; action 0 earns 1 at each. Action 1 leads to ever new observations."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self) -> Any:
        noise = self.np_random.uniform(-1.0, 1.0) if self.watching else 0.0
        return np.array([self.t / 5, noise], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.watching = 0, False
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.watching = bool(action == 1)
        return self._obs(), float(action == 0), self.t == 5, False, {}


def shape(env: Any, method: str, total_steps: int) -> Any:
    """F = 1.5 for watching the noise: more than the task pays, and it never fades."""
    source = lambda obs, action, next_obs: 1.5 * np.equal(action, 1)  # noqa: E731
    env = IntrinsicRewardWrapper(env, source)
    if method == "none":
        return make_shaping("none", env)
    if method == "pies":
        return PIESWrapper(env, decay_updates=total_steps // 2 // 16, update_every=16)
    if method == "grm":
        return GRMWrapper(env, gamma=GAMMA)
    space = env.single_observation_space if hasattr(env, "num_envs") else env.observation_space
    critic = TDCritic(space, seed=0, learning_rate=3e-3, lam=0.0, replay_ratio=8.0)
    return ADOPSWrapper(
        env, critic, gamma_ext=GAMMA, gamma_int=GAMMA, int_bootstrap="none", epsilon=0.1
    )


def vector_env(make: Callable[[], gym.Env[Any, Any]], n: int, **kwargs: Any) -> SyncVectorEnv:
    return SyncVectorEnv([make] * n, autoreset_mode=AutoresetMode.SAME_STEP, **kwargs)


def mean_return(model: Any) -> float:
    env = DummyVecEnv([lambda: Monitor(Bandit())])
    return float(evaluate_policy(model, env, n_eval_episodes=5, deterministic=True)[0])


@pytest.mark.parametrize("method", ["pies", "grm", "adops"])
def test_ppo_learns_the_task_that_the_raw_bonus_hides(method: str) -> None:
    steps, n = 6144, 8
    env = SB3VecEnv(shape(vector_env(Bandit, n), method, steps // n))
    log = ShapingCallback()
    model = PPO(
        "MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=6, learning_rate=3e-3,
        gamma=GAMMA, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(steps, callback=log)
    assert model.num_timesteps >= steps
    assert mean_return(model) == 5.0
    assert log.history[-1]["extrinsic_return"] > 4.0


def test_ppo_with_the_raw_bonus_forgets_the_task() -> None:
    env = SB3VecEnv(shape(vector_env(Bandit, 8), "none", 1))
    model = PPO(
        "MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=6, learning_rate=3e-3,
        gamma=GAMMA, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(6144)
    assert mean_return(model) == 0.0


@pytest.mark.parametrize("method", ["pies", "grm", "adops"])
def test_dqn_learns_the_task_through_a_single_wrapped_env(method: str) -> None:
    steps = 3000
    log = ShapingCallback(log_every=500, at_rollout_end=False)
    # A small replay: F′ is as old as its transition, and the first ones were shaped by a critic
    # that knew nothing.
    model = DQN(
        "MlpPolicy", shape(Bandit(), method, steps), learning_starts=200, train_freq=8,
        gradient_steps=4, learning_rate=2e-3, target_update_interval=100, buffer_size=1000,
        exploration_fraction=0.5, gamma=GAMMA, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(steps, callback=log)
    assert mean_return(model) == 5.0
    assert [entry["timesteps"] for entry in log.history] == [500.0 * k for k in range(1, 7)]


@pytest.mark.parametrize("copy", [True, False])
def test_adapter_shows_true_ends_and_returns(copy: bool) -> None:
    n, mode = 3, AutoresetMode.SAME_STEP

    def make() -> Any:
        return vector_env(tk.ScriptedEnv, n, copy=copy)

    stack = GRMWrapper(IntrinsicRewardWrapper(make(), tk.source), gamma=0.9)
    env = SB3VecEnv(stack)
    assert env.seed(7) == [7, 8, 9]
    acts = np.random.default_rng(0).integers(0, 3, (40, n))
    observations, infos, rewards, dones = [env.reset()], [], [], []
    for action in acts:
        obs, reward, done, info = env.step(action)
        observations.append(obs)
        rewards.append(reward)
        dones.append(done)
        infos.append(info)
    assert rewards[0].dtype == np.float32
    twin = GRMWrapper(IntrinsicRewardWrapper(make(), tk.source), gamma=0.9)
    twin.reset(seed=7)
    expected = np.array([twin.step(action)[1] for action in acts])
    np.testing.assert_allclose(rewards, expected, rtol=1e-6)
    ends = 0
    for i, steps in enumerate(tk.record(make(), acts, 7, mode)):
        total = length = 0.0
        for step in steps:
            info = infos[step.time][i]
            np.testing.assert_array_equal(observations[step.time][i], step.obs)
            assert dones[step.time][i] == step.ended
            assert info["extrinsic_reward"] == step.reward
            assert type(info["intrinsic_reward"]) is float
            total, length = total + step.reward, length + 1
            if step.ended:
                ends += 1
                np.testing.assert_array_equal(info["terminal_observation"], step.next_obs)
                np.testing.assert_array_equal(observations[step.time + 1][i], step.reset_obs)
                assert info["TimeLimit.truncated"] == step.truncated
                assert info["episode"]["r"] == pytest.approx(total)
                assert info["episode"]["l"] == length
                total = length = 0.0
            else:
                assert "terminal_observation" not in info
    assert ends > 15


def test_dict_observations_and_sub_env_infos() -> None:
    class Talking(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, reward, terminated, truncated, {**info, "said": 3, "deep": {"x": 1.5}}

    env = vector_env(lambda: Talking(tk.ScriptedEnv("dict")), 2)
    adapted = SB3VecEnv(GRMWrapper(IntrinsicRewardWrapper(env, tk.source)))
    adapted.reset()
    ended = False
    for _ in range(20):
        _, _, dones, infos = adapted.step(np.zeros(2, dtype=np.int64))
        for done, info in zip(dones, infos, strict=True):
            assert info["said"] == 3
            assert info["deep"] == {"x": 1.5}
            if done:
                ended = True
                assert set(info["terminal_observation"]) == {"a", "b"}
    assert ended


def test_vec_env_methods() -> None:
    stack = GRMWrapper(IntrinsicRewardWrapper(vector_env(Bandit, 2), CountBonus()))
    env = SB3VecEnv(stack)
    assert env.env_is_wrapped(vector.GRMWrapper) == [True, True]
    assert env.env_is_wrapped(wrappers.GRMWrapper, indices=[0]) == [False]
    assert env.get_attr("num_envs", indices=1) == [2]
    assert env.has_attr("shaper")
    assert not env.has_attr("nothing")
    assert len(env.env_method("state_dict")) == 2
    assert env.get_images() == [None, None]
    assert env.seed() == [None, None]
    with pytest.raises(NotImplementedError, match=r"SB3VecEnv\.env"):
        env.set_attr("x", 1)
    env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_autoreset_modes_are_refused(mode: AutoresetMode) -> None:
    env = tk.make_vector("sync", mode)
    with pytest.raises(ValueError, match=f"runs {mode.name}.*AutoresetMode.SAME_STEP"):
        SB3VecEnv(env)


class Kept(KVWriter):
    """Keeps the last values that SB3 wrote into its log."""

    def write(self, key_values: Any, key_excluded: Any, step: int = 0) -> None:
        self.values = dict(key_values)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("adapter", ["SB3VecEnv", "DummyVecEnv"])
def test_callback_logs_what_the_infos_say(adapter: str) -> None:
    def single() -> Any:
        return TimeLimit(tk.ScriptedEnv(longest=10**6), 4)

    if adapter == "SB3VecEnv":
        stack = PIESWrapper(
            IntrinsicRewardWrapper(vector_env(single, 2), tk.source),
            decay_updates=4,
            update_every=4,
        )
        env: Any = VecMonitor(SB3VecEnv(stack))
    else:
        make = lambda: PIESWrapper(  # noqa: E731
            IntrinsicRewardWrapper(single(), tk.source), decay_updates=4, update_every=4
        )
        env = DummyVecEnv([make, make])
    seen: list[Any] = []
    step_wait = env.step_wait

    def spy() -> Any:
        result = step_wait()
        seen.extend(result[3])
        return result

    env.step_wait = spy
    log = ShapingCallback(log_every=10**6)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu", seed=0)
    writer = Kept()
    model.set_logger(Logger(None, [writer]))
    model.learn(16, callback=log)
    (entry,) = log.history
    for key in ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward"):
        assert entry[key] == pytest.approx(np.mean([info[key] for info in seen]))
    corrected = np.mean([info["shaping_correction"] != 0.0 for info in seen])
    assert entry["corrected_share"] == pytest.approx(corrected)
    assert 0.0 < corrected < 1.0  # ζ is 1 for the first four steps
    assert entry["zeta"] == 0.5  # eight steps are two updates of four
    returns = np.sum([info["extrinsic_reward"] for info in seen]) / 4  # 2 rows × 2 episodes
    assert entry["extrinsic_return"] == pytest.approx(returns)
    assert all(writer.values[f"shaping/{k}"] == v for k, v in entry.items() if k != "timesteps")


def test_callback_without_shaping_logs_nothing() -> None:
    log = ShapingCallback(log_every=1)
    settings = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "device": "cpu"}
    model = PPO("MlpPolicy", SB3VecEnv(vector_env(Bandit, 2)), **settings)
    model.learn(16, callback=log)
    assert log.history == []


def test_images_of_envs_that_render() -> None:
    env = gym.make_vec(
        "adops/LoopFarm-v0",
        num_envs=2,
        autoreset_mode=AutoresetMode.SAME_STEP,
        render_mode="rgb_array",
    )
    adapted = SB3VecEnv(env)
    adapted.reset()
    images = adapted.get_images()
    assert len(images) == 2
    assert all(image.ndim == 3 and image.shape[2] == 3 for image in images)


def test_batched_dict_of_final_observations() -> None:
    """A vector env may batch the final observations of a Dict space instead of listing them."""

    class Batched(vector.NoShapingWrapper):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            final = info.get("final_obs")
            if final is not None:
                blank = {"a": np.zeros(3), "b": np.int64(0)}
                rows = [blank if row is None else row for row in final]
                info = {**info, "final_obs": {k: np.stack([r[k] for r in rows]) for k in blank}}
            return *rest, info

    listed = NoShapingWrapper(
        IntrinsicRewardWrapper(vector_env(lambda: tk.ScriptedEnv("dict"), 2), tk.source)
    )
    batched = Batched(
        IntrinsicRewardWrapper(vector_env(lambda: tk.ScriptedEnv("dict"), 2), tk.source)
    )
    envs = [SB3VecEnv(listed), SB3VecEnv(batched)]
    for env in envs:
        env.seed(0)
        env.reset()
    ends = 0
    for _ in range(20):
        (_, _, dones, first), (_, _, _, second) = (env.step(np.zeros(2, int)) for env in envs)
        for row in np.flatnonzero(dones):
            ends += 1
            left, right = (infos[row]["terminal_observation"] for infos in (first, second))
            np.testing.assert_array_equal(left["a"], right["a"])
            assert left["b"] == right["b"]
    assert ends > 4


class Optional(tk.ScriptedEnv):
    """Notes the options of its resets."""

    options: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.options = options
        return super().reset(seed=seed, options=options)


def test_options_reach_the_next_reset_and_only_that() -> None:
    base = vector_env(Optional, 2)
    env = SB3VecEnv(NoShapingWrapper(IntrinsicRewardWrapper(base, tk.source)))
    env.set_options({"level": 3})
    env.reset()
    assert [sub.unwrapped.options for sub in base.envs] == [{"level": 3}] * 2
    env.reset()
    assert [sub.unwrapped.options for sub in base.envs] == [None] * 2
    env.set_options([{"level": np.ones(2)}] * 2)
    env.reset()
    assert base.envs[1].unwrapped.options["level"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="one set of options for all its environments"):
        env.set_options([{"level": 1}, {"level": 2}])


@pytest.mark.parametrize("kind", ["handle", "function", "learning"])
@pytest.mark.filterwarnings("ignore")
def test_critic_in_a_subprocess_worker_is_noticed(kind: str, capfd: Any) -> None:
    critic: Any = {
        "handle": CriticHandle(tk.critic),
        "function": tk.critic,
        "learning": TDCritic(tk.ScriptedEnv().observation_space),
    }[kind]

    def make() -> Any:
        return ADOPSWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), critic)

    env = SubprocVecEnv([make] * 2, start_method="fork")
    with pytest.raises((EOFError, ConnectionError)):
        env.reset()
    assert "adops_wrappers.sb3.SB3VecEnv" in capfd.readouterr().err
    for process in env.processes:
        process.terminate()
        process.join()


@pytest.mark.filterwarnings("ignore")
def test_learning_critic_made_inside_a_worker_learns_there() -> None:
    def make() -> Any:
        env = tk.ScriptedEnv()
        critic = TDCritic(env.observation_space, batch_size=16)
        env = ADOPSWrapper(IntrinsicRewardWrapper(env, tk.source), critic)
        env.critic = critic
        return env

    env = SubprocVecEnv([make] * 2, start_method="fork")
    env.reset()
    for _ in range(40):
        env.step(np.zeros(2, dtype=np.int64))
    assert all(critic.updates > 0 for critic in env.get_attr("critic"))
    env.close()
